//! State of the direction from the application to the stream.

use bytes::{Buf, Bytes};

use crate::close::Direction;
use crate::stream::{Stream, WriteEnd};

#[derive(Debug)]
pub(crate) struct ToTunnel {
    pub(crate) direction: Direction,
    /// The socket has not said would-block since it was last ready.
    pub(crate) readable: bool,
    /// Read from the application, not yet accepted by the stream.
    pending: Bytes,
    /// Our own bytes at the front, not the application's.
    prefix: u64,
    bytes: u64,
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
            bytes: 0,
        }
    }

    pub(crate) fn send_first(&mut self, prefix: Bytes) {
        self.prefix = prefix.len() as u64;
        self.pending = prefix;
    }

    /// Bytes of the prefix that the stream has not accepted.
    pub(crate) fn prefix_left(&self) -> usize {
        usize::try_from(self.prefix.saturating_sub(self.bytes)).unwrap_or(usize::MAX)
    }

    pub(crate) fn app_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.prefix)
    }

    /// Whether no byte of the application's has been read: what is pending is our own.
    pub(crate) fn is_untouched(&self) -> bool {
        let own = self.pending.is_empty() || self.prefix_left() > 0;
        self.direction != Direction::Closed && self.app_bytes() == 0 && own
    }

    pub(crate) fn close(&mut self) {
        if self.direction == Direction::Open {
            self.direction = Direction::Closed;
        }
        self.pending = Bytes::new();
    }

    pub(crate) fn is_written(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        self.pending = chunk;
    }

    pub(crate) fn write<T: Stream>(&mut self, stream: &mut T, budget: &mut usize) -> WriteEnd {
        let offered = self.pending.len().min(*budget);
        let mut part = self.pending.slice(..offered);
        let end = stream.write(&mut part);
        let taken = offered - part.len();
        self.pending.advance(taken);
        *budget -= taken;
        self.bytes += taken as u64;
        end
    }
}
