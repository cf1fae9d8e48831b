//! One hostile connection: its streams, the data it pours into them, and the server's answers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{
    Connection, ConnectionHandle, Dir, Event, ReadError, StreamEvent, StreamId, VarInt,
};

/// The data that is poured into streams, without copies.
static ZEROS: [u8; 8 * 1024] = [0; 8 * 1024];

/// The state of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The handshake is not complete.
    Connecting,
    /// The handshake is complete.
    Connected,
    /// The connection is lost, for this reason.
    Lost(String),
}

/// Counts of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerCounts {
    /// Streams whose first byte from the server has arrived: their target is connected.
    pub answered: u64,
    /// Streams that the server has reset or stopped.
    pub refused: u64,
    /// Bytes written to streams and sent as frames.
    pub poured: u64,
    /// Bytes read from streams.
    pub received: u64,
}

/// The use of one stream, and the server's reaction to it.
#[derive(Clone, Copy, Debug, Default)]
struct StreamUse {
    pours: bool,
    answered: bool,
    refused: bool,
}

/// One hostile connection to the server.
#[derive(Debug)]
pub struct HostilePeer {
    pub(super) connection: Connection,
    pub(super) handle: ConnectionHandle,
    pub(super) source: usize,
    pub(super) timer: Option<Instant>,
    pub(super) dirty: bool,
    /// True if received data is read beyond the first byte of each stream.
    pub(super) reads: bool,
    phase: PeerState,
    streams: BTreeMap<StreamId, StreamUse>,
    ready: VecDeque<StreamId>,
    counts: PeerCounts,
}

impl HostilePeer {
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
            phase: PeerState::Connecting,
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            counts: PeerCounts::default(),
        }
    }

    /// Returns the state of the connection.
    pub fn phase(&self) -> &PeerState {
        &self.phase
    }

    /// Returns the connection's counts.
    pub fn counts(&self) -> PeerCounts {
        self.counts
    }

    /// Opens a stream; returns `None` if the server has granted none.
    pub fn open(&mut self) -> Option<StreamId> {
        let stream = self.connection.streams().open(Dir::Bi)?;
        self.streams.insert(stream, StreamUse::default());
        Some(stream)
    }

    /// Writes the next bytes of a stream, as many as flow control allows; returns their number.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> usize {
        // An error means that the stream is closed or blocked: no bytes are written.
        let taken = self.connection.send_stream(stream).write(bytes);
        let taken = taken.unwrap_or(0);
        self.counts.poured += taken as u64;
        taken
    }

    /// Keeps sending zeros on this stream, as many as flow control allows.
    pub fn pour(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default().pours = true;
        self.ready.push_back(stream);
    }

    /// Resets a stream and stops its receiving direction.
    pub fn reset(&mut self, stream: StreamId) {
        const APP_RESET: VarInt = VarInt::from_u32(0x01);
        // An error means that the stream is already closed.
        drop(self.connection.send_stream(stream).reset(APP_RESET));
        drop(self.connection.recv_stream(stream).stop(APP_RESET));
    }

    /// Queues the content of a DATAGRAM frame; returns false if there is no room for it now.
    pub fn send_frames(&mut self, content: Bytes) -> bool {
        let bytes = content.len() as u64;
        let taken = self.connection.datagrams().send(content, false).is_ok();
        self.counts.poured += if taken { bytes } else { 0 };
        taken
    }

    /// Returns the content size in bytes of the largest DATAGRAM frame that fits into a packet; 0 before the handshake.
    pub fn frame_room(&mut self) -> usize {
        self.connection.datagrams().max_size().unwrap_or(0)
    }

    fn pours(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|habit| habit.pours)
    }

    /// Handles the events that the QUIC library reports.
    pub(super) fn handle_events(&mut self) {
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.phase = PeerState::Connected,
                Event::ConnectionLost { reason } => {
                    self.phase = PeerState::Lost(reason.to_string());
                }
                Event::Stream(StreamEvent::Readable { id }) => self.read(id),
                Event::Stream(StreamEvent::Writable { id }) if self.pours(id) => {
                    self.ready.push_back(id);
                }
                Event::Stream(StreamEvent::Stopped { id, .. }) => self.refuse(id),
                _ => {}
            }
        }
    }

    /// Writes to every ready stream once. Returns true if some streams can take more data.
    pub(super) fn pour_ready(&mut self) -> bool {
        for _ in 0..self.ready.len() {
            let Some(stream) = self.ready.pop_front() else {
                break;
            };
            // One write per stream: if one stream used all the credit, the others would cost the server nothing.
            let mut chunk = [Bytes::from_static(&ZEROS)];
            let written = self.connection.send_stream(stream).write_chunks(&mut chunk);
            // An error means that the stream is closed, or blocked until the library reports it as writable.
            let goes_on = written.is_ok();
            self.counts.poured += written.map_or(0, |written| written.bytes as u64);
            if goes_on {
                self.ready.push_back(stream);
            }
        }
        !self.ready.is_empty()
    }

    /// Reads in any order, so that a byte that never arrives does not block the others.
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
