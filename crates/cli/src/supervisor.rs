//! When the two processes of a tunnel for devices are started, told to end and replaced: decided here, done elsewhere.
//!
//! A [`Supervisor`] is told what has happened, and then asked for the [`Step`]s that follow until the step is to wait.
//! Where one process has ended the other has a [`MOMENT`] to tell its side so; it is killed then. A pair that died is
//! replaced, unless its client ended because it wanted to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quictun_args::fault::Exit;
use rustix::process::Signal;

/// Time that one process has to tell its side that the other is gone.
const MOMENT: Duration = Duration::from_millis(300);

/// A pair that has lived for so long was in order: the next one is started at once.
const SOUND: Duration = Duration::from_secs(1);

/// The pause between a pair that died at once and the next one, at first.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest such pause: applications that wait for the tunnel would notice more.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// From here on exit codes are signals.
const KILLED: u8 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Netstackd,
    Client,
}

/// What the processes serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// A host: the client gets the signals, and all ends with it.
    Host,
    /// A command: all ends with it or by a signal. In one process there is a client without a `netstackd`.
    Command { one_process: bool },
}

/// The exit codes of those that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) netstackd: Option<u8>,
    pub(crate) client: Option<u8>,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Signal(Role, Signal),
    /// Reset the connections that went through the device: no process knows of them any more.
    Reset,
    /// Tell the user that this process has died, and that a new pair follows.
    Tell(Role),
    Start,
    /// Give the device up: no process will serve it.
    LetGo,
    /// Wait for what happens, until then at most.
    Wait(Option<Instant>),
    End(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) code: u8,
    /// This was asked of us or of the client.
    pub(crate) asked: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Serving,
    /// One has ended, and the other is about to end.
    Ending {
        first: Role,
        /// When the other is killed, unless it was.
        kill: Option<Instant>,
    },
    /// Both have ended, and new ones are started then.
    Paused(Instant),
    /// No process serves the command any more, and it runs on.
    Unserved,
    Over(End),
}

/// Decides about a pair of processes, of which the first has been started.
#[derive(Debug)]
pub(crate) struct Supervisor {
    serves: For,
    state: State,
    ended: Ended,
    /// The last signal that asked this process to end while a pair was there.
    asked: Option<Signal>,
    /// The code of a client that ended because it wanted to, and left the command alone.
    pub(crate) unserved: Option<u8>,
    steps: VecDeque<Step>,
    started: Instant,
    pause: Duration,
}

impl Supervisor {
    pub(crate) fn new(serves: For, now: Instant) -> Self {
        Self {
            serves,
            state: State::Serving,
            ended: Ended::default(),
            asked: None,
            unserved: None,
            steps: VecDeque::new(),
            started: now,
            pause: Duration::ZERO,
        }
    }

    /// What is to be done next.
    pub(crate) fn next(&mut self, now: Instant) -> Step {
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
                    None => Role::Client,
                    Some(_) => Role::Netstackd,
                };
                Step::Signal(other, Signal::KILL)
            }
            State::Paused(until) if until <= now => {
                self.ended = Ended::default();
                self.state = State::Serving;
                Step::Start
            }
            State::Ending { kill, .. } => Step::Wait(kill),
            State::Paused(until) => Step::Wait(Some(until)),
            State::Serving | State::Unserved => Step::Wait(None),
            State::Over(end) => Step::End(end),
        }
    }

    /// Takes note of who has ended so far.
    pub(crate) fn ended(&mut self, ended: Ended, now: Instant) {
        self.ended = ended;
        let kill = Some(now + MOMENT);
        match (self.state, ended.netstackd, ended.client) {
            (State::Serving, _, Some(code))
                if self.serves == (For::Command { one_process: true }) =>
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
                // The other resets what is left by itself.
                let first = Role::Client;
                self.state = State::Ending { first, kill };
            }
            // A stack ends in order where its client, which takes longer, is about to end.
            (State::Serving, Some(0), None) if self.asked.is_none() => {
                let first = Role::Client;
                self.state = State::Ending { first, kill };
            }
            // A client that was asked to end does so in its own time.
            (State::Serving, Some(_), None) if self.asked.is_none() => {
                // It resets its streams by itself, and has a moment to say so.
                self.steps
                    .push_back(Step::Signal(Role::Client, Signal::TERM));
                let first = Role::Netstackd;
                self.state = State::Ending { first, kill };
            }
            _ => {}
        }
    }

    /// Takes note of a signal to this process.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let pair = matches!(self.state, State::Serving | State::Ending { .. });
        let hangup = signal == Signal::HUP;
        match (self.serves, self.state) {
            (_, State::Over(_)) => {}
            (For::Host, _) if pair => {
                // At a hangup the client opens its logs again, and goes on.
                self.asked = Some(signal).filter(|_| !hangup).or(self.asked);
                if self.ended.client.is_none() {
                    self.steps.push_back(Step::Signal(Role::Client, signal));
                }
            }
            // No process has logs that could be opened again: the next client opens its own anyway.
            (For::Host, _) if hangup => {}
            (For::Command { .. }, State::Ending { .. }) => self.asked = Some(signal),
            _ => self.end_by(signal),
        }
    }

    /// Takes note of the command's end.
    pub(crate) fn command_ended(&mut self, code: u8) {
        self.state = State::Over(End { code, asked: false });
    }

    fn both_ended(&mut self, first: Role, client: u8, now: Instant) {
        self.steps.push_back(Step::Reset);
        let by_itself = first == Role::Client && !has_crashed(client);
        match self.serves {
            For::Host if self.asked.is_some() || by_itself => {
                let asked = self.asked.is_some() || client == 0;
                self.state = State::Over(End {
                    code: client,
                    asked,
                });
            }
            For::Command { .. } if by_itself => {
                self.steps.push_back(Step::LetGo);
                self.unserved = Some(client);
                self.state = State::Unserved;
            }
            _ => {
                self.steps.push_back(Step::Tell(first));
                self.state = State::Paused(now + self.pause(now));
            }
        }
        if let (For::Command { .. }, Some(signal)) = (self.serves, self.asked) {
            self.end_by(signal);
        }
    }

    fn end_by(&mut self, signal: Signal) {
        let code = u8::try_from(i32::from(KILLED) + signal.as_raw()).unwrap_or(u8::MAX);
        self.state = State::Over(End { code, asked: true });
    }

    /// A pair has died: how long to wait before the next.
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

/// The one that died first where both were found to have ended.
///
/// A stack ends in order once its client is gone; a client without its stack says that it has crashed.
fn first(netstackd: u8, client: u8) -> Role {
    if has_crashed(netstackd) && client == Exit::Crashed as u8 {
        Role::Netstackd
    } else {
        Role::Client
    }
}

/// Whether a process that ended so did not mean to.
fn has_crashed(code: u8) -> bool {
    code == Exit::Crashed as u8 || code >= KILLED
}

#[cfg(test)]
mod tests;
