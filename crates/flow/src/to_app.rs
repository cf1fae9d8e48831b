//! Stream to application: read, put in order, write, and pass on the FIN.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use quictun_wire::code::FlowCode;

use crate::close::{Direction, Ending};
use crate::flow::{Flow, extend_head};
use crate::stream::ReadEnd;
use crate::{Reassembly, Socket, Stream};

/// Bytes taken from the stream before they are written: enough for one gathering write.
const READ_AHEAD: usize = 256 * 1024;

/// Chunks in one gathering write (`IOV_MAX` is 1024; past 64 the call no longer gets cheaper).
const WRITE_CHUNKS: usize = 64;

/// STREAM frames left unread on a blocked application before they are taken over. The library gives up
/// the whole connection at 1024 chunks with gaps between them, so this stays well below.
const UNREAD_FRAMES_MAX: u32 = 512;

/// Chunks held beyond gaps before the peer is taken for hostile: a window of 64 MiB in full packets.
const EARLY_CHUNKS_MAX: usize = 48 * 1024;

/// Chunks below this are copied when the application does not take them: a slice keeps its whole
/// receive buffer alive.
const COPY_BELOW: usize = 1024;

/// The direction from the tunnel to the application.
#[derive(Debug)]
pub(crate) struct ToApp {
    pub(crate) direction: Direction,
    /// The socket has not said would-block since it was last ready.
    pub(crate) writable: bool,
    /// STREAM frames announced since the stream was last read.
    pub(crate) news: u32,
    /// In order, to be written.
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    /// Bytes read from the stream in order so far; the offset at which reassembly takes over.
    received: u64,
    /// `Some` from the first gap on: from then on the stream is read unordered.
    reassembly: Option<Reassembly>,
    /// Everything up to the FIN is in `ready` or written.
    fin: bool,
    hold_max: usize,
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
    pub(crate) fn new(hold_max: usize) -> Self {
        Self {
            direction: Direction::Open,
            writable: true,
            news: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            received: 0,
            reassembly: None,
            fin: false,
            hold_max,
            bytes: 0,
        }
    }

    pub(crate) fn preload(&mut self, rest: Bytes, stream_offset: u64, fin: bool) {
        self.received = stream_offset + rest.len() as u64;
        self.fin = fin;
        self.push(rest);
    }

    pub(crate) fn close(&mut self) {
        if self.direction == Direction::Open {
            self.direction = Direction::Closed;
        }
        self.ready = VecDeque::new();
        self.ready_bytes = 0;
        self.reassembly = None;
    }

    pub(crate) fn buffered(&self) -> usize {
        self.ready_bytes + self.held()
    }

    fn held(&self) -> usize {
        self.reassembly.as_ref().map_or(0, Reassembly::held)
    }

    /// Whether no more may be held beyond gaps.
    fn is_full(&self) -> bool {
        self.held() >= self.hold_max
    }

    fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.ready_bytes += chunk.len();
            self.ready.push_back(chunk);
        }
    }

    /// How many bytes to take from the stream now; 0: leave them there, flow control holds the peer.
    fn appetite(&self) -> usize {
        let gap = self.reassembly.as_ref().is_some_and(Reassembly::has_gap);
        if self.is_full() {
            // The missing piece, if it has come, is the first thing a read gives; one byte of what
            // is early does no harm.
            return usize::from(self.ready.is_empty());
        }
        if self.writable {
            return READ_AHEAD.saturating_sub(self.ready_bytes);
        }
        let take_over = gap || self.news >= UNREAD_FRAMES_MAX;
        if take_over && self.buffered() < self.hold_max {
            READ_AHEAD
        } else {
            0
        }
    }

    /// One read from the stream into `ready` or the reassembly.
    fn take_in<T: Stream>(&mut self, stream: &mut T, max: usize) -> ReadEnd {
        let mut taken = 0;
        let (ready, ready_bytes) = (&mut self.ready, &mut self.ready_bytes);
        let mut push = |chunk: Bytes| {
            *ready_bytes += chunk.len();
            ready.push_back(chunk);
        };
        let reassembly = &mut self.reassembly;
        let end = stream.read(reassembly.is_none(), max, &mut |offset, chunk| {
            taken += chunk.len();
            match reassembly {
                Some(reassembly) => reassembly.insert(offset, chunk, &mut push),
                None => push(chunk),
            }
        });
        if self.reassembly.is_none() {
            self.received += taken as u64;
            let gap = end == ReadEnd::Blocked && taken == 0 && self.news > 0;
            if gap || (!self.writable && self.news >= UNREAD_FRAMES_MAX) {
                self.reassembly = Some(Reassembly::starting_at(self.received));
                return ReadEnd::More;
            }
        }
        self.news = 0;
        end
    }

    /// Lets go of large receive buffers behind small chunks that have to wait.
    fn compact(&mut self) {
        for chunk in &mut self.ready {
            if chunk.len() < COPY_BELOW {
                *chunk = Bytes::copy_from_slice(chunk);
            }
        }
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes += written as u64;
        self.ready_bytes -= written;
        while written > 0 {
            let Some(front) = self.ready.front_mut() else {
                break;
            };
            if written < front.len() {
                front.advance(written);
                break;
            }
            written -= front.len();
            self.ready.pop_front();
        }
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
            while !exhausted && !self.to_app.fin {
                let appetite = self.to_app.appetite();
                if appetite == 0 {
                    if let Some(code) = self.reset_behind_backlog(stream) {
                        self.end_by_peer_reset(stream, code);
                        return Drained::Ended;
                    }
                    break;
                }
                match self.to_app.take_in(stream, appetite) {
                    ReadEnd::More => {}
                    ReadEnd::Blocked => exhausted = true,
                    ReadEnd::Finished => self.to_app.fin = true,
                    ReadEnd::Reset(code) => {
                        self.end_by_peer_reset(stream, code);
                        return Drained::Ended;
                    }
                    ReadEnd::Gone => {
                        self.abandon(stream, FlowCode::Internal);
                        return Drained::Ended;
                    }
                }
                if self.hoards() {
                    self.abandon(stream, FlowCode::Limit);
                    return Drained::Ended;
                }
                // A probe for the missing piece that did not find it: wait for the next frame.
                exhausted |= self.to_app.is_full() && self.to_app.ready.is_empty();
            }
            if self.to_app.ready.is_empty() {
                if !self.to_app.fin {
                    return Drained::Starved;
                }
                self.finish_app(stream);
                return Drained::Ended;
            }
            if !self.to_app.writable {
                return Drained::AppBlocked;
            }
            self.write_app(stream);
        }
    }

    /// A reset is not read like bytes are, or an application that does not read would never hear of it.
    fn reset_behind_backlog<T: Stream>(&mut self, stream: &mut T) -> Option<u64> {
        if self.to_app.news == 0 {
            return None;
        }
        stream.received_reset()
    }

    /// Whether a peer makes us hold more pieces than any honest loss pattern does.
    fn hoards(&self) -> bool {
        let reassembly = self.to_app.reassembly.as_ref();
        reassembly.is_some_and(|reassembly| reassembly.pieces() > EARLY_CHUNKS_MAX)
    }

    /// One gathering write.
    fn write_app<T: Stream>(&mut self, stream: &mut T) {
        let mut slices = [IoSlice::new(&[]); WRITE_CHUNKS];
        let mut count = 0;
        for (slot, chunk) in slices.iter_mut().zip(&self.to_app.ready) {
            *slot = IoSlice::new(chunk);
            count += 1;
        }
        match self.socket.write(&slices[..count]) {
            Ok(written) => {
                if let Some(heads) = &mut self.heads {
                    let mut left = written;
                    for chunk in &self.to_app.ready {
                        let part = &chunk[..chunk.len().min(left)];
                        extend_head(&mut heads.to_app, part);
                        left -= part.len();
                    }
                }
                self.to_app.advance(written);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.to_app.writable = false;
                self.to_app.compact();
            }
            Err(_) => self.end_by_app_reset(stream),
        }
    }

    /// All bytes are with the application: pass on the FIN.
    fn finish_app<T: Stream>(&mut self, stream: &mut T) {
        if self.stopped {
            self.socket.abort();
            self.to_app.direction = Direction::Finished;
            self.settle(Ending::PeerReset(None));
            return;
        }
        match self.socket.finish() {
            Ok(()) => {
                self.to_app.direction = Direction::Finished;
                self.settle(Ending::Finished);
            }
            Err(_) => self.end_by_app_reset(stream),
        }
    }
}
