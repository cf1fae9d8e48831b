//! Admission: whether a peer has identified itself.

use std::time::Instant;

use crate::strangers::SourcePrefix;

#[derive(Debug, Default)]
pub(crate) struct Admission {
    admitted: bool,
    /// Time by which the peer must be admitted.
    pub(crate) deadline: Option<Instant>,
    /// Server: the source that the connection is counted for, while it holds a place among strangers.
    pub(crate) place: Option<SourcePrefix>,
    /// Server: the number of bytes of the client's certificates, which the TLS library keeps.
    pub(crate) certificates: u32,
    /// Server: the latest proof of a pre-shared secret that the client has sent, right or wrong.
    pub(crate) proof: Option<[u8; 32]>,
    /// The proof that the client had sent when it was admitted.
    admitted_by: Option<[u8; 32]>,
}

impl Admission {
    /// Server: returns whether the client is known, or need not be. Client: returns whether the server has admitted it.
    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Admits the peer. Returns false if it was admitted before.
    pub(crate) fn admit(&mut self) -> bool {
        self.deadline = None;
        self.admitted_by = self.proof;
        !std::mem::replace(&mut self.admitted, true)
    }

    /// Makes the deadline earlier. Returns false if it was not later than `by`, or if there is none.
    pub(crate) fn hurry(&mut self, by: Instant) -> bool {
        let later = self.deadline.is_some_and(|at| at > by);
        if later {
            self.deadline = Some(by);
        }
        later
    }

    /// Returns whether the deadline has passed. Returns true only once.
    pub(crate) fn take_late(&mut self, now: Instant) -> bool {
        let late = self.deadline.is_some_and(|at| at <= now);
        if late {
            self.deadline = None;
        }
        late
    }

    /// Returns the proof that the client had sent when it was admitted, and the latest one.
    pub(crate) fn proofs(&self) -> [Option<[u8; 32]>; 2] {
        [self.admitted_by, self.proof]
    }
}
