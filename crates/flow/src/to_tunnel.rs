//! State of the direction from the application to the stream.

use bytes::{Buf, Bytes};

use crate::close::Direction;
use crate::retained::Retained;
use crate::stream::{Stream, WriteEnd};

#[derive(Debug)]
pub(crate) struct ToTunnel {
    pub(crate) direction: Direction,
    /// The socket has not said would-block since it was last ready.
    pub(crate) readable: bool,
    /// To be accepted by the stream next.
    pending: Bytes,
    /// Bytes at the front of `pending` that are our own, not the application's.
    prefix: usize,
    /// Number of the application's next byte that the present stream is to accept.
    sent: u64,
    /// The largest `sent` there was.
    most: u64,
    /// The present stream has been told of the end.
    fin_told: bool,
    /// The peer has not said yet what it lacks: only our own bytes may go.
    waits: bool,
    /// Bytes that the peer may ask for again, where the flow can move.
    retained: Option<Retained>,
}

/// Why [`Flow::pump_to_tunnel`](crate::Flow::pump_to_tunnel) stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// The application has sent nothing more; wait for its socket.
    Starved,
    /// Flow control; wait for the stream to become writable.
    Blocked,
    /// The budget is used up; call again when there is more.
    Budget,
    /// The direction has ended.
    Ended,
}

impl ToTunnel {
    pub(crate) fn new() -> Self {
        Self {
            direction: Direction::Open,
            readable: true,
            pending: Bytes::new(),
            prefix: 0,
            sent: 0,
            most: 0,
            fin_told: false,
            waits: false,
            retained: None,
        }
    }

    pub(crate) fn send_first(&mut self, prefix: Bytes) {
        self.prefix = prefix.len();
        self.pending = prefix;
    }

    /// Bytes of the prefix that the stream has not accepted.
    pub(crate) fn prefix_left(&self) -> usize {
        self.prefix
    }

    /// Bytes of the application that streams have accepted, each counted once.
    pub(crate) fn app_bytes(&self) -> u64 {
        self.most
    }

    /// Whether no byte of the application's has been read: what is pending is our own.
    pub(crate) fn is_untouched(&self) -> bool {
        let own = self.pending.is_empty() || self.prefix > 0;
        self.direction != Direction::Closed && self.most == 0 && own
    }

    pub(crate) fn close(&mut self) {
        if self.direction == Direction::Open {
            self.direction = Direction::Closed;
        }
        self.fin_told = true;
        self.drop_unsent();
        self.retained = None;
    }

    fn drop_unsent(&mut self) {
        self.pending = Bytes::new();
        self.prefix = 0;
    }

    pub(crate) fn is_written(&self) -> bool {
        self.pending.is_empty() && self.retained.as_ref().is_none_or(Retained::is_given)
    }

    /// Whether the stream may be given nothing now: the peer has still to say what it lacks.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits && self.prefix == 0
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        if let Some(retained) = self.retained.as_mut().filter(|it| !it.is_over()) {
            retained.push(&chunk);
        }
        self.pending = chunk;
    }

    pub(crate) fn write<T: Stream>(&mut self, stream: &mut T, budget: &mut usize) -> WriteEnd {
        if self.pending.is_empty() {
            let again = self.retained.as_mut().and_then(Retained::give);
            self.pending = again.unwrap_or_default();
        }
        let offered = self.pending.len().min(*budget);
        let mut part = self.pending.slice(..offered);
        let end = stream.write(&mut part);
        let taken = offered - part.len();
        self.pending.advance(taken);
        *budget -= taken;
        let own = self.prefix.min(taken);
        self.prefix -= own;
        self.sent += (taken - own) as u64;
        self.most = self.most.max(self.sent);
        end
    }

    /// Ends the stream after what was written.
    pub(crate) fn finish<T: Stream>(&mut self, stream: &mut T) {
        stream.finish();
        self.direction = Direction::Finished;
        self.fin_told = true;
    }

    /// Whether a stream has still something to accept: bytes, or the end.
    pub(crate) fn is_owed(&self) -> bool {
        match self.direction {
            Direction::Open => true,
            Direction::Finished => !self.fin_told,
            Direction::Closed => false,
        }
    }
}

/// Moves to another stream.
impl ToTunnel {
    /// Keeps what is read from now on until the peer has it.
    pub(crate) fn retain(&mut self) {
        if self.most == 0 && self.pending.len() == self.prefix {
            self.retained.get_or_insert_default();
        }
    }

    /// Keeps nothing from now on.
    pub(crate) fn forgo(&mut self) {
        if let Some(retained) = &mut self.retained {
            retained.end();
        }
    }

    pub(crate) fn is_retaining(&self) -> bool {
        self.retained.as_ref().is_some_and(|it| !it.is_over())
    }

    /// Bytes that are kept for the peer.
    pub(crate) fn retained(&self) -> u64 {
        self.retained.as_ref().map_or(0, Retained::len)
    }

    /// Memory behind what is kept for the peer, bytes.
    pub(crate) fn kept(&self) -> u64 {
        self.retained.as_ref().map_or(0, Retained::memory)
    }

    /// Keeps nothing of what the present stream was given so far.
    pub(crate) fn forget_retained(&mut self) {
        if let Some(retained) = &mut self.retained {
            retained.forget();
        }
    }

    /// Number after all that was ever sent: the FIN, too, takes one.
    pub(crate) fn sent(&self) -> u64 {
        self.most + u64::from(self.direction == Direction::Finished)
    }

    /// The peer has everything before the number `next`. What it should not have before the present stream has brought it is
    /// kept for that.
    pub(crate) fn release(&mut self, next: u64) {
        if let Some(retained) = &mut self.retained {
            retained.release(next.min(self.sent));
        }
    }

    /// The stream is gone. What it has not accepted waits among what is retained.
    pub(crate) fn leave(&mut self) {
        self.drop_unsent();
        if let Some(retained) = &mut self.retained {
            retained.hold_back();
        }
        self.fin_told = false;
        self.waits = true;
    }

    /// Number of the first byte that can still be sent again.
    pub(crate) fn oldest(&self) -> u64 {
        self.retained.as_ref().map_or(self.most, Retained::from)
    }

    /// The peer lacks everything from the number `next` on: it is sent again, then what follows.
    pub(crate) fn resume(&mut self, next: u64) {
        self.waits = false;
        self.sent = next.min(self.most);
        if let Some(retained) = &mut self.retained {
            retained.release(self.sent);
            retained.give_again();
        }
    }
}
