//! An application's steps on its connection, and what it sees.

use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::Result;

use super::observation::{DataEnd, Observation};
use quictun_testbed::connection::Connection;
use quictun_testbed::payload::Payload;

/// The block size of reads and writes, in bytes.
const BLOCK: u64 = 64 * 1024;

/// The pause of a slow reader after each block: 6 MB take about two seconds, well within the drain time.
const PAUSE: Duration = Duration::from_millis(20);

/// The interval between two checks for data to read.
const GLANCE: Duration = Duration::from_millis(5);

/// The payload that the application at the near end sends.
pub(crate) const UP: Payload = Payload {
    seed: 61,
    bytes: u64::MAX,
};

/// The payload that the target sends.
pub(crate) const DOWN: Payload = Payload {
    seed: 62,
    bytes: u64::MAX,
};

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptStep {
    /// Sends this many bytes.
    Send(u64),
    /// Sends a FIN to the peer.
    Finish,
    /// Receives this many bytes.
    Receive(u64),
    /// Receives this many bytes, at a few megabytes per second.
    ReceiveSlowly(u64),
    /// Receives the FIN of the peer.
    End,
    /// Reports that this step is reached, and neither reads nor writes until released.
    Hold,
}

/// Steps in order. The connection is closed after the last one, or after the first that fails.
pub type Script = Vec<ScriptStep>;

/// The channels on which an application and its runner coordinate [`ScriptStep::Hold`].
#[derive(Debug)]
pub(crate) struct HoldPoint {
    pub(crate) reached: Sender<()>,
    pub(crate) released: Receiver<()>,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionEnd {
    connection: Connection,
    sends: Payload,
    receives: Payload,
    sent: u64,
    received: u64,
    expected: u64,
    sending_failed: bool,
}

/// Returns the number of bytes that a script receives.
pub(crate) fn expected(script: &[ScriptStep]) -> u64 {
    let receives = script.iter().map(|step| match step {
        ScriptStep::Receive(bytes) | ScriptStep::ReceiveSlowly(bytes) => *bytes,
        _ => 0,
    });
    receives.sum()
}

impl ConnectionEnd {
    /// Creates an end: the near end sends [`UP`], the far end sends [`DOWN`].
    pub(crate) fn new(connection: Connection, is_near: bool) -> Self {
        let (sends, receives) = if is_near { (UP, DOWN) } else { (DOWN, UP) };
        Self {
            connection,
            sends,
            receives,
            sent: 0,
            received: 0,
            expected: 0,
            sending_failed: false,
        }
    }

    /// Follows the script until it or the connection ends.
    pub(crate) fn follow(mut self, script: &[ScriptStep], hold: &HoldPoint) -> Result<Observation> {
        self.expected = expected(script);
        let mut seen = None;
        for step in script {
            seen = match step {
                ScriptStep::Send(bytes) => self.send(*bytes),
                ScriptStep::Finish => {
                    // If the connection is gone, reading shows how it ended.
                    self.sending_failed |= self.connection.finish().is_err();
                    None
                }
                ScriptStep::Receive(bytes) => self.receive(*bytes, Duration::ZERO),
                ScriptStep::ReceiveSlowly(bytes) => self.receive(*bytes, PAUSE),
                ScriptStep::End => self.receive_end(),
                ScriptStep::Hold => self.hold(hold)?,
            };
            if seen.is_some() {
                break;
            }
        }
        Ok(Observation {
            seen: seen.unwrap_or(DataEnd::Whole),
            expected: self.expected,
            sending_failed: self.sending_failed,
        })
    }

    /// Holds until released. Detects an end meanwhile, as an application does that waits for data.
    fn hold(&mut self, hold: &HoldPoint) -> Result<Option<DataEnd>> {
        let bytes = self.received;
        hold.reached.send(())?;
        loop {
            match self.connection.peek() {
                Ok(Some(0)) => return Ok(Some(DataEnd::Ended { bytes })),
                Ok(_) => {}
                Err(error) => return Ok(Some(DataEnd::failed(&error.into(), bytes))),
            }
            match hold.released.recv_timeout(GLANCE) {
                Ok(()) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends this many bytes; returns `None` on success.
    fn send(&mut self, bytes: u64) -> Option<DataEnd> {
        let until = self.sent + bytes;
        let mut block = Vec::new();
        while self.sent < until {
            block.resize(
                usize::try_from((until - self.sent).min(BLOCK)).unwrap_or_default(),
                0,
            );
            self.sends.fill(self.sent, &mut block);
            if let Err(error) = self.connection.write_all(&block) {
                return Some(self.sending_failed(&error));
            }
            self.sent += block.len() as u64;
        }
        None
    }

    /// Interprets a failed write. The kernel reports a reset only to the first call; after that, reading looks like a
    /// clean end.
    fn sending_failed(&mut self, error: &io::Error) -> DataEnd {
        let bytes = self.received;
        self.sending_failed = true;
        match error.kind() {
            _ if bytes == self.expected => DataEnd::Whole,
            // ECONNABORTED: the system ended the connection, as it does for the supervisor of a device.
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
                DataEnd::Reset { bytes }
            }
            // The buffers stayed full: the other end takes nothing.
            io::ErrorKind::WouldBlock => DataEnd::Open { bytes },
            // The connection had ended before the write, and reading shows how.
            _ => self
                .receive(self.expected - bytes, Duration::ZERO)
                .unwrap_or(DataEnd::Whole),
        }
    }

    fn receive(&mut self, bytes: u64, pause: Duration) -> Option<DataEnd> {
        let until = self.received + bytes;
        let mut block = vec![0; usize::try_from(BLOCK).unwrap_or_default()];
        while self.received < until {
            let wanted = usize::try_from((until - self.received).min(BLOCK)).unwrap_or_default();
            let read =
                self.receives
                    .read_block(&mut self.connection, self.received, &mut block[..wanted]);
            match read {
                Ok(0) => {
                    return Some(DataEnd::Ended {
                        bytes: self.received,
                    });
                }
                Ok(read) => self.received += read as u64,
                Err(error) => return Some(DataEnd::failed(&error, self.received)),
            }
            if !pause.is_zero() {
                std::thread::park_timeout(pause);
            }
        }
        None
    }

    fn receive_end(&mut self) -> Option<DataEnd> {
        let read = self
            .receives
            .read_block(&mut self.connection, self.received, &mut [0; 1]);
        match read {
            Ok(0) => None,
            Ok(_) => Some(DataEnd::Wrong("more than was sent".to_owned())),
            Err(error) => Some(DataEnd::failed(&error, self.received)),
        }
    }
}
