//! Liveness of a connection's peer: whether it is heard, and when to send it a keep-alive.

use std::time::{Duration, Instant};

use quictun_congestion::{LateAnswer, TimeoutAction};

use super::Connection;

impl Connection {
    /// Returns whether anything from the peer has arrived.
    pub(crate) fn has_answered(&self) -> bool {
        self.carrier.arrivals() > 0
    }

    /// Returns whether exactly one datagram from the peer has arrived.
    pub(crate) fn has_just_answered(&self) -> bool {
        self.carrier.arrivals() == 1
    }

    /// Returns whether flows should leave the connection: the peer is silent, or the connection is to be replaced.
    pub(crate) fn is_to_leave(&self) -> bool {
        self.is_suspect() || self.is_retired()
    }

    /// Returns whether the peer has been silent for longer than the path explains.
    pub(crate) fn is_suspect(&self) -> bool {
        let suspect = self.bond.is_some() && self.liveness.suspect();
        suspect || self.liveness.unresponsive()
    }

    /// Returns the time since which the connection has made no progress.
    pub(crate) fn stalled_since(&self, now: Instant) -> Instant {
        self.liveness.stalled_since().unwrap_or(now)
    }

    /// Returns when the peer was last heard.
    pub(crate) fn heard(&self) -> Instant {
        self.liveness.heard()
    }

    /// Returns whether anything from the peer has arrived at `at` or later.
    pub(crate) fn heard_since(&self, at: Instant) -> bool {
        self.heard() >= at
    }

    /// Takes the late answer of another connection. The reason may be this machine, so the server does not matter.
    pub(crate) fn remember(&mut self, late_answer: LateAnswer) {
        self.liveness.remember(late_answer);
    }

    /// Returns the late answer of the peer, for other connections.
    pub(crate) fn late_answer(&self) -> LateAnswer {
        self.liveness.late_answer()
    }

    /// Returns the time that an answer of the peer may take: a round trip, or longer if answers were late.
    pub(crate) fn answer_time(&self, now: Instant) -> Duration {
        self.late_answer().answer_time(now, self.path().rtt)
    }

    /// Returns since when the connection has been silent, if the peer has been silent for longer than the path explains.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        let stalled = self.liveness.stalled_since();
        self.is_suspect()
            .then(|| stalled.unwrap_or(self.liveness.heard()))
    }

    /// Records that data of a flow has arrived that could continue on another connection. A silence after it is then
    /// checked soon. Only a client can make another connection.
    pub(crate) fn expect_more(&mut self) {
        if !self.is_server() {
            self.liveness.expect_more();
        }
    }

    /// Checks a silent peer, and sends it a keep-alive if one is due. Returns the verdict on the silence.
    pub(crate) fn check_liveness(&mut self, now: Instant) -> TimeoutAction {
        if !self.is_watched() {
            return TimeoutAction::Fine;
        }
        let verdict = self.liveness.handle_timeout(now);
        if verdict == TimeoutAction::Fine {
            return verdict;
        }
        // A client asks by itself. A server needs to ask only while flows or a listener depend on the answer.
        if self.is_server() && self.streams.is_empty() && !self.has_listener {
            self.liveness.withdraw_unresponsive();
            return TimeoutAction::Fine;
        }
        self.send_ping();
        verdict
    }

    /// Returns whether a silence should be noticed soon, because flows could continue on another connection. Only a
    /// client makes one.
    pub(super) fn has_flows_to_move(&self) -> bool {
        !self.is_server() && self.bond.is_some() && !self.streams.is_empty()
    }

    /// Sends a PING as a keep-alive, whether or not the window has room.
    pub(crate) fn send_ping(&mut self) {
        if self.is_watched() {
            self.carrier.ping();
            self.ping_pending = true;
        }
    }

    pub(crate) fn is_unresponsive(&self) -> bool {
        self.liveness.unresponsive()
    }

    /// Returns when the keep-alive to an idle peer is due. It may be sent earlier, together with others.
    pub(crate) fn next_ping(&self) -> Option<Instant> {
        (self.is_watched() && self.liveness.is_idle()).then(|| self.liveness.next_timeout())
    }

    /// Returns whether the silence of the peer is judged. A program that speaks HTTP cannot be asked: the system probes it.
    pub(super) fn is_watched(&self) -> bool {
        self.protocol.is_some_and(|it| !it.is_http()) && !self.carrier.is_closed()
    }
}
