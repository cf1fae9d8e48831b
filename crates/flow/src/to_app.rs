//! State of the direction from the stream to the application.

use crate::close::DirectionState;
use crate::inlet::Inlet;
use crate::stream::{ReadEnd, Stream};

/// Bytes taken from the stream before they are written: enough for one gathering write.
const READ_AHEAD: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct ToApp {
    pub(crate) direction: DirectionState,
    /// The socket has not returned would-block since it was last ready.
    pub(crate) writable: bool,
    /// The bytes in `inlet` may not be written yet, because the client has used up its rate for now.
    pub(crate) shaped: bool,
    pub(crate) inlet: Inlet,
    pub(crate) bytes: u64,
}

/// The reason why [`Flow::pump_to_app`](crate::Flow::pump_to_app) stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToAppStop {
    /// Nothing more has arrived in order. Wait for the stream.
    Starved,
    /// The application takes no more bytes. Wait for its socket.
    AppBlocked,
    /// The budget for now is used up.
    Budget,
    /// The direction has ended.
    Ended,
    /// The peer has left the stream: the flow continues on another one.
    Left,
}

impl ToApp {
    pub(crate) fn new(inlet: Inlet) -> Self {
        Self {
            direction: DirectionState::Open,
            writable: true,
            shaped: false,
            inlet,
            bytes: 0,
        }
    }

    pub(crate) fn close(&mut self) {
        if self.direction == DirectionState::Open {
            self.direction = DirectionState::Closed;
        }
        self.inlet.clear();
    }

    /// Returns the number of bytes to take from the stream now. While the application reads, the stream is read in
    /// portions. While the application blocks or is shaped, everything is taken, so that nothing stays in the QUIC
    /// library.
    pub(crate) fn read_budget(&self) -> usize {
        if self.writable && !self.shaped {
            READ_AHEAD.saturating_sub(self.inlet.ready())
        } else {
            usize::MAX
        }
    }

    /// Takes in everything that a lost connection has left.
    pub(crate) fn take_all<T: Stream>(&mut self, stream: &mut T) {
        while self.inlet.take_in(stream, usize::MAX) == ReadEnd::More {}
    }
}
