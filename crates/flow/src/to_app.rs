//! Stream to application: read, put in order, write, and pass on the FIN.

use std::io::{self, IoSlice};

use bytes::Bytes;
use quictun_wire::code::FlowCode;

use crate::close::{Direction, Ending};
use crate::flow::{Flow, extend_head};
use crate::inlet::{Inlet, WRITE_CHUNKS};
use crate::stream::ReadEnd;
use crate::{Socket, Stream};

/// Bytes taken from the stream before they are written: enough for one gathering write.
const READ_AHEAD: usize = 256 * 1024;

/// The direction from the tunnel to the application.
#[derive(Debug)]
pub(crate) struct ToApp {
    pub(crate) direction: Direction,
    /// The socket has not said would-block since it was last ready.
    pub(crate) writable: bool,
    pub(crate) inlet: Inlet,
    pub(crate) bytes: u64,
}

/// Why [`Flow::pump_to_app`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing more has arrived in order; wait for the stream.
    Starved,
    /// The application does not take more; wait for its socket.
    AppBlocked,
    /// The direction has ended.
    Ended,
}

impl ToApp {
    pub(crate) fn new(inlet: Inlet) -> Self {
        Self {
            direction: Direction::Open,
            writable: true,
            inlet,
            bytes: 0,
        }
    }

    pub(crate) fn close(&mut self) {
        if self.direction == Direction::Open {
            self.direction = Direction::Closed;
        }
        self.inlet.clear();
    }

    /// How many bytes to take from the stream now. One that is read by a busy application is read in portions; of
    /// one that waits nothing is left in the library.
    fn appetite(&self) -> usize {
        if self.writable {
            READ_AHEAD.saturating_sub(self.inlet.ready())
        } else {
            usize::MAX
        }
    }

    /// Takes in all that a lost connection has left; whether it is whole, up to the FIN.
    pub(crate) fn take_all<T: Stream>(&mut self, stream: &mut T) -> bool {
        while self.inlet.take_in(stream, usize::MAX) == ReadEnd::More {}
        self.inlet.is_whole()
    }
}

impl<S: Socket> Flow<S> {
    /// Moves what has arrived from the stream to the application.
    pub fn pump_to_app<T: Stream>(&mut self, stream: &mut T) -> Drained {
        let mut exhausted = false;
        loop {
            if self.to_app.direction != Direction::Open {
                return Drained::Ended;
            }
            while !exhausted && !self.to_app.inlet.is_whole() {
                let appetite = self.to_app.appetite();
                if appetite == 0 {
                    break;
                }
                match self.to_app.inlet.take_in(stream, appetite) {
                    ReadEnd::More | ReadEnd::Finished => {}
                    ReadEnd::Blocked => exhausted = true,
                    ReadEnd::Reset(code) => {
                        self.end_by_peer_reset(stream, code);
                        return Drained::Ended;
                    }
                    ReadEnd::Gone => {
                        self.abandon(stream, FlowCode::Internal);
                        return Drained::Ended;
                    }
                }
            }
            if self.to_app.inlet.ready() == 0 {
                if !self.to_app.inlet.is_whole() {
                    return Drained::Starved;
                }
                self.finish_app(stream);
                return Drained::Ended;
            }
            if !self.to_app.writable {
                self.to_app.inlet.compact();
                return Drained::AppBlocked;
            }
            self.write_app(stream);
        }
    }

    /// One gathering write.
    fn write_app<T: Stream>(&mut self, stream: &mut T) {
        let mut slices = [IoSlice::new(&[]); WRITE_CHUNKS];
        let count = self.to_app.inlet.slices(&mut slices);
        match self.socket.write(&slices[..count]) {
            Ok(written) => {
                if let Some(heads) = &mut self.heads {
                    let mut left = written;
                    for chunk in self.to_app.inlet.chunks() {
                        let part: &Bytes = chunk;
                        let part = &part[..part.len().min(left)];
                        extend_head(&mut heads.to_app, part);
                        left -= part.len();
                    }
                }
                self.to_app.bytes += written as u64;
                self.to_app.inlet.advance(written);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.to_app.writable = false;
            }
            Err(_) => self.end_by_app_reset(stream),
        }
    }

    /// All bytes are with the application: pass on the FIN.
    fn finish_app<T: Stream>(&mut self, stream: &mut T) {
        if self.stopped && self.lost.is_none() {
            self.to_app.direction = Direction::Finished;
            self.part(Ending::PeerReset(None));
            return;
        }
        if self.socket.finish().is_err() {
            self.end_by_app_reset(stream);
            return;
        }
        self.to_app.direction = Direction::Finished;
        match self.lost {
            Some(code) if self.stopped => self.part(Ending::Abandoned(code)),
            _ => self.settle(Ending::Finished),
        }
    }
}
