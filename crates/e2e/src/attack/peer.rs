//! One hostile connection: what it has opened, pours into, and has been answered.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{
    Connection, ConnectionHandle, Dir, Event, ReadError, StreamEvent, StreamId, VarInt,
};

/// What is poured into streams, without being copied.
static ZEROS: [u8; 8 * 1024] = [0; 8 * 1024];

/// How far a connection has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its handshake is not done.
    Connecting,
    /// Its handshake is done.
    Connected,
    /// It is gone, for this reason.
    Lost(String),
}

/// Counts of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Streams whose first byte from the server has arrived: their target is connected.
    pub answered: u64,
    /// Streams that the server has reset or stopped.
    pub refused: u64,
    /// Bytes handed to streams, and frames handed over.
    pub poured: u64,
    /// Bytes read from streams.
    pub received: u64,
}

/// A stream that is poured into or read.
#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    pours: bool,
    answered: bool,
    refused: bool,
}

/// A hostile connection.
#[derive(Debug)]
pub struct Peer {
    pub(super) connection: Connection,
    pub(super) handle: ConnectionHandle,
    pub(super) source: usize,
    pub(super) timer: Option<Instant>,
    pub(super) dirty: bool,
    /// Whether bytes that arrive are read, beyond the first of each stream.
    pub(super) reads: bool,
    phase: Phase,
    streams: BTreeMap<StreamId, Habit>,
    ready: VecDeque<StreamId>,
    counts: Counts,
}

impl Peer {
    pub(super) fn new(
        connection: Connection,
        handle: ConnectionHandle,
        source: usize,
        reads: bool,
    ) -> Self {
        Self {
            connection,
            handle,
            source,
            timer: None,
            dirty: true,
            reads,
            phase: Phase::Connecting,
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// How far it has come.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// What has become of its streams.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Opens a stream; `None` while the server grants none.
    pub fn open(&mut self) -> Option<StreamId> {
        let stream = self.connection.streams().open(Dir::Bi)?;
        self.streams.insert(stream, Habit::default());
        Some(stream)
    }

    /// Writes what flow control takes of this, in its place in the stream; returns how much that is.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> usize {
        // An error means that the stream is over, or blocked: then nothing is taken.
        let taken = self.connection.send_stream(stream).write(bytes);
        let taken = taken.unwrap_or(0);
        self.counts.poured += taken as u64;
        taken
    }

    /// Sends zeros on this stream from now on, as much as flow control takes.
    pub fn pour(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default().pours = true;
        self.ready.push_back(stream);
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: StreamId) {
        const APP_RESET: VarInt = VarInt::from_u32(0x01);
        // Errors mean that the stream is over already.
        drop(self.connection.send_stream(stream).reset(APP_RESET));
        drop(self.connection.recv_stream(stream).stop(APP_RESET));
    }

    /// Hands over a DATAGRAM frame's content; `false` where there is no room for it now.
    pub fn send_frames(&mut self, content: Bytes) -> bool {
        let bytes = content.len() as u64;
        let taken = self.connection.datagrams().send(content, false).is_ok();
        self.counts.poured += if taken { bytes } else { 0 };
        taken
    }

    /// Content of the largest DATAGRAM frame that fits into a packet, bytes; 0 before the handshake.
    pub fn frame_room(&mut self) -> usize {
        self.connection.datagrams().max_size().unwrap_or(0)
    }

    fn pours(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|habit| habit.pours)
    }

    /// Follows what the library reports.
    pub(super) fn handle_events(&mut self) {
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.phase = Phase::Connected,
                Event::ConnectionLost { reason } => self.phase = Phase::Lost(reason.to_string()),
                Event::Stream(StreamEvent::Readable { id }) => self.read(id),
                Event::Stream(StreamEvent::Writable { id }) if self.pours(id) => {
                    self.ready.push_back(id);
                }
                Event::Stream(StreamEvent::Stopped { id, .. }) => self.refuse(id),
                _ => {}
            }
        }
    }

    /// Pours until every stream is blocked, or has had its turn. Tells whether some are left.
    pub(super) fn pour_ready(&mut self) -> bool {
        for _ in 0..self.ready.len() {
            let Some(stream) = self.ready.pop_front() else {
                break;
            };
            // One write each: where one stream took all the credit, the others would cost the server nothing.
            let mut chunk = [Bytes::from_static(&ZEROS)];
            let written = self.connection.send_stream(stream).write_chunks(&mut chunk);
            // An error means that the stream is blocked, and will be reported as writable, or over.
            let goes_on = written.is_ok();
            self.counts.poured += written.map_or(0, |written| written.bytes as u64);
            if goes_on {
                self.ready.push_back(stream);
            }
        }
        !self.ready.is_empty()
    }

    /// Reads in any order, so that a byte that never arrives holds back no other.
    fn read(&mut self, stream: StreamId) {
        let habit = self.streams.entry(stream).or_default();
        if habit.answered && !self.reads {
            return;
        }
        let mut recv = self.connection.recv_stream(stream);
        let Ok(mut chunks) = recv.read(false) else {
            return;
        };
        let most = if self.reads { usize::MAX } else { 1 };
        let reset = loop {
            match chunks.next(most) {
                Ok(Some(chunk)) => {
                    self.counts.received += chunk.bytes.len() as u64;
                    self.counts.answered +=
                        u64::from(!std::mem::replace(&mut habit.answered, true));
                    if !self.reads {
                        break false;
                    }
                }
                Ok(None) | Err(ReadError::Blocked) => break false,
                Err(ReadError::Reset(_)) => break true,
            }
        };
        if chunks.finalize().should_transmit() {
            self.dirty = true;
        }
        if reset {
            self.refuse(stream);
        }
    }

    fn refuse(&mut self, stream: StreamId) {
        let habit = self.streams.entry(stream).or_default();
        if !std::mem::replace(&mut habit.refused, true) {
            self.counts.refused += 1;
        }
    }
}
