//! Application to stream: read, write, and pass on the FIN.

use std::io;

use bytes::{Buf, Bytes};

use crate::close::{Direction, Ending};
use crate::flow::{Flow, extend_head};
use crate::stream::WriteEnd;
use crate::{ReadBuffer, Socket, Stream};

/// Smallest read from an application. Reading only what the window allows this instant would cost a
/// system call for every acknowledgement; what is read too much waits in `pending`.
const READ_MIN: usize = 16 * 1024;

/// The direction from the application into the tunnel.
#[derive(Debug)]
pub(crate) struct ToTunnel {
    pub(crate) direction: Direction,
    /// The socket has not said would-block since it was last ready.
    pub(crate) readable: bool,
    /// Read from the application, not yet accepted by the stream.
    pending: Bytes,
    /// Our own bytes at the front, not the application's.
    prefix: u64,
    pub(crate) bytes: u64,
}

/// Why [`Flow::pump_to_tunnel`] stopped.
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
}

impl<S: Socket> Flow<S> {
    /// Moves at most `budget` bytes from the application to the stream, and takes them off `budget`.
    pub fn pump_to_tunnel<T: Stream>(
        &mut self,
        stream: &mut T,
        buffer: &mut ReadBuffer,
        budget: &mut usize,
    ) -> Pumped {
        loop {
            if self.to_tunnel.direction != Direction::Open {
                return Pumped::Ended;
            }
            if *budget == 0 {
                return Pumped::Budget;
            }
            if self.to_tunnel.pending.is_empty()
                && let Some(stopped) = self.read_app(stream, buffer, *budget)
            {
                return stopped;
            }
            match self.write_stream(stream, budget) {
                WriteEnd::Taken => {}
                WriteEnd::Blocked => return Pumped::Blocked,
                WriteEnd::Stopped(code) => self.handle_stopped(stream, code),
                WriteEnd::Gone => self.end_by_app_reset(stream),
            }
        }
    }

    /// Fills `pending`, or says why not.
    fn read_app<T: Stream>(
        &mut self,
        stream: &mut T,
        buffer: &mut ReadBuffer,
        budget: usize,
    ) -> Option<Pumped> {
        if !self.to_tunnel.readable {
            return Some(Pumped::Starved);
        }
        if buffer.is_restrained() && stream.write(&mut Bytes::new()) == WriteEnd::Blocked {
            return Some(Pumped::Blocked);
        }
        match buffer.read_from(&mut self.socket, budget.max(READ_MIN)) {
            Ok(chunk) if chunk.is_empty() => {
                stream.finish();
                self.to_tunnel.direction = Direction::Finished;
                self.settle(Ending::Finished);
                Some(Pumped::Ended)
            }
            Ok(chunk) => {
                if let Some(heads) = &mut self.heads {
                    extend_head(&mut heads.from_app, &chunk);
                }
                self.to_tunnel.pending = chunk;
                None
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.to_tunnel.readable = false;
                Some(Pumped::Starved)
            }
            Err(_) => {
                self.end_by_app_reset(stream);
                Some(Pumped::Ended)
            }
        }
    }

    /// Offers `pending` to the stream, within the budget.
    fn write_stream<T: Stream>(&mut self, stream: &mut T, budget: &mut usize) -> WriteEnd {
        let pending = &mut self.to_tunnel.pending;
        let offered = pending.len().min(*budget);
        let mut part = pending.slice(..offered);
        let end = stream.write(&mut part);
        let taken = offered - part.len();
        pending.advance(taken);
        *budget -= taken;
        self.to_tunnel.bytes += taken as u64;
        end
    }
}
