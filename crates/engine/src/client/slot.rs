//! One wanted connection: races between addresses, and pauses between the races.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_flow::{BondKey, ConnectionKey};

use super::action::SlotAction;
use super::race::{RACE_STEP, Race};
use super::transfer_carrier::TransferCarrier;
use super::ways::{Candidate, Ways};
use crate::loss::LossReason;
use crate::report::ServerId;
use crate::traffic::EndedConnection;

/// Longest pauses between races; the first retry follows at once. `BACK_OFF_SILENT` is shorter: an unanswered race has
/// already taken ten seconds.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
const BACK_OFF_SILENT: Duration = Duration::from_secs(1);
const BACK_OFF_FIRST: Duration = Duration::from_millis(200);

/// Age from which the end of a connection does not lengthen the pauses. Chosen shorter than the time between two upgrades of a
/// server, and long for a server that admits this client and ejects it again.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Number of failures after which a silent server is tried less often: about ten minutes.
const OFTEN_FAILURES: u32 = 50;

/// Age of the latest attempt at which a new attempt is faster than the next packet of the old one. The library
/// retransmits the first packet after 1 s, and then at growing intervals (RFC 9002 section 6.2).
const STALE: Duration = Duration::from_secs(1).saturating_sub(RACE_STEP);

/// Number of failures after which the pause has its full length.
const FAILURES_MAX: u32 = 8;

#[derive(Debug)]
pub(super) struct Slot {
    /// The server that the slot's connections lead to.
    pub(super) server: ServerId,
    state: State,
    failures: u32,
    /// Number of races that timed out since the last connection.
    timeouts: u32,
    /// True if the server has refused this client. Another network does not change that.
    refused: bool,
    spare: bool,
    /// Address of the slot's last connection, if it fell silent. It may answer again before names can be resolved.
    silent: Option<SocketAddr>,
    /// The bond of the slot's connections.
    pub(super) bond: Option<BondKey>,
    /// Attempts by QUIC beside a connection that another carrier carries.
    probes: Vec<ConnectionKey>,
    pub(super) transfers: TransferCarrier,
}

#[derive(Debug)]
enum State {
    Idle,
    Resolving,
    Racing(Box<Race>),
    Up(ConnectionKey),
    Waiting(Instant),
}

#[derive(Debug)]
pub(super) enum NextAttempt {
    Candidate(Candidate),
    Wait,
    Failed(Option<SocketAddr>, LossReason),
}

#[derive(Debug)]
pub(super) enum AfterEnd {
    Nothing,
    BackOff,
    Attempt,
    /// The last probe has failed.
    Unprobed,
}

impl Slot {
    pub(super) fn new(server: ServerId, spare: bool) -> Self {
        Self {
            server,
            state: State::Idle,
            failures: 0,
            timeouts: 0,
            refused: false,
            spare,
            silent: None,
            bond: None,
            probes: Vec::new(),
            transfers: TransferCarrier::new(),
        }
    }

    pub(super) fn is_spare(&self) -> bool {
        self.spare
    }

    /// Marks the slot as spare: it is kept only for the sake of its flows.
    pub(super) fn become_spare(&mut self) {
        self.spare = true;
    }

    /// Returns whether the slot has no bond, and dials nothing yet.
    pub(super) fn is_new(&self) -> bool {
        self.bond.is_none() && matches!(self.state, State::Idle)
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Returns the slot's connection, if it has one.
    pub(super) fn up(&self) -> Option<ConnectionKey> {
        match self.state {
            State::Up(key) => Some(key),
            _ => None,
        }
    }

    pub(super) fn is_resolving(&self) -> bool {
        matches!(self.state, State::Resolving)
    }

    /// Returns whether `key` is the slot's connection or one of its attempts.
    pub(super) fn has(&self, key: ConnectionKey) -> bool {
        self.up() == Some(key) || self.under_way().any(|attempt| attempt == key)
    }

    /// Adds an attempt by QUIC beside the slot's connection.
    pub(super) fn add_probe(&mut self, key: ConnectionKey) {
        self.probes.push(key);
    }

    pub(super) fn has_probe(&self, key: ConnectionKey) -> bool {
        self.probes.contains(&key)
    }

    pub(super) fn is_probing(&self) -> bool {
        !self.probes.is_empty()
    }

    /// Returns whether the next attempt should use the shorter `ClientHello`. Every other one after a timeout does.
    pub(super) fn wants_fallback(&self) -> bool {
        self.timeouts % 2 == 1
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Racing(race) => race.next_timeout(),
            State::Waiting(until) => Some(*until),
            State::Idle | State::Resolving | State::Up(_) => None,
        }
    }

    pub(super) fn next_action(&mut self, now: Instant) -> SlotAction {
        if let State::Waiting(until) = self.state
            && until <= now
        {
            self.state = State::Idle;
            self.refused = false;
        }
        match &mut self.state {
            State::Idle => {
                self.state = State::Resolving;
                SlotAction::Race
            }
            State::Racing(race) => race.next_action(now),
            State::Resolving | State::Up(_) | State::Waiting(_) => SlotAction::Nothing,
        }
    }

    /// Begins a race. `unresolved` is the reason why there are no other ways.
    pub(super) fn race(&mut self, now: Instant, ways: &Ways, unresolved: Option<String>) {
        let mut race = Box::new(Race::new(now, ways));
        race.unresolved = unresolved;
        self.state = State::Racing(race);
    }

    /// Returns the address of the silent connection, at which a race can begin before the name has been resolved.
    pub(super) fn silent(&self) -> Option<SocketAddr> {
        self.silent
    }

    /// Begins a race for the silent address until the name has been resolved.
    pub(super) fn race_early(&mut self, now: Instant, ways: &Ways) {
        self.race(now, ways, None);
        if let State::Racing(race) = &mut self.state {
            race.early = true;
        }
    }

    /// Doubts the path if the slot's attempts are not answered within `answer_time`.
    pub(super) fn expect_answer_within(&mut self, now: Instant, answer_time: Duration) {
        if let State::Racing(race) = &mut self.state {
            race.answer_due = Some(now + answer_time);
        }
    }

    /// Races for the same addresses again, beside the attempts in progress.
    pub(super) fn race_again(&mut self, now: Instant) {
        if let State::Racing(race) = &mut self.state {
            race.repeat(now, false);
            race.answer_due = None;
        }
    }

    /// Tries the same addresses beside attempts that are not answered, if that is `wanted`, and schedules the next
    /// check. `jitter` is from 0 to 1. Returns whether the slot tries.
    pub(super) fn attempt_again_beside(&mut self, now: Instant, jitter: f64, wanted: bool) -> bool {
        let State::Racing(race) = &mut self.state else {
            return false;
        };
        race.ask_again(now, jitter);
        let tries = wanted && self.failures < OFTEN_FAILURES;
        if tries {
            race.repeat(now, true);
        }
        tries
    }

    /// Returns the slot's attempts that have not ended, and its probes.
    pub(super) fn under_way(&self) -> impl Iterator<Item = ConnectionKey> {
        let race = match &self.state {
            State::Racing(race) => Some(race),
            State::Idle | State::Resolving | State::Up(_) | State::Waiting(_) => None,
        };
        let attempts = race.into_iter().flat_map(|race| race.under_way());
        attempts.chain(self.probes.iter().copied())
    }

    /// Handles an answer to one of the attempts. If there are attempts beside, the race waits for the answered one
    /// alone, and the others are returned.
    pub(super) fn handle_answered(&mut self, attempt: ConnectionKey) -> Vec<ConnectionKey> {
        match &mut self.state {
            State::Racing(race) => race.handle_answered(attempt),
            State::Idle | State::Resolving | State::Up(_) | State::Waiting(_) => Vec::new(),
        }
    }

    /// Adds the ways to the resolved addresses to a race that began before the name was resolved.
    pub(super) fn join_race(&mut self, now: Instant, ways: &Ways) {
        if let State::Racing(race) = &mut self.state
            && std::mem::take(&mut race.early)
        {
            race.join(now, ways);
            // If the name no longer leads there, the silent address is not tried again.
            self.silent = self.silent.filter(|address| ways.has(*address));
        }
    }

    /// Records that a name could not be resolved. A race that began early continues.
    pub(super) fn note_unresolved(&mut self, error: &str) {
        if let State::Racing(race) = &mut self.state
            && race.early
        {
            race.unresolved = Some(error.to_owned());
        }
    }

    pub(super) fn next_candidate(&mut self, now: Instant) -> NextAttempt {
        let State::Racing(race) = &mut self.state else {
            return NextAttempt::Wait;
        };
        if let Some(candidate) = race.next_candidate(now) {
            return NextAttempt::Candidate(candidate);
        }
        if !race.attempts.is_empty() {
            return NextAttempt::Wait;
        }
        if race.timed_out {
            self.timeouts = self.timeouts.saturating_add(1);
        }
        let (remote, reason) = race.failure();
        NextAttempt::Failed(remote, reason)
    }

    /// Adds an attempt to the race. `jitter` is from 0 to 1.
    pub(super) fn add_attempt(&mut self, now: Instant, key: ConnectionKey, jitter: f64) {
        if let State::Racing(race) = &mut self.state {
            race.ask_again(now, jitter);
            race.push(key);
        }
    }

    /// Begins an attempt by TLS at this address that waits for one by QUIC.
    pub(super) fn handle_udp_rejected(&mut self, now: Instant, address: SocketAddr) {
        if let State::Racing(race) = &mut self.state
            && race.awaits_quic(address)
        {
            race.next_at = race.next_at.min(now);
        }
    }

    pub(super) fn note_failure(&mut self, address: SocketAddr, reason: LossReason) {
        if let State::Racing(race) = &mut self.state {
            race.last = Some((address, reason));
        }
    }

    /// Starts the pause before the next race, which is zero after the first failure. `jitter` is from 0 to 1. Returns
    /// the pause.
    pub(super) fn back_off(&mut self, now: Instant, jitter: f64, reason: &LossReason) -> Duration {
        let silent = *reason == LossReason::TimedOut || self.silent.is_some();
        let wait = if self.failures == 0 {
            Duration::ZERO
        } else {
            let most = if silent && self.failures < OFTEN_FAILURES {
                BACK_OFF_SILENT
            } else {
                BACK_OFF_MAX
            };
            let exponent = self.failures.min(FAILURES_MAX) - 1;
            let full = (BACK_OFF_FIRST * 2u32.pow(exponent)).min(most);
            full.mul_f64(0.5 + jitter / 2.0)
        };
        self.failures = self.failures.saturating_add(1);
        self.state = State::Waiting(now + wait);
        wait
    }

    /// Handles a change of the network: ends the pause that failures on the old network have caused.
    pub(super) fn redial_now(&mut self, now: Instant) {
        match &mut self.state {
            State::Waiting(_) if !self.refused => self.state = State::Idle,
            // Beside the attempts in progress, because an answer to one of them may be on its way.
            State::Racing(race) if now >= race.next_at + STALE => self.race_again(now),
            State::Idle
            | State::Resolving
            | State::Racing(_)
            | State::Up(_)
            | State::Waiting(_) => {}
        }
    }

    /// Handles the success of the first attempt, or of a probe. Returns the connection that it replaces, and the other
    /// attempts. Those that `probes` selects continue beside the connection.
    pub(super) fn handle_connected(
        &mut self,
        key: ConnectionKey,
        probes: impl Fn(ConnectionKey) -> bool,
    ) -> (Option<ConnectionKey>, Vec<ConnectionKey>) {
        self.timeouts = 0;
        self.silent = None;
        let replaced = self.up();
        let others = self.under_way().filter(|&other| other != key);
        let (probes, others) = others.partition(|&other| probes(other));
        self.probes = probes;
        self.state = State::Up(key);
        (replaced, others)
    }

    /// Gives up a connection that cannot take new flows.
    pub(super) fn vacate(&mut self) {
        self.state = State::Idle;
        self.silent = None;
    }

    /// Gives up a connection because the server no longer answers at this address.
    pub(super) fn leave_silent(&mut self, resolved: SocketAddr) {
        self.vacate();
        self.silent = Some(resolved);
    }

    /// Takes back a connection that answers again before another one was made. Returns the attempts that are no longer
    /// needed, or `None` if the slot has a connection.
    pub(super) fn restore(&mut self, key: ConnectionKey) -> Option<Vec<ConnectionKey>> {
        if self.is_up() {
            return None;
        }
        self.silent = None;
        match std::mem::replace(&mut self.state, State::Up(key)) {
            State::Racing(race) => Some(race.under_way().collect()),
            _ => Some(Vec::new()),
        }
    }

    pub(super) fn handle_ended(&mut self, now: Instant, ended: &EndedConnection) -> AfterEnd {
        if let Some(place) = self.probes.iter().position(|&probe| probe == ended.key) {
            self.probes.swap_remove(place);
            return if self.probes.is_empty() {
                AfterEnd::Unprobed
            } else {
                AfterEnd::Nothing
            };
        }
        if self.is_up() && now >= ended.opened + SETTLED_AFTER {
            self.failures = 0;
        }
        let reason = &ended.reason;
        if reason.is_refusal() {
            // PROTOCOL CODE-3: only an operator can help.
            self.refused = true;
            self.failures = self.failures.max(FAILURES_MAX);
        }
        if *reason != LossReason::TimedOut {
            self.silent = None;
        } else if self.is_up() {
            self.silent = Some(ended.resolved);
        }
        match &mut self.state {
            State::Up(_) => AfterEnd::BackOff,
            State::Racing(race) => {
                race.handle_ended(ended);
                if race.attempts.is_empty() {
                    AfterEnd::Attempt
                } else {
                    AfterEnd::Nothing
                }
            }
            State::Idle | State::Resolving | State::Waiting(_) => AfterEnd::Nothing,
        }
    }
}
