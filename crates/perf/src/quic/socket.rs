//! In-memory applications: one writes the plan's payload, the other compares it.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use quictun_engine::{FlowId, Socket};

use crate::error::PerfError;
use crate::meter::{Meter, micros_since};
use crate::pattern::Pattern;
use crate::plan::Mode;
use crate::threads::Job;

/// Length of the head of a stream: the number of bytes to send back.
const HEAD: usize = 8;

/// Remaining length from which a stream lends its memory. For less data, a copy takes less memory.
const LEND_FROM: u64 = 16 * 1024;

pub(crate) struct SocketContext<'a> {
    pub(crate) meter: RefCell<Meter<'a>>,
    /// Payload from client to server; `answers` is the payload of the other direction.
    requests: RefCell<Pattern>,
    answers: RefCell<Pattern>,
    counting: CountedEvent,
    began: Instant,
    pub(crate) first_us: RefCell<Option<u64>>,
    pub(crate) fault: RefCell<Option<PerfError>>,
    /// Server: flows whose request is complete, so that there is an answer to send.
    pub(crate) wakes: RefCell<Vec<FlowId>>,
    /// Client: flows whose answer is complete, by number, with the time of completion.
    pub(crate) done: RefCell<Vec<(u32, Instant)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedEvent {
    Read,
    Written,
    Requests,
}

pub(crate) struct MemorySocket<'a> {
    ends: Rc<SocketContext<'a>>,
    side: SocketRole,
    /// Payload bytes sent; `length` is the total, or `None` if it is not known yet.
    sent: u64,
    length: Option<u64>,
    received: u64,
}

enum SocketRole {
    Client {
        number: u32,
        head: [u8; HEAD],
        head_sent: usize,
        /// Number of payload bytes to receive.
        wanted: u64,
    },
    Server {
        flow: FlowId,
        head: [u8; HEAD],
        head_received: usize,
    },
}

impl<'a> SocketContext<'a> {
    pub(crate) fn new(job: Job<'a>, client: bool) -> Rc<Self> {
        let counting = match job.plan.mode {
            Mode::Stream if client == job.plan.reverse => CountedEvent::Written,
            Mode::Stream => CountedEvent::Read,
            Mode::Rr | Mode::Crr => CountedEvent::Requests,
        };
        Rc::new(Self {
            meter: RefCell::new(Meter::new(job.clock)),
            requests: RefCell::new(Pattern::new(job.seed)),
            answers: RefCell::new(Pattern::new(!job.seed)),
            counting,
            began: job.began,
            first_us: RefCell::default(),
            fault: RefCell::default(),
            wakes: RefCell::default(),
            done: RefCell::default(),
        })
    }

    /// Counts `amount` at the current time. Returns an error, which ends the flow, if the receiver's time is over.
    fn count(&self, what: CountedEvent, amount: u64) -> io::Result<()> {
        if self.counting == what && !self.meter.borrow_mut().add(Instant::now(), amount) {
            // The sender continues until the receiver, whose time ends later, has seen enough.
            if what == CountedEvent::Written {
                return Err(ErrorKind::ConnectionReset.into());
            }
        }
        Ok(())
    }
}

impl<'a> MemorySocket<'a> {
    pub(crate) fn client(
        ends: &Rc<SocketContext<'a>>,
        number: u32,
        length: u64,
        wanted: u64,
    ) -> Self {
        let side = SocketRole::Client {
            number,
            head: wanted.to_be_bytes(),
            head_sent: 0,
            wanted,
        };
        Self::new(ends, side, Some(length))
    }

    pub(crate) fn server(ends: &Rc<SocketContext<'a>>, flow: FlowId) -> Self {
        let side = SocketRole::Server {
            flow,
            head: [0; HEAD],
            head_received: 0,
        };
        Self::new(ends, side, None)
    }

    fn new(ends: &Rc<SocketContext<'a>>, side: SocketRole, length: Option<u64>) -> Self {
        Self {
            ends: ends.clone(),
            side,
            sent: 0,
            length,
            received: 0,
        }
    }

    fn take(&mut self, mut chunk: &[u8]) -> io::Result<()> {
        if let SocketRole::Server {
            head,
            head_received,
            ..
        } = &mut self.side
        {
            let part = chunk.len().min(HEAD - *head_received);
            head[*head_received..*head_received + part].copy_from_slice(&chunk[..part]);
            *head_received += part;
            chunk = &chunk[part..];
        }
        if chunk.is_empty() {
            return Ok(());
        }
        let theirs = match self.side {
            SocketRole::Client { .. } => &self.ends.answers,
            SocketRole::Server { .. } => &self.ends.requests,
        };
        let differs = theirs.borrow().differs(self.received, chunk);
        if let Some(offset) = differs {
            *self.ends.fault.borrow_mut() = Some(PerfError::Corrupt(offset));
            return Err(ErrorKind::InvalidData.into());
        }
        self.received += chunk.len() as u64;
        if let SocketRole::Client { number, wanted, .. } = self.side {
            let now = Instant::now();
            let mut first = self.ends.first_us.borrow_mut();
            first.get_or_insert_with(|| micros_since(self.ends.began, now));
            if self.received == wanted {
                self.ends.done.borrow_mut().push((number, now));
            }
        }
        self.ends.count(CountedEvent::Written, chunk.len() as u64)
    }
}

impl SocketRole {
    fn ours<'e>(&self, ends: &'e SocketContext<'_>) -> &'e RefCell<Pattern> {
        match self {
            Self::Client { .. } => &ends.requests,
            Self::Server { .. } => &ends.answers,
        }
    }
}

impl Socket for MemorySocket<'_> {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let before = into.len();
        let room = into.capacity() - before;
        if let SocketRole::Client {
            head, head_sent, ..
        } = &mut self.side
        {
            let part = room.min(HEAD - *head_sent);
            into.extend_from_slice(&head[*head_sent..*head_sent + part]);
            *head_sent += part;
        }
        let Some(length) = self.length else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let mut ours = self.side.ours(&self.ends).borrow_mut();
        let begin = self.sent;
        while into.len() < before + room && self.sent < length {
            let left = usize::try_from(length - self.sent).unwrap_or(usize::MAX);
            let part = ours.at(self.sent, left.min(before + room - into.len()));
            into.extend_from_slice(part);
            self.sent += part.len() as u64;
        }
        if self.sent > begin {
            self.ends.count(CountedEvent::Read, self.sent - begin)?;
        }
        Ok(into.len() - before)
    }

    fn lend(&mut self, max: usize) -> Option<io::Result<Bytes>> {
        let head_sent = match &self.side {
            SocketRole::Client { head_sent, .. } => *head_sent,
            SocketRole::Server { .. } => HEAD,
        };
        let left = self.length.map_or(0, |length| length - self.sent);
        if head_sent < HEAD || left < LEND_FROM {
            return None;
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(max);
        let piece = self
            .side
            .ours(&self.ends)
            .borrow_mut()
            .piece(self.sent, most);
        self.sent += piece.len() as u64;
        let counted = self.ends.count(CountedEvent::Read, piece.len() as u64);
        Some(counted.map(|()| piece))
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for chunk in chunks {
            self.take(chunk)?;
            taken += chunk.len();
        }
        Ok(taken)
    }

    fn finish(&mut self) -> io::Result<()> {
        if let SocketRole::Server { flow, head, .. } = self.side {
            self.length = Some(u64::from_be_bytes(head));
            self.ends.wakes.borrow_mut().push(flow);
            self.ends.count(CountedEvent::Requests, 1)?;
        }
        Ok(())
    }

    fn abort(&mut self) {}

    fn close(&mut self) {}
}
