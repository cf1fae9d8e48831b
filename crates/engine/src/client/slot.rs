//! One wanted connection: attempts, races between addresses, and waits between attempts.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_flow::{BondKey, ConnectionKey};

use crate::loss::LossReason;
use crate::report::ServerId;
use crate::traffic::Ended;

/// Head start of one address over the next (RFC 8305 section 5).
const RACE_STEP: Duration = Duration::from_millis(250);

/// Longest wait between attempts; the first retry comes at once.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
const BACK_OFF_FIRST: Duration = Duration::from_millis(200);

/// Age of the latest attempt at which a new one is faster than its next packet: the library sends the first one again after
/// 1 s, and then ever more rarely (RFC 9002 section 6.2).
const STALE: Duration = Duration::from_secs(1).saturating_sub(RACE_STEP);

/// Failures after which the wait has reached its longest.
const FAILURES_MAX: u32 = 8;

#[derive(Debug)]
pub(super) struct Slot {
    /// The server that its connections lead to.
    pub(super) server: ServerId,
    state: State,
    failures: u32,
    /// Attempts that timed out since there was a connection.
    timeouts: u32,
    /// The server has refused this client: another network changes nothing about that.
    refused: bool,
    spare: bool,
    /// The bond of its connections.
    pub(super) bond: Option<BondKey>,
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
struct Race {
    attempts: Vec<ConnectionKey>,
    tried: Vec<SocketAddr>,
    next: VecDeque<SocketAddr>,
    next_at: Instant,
    last: Option<(SocketAddr, LossReason)>,
    timed_out: bool,
    /// Address with which the race began before the name was looked up: the last connection's.
    early: Option<SocketAddr>,
    /// Time at which the way is doubted, where no attempt has been answered by then.
    doubt_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum Step {
    Nothing,
    Resolve,
    Attempt,
    /// The connection was silent, and no attempt to make another one is answered either.
    Doubt,
    /// A connection is up and may have stopped answering.
    Check(ConnectionKey),
}

#[derive(Debug)]
pub(super) enum Next {
    Address(SocketAddr),
    Wait,
    Failed(Option<SocketAddr>, LossReason),
}

#[derive(Debug)]
pub(super) enum AfterEnd {
    Nothing,
    BackOff,
    Attempt,
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
            bond: None,
        }
    }

    pub(super) fn is_spare(&self) -> bool {
        self.spare
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Its connection, where there is one.
    pub(super) fn up(&self) -> Option<ConnectionKey> {
        match self.state {
            State::Up(key) => Some(key),
            _ => None,
        }
    }

    pub(super) fn is_resolving(&self) -> bool {
        matches!(self.state, State::Resolving)
    }

    /// Whether the connection is its own, or an attempt of it.
    pub(super) fn has(&self, key: ConnectionKey) -> bool {
        match &self.state {
            State::Up(up) => *up == key,
            State::Racing(race) => race.attempts.contains(&key),
            State::Idle | State::Resolving | State::Waiting(_) => false,
        }
    }

    /// Whether the next attempt should use the shorter `ClientHello`: every other one after a time-out.
    pub(super) fn wants_fallback(&self) -> bool {
        self.timeouts % 2 == 1
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Racing(race) => {
                let next = (!race.next.is_empty()).then_some(race.next_at);
                next.into_iter().chain(race.doubt_at).min()
            }
            State::Waiting(until) => Some(*until),
            State::Idle | State::Resolving | State::Up(_) => None,
        }
    }

    pub(super) fn step(&mut self, now: Instant) -> Step {
        if let State::Waiting(until) = self.state
            && until <= now
        {
            self.state = State::Idle;
            self.refused = false;
        }
        match &mut self.state {
            State::Idle => {
                self.state = State::Resolving;
                Step::Resolve
            }
            State::Racing(race) if race.doubt_at.is_some_and(|at| at <= now) => {
                race.doubt_at = None;
                Step::Doubt
            }
            State::Racing(race) if !race.next.is_empty() && race.next_at <= now => Step::Attempt,
            State::Up(key) => Step::Check(*key),
            State::Resolving | State::Racing(_) | State::Waiting(_) => Step::Nothing,
        }
    }

    pub(super) fn race(&mut self, now: Instant, addresses: &[SocketAddr]) {
        self.state = State::Racing(Box::new(Race {
            attempts: Vec::new(),
            tried: Vec::new(),
            next: addresses.iter().copied().collect(),
            next_at: now,
            last: None,
            timed_out: false,
            early: None,
            doubt_at: None,
        }));
    }

    /// Races for `address` until the name has been looked up. An answer should take no longer than `patience`.
    pub(super) fn race_early(&mut self, now: Instant, address: SocketAddr, patience: Duration) {
        self.race(now, &[address]);
        if let State::Racing(race) = &mut self.state {
            race.early = Some(address);
            race.doubt_at = Some(now + patience);
        }
    }

    /// Races for the same addresses again, beside the attempts that are under way.
    pub(super) fn race_again(&mut self, now: Instant) {
        if let State::Racing(race) = &mut self.state {
            race.next.extend(race.tried.drain(..));
            race.next_at = now;
            race.doubt_at = None;
        }
    }

    /// The name has been looked up: other addresses join a race that has begun early.
    pub(super) fn join_race(&mut self, now: Instant, addresses: &[SocketAddr]) {
        if let State::Racing(race) = &mut self.state
            && let Some(early) = race.early.take()
        {
            let others = addresses.iter().filter(|&&address| address != early);
            race.next.extend(others);
            race.next_at = now;
        }
    }

    pub(super) fn next_address(&mut self, now: Instant) -> Next {
        let State::Racing(race) = &mut self.state else {
            return Next::Wait;
        };
        if let Some(address) = race.next.pop_front() {
            race.next_at = now + RACE_STEP;
            race.tried.push(address);
            return Next::Address(address);
        }
        if !race.attempts.is_empty() {
            return Next::Wait;
        }
        if race.timed_out {
            self.timeouts = self.timeouts.saturating_add(1);
        }
        match race.last.take() {
            Some((remote, reason)) => Next::Failed(Some(remote), reason),
            None => Next::Failed(None, LossReason::TimedOut),
        }
    }

    pub(super) fn add_attempt(&mut self, key: ConnectionKey) {
        if let State::Racing(race) = &mut self.state {
            race.attempts.push(key);
        }
    }

    pub(super) fn note_failure(&mut self, address: SocketAddr, reason: LossReason) {
        if let State::Racing(race) = &mut self.state {
            race.last = Some((address, reason));
        }
    }

    /// Lets it wait before its next attempt; the first one follows at once. `jitter`: 0 to 1.
    pub(super) fn back_off(&mut self, now: Instant, jitter: f64) -> Duration {
        let wait = if self.failures == 0 {
            Duration::ZERO
        } else {
            let exponent = self.failures.min(FAILURES_MAX) - 1;
            let full = (BACK_OFF_FIRST * 2u32.pow(exponent)).min(BACK_OFF_MAX);
            full.mul_f64(0.5 + jitter / 2.0)
        };
        self.failures = self.failures.saturating_add(1);
        self.state = State::Waiting(now + wait);
        wait
    }

    /// The network has changed: nothing waits any more for what the old one said, or did not say.
    pub(super) fn hurry(&mut self, now: Instant) {
        match &mut self.state {
            State::Waiting(_) if !self.refused => self.state = State::Idle,
            // Beside the attempts that are under way: an answer to one of them may be.
            State::Racing(race) if now >= race.next_at + STALE => self.race_again(now),
            State::Idle
            | State::Resolving
            | State::Racing(_)
            | State::Up(_)
            | State::Waiting(_) => {}
        }
    }

    /// The first of its attempts has succeeded. Returns the others.
    pub(super) fn handle_connected(&mut self, key: ConnectionKey) -> Vec<ConnectionKey> {
        self.timeouts = 0;
        match std::mem::replace(&mut self.state, State::Up(key)) {
            State::Racing(mut race) => {
                race.attempts.retain(|&other| other != key);
                race.attempts
            }
            _ => Vec::new(),
        }
    }

    /// Gives it up. Returns its attempts.
    pub(super) fn into_attempts(self) -> Vec<ConnectionKey> {
        match self.state {
            State::Racing(race) => race.attempts,
            State::Idle | State::Resolving | State::Up(_) | State::Waiting(_) => Vec::new(),
        }
    }

    /// The connection is of no use for new flows.
    pub(super) fn vacate(&mut self) {
        self.state = State::Idle;
    }

    /// Its connection answers again before another one was made. Returns the attempts for that.
    pub(super) fn restore(&mut self, key: ConnectionKey) -> Option<Vec<ConnectionKey>> {
        if self.is_up() {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Up(key)) {
            State::Racing(race) => Some(race.attempts),
            _ => Some(Vec::new()),
        }
    }

    pub(super) fn handle_ended(&mut self, now: Instant, ended: &Ended) -> AfterEnd {
        // A server that lets us in and throws us out again must not be stormed.
        if self.is_up() && now >= ended.opened + BACK_OFF_MAX {
            self.failures = 0;
        }
        let reason = &ended.reason;
        if reason.is_refusal() {
            // PROTOCOL CODE-3: only an operator can help.
            self.refused = true;
            self.failures = self.failures.max(FAILURES_MAX);
        }
        match &mut self.state {
            State::Up(_) => AfterEnd::BackOff,
            State::Racing(race) => {
                race.attempts.retain(|&attempt| attempt != ended.key);
                race.timed_out |= *reason == LossReason::TimedOut;
                race.last = Some((ended.remote, reason.clone()));
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
