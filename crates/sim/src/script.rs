//! Scripts: the behaviour of simulated applications.

use std::time::Duration;

/// The behaviour of an application: what it writes and, independently, how it reads.
///
/// The connection is closed when both lists are done and both directions have ended. An application whose writes do not
/// end in [`WriteStep::Finish`], [`WriteStep::Abort`] or [`WriteStep::Close`] keeps its connection open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Number of the byte stream that the application sends.
    pub sends: u64,
    /// Number of the byte stream that the application must receive; a different byte fails the run. With `None` the
    /// bytes are not checked.
    pub expects: Option<u64>,
    /// The write steps, in order.
    pub write: Vec<WriteStep>,
    /// The read steps, in order. After the last one the application reads as fast as bytes arrive.
    pub read: Vec<ReadStep>,
    /// Bytes that each direction of the connection buffers; 0 means 64 KiB.
    pub buffer: usize,
    /// Maximum bytes that the engine moves in one call; 0 means no limit.
    pub call_max: usize,
    /// The application exchanges datagrams, and no bytes.
    pub datagrams: bool,
}

/// One step of the writing side of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStep {
    /// Send this number of bytes.
    Send(u64),
    /// Send a datagram of this length.
    Datagram(usize),
    /// Send nothing for this long.
    Wait(Duration),
    /// Wait until this number of bytes, in total, has been received.
    Received(u64),
    /// Wait until the incoming direction has ended.
    ReceivedEnd,
    /// Send back everything that is received, bytes or datagrams, until the incoming direction ends.
    Echo,
    /// Finish the outgoing direction (FIN); reading continues.
    Finish,
    /// Abort both directions (RST).
    Abort,
    /// Close the connection as `close(2)` does: data that still arrives is answered with a reset.
    Close,
}

/// One step of the reading side of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// Read this number of bytes, as fast as they arrive.
    Bytes(u64),
    /// Read nothing for this long.
    Pause(Duration),
    /// Read this number of bytes in each interval, until the end of the stream.
    Slowly {
        /// Maximum bytes per read.
        bytes: u64,
        /// Time between two reads.
        every: Duration,
    },
    /// Stop reading, and never begin again.
    Never,
}

impl Script {
    /// Returns the script of a connecting application: it sends stream `number * 2` and expects stream `number * 2 +
    /// 1`.
    pub fn client(number: u64) -> Self {
        Self {
            sends: number * 2,
            expects: Some(number * 2 + 1),
            ..Self::default()
        }
    }

    /// Returns the script of the peer of [`Script::client`].
    pub fn server(number: u64) -> Self {
        Self {
            sends: number * 2 + 1,
            expects: Some(number * 2),
            ..Self::default()
        }
    }

    /// Returns the script of an application that sends back what it receives, then finishes.
    pub fn echo() -> Self {
        Self::default().write([WriteStep::Echo, WriteStep::Finish])
    }

    /// Returns the script of an application that connects to [`Script::echo`]: it expects what it sends.
    pub fn echoed(number: u64) -> Self {
        Self {
            sends: number,
            expects: Some(number),
            ..Self::default()
        }
    }

    /// Sets the write steps.
    #[must_use]
    pub fn write(mut self, write: impl Into<Vec<WriteStep>>) -> Self {
        self.write = write.into();
        self
    }

    /// Sets the read steps.
    #[must_use]
    pub fn read(mut self, read: impl Into<Vec<ReadStep>>) -> Self {
        self.read = read.into();
        self
    }
}
