//! A race between the ways to a server: the first successful attempt becomes its connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_flow::ConnectionKey;

use super::action::SlotAction;
use super::ways::{Candidate, Ways};
use crate::loss::LossReason;
use crate::report::CarrierKind;
use crate::traffic::EndedConnection;

/// Head start of one address over the next (RFC 8305 section 5).
pub(super) const RACE_STEP: Duration = Duration::from_millis(250);

/// Time after which all addresses are tried again beside attempts that are not answered. The library sends an attempt's
/// packets after 1 s, 3 s and 7 s. Together with the packets of the next attempt, no gap is longer than 2 s, so that a
/// client recovers soon after the network.
const AGAIN: Duration = Duration::from_secs(4);

#[derive(Debug)]
pub(super) struct Race {
    pub(super) attempts: Vec<ConnectionKey>,
    /// Attempts beside others that are not answered. The race does not wait for their end.
    pub(super) extra: Vec<ConnectionKey>,
    again_at: Option<Instant>,
    tried: Vec<Candidate>,
    next: VecDeque<Candidate>,
    /// True if new attempts belong to `extra`.
    adds_extra: bool,
    pub(super) next_at: Instant,
    pub(super) last: Option<(SocketAddr, LossReason)>,
    pub(super) timed_out: bool,
    /// True until the name is resolved, if the race has begun before that, at the address of the last connection.
    pub(super) early: bool,
    /// The resolver's error, if the name could not be resolved meanwhile.
    pub(super) unresolved: Option<String>,
    /// Time at which to doubt the path, if no attempt has been answered by then.
    pub(super) answer_due: Option<Instant>,
}

impl Race {
    pub(super) fn new(now: Instant, ways: &Ways) -> Self {
        Self {
            attempts: Vec::new(),
            extra: Vec::new(),
            again_at: None,
            tried: Vec::new(),
            next: ways.candidates().collect(),
            adds_extra: false,
            next_at: now,
            last: None,
            timed_out: false,
            early: false,
            unresolved: None,
            answer_due: None,
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let attempt = if self.next.is_empty() {
            self.again_at
        } else {
            Some(self.next_at)
        };
        attempt.into_iter().chain(self.answer_due).min()
    }

    pub(super) fn next_action(&mut self, now: Instant) -> SlotAction {
        if self.answer_due.take_if(|at| *at <= now).is_some() {
            return SlotAction::ReportUnanswered;
        }
        if !self.next.is_empty() {
            let due = self.next_at <= now;
            return if due {
                SlotAction::Attempt
            } else {
                SlotAction::Nothing
            };
        }
        match self.again_at.take_if(|at| *at <= now) {
            Some(_) => SlotAction::AttemptAgain,
            None => SlotAction::Nothing,
        }
    }

    pub(super) fn next_candidate(&mut self, now: Instant) -> Option<Candidate> {
        if self.adds_extra && self.attempts.is_empty() {
            // The attempts that the race waited for have ended.
            return None;
        }
        let candidate = self.next.pop_front()?;
        self.next_at = now + candidate.head_start;
        self.tried.push(candidate);
        Some(candidate)
    }

    /// Returns whether the next candidate is TLS, which waits for an attempt by QUIC at this address.
    pub(super) fn awaits_quic(&self, address: SocketAddr) -> bool {
        let tried = self.tried.last();
        let tried =
            tried.is_some_and(|it| (it.address, it.carrier) == (address, CarrierKind::Quic));
        let next = self.next.front();
        tried && next.is_some_and(|it| it.carrier == CarrierKind::Tls)
    }

    pub(super) fn push(&mut self, attempt: ConnectionKey) {
        if self.adds_extra {
            self.extra.push(attempt);
        } else {
            self.attempts.push(attempt);
        }
    }

    /// Tries all addresses again.
    pub(super) fn repeat(&mut self, now: Instant, extra: bool) {
        self.next.extend(self.tried.drain(..));
        self.next_at = now;
        self.adds_extra = extra;
    }

    /// Schedules the next check whether to try all addresses again. `jitter` is from 0 to 1.
    pub(super) fn ask_again(&mut self, now: Instant, jitter: f64) {
        self.again_at = Some(now + AGAIN.mul_f64(0.75 + jitter / 2.0));
    }

    /// Adds the ways to the resolved addresses, except those that the race has begun with.
    pub(super) fn join(&mut self, now: Instant, ways: &Ways) {
        let before = self.next.len();
        for way in ways.candidates() {
            let mut known = self.tried.iter().chain(&self.next);
            if !known.any(|known| known.is_same_way(&way)) {
                self.next.push_back(way);
            }
        }
        if before == 0 {
            self.next_at = now;
        }
        self.adds_extra = false;
    }

    /// Handles an answer to one of its attempts. If there are attempts in `extra`, the race continues with the
    /// answered one alone, and the others are returned.
    pub(super) fn handle_answered(&mut self, attempt: ConnectionKey) -> Vec<ConnectionKey> {
        if !self.under_way().any(|other| other == attempt) {
            return Vec::new();
        }
        // The path is alive. A change of the port would end a handshake that a busy server has begun.
        self.answer_due = None;
        if self.extra.is_empty() {
            return Vec::new();
        }
        let others = self.under_way().filter(|&other| other != attempt).collect();
        self.attempts = vec![attempt];
        self.extra.clear();
        self.tried.extend(self.next.drain(..));
        others
    }

    /// Returns the attempts that have not ended.
    pub(super) fn under_way(&self) -> impl Iterator<Item = ConnectionKey> {
        self.attempts.iter().chain(&self.extra).copied()
    }

    pub(super) fn handle_ended(&mut self, ended: &EndedConnection) {
        self.attempts.retain(|&other| other != ended.key);
        self.extra.retain(|&other| other != ended.key);
        let timed_out = ended.reason == LossReason::TimedOut;
        let of_proxy = matches!(ended.reason, LossReason::OutboundProxy(_));
        // A server need not listen for TLS. The failure of QUIC says more.
        if ended.carrier == CarrierKind::Quic || self.last.is_none() || of_proxy {
            self.timed_out |= timed_out;
            // Silence says less than a proxy, or than the program that answers in the server's place.
            let is_known = self.last.as_ref().is_some_and(|(_, last)| {
                matches!(last, LossReason::OutboundProxy(_) | LossReason::Protocol(_))
            });
            if !(timed_out && is_known) {
                self.last = Some((ended.remote, ended.reason.clone()));
            }
        }
    }

    /// Returns the last failure of the race.
    pub(super) fn failure(&mut self) -> (Option<SocketAddr>, LossReason) {
        match (self.last.take(), self.unresolved.take()) {
            (Some((_, LossReason::TimedOut)), Some(error)) => (None, LossReason::Resolve(error)),
            (Some((remote, reason)), _) => (Some(remote), reason),
            (None, _) => (None, LossReason::TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 7500).into()
    }

    #[test]
    fn the_path_is_in_doubt_only_until_an_attempt_is_answered() {
        let now = Instant::now();
        let due = now + Duration::from_millis(200);
        for answered in [false, true] {
            let quic = (&[CarrierKind::Quic][..], Duration::ZERO);
            let mut race = Race::new(now, &Ways::direct(&[address(1)], quic));
            assert!(race.next_candidate(now).is_some());
            race.push(ConnectionKey(1));
            race.answer_due = Some(due);
            if answered {
                assert_eq!(race.handle_answered(ConnectionKey(1)), []);
            }
            let doubted = matches!(race.next_action(due), SlotAction::ReportUnanswered);
            assert_eq!(doubted, !answered);
        }
    }

    fn ended(carrier: CarrierKind, reason: &LossReason) -> EndedConnection {
        EndedConnection {
            key: ConnectionKey(1),
            remote: address(1),
            resolved: address(1),
            opened: Instant::now(),
            established: false,
            place: None,
            reason: reason.clone(),
            carrier,
        }
    }

    #[test]
    fn the_reason_of_a_proxy_is_reported_and_not_the_silence_of_quic() {
        let now = Instant::now();
        let proxy = LossReason::OutboundProxy("the proxy wants a password".to_owned());
        let silent = LossReason::TimedOut;
        let refused = LossReason::Tcp("refused".to_owned());
        for (tls, quic, reported) in [
            (&proxy, &silent, &proxy),
            (&proxy, &LossReason::Reset, &LossReason::Reset),
            (&refused, &silent, &silent),
        ] {
            let quic_first = (&[CarrierKind::Quic][..], Duration::ZERO);
            let mut race = Race::new(now, &Ways::direct(&[address(1)], quic_first));
            race.handle_ended(&ended(CarrierKind::Tls, tls));
            race.handle_ended(&ended(CarrierKind::Quic, quic));
            assert_eq!(race.failure().1, *reported);
        }
        let mut race = Race::new(now, &Ways::direct(&[], (&[], Duration::ZERO)));
        race.handle_ended(&ended(CarrierKind::Quic, &silent));
        race.handle_ended(&ended(CarrierKind::Tls, &proxy));
        assert_eq!(race.failure().1, proxy);
    }
}
