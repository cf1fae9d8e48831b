//! A simulated application at one end of one connection.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::pattern;
use crate::script::{ReadStep, Script, WriteStep};
use crate::socket::{AppEnd, AppRead};

/// Maximum bytes moved by one read or write step, before the other direction gets its turn.
const TURN: usize = 64 * 1024;

const ECHO_MAX: usize = 64 * 1024;

/// An application that follows a [`Script`]. It runs when its host reports activity on the connection, and when a wait
/// of its script is over.
#[derive(Debug)]
pub struct App {
    name: String,
    pub(crate) socket: AppEnd,
    script: Script,
    writing: usize,
    reading: usize,
    /// Bytes already written in the current write step.
    written: u64,
    /// Bytes already read in the current read step.
    read: u64,
    write_wait: Option<Instant>,
    read_wait: Option<Instant>,
    echo: VecDeque<u8>,
    datagrams_sent: Vec<Bytes>,
    datagrams_received: Vec<Bytes>,
    closed: bool,
    outcome: AppOutcome,
    scratch: Vec<u8>,
}

/// A summary of what an application has observed and done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppOutcome {
    /// Time at which the connection was created.
    pub opened: Instant,
    /// Bytes that the connection accepted from the application.
    pub sent: u64,
    /// Bytes that the application received.
    pub received: u64,
    /// Time at which the first byte arrived.
    pub first_byte: Option<Instant>,
    /// Time of the latest byte so far.
    pub last_byte: Option<Instant>,
    /// State of the incoming direction.
    pub incoming: IncomingState,
    /// State of the outgoing direction.
    pub outgoing: OutgoingState,
    /// Time at which both directions had ended.
    pub over: Option<Instant>,
}

/// State of an application's incoming direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncomingState {
    /// More bytes may arrive.
    Open,
    /// The peer finished the direction (FIN).
    Fin,
    /// The connection was reset.
    Reset,
    /// The application itself aborted or closed the connection.
    Dropped,
}

/// State of an application's outgoing direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutgoingState {
    /// The application may send more bytes.
    Open,
    /// The application finished the direction (FIN).
    Finished,
    /// The application aborted the connection (RST).
    Aborted,
    /// The connection was reset.
    Reset,
}

impl AppOutcome {
    /// Returns true if both directions have ended, so that nothing more can happen.
    pub fn is_over(&self) -> bool {
        self.incoming != IncomingState::Open && self.outgoing != OutgoingState::Open
    }

    /// Returns true if both directions ended with a FIN.
    pub fn is_clean(&self) -> bool {
        self.incoming == IncomingState::Fin && self.outgoing == OutgoingState::Finished
    }

    /// Returns true if the other side reset the connection.
    pub fn was_reset(&self) -> bool {
        self.incoming == IncomingState::Reset || self.outgoing == OutgoingState::Reset
    }

    /// Returns the time from the creation of the connection to the first received byte.
    pub fn first_byte_after(&self) -> Option<Duration> {
        self.first_byte.map(|at| at - self.opened)
    }
}

impl App {
    pub(crate) fn new(name: String, socket: AppEnd, script: Script, now: Instant) -> Self {
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
            datagrams_sent: Vec::new(),
            datagrams_received: Vec::new(),
            closed: false,
            outcome: AppOutcome {
                opened: now,
                sent: 0,
                received: 0,
                first_byte: None,
                last_byte: None,
                incoming: IncomingState::Open,
                outgoing: OutgoingState::Open,
                over: None,
            },
            scratch: Vec::new(),
        }
    }

    /// Returns the token for which the application was connected.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the application has observed and done so far.
    pub fn outcome(&self) -> &AppOutcome {
        &self.outcome
    }

    /// Returns the datagrams that the application has sent, in order.
    pub fn datagrams_sent(&self) -> &[Bytes] {
        &self.datagrams_sent
    }

    /// Returns the datagrams that the application has received, in order.
    pub fn datagrams_received(&self) -> &[Bytes] {
        &self.datagrams_received
    }

    /// Takes a datagram, and sends it back if the script says so. Returns whether there was one.
    fn run_datagram(&mut self, now: Instant) -> bool {
        let Some(payload) = self.socket.recv_datagram() else {
            return false;
        };
        if self.script.write.get(self.writing) == Some(&WriteStep::Echo) {
            self.send_datagram(payload.clone());
        }
        self.datagrams_received.push(payload);
        self.outcome.first_byte.get_or_insert(now);
        self.outcome.last_byte = Some(now);
        true
    }

    fn send_datagram(&mut self, payload: Bytes) {
        self.socket.send_datagram(payload.clone());
        self.datagrams_sent.push(payload);
    }

    /// Returns the application's next datagram. All datagrams of a run that are long enough differ.
    fn next_datagram(&self, len: usize) -> Bytes {
        let number = self.datagrams_sent.len() as u64;
        let mut payload = [self.script.sends.to_be_bytes(), number.to_be_bytes()].concat();
        while payload.len() < len {
            let part = pattern::bytes(self.script.sends, number, len - payload.len());
            payload.extend_from_slice(part);
        }
        payload.truncate(len);
        payload.into()
    }

    /// Does everything that is possible at `now` and returns the next wake-up time.
    pub(crate) fn run(&mut self, now: Instant) -> Option<Instant> {
        loop {
            if self.closed {
                return None;
            }
            let read = self.run_datagram(now) || self.run_read(now);
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
        // A wait that has expired but was not cleared belongs to a direction that is blocked by something else.
        [self.write_wait, self.read_wait]
            .into_iter()
            .flatten()
            .filter(|&at| at > now)
            .min()
    }

    fn run_read(&mut self, now: Instant) -> bool {
        if self.outcome.incoming != IncomingState::Open {
            return false;
        }
        if self.socket.is_reset() {
            self.see_reset();
            return true;
        }
        let Some(most) = self.read_limit(now) else {
            return false;
        };
        self.scratch.clear();
        let looks = self.script.expects.is_some() || self.script.write.contains(&WriteStep::Echo);
        // Most applications of a long run only count bytes and do not inspect them.
        let into = looks.then_some(&mut self.scratch);
        match self.socket.read(into, most) {
            AppRead::Bytes(count) => {
                self.take(now, count);
                true
            }
            AppRead::Blocked => false,
            AppRead::Fin => {
                self.outcome.incoming = IncomingState::Fin;
                true
            }
            AppRead::Reset => {
                self.see_reset();
                true
            }
        }
    }

    /// Returns the number of bytes to read now, or `None` if the application does not read now.
    fn read_limit(&mut self, now: Instant) -> Option<usize> {
        if self.read_wait.is_some_and(|until| now < until) {
            return None;
        }
        if self.script.write.contains(&WriteStep::Echo) && self.echo.len() >= ECHO_MAX {
            return None;
        }
        match self.script.read.get(self.reading) {
            None => Some(TURN),
            Some(ReadStep::Bytes(most)) => {
                let left = most - self.read;
                if left == 0 {
                    self.next_read();
                    return self.read_limit(now);
                }
                Some(TURN.min(usize::try_from(left).unwrap_or(TURN)))
            }
            Some(ReadStep::Pause(time)) => {
                if self.read_wait.take().is_some() {
                    self.next_read();
                    return self.read_limit(now);
                }
                self.read_wait = Some(now + *time);
                None
            }
            Some(ReadStep::Slowly { bytes, .. }) => {
                self.read_wait = None;
                Some(usize::try_from(*bytes).unwrap_or(TURN).clamp(1, TURN))
            }
            Some(ReadStep::Never) => None,
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
        if self.script.write.contains(&WriteStep::Echo) {
            self.echo.extend(&self.scratch);
        }
        self.outcome.received += count as u64;
        self.outcome.first_byte.get_or_insert(now);
        self.outcome.last_byte = Some(now);
        self.read += count as u64;
        if let Some(ReadStep::Slowly { every, .. }) = self.script.read.get(self.reading) {
            self.read_wait = Some(now + *every);
        }
    }

    fn see_reset(&mut self) {
        if self.outcome.incoming == IncomingState::Open {
            self.outcome.incoming = IncomingState::Reset;
        }
        if self.outcome.outgoing == OutgoingState::Open {
            self.outcome.outgoing = OutgoingState::Reset;
        }
        (self.read_wait, self.write_wait) = (None, None);
    }

    fn run_write(&mut self, now: Instant) -> bool {
        let Some(&step) = self.script.write.get(self.writing) else {
            return false;
        };
        let ends = matches!(
            step,
            WriteStep::Finish | WriteStep::Abort | WriteStep::Close
        );
        if self.outcome.outgoing != OutgoingState::Open
            && !matches!(
                step,
                WriteStep::Abort
                    | WriteStep::Close
                    | WriteStep::Wait(_)
                    | WriteStep::Received(_)
                    | WriteStep::ReceivedEnd
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
            WriteStep::Send(bytes) => return self.send(bytes),
            WriteStep::Datagram(len) => {
                self.send_datagram(self.next_datagram(len));
                true
            }
            WriteStep::Echo => return self.send_echo(),
            WriteStep::Wait(time) => {
                let until = *self.write_wait.get_or_insert(now + time);
                now >= until
            }
            WriteStep::Received(bytes) => self.outcome.received >= bytes,
            WriteStep::ReceivedEnd => self.outcome.incoming != IncomingState::Open,
            WriteStep::Finish | WriteStep::Abort | WriteStep::Close => true,
        };
        if done {
            self.write_wait = None;
            self.writing += 1;
        }
        done
    }

    fn end(&mut self, step: WriteStep) {
        match step {
            WriteStep::Finish => {
                self.socket.finish();
                self.outcome.outgoing = OutgoingState::Finished;
            }
            WriteStep::Abort => {
                self.socket.abort();
                self.outcome.outgoing = OutgoingState::Aborted;
                self.drop_incoming();
            }
            _ => {
                self.socket.close();
                if self.outcome.outgoing == OutgoingState::Open {
                    self.outcome.outgoing = OutgoingState::Finished;
                }
                self.drop_incoming();
            }
        }
    }

    fn drop_incoming(&mut self) {
        if self.outcome.incoming == IncomingState::Open {
            self.outcome.incoming = IncomingState::Dropped;
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
            let ended = self.outcome.incoming != IncomingState::Open;
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
