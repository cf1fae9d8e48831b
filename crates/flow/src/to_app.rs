//! State of the direction from the stream to the application.

use crate::close::Direction;
use crate::inlet::Inlet;
use crate::stream::{ReadEnd, Stream};

/// Bytes taken from the stream before they are written: enough for one gathering write.
const READ_AHEAD: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct ToApp {
    pub(crate) direction: Direction,
    /// The socket has not said would-block since it was last ready.
    pub(crate) writable: bool,
    /// What is here may not be written yet, because its client has used up its rate for now.
    pub(crate) shaped: bool,
    pub(crate) inlet: Inlet,
    pub(crate) bytes: u64,
}

/// Why [`Flow::pump_to_app`](crate::Flow::pump_to_app) stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing more has arrived in order; wait for the stream.
    Starved,
    /// The application does not take more; wait for its socket.
    AppBlocked,
    /// As much was written as may be for now.
    Budget,
    /// The direction has ended.
    Ended,
    /// The peer has left the stream: the flow continues on another one.
    Left,
}

impl ToApp {
    pub(crate) fn new(inlet: Inlet) -> Self {
        Self {
            direction: Direction::Open,
            writable: true,
            shaped: false,
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
    pub(crate) fn appetite(&self) -> usize {
        if self.writable && !self.shaped {
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
