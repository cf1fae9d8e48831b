//! Whether a peer has shown who it is.

use std::time::Instant;

use crate::strangers::Source;

#[derive(Debug, Default)]
pub(crate) struct Admission {
    admitted: bool,
    /// Until when the peer must be admitted.
    pub(crate) deadline: Option<Instant>,
    /// Server: the source among whose strangers the connection has a place.
    pub(crate) place: Option<Source>,
    /// Server: the latest proof of a pre-shared secret that the client has sent, right or wrong.
    pub(crate) proof: Option<[u8; 32]>,
    /// The one that it had sent when it was admitted.
    admitted_by: Option<[u8; 32]>,
}

impl Admission {
    /// Server: the peer is known, or need not be. Client: the server has said so.
    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// The peer is known. Returns whether that is new.
    pub(crate) fn admit(&mut self) -> bool {
        self.deadline = None;
        self.admitted_by = self.proof;
        !std::mem::replace(&mut self.admitted, true)
    }

    /// Whether the deadline has passed; it is told once.
    pub(crate) fn take_late(&mut self, now: Instant) -> bool {
        let late = self.deadline.is_some_and(|at| at <= now);
        if late {
            self.deadline = None;
        }
        late
    }

    /// The proof that the client had sent when it was admitted, and the latest.
    pub(crate) fn proofs(&self) -> [Option<[u8; 32]>; 2] {
        [self.admitted_by, self.proof]
    }
}
