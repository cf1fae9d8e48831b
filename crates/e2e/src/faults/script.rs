//! What an application does with its connection, step by step, and what it sees.

use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::Result;

use super::seen::{Outcome, Seen};
use quictun_testbed::connection::Connection;
use quictun_testbed::payload::Payload;

/// Bytes of one call to the system.
const BLOCK: u64 = 64 * 1024;

/// Pause after each block of a slow reader: 6 MB take about two seconds, well within the time to drain.
const PAUSE: Duration = Duration::from_millis(20);

/// Time between two looks for something to read.
const GLANCE: Duration = Duration::from_millis(5);

/// What the application at the near end sends.
pub(crate) const UP: Payload = Payload {
    seed: 61,
    bytes: u64::MAX,
};

/// What the target sends.
pub(crate) const DOWN: Payload = Payload {
    seed: 62,
    bytes: u64::MAX,
};

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends so many bytes.
    Send(u64),
    /// Ends its direction.
    Finish,
    /// Receives so many bytes.
    Receive(u64),
    /// Receives so many bytes, at a few megabytes a second.
    ReceiveSlowly(u64),
    /// Receives the end.
    End,
    /// Says that it is there, and reads and writes nothing until told to go on.
    Hold,
}

/// Steps in their order. The connection is closed behind the last one, or the first that fails.
pub type Script = Vec<Step>;

/// How an application and whoever runs it tell each other of [`Step::Hold`].
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) reached: Sender<()>,
    pub(crate) released: Receiver<()>,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    connection: Connection,
    sends: Payload,
    receives: Payload,
    sent: u64,
    received: u64,
    expected: u64,
    sending_failed: bool,
}

/// Bytes that a script receives.
pub(crate) fn expected(script: &[Step]) -> u64 {
    let receives = script.iter().map(|step| match step {
        Step::Receive(bytes) | Step::ReceiveSlowly(bytes) => *bytes,
        _ => 0,
    });
    receives.sum()
}

impl End {
    /// The near end sends [`UP`], the far one [`DOWN`].
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

    /// Follows the script to its end or the connection's.
    pub(crate) fn follow(mut self, script: &[Step], hold: &Hold) -> Result<Outcome> {
        self.expected = expected(script);
        let mut seen = None;
        for step in script {
            seen = match step {
                Step::Send(bytes) => self.send(*bytes),
                Step::Finish => {
                    // Where the connection is gone, reading tells how it ended.
                    self.sending_failed |= self.connection.finish().is_err();
                    None
                }
                Step::Receive(bytes) => self.receive(*bytes, Duration::ZERO),
                Step::ReceiveSlowly(bytes) => self.receive(*bytes, PAUSE),
                Step::End => self.receive_end(),
                Step::Hold => self.hold(hold)?,
            };
            if seen.is_some() {
                break;
            }
        }
        Ok(Outcome {
            seen: seen.unwrap_or(Seen::Whole),
            expected: self.expected,
            sending_failed: self.sending_failed,
        })
    }

    /// Sees an end that comes meanwhile, as an application does that waits for something to read.
    fn hold(&mut self, hold: &Hold) -> Result<Option<Seen>> {
        let bytes = self.received;
        hold.reached.send(())?;
        loop {
            match self.connection.peek() {
                Ok(Some(0)) => return Ok(Some(Seen::Ended { bytes })),
                Ok(_) => {}
                Err(error) => return Ok(Some(Seen::failed(&error.into(), bytes))),
            }
            match hold.released.recv_timeout(GLANCE) {
                Ok(()) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// `None`: all is well.
    fn send(&mut self, bytes: u64) -> Option<Seen> {
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

    /// The kernel tells a reset once, to who asks first; after that reading looks like an end.
    fn sending_failed(&mut self, error: &io::Error) -> Seen {
        let bytes = self.received;
        self.sending_failed = true;
        match error.kind() {
            _ if bytes == self.expected => Seen::Whole,
            // The latter where the system has ended it, as who supervises a device has it do.
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
                Seen::Reset { bytes }
            }
            // Full all the time: the other end takes nothing.
            io::ErrorKind::WouldBlock => Seen::Open { bytes },
            // The connection had ended before that, and how is still to be read.
            _ => self
                .receive(self.expected - bytes, Duration::ZERO)
                .unwrap_or(Seen::Whole),
        }
    }

    fn receive(&mut self, bytes: u64, pause: Duration) -> Option<Seen> {
        let until = self.received + bytes;
        let mut block = vec![0; usize::try_from(BLOCK).unwrap_or_default()];
        while self.received < until {
            let wanted = usize::try_from((until - self.received).min(BLOCK)).unwrap_or_default();
            let read =
                self.receives
                    .read_block(&mut self.connection, self.received, &mut block[..wanted]);
            match read {
                Ok(0) => {
                    return Some(Seen::Ended {
                        bytes: self.received,
                    });
                }
                Ok(read) => self.received += read as u64,
                Err(error) => return Some(Seen::failed(&error, self.received)),
            }
            if !pause.is_zero() {
                std::thread::park_timeout(pause);
            }
        }
        None
    }

    fn receive_end(&mut self) -> Option<Seen> {
        let read = self
            .receives
            .read_block(&mut self.connection, self.received, &mut [0; 1]);
        match read {
            Ok(0) => None,
            Ok(_) => Some(Seen::Wrong("more than was sent".to_owned())),
            Err(error) => Some(Seen::failed(&error, self.received)),
        }
    }
}
