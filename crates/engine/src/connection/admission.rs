//! Whether a peer has shown who it is.

use std::time::Instant;

use crate::strangers::Source;

/// How far a peer has shown who it is.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    admitted: bool,
    /// Until when the peer must be admitted.
    deadline: Option<Instant>,
    /// Server: the source among whose strangers the connection has a place.
    place: Option<Source>,
    /// Server: the latest proof of a pre-shared secret that the client has sent, right or wrong.
    proof: Option<[u8; 32]>,
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

    /// The peer has to be admitted until `deadline`.
    pub(crate) fn expect_by(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Until when the peer must be admitted.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the deadline has passed; it is told once.
    pub(crate) fn take_late(&mut self, now: Instant) -> bool {
        let late = self.deadline.is_some_and(|at| at <= now);
        if late {
            self.deadline = None;
        }
        late
    }

    /// Server: the connection takes a stranger's place.
    pub(crate) fn take_place(&mut self, source: Source) {
        self.place = Some(source);
    }

    /// Server: the connection gives its place back.
    pub(crate) fn give_place_back(&mut self) -> Option<Source> {
        self.place.take()
    }

    /// Server: the client has sent a proof of a pre-shared secret.
    pub(crate) fn note_proof(&mut self, proof: Option<[u8; 32]>) {
        self.proof = proof;
    }

    /// Server: a request came with a proof.
    pub(crate) fn note_request_proof(&mut self, proof: Option<[u8; 32]>) {
        self.proof = proof.or(self.proof);
    }

    /// The proof that the client had sent when it was admitted, and the latest.
    pub(crate) fn proofs(&self) -> [Option<[u8; 32]>; 2] {
        [self.admitted_by, self.proof]
    }
}
