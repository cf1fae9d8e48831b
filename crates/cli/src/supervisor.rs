//! Decides when the two processes of a tunnel with a TUN device are started, ended and replaced. Other code carries the
//! decisions out.
//!
//! A caller reports each event to the [`Supervisor`], and then asks it for [`SupervisorStep`]s until one is to wait. If
//! one process has ended, the other one has a [`MOMENT`] to reset its connections and end, and is then killed. A pair
//! that died is replaced, unless its client ended on purpose.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quictun_args::fault::Exit;
use rustix::process::Signal;

/// Time that one process has to reset its connections after the other one has ended.
const MOMENT: Duration = Duration::from_millis(300);

/// Age from which a pair counts as sound, so that its replacement starts at once.
const SOUND: Duration = Duration::from_secs(1);

/// First pause before the replacement of a pair that died at its start. It doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(50);

/// Longest such pause: applications that wait for the tunnel would notice a longer one.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Smallest exit code that stands for a signal.
const KILLED: u8 = 128;

/// One of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairMember {
    Netstackd,
    Client,
}

/// The purpose of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairPurpose {
    /// The host: signals go to the client, and its end ends all.
    Host,
    /// A command: its end or a signal ends all. With `one_process`, there is only a client without a `netstackd`.
    Command { one_process: bool },
}

/// The exit codes of the processes that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExitCodes {
    pub(crate) netstackd: Option<u8>,
    pub(crate) client: Option<u8>,
}

/// The next action that the caller must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorStep {
    Signal(PairMember, Signal),
    /// Reset the connections that went through the device: no process holds their other end any more.
    Reset,
    /// Tell the user that this process has died, and that a new pair follows.
    Tell(PairMember),
    Start,
    /// Give up the device: no process will serve it again.
    ReleaseDevice,
    /// Wait for an event, at most until this moment.
    Wait(Option<Instant>),
    End(SupervisorEnd),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SupervisorEnd {
    pub(crate) code: u8,
    /// A signal, or the client's success, caused the end.
    pub(crate) asked: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Serving,
    /// One process has ended, and the other one is about to.
    Ending {
        first: PairMember,
        /// The moment at which the other process is killed; `None` once it has been.
        kill: Option<Instant>,
    },
    /// Both have ended, and a new pair starts at this moment.
    Paused(Instant),
    /// No process serves the command any more, but it runs on.
    Unserved,
    Over(SupervisorEnd),
}

/// Decides about a pair of processes. The caller has started the first pair already.
#[derive(Debug)]
pub(crate) struct Supervisor {
    serves: PairPurpose,
    state: State,
    ended: ExitCodes,
    /// The last signal that asked this process to end while a pair ran.
    asked: Option<Signal>,
    /// The exit code of a client that ended and is not replaced, while the command runs on.
    pub(crate) unserved: Option<u8>,
    steps: VecDeque<SupervisorStep>,
    started: Instant,
    pause: Duration,
}

impl Supervisor {
    pub(crate) fn new(serves: PairPurpose, now: Instant) -> Self {
        Self {
            serves,
            state: State::Serving,
            ended: ExitCodes::default(),
            asked: None,
            unserved: None,
            steps: VecDeque::new(),
            started: now,
            pause: Duration::ZERO,
        }
    }

    /// Returns the next action.
    pub(crate) fn next(&mut self, now: Instant) -> SupervisorStep {
        if let Some(step) = self.steps.pop_front() {
            return step;
        }
        match self.state {
            State::Ending {
                first,
                kill: Some(at),
            } if at <= now => {
                self.state = State::Ending { first, kill: None };
                let other = match self.ended.client {
                    None => PairMember::Client,
                    Some(_) => PairMember::Netstackd,
                };
                SupervisorStep::Signal(other, Signal::KILL)
            }
            State::Paused(until) if until <= now => {
                self.ended = ExitCodes::default();
                self.state = State::Serving;
                SupervisorStep::Start
            }
            State::Ending { kill, .. } => SupervisorStep::Wait(kill),
            State::Paused(until) => SupervisorStep::Wait(Some(until)),
            State::Serving | State::Unserved => SupervisorStep::Wait(None),
            State::Over(end) => SupervisorStep::End(end),
        }
    }

    /// Reports the exit codes of the processes that have ended so far.
    pub(crate) fn ended(&mut self, ended: ExitCodes, now: Instant) {
        self.ended = ended;
        let kill = Some(now + MOMENT);
        match (self.state, ended.netstackd, ended.client) {
            (State::Serving, _, Some(code))
                if self.serves == (PairPurpose::Command { one_process: true }) =>
            {
                self.unserved = Some(code);
                self.state = State::Unserved;
            }
            (State::Serving, Some(netstackd), Some(client)) => {
                self.both_ended(first(netstackd, client), client, now);
            }
            (State::Ending { first, .. }, Some(_), Some(client)) => {
                self.both_ended(first, client, now);
            }
            (State::Serving, None, Some(_)) => {
                // The network stack resets its connections by itself.
                let first = PairMember::Client;
                self.state = State::Ending { first, kill };
            }
            // A stack exits with 0 only if its client, which takes longer, is about to end.
            (State::Serving, Some(0), None) if self.asked.is_none() => {
                let first = PairMember::Client;
                self.state = State::Ending { first, kill };
            }
            // A client that was asked to end drains for as long as it needs.
            (State::Serving, Some(_), None) if self.asked.is_none() => {
                // The client resets its streams by itself, and has a moment to send that.
                self.steps
                    .push_back(SupervisorStep::Signal(PairMember::Client, Signal::TERM));
                let first = PairMember::Netstackd;
                self.state = State::Ending { first, kill };
            }
            _ => {}
        }
    }

    /// Reports a signal to this process.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let pair = matches!(self.state, State::Serving | State::Ending { .. });
        let hangup = signal == Signal::HUP;
        match (self.serves, self.state) {
            (_, State::Over(_)) => {}
            (PairPurpose::Host, _) if pair => {
                // On SIGHUP the client reopens its logs and continues.
                self.asked = Some(signal).filter(|_| !hangup).or(self.asked);
                if self.ended.client.is_none() {
                    self.steps
                        .push_back(SupervisorStep::Signal(PairMember::Client, signal));
                }
            }
            // No client runs, so no logs need to be reopened: the next client opens its own.
            (PairPurpose::Host, _) if hangup => {}
            (PairPurpose::Command { .. }, State::Ending { .. }) => self.asked = Some(signal),
            _ => self.end_by(signal),
        }
    }

    /// Reports the end of the command.
    pub(crate) fn command_ended(&mut self, code: u8) {
        self.state = State::Over(SupervisorEnd { code, asked: false });
    }

    fn both_ended(&mut self, first: PairMember, client: u8, now: Instant) {
        self.steps.push_back(SupervisorStep::Reset);
        let by_itself = first == PairMember::Client && !has_crashed(client);
        match self.serves {
            PairPurpose::Host if self.asked.is_some() || by_itself => {
                let asked = self.asked.is_some() || client == 0;
                self.state = State::Over(SupervisorEnd {
                    code: client,
                    asked,
                });
            }
            PairPurpose::Command { .. } if by_itself => {
                self.steps.push_back(SupervisorStep::ReleaseDevice);
                self.unserved = Some(client);
                self.state = State::Unserved;
            }
            _ => {
                self.steps.push_back(SupervisorStep::Tell(first));
                self.state = State::Paused(now + self.pause(now));
            }
        }
        if let (PairPurpose::Command { .. }, Some(signal)) = (self.serves, self.asked) {
            self.end_by(signal);
        }
    }

    fn end_by(&mut self, signal: Signal) {
        let code = u8::try_from(i32::from(KILLED) + signal.as_raw()).unwrap_or(u8::MAX);
        self.state = State::Over(SupervisorEnd { code, asked: true });
    }

    /// Returns the pause before the pair that replaces a dead one.
    fn pause(&mut self, now: Instant) -> Duration {
        self.pause = if now.saturating_duration_since(self.started) >= SOUND {
            Duration::ZERO
        } else {
            (2 * self.pause).clamp(PAUSE, PAUSE_MAX)
        };
        self.started = now + self.pause;
        self.pause
    }
}

/// Returns which process ended first if both were found to have ended.
///
/// A stack exits with 0 once its client is gone. A client without its stack exits with [`Exit::Crashed`].
fn first(netstackd: u8, client: u8) -> PairMember {
    if has_crashed(netstackd) && client == Exit::Crashed as u8 {
        PairMember::Netstackd
    } else {
        PairMember::Client
    }
}

/// Returns whether the exit code means that the process crashed.
fn has_crashed(code: u8) -> bool {
    code == Exit::Crashed as u8 || code >= KILLED
}

#[cfg(test)]
mod tests;
