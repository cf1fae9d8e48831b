//! An application at work on one connection.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::pattern;
use crate::script::{Read, Script, Write};
use crate::socket::{AppRead, AppSocket};

/// Most bytes moved between two looks at the clock and the peer.
const TURN: usize = 64 * 1024;

const ECHO_MAX: usize = 64 * 1024;

/// An application. It runs when its host says that its connection has news, or when it wanted to wake.
#[derive(Debug)]
pub struct App {
    name: String,
    pub(crate) socket: AppSocket,
    script: Script,
    writing: usize,
    reading: usize,
    /// Bytes done of the present write step.
    written: u64,
    /// Bytes done of the present read step.
    read: u64,
    write_wait: Option<Instant>,
    read_wait: Option<Instant>,
    echo: VecDeque<u8>,
    closed: bool,
    outcome: Outcome,
    scratch: Vec<u8>,
}

/// What an application has seen and done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When its connection was made.
    pub opened: Instant,
    /// Bytes its connection took from it.
    pub sent: u64,
    /// Bytes it received.
    pub received: u64,
    /// When the first byte came.
    pub first_byte: Option<Instant>,
    /// When the last byte came.
    pub last_byte: Option<Instant>,
    /// How what it receives has ended.
    pub incoming: Incoming,
    /// How what it sends has ended.
    pub outgoing: Outgoing,
    /// When both had ended.
    pub over: Option<Instant>,
}

/// How an application's incoming direction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// More may come.
    Open,
    /// The peer ended it (FIN).
    Fin,
    /// The connection was reset.
    Reset,
    /// The application itself has cut or closed it.
    Dropped,
}

/// How an application's outgoing direction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// It may send more.
    Open,
    /// It has ended it (FIN).
    Finished,
    /// It has cut it (RST).
    Aborted,
    /// The connection was reset.
    Reset,
}

impl Outcome {
    /// Whether nothing more can happen.
    pub fn is_over(&self) -> bool {
        self.incoming != Incoming::Open && self.outgoing != Outgoing::Open
    }

    /// Whether both directions ended with a FIN.
    pub fn is_clean(&self) -> bool {
        self.incoming == Incoming::Fin && self.outgoing == Outgoing::Finished
    }

    /// Whether it saw its connection being reset by the other side.
    pub fn was_reset(&self) -> bool {
        self.incoming == Incoming::Reset || self.outgoing == Outgoing::Reset
    }

    /// Time from its connection to the first byte it received.
    pub fn first_byte_after(&self) -> Option<Duration> {
        self.first_byte.map(|at| at - self.opened)
    }
}

impl App {
    pub(crate) fn new(name: String, socket: AppSocket, script: Script, now: Instant) -> Self {
        Self {
            name,
            socket,
            script,
            writing: 0,
            reading: 0,
            written: 0,
            read: 0,
            write_wait: None,
            read_wait: None,
            echo: VecDeque::new(),
            closed: false,
            outcome: Outcome {
                opened: now,
                sent: 0,
                received: 0,
                first_byte: None,
                last_byte: None,
                incoming: Incoming::Open,
                outgoing: Outgoing::Open,
                over: None,
            },
            scratch: Vec::new(),
        }
    }

    /// The token it was connected for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the application has seen and done.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Does what can be done now; returns when it wants to be woken.
    pub(crate) fn run(&mut self, now: Instant) -> Option<Instant> {
        loop {
            if self.closed {
                return None;
            }
            let read = self.run_read(now);
            let wrote = self.run_write(now);
            if !read && !wrote {
                break;
            }
        }
        if self.outcome.is_over() {
            self.outcome.over.get_or_insert(now);
            if self.writing >= self.script.write.len() || self.outcome.was_reset() {
                self.closed = true;
                self.socket.close();
                return None;
            }
        }
        // A wait that is over but still stands belongs to a direction that waits for something else.
        [self.write_wait, self.read_wait]
            .into_iter()
            .flatten()
            .filter(|&at| at > now)
            .min()
    }

    fn run_read(&mut self, now: Instant) -> bool {
        if self.outcome.incoming != Incoming::Open {
            return false;
        }
        if self.socket.is_reset() {
            self.see_reset();
            return true;
        }
        let Some(most) = self.appetite(now) else {
            return false;
        };
        self.scratch.clear();
        let looks = self.script.expects.is_some() || self.script.write.contains(&Write::Echo);
        // Most applications of a long run only count what comes.
        let into = looks.then_some(&mut self.scratch);
        match self.socket.read(into, most) {
            AppRead::Bytes(count) => {
                self.take(now, count);
                true
            }
            AppRead::Blocked => false,
            AppRead::Fin => {
                self.outcome.incoming = Incoming::Fin;
                true
            }
            AppRead::Reset => {
                self.see_reset();
                true
            }
        }
    }

    /// How many bytes it would read now; `None`: it does not read.
    fn appetite(&mut self, now: Instant) -> Option<usize> {
        if self.read_wait.is_some_and(|until| now < until) {
            return None;
        }
        if self.script.write.contains(&Write::Echo) && self.echo.len() >= ECHO_MAX {
            return None;
        }
        match self.script.read.get(self.reading) {
            None => Some(TURN),
            Some(Read::Bytes(most)) => {
                let left = most - self.read;
                if left == 0 {
                    self.next_read();
                    return self.appetite(now);
                }
                Some(TURN.min(usize::try_from(left).unwrap_or(TURN)))
            }
            Some(Read::Pause(time)) => {
                if self.read_wait.take().is_some() {
                    self.next_read();
                    return self.appetite(now);
                }
                self.read_wait = Some(now + *time);
                None
            }
            Some(Read::Slowly { bytes, .. }) => {
                self.read_wait = None;
                Some(usize::try_from(*bytes).unwrap_or(TURN).clamp(1, TURN))
            }
            Some(Read::Never) => None,
        }
    }

    fn next_read(&mut self) {
        self.reading += 1;
        self.read = 0;
    }

    fn take(&mut self, now: Instant, count: usize) {
        if let Some(seed) = self.script.expects
            && let Some(at) = pattern::first_difference(seed, self.outcome.received, &self.scratch)
        {
            panic!("{} received a wrong byte at offset {at}", self.name);
        }
        if self.script.write.contains(&Write::Echo) {
            self.echo.extend(&self.scratch);
        }
        self.outcome.received += count as u64;
        self.outcome.first_byte.get_or_insert(now);
        self.outcome.last_byte = Some(now);
        self.read += count as u64;
        if let Some(Read::Slowly { every, .. }) = self.script.read.get(self.reading) {
            self.read_wait = Some(now + *every);
        }
    }

    fn see_reset(&mut self) {
        if self.outcome.incoming == Incoming::Open {
            self.outcome.incoming = Incoming::Reset;
        }
        if self.outcome.outgoing == Outgoing::Open {
            self.outcome.outgoing = Outgoing::Reset;
        }
        (self.read_wait, self.write_wait) = (None, None);
    }

    fn run_write(&mut self, now: Instant) -> bool {
        let Some(&step) = self.script.write.get(self.writing) else {
            return false;
        };
        let ends = matches!(step, Write::Finish | Write::Abort | Write::Close);
        if self.outcome.outgoing != Outgoing::Open
            && !matches!(
                step,
                Write::Abort
                    | Write::Close
                    | Write::Wait(_)
                    | Write::Received(_)
                    | Write::ReceivedEnd
            )
        {
            return false;
        }
        if ends {
            self.end(step);
            self.writing += 1;
            return true;
        }
        let done = match step {
            Write::Send(bytes) => return self.send(bytes),
            Write::Echo => return self.send_echo(),
            Write::Wait(time) => {
                let until = *self.write_wait.get_or_insert(now + time);
                now >= until
            }
            Write::Received(bytes) => self.outcome.received >= bytes,
            Write::ReceivedEnd => self.outcome.incoming != Incoming::Open,
            Write::Finish | Write::Abort | Write::Close => true,
        };
        if done {
            self.write_wait = None;
            self.writing += 1;
        }
        done
    }

    fn end(&mut self, step: Write) {
        match step {
            Write::Finish => {
                self.socket.finish();
                self.outcome.outgoing = Outgoing::Finished;
            }
            Write::Abort => {
                self.socket.abort();
                self.outcome.outgoing = Outgoing::Aborted;
                self.drop_incoming();
            }
            _ => {
                self.socket.close();
                if self.outcome.outgoing == Outgoing::Open {
                    self.outcome.outgoing = Outgoing::Finished;
                }
                self.drop_incoming();
            }
        }
    }

    fn drop_incoming(&mut self) {
        if self.outcome.incoming == Incoming::Open {
            self.outcome.incoming = Incoming::Dropped;
        }
        (self.read_wait, self.write_wait) = (None, None);
    }

    fn send(&mut self, bytes: u64) -> bool {
        let left = bytes - self.written;
        if left == 0 {
            self.written = 0;
            self.writing += 1;
            return true;
        }
        let most = TURN.min(usize::try_from(left).unwrap_or(TURN));
        let part = pattern::bytes(self.script.sends, self.outcome.sent, most);
        match self.socket.write(part) {
            None => {
                self.see_reset();
                true
            }
            Some(taken) => {
                self.written += taken as u64;
                self.outcome.sent += taken as u64;
                taken > 0
            }
        }
    }

    fn send_echo(&mut self) -> bool {
        if self.echo.is_empty() {
            let ended = self.outcome.incoming != Incoming::Open;
            self.writing += usize::from(ended);
            return ended;
        }
        let (front, _) = self.echo.as_slices();
        match self.socket.write(front) {
            None => {
                self.see_reset();
                true
            }
            Some(taken) => {
                self.echo.drain(..taken);
                self.outcome.sent += taken as u64;
                taken > 0
            }
        }
    }
}
