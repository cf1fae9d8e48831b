//! Whether the peer of a connection is heard, and when it is asked for a sign of life.

use std::time::Instant;

use quictun_congestion::Verdict;

use super::Connection;

impl Connection {
    /// Whether anything of the peer has arrived.
    pub(crate) fn has_answered(&self) -> bool {
        self.datagrams_received > 0
    }

    /// Whether the first datagram of the peer has arrived, and no other.
    pub(crate) fn has_just_answered(&self) -> bool {
        self.datagrams_received == 1
    }

    /// Whether flows should leave the connection: the peer is silent, or the connection is to be replaced.
    pub(crate) fn is_to_leave(&self) -> bool {
        self.is_suspect() || self.retiring
    }

    /// Whether the peer is silent for longer than the path explains.
    pub(crate) fn is_suspect(&self) -> bool {
        let suspect = self.bond.is_some() && self.liveness.suspect();
        suspect || self.liveness.unresponsive()
    }

    /// Time since which nothing moves on it: that of the first datagram that the peer has not answered.
    pub(crate) fn stalled_since(&self, now: Instant) -> Instant {
        self.liveness.owed_since().unwrap_or(now)
    }

    /// Data of a flow arrived that can continue on another connection: a silence after it is looked into soon. Only a client
    /// can make another connection.
    pub(crate) fn expect_more(&mut self) {
        if self.quic.side().is_client() {
            self.liveness.expect_more();
        }
    }

    /// Looks after a peer that is silent. Returns whether it has just become suspect or unresponsive.
    pub(crate) fn check_liveness(&mut self, now: Instant) -> Verdict {
        if !self.is_watched() {
            return Verdict::Fine;
        }
        let verdict = self.liveness.handle_timeout(now);
        if verdict == Verdict::Fine {
            return verdict;
        }
        // A client asks by itself; a server only needs to know while flows depend on the answer.
        if self.quic.side().is_server() && self.streams.is_empty() {
            self.liveness.excuse();
            return Verdict::Fine;
        }
        self.ask();
        verdict
    }

    /// Whether silence is to be noticed soon, because flows could continue on another connection. Only a client makes one.
    pub(super) fn has_flows_to_move(&self) -> bool {
        self.quic.side().is_client() && self.bond.is_some() && !self.streams.is_empty()
    }

    /// Asks the peer for a sign of life, whether or not the window has room.
    pub(crate) fn ask(&mut self) {
        if self.is_watched() {
            self.quic.ping();
            self.sending.allow(1);
            self.asking = true;
        }
    }

    pub(crate) fn is_unresponsive(&self) -> bool {
        self.liveness.unresponsive()
    }

    /// When an idle peer is to be asked whether it is there. It may be asked earlier, together with others.
    pub(crate) fn next_question(&self) -> Option<Instant> {
        (self.is_watched() && self.liveness.is_idle()).then(|| self.liveness.next_timeout())
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_established() && !self.quic.is_closed()
    }
}
