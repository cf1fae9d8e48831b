//! What an application does.

use std::time::Duration;

/// An application's behaviour: what it writes and, independently, how it reads.
///
/// When both lists are done and both directions have ended the connection is closed. An application
/// whose writes do not end in [`Write::Finish`], [`Write::Abort`] or [`Write::Close`] keeps its connection open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Which stream of bytes it sends.
    pub sends: u64,
    /// Which stream of bytes it must receive; anything else fails the run. `None`: not looked at.
    pub expects: Option<u64>,
    /// What the application writes, in order.
    pub write: Vec<Write>,
    /// How it reads, in order, and after that as fast as bytes come.
    pub read: Vec<Read>,
    /// Bytes that each direction of its connection holds; 0: 64 KiB.
    pub buffer: usize,
    /// Most bytes that the engine moves in one call; 0: any number.
    pub call_max: usize,
}

/// One step of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// So many bytes.
    Send(u64),
    /// Nothing for this long.
    Wait(Duration),
    /// Wait until so many bytes, in total, have been received.
    Received(u64),
    /// Wait until the peer has ended its direction.
    ReceivedEnd,
    /// Everything that is received, until its end.
    Echo,
    /// End this direction (FIN); reading goes on.
    Finish,
    /// Cut both directions (RST).
    Abort,
    /// Close the connection as `close(2)` does: whatever still arrives is answered with a reset.
    Close,
}

/// One step of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// So many bytes, as fast as they come.
    Bytes(u64),
    /// Nothing for this long.
    Pause(Duration),
    /// So many bytes in each interval, until the end.
    Slowly {
        /// Bytes in one go.
        bytes: u64,
        /// Time between two.
        every: Duration,
    },
    /// Nothing ever again.
    Never,
}

impl Script {
    /// An application that connects: it sends stream `number` * 2 and expects the next one.
    pub fn client(number: u64) -> Self {
        Self {
            sends: number * 2,
            expects: Some(number * 2 + 1),
            ..Self::default()
        }
    }

    /// The peer of [`Script::client`].
    pub fn server(number: u64) -> Self {
        Self {
            sends: number * 2 + 1,
            expects: Some(number * 2),
            ..Self::default()
        }
    }

    /// An application that sends back what it receives, then ends.
    pub fn echo() -> Self {
        Self::default().write([Write::Echo, Write::Finish])
    }

    /// One that connects to an echo: it expects what it sends.
    pub fn echoed(number: u64) -> Self {
        Self {
            sends: number,
            expects: Some(number),
            ..Self::default()
        }
    }

    /// With these writes.
    #[must_use]
    pub fn write(mut self, write: impl Into<Vec<Write>>) -> Self {
        self.write = write.into();
        self
    }

    /// With these reads.
    #[must_use]
    pub fn read(mut self, read: impl Into<Vec<Read>>) -> Self {
        self.read = read.into();
        self
    }
}
