//! The receiving part of a stream. Bytes go here as soon as they have arrived, in order for the application or behind a
//! gap.
//!
//! Nothing is left in the carrier: data there keeps whole packets in memory, and the library limits the number of
//! gaps. Here small pieces are copied, and every byte and every piece counts ([`Inlet::held`]). An `Inlet` begins with
//! the stream: first the caller takes the header off its front ([`Inlet::header`], [`Inlet::skip_header`]), then a flow
//! owns the inlet.

use std::io::IoSlice;

use bytes::Bytes;
use quictun_wire::handover::HandedReceived;

use crate::flow::copies;
use crate::ready::{PACKED_MAX, ReadyBytes, WRITE_CHUNKS};
use crate::stream::ReadEnd;
use crate::{Reassembly, Stream};

/// Smaller pieces that have to wait are copied: a slice keeps its whole packet in memory.
const COPY_BELOW: usize = 1024;

/// Cost of a piece behind a gap besides its bytes: its node in a tree.
const EARLY_COST: usize = 160;

/// The receiving part of one stream.
#[derive(Debug)]
pub struct Inlet {
    /// Bytes in order, not yet consumed.
    ready: ReadyBytes,
    /// Bytes read from the stream in order so far. Reassembly takes over at this offset.
    received: u64,
    /// `Some` from the first gap on; the stream is then read unordered.
    reassembly: Option<Reassembly>,
    /// STREAM frames have arrived since the stream was last read until it blocked.
    unread: bool,
    /// Everything up to the FIN has arrived.
    whole: bool,
    /// The flow's data was complete before it moved to its current stream, which is only read to its end.
    drain_only: bool,
    /// Bytes taken off this stream and all earlier ones.
    taken: u64,
    header: u64,
    /// Number of the application's first byte on this stream.
    base: u64,
    /// Length of the longest packet that the peer has sent.
    packet_max: usize,
}

impl Default for Inlet {
    fn default() -> Self {
        Self::new()
    }
}

impl Inlet {
    /// Creates an inlet for a stream on which data may already have arrived.
    pub fn new() -> Self {
        Self {
            ready: ReadyBytes::default(),
            received: 0,
            reassembly: None,
            unread: true,
            whole: false,
            drain_only: false,
            taken: 0,
            header: 0,
            base: 0,
            packet_max: 0,
        }
    }

    /// Notes that a STREAM frame arrived. The peer's packets have at most `packet_max` bytes.
    pub fn handle_readable(&mut self, packet_max: usize) {
        self.unread = true;
        self.packet_max = packet_max;
    }

    /// Takes about `max` bytes off the stream, or fewer. Returns why it stopped.
    pub fn take_in<T: Stream>(&mut self, stream: &mut T, max: usize) -> ReadEnd {
        if self.drain_only {
            return self.spend(stream);
        }
        if self.whole {
            return ReadEnd::Finished;
        }
        loop {
            let mut taken = 0;
            let ready = &mut self.ready;
            let mut push = |chunk: Bytes| ready.push(chunk);
            let reassembly = &mut self.reassembly;
            let end = stream.read(reassembly.is_none(), max, &mut |offset, chunk| {
                taken += chunk.len();
                match reassembly {
                    Some(reassembly) => reassembly.insert(offset, chunk, &mut push),
                    None => push(chunk),
                }
            });
            self.taken += taken as u64;
            match &self.reassembly {
                Some(reassembly) => self.received = reassembly.next(),
                None => self.received += taken as u64,
            }
            if end == ReadEnd::Blocked && taken == 0 && self.unread && self.reassembly.is_none() {
                // Data has arrived, but not the next byte.
                self.reassembly = Some(Reassembly::starting_at(self.received));
                continue;
            }
            match end {
                ReadEnd::Finished => self.whole = true,
                ReadEnd::More => return end,
                ReadEnd::Blocked | ReadEnd::Reset(_) | ReadEnd::Gone => {}
            }
            self.unread = false;
            return end;
        }
    }

    /// Returns the first bytes, at most `max`, for a parser of the header.
    pub fn header(&self, max: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(max.min(self.ready.bytes()));
        for chunk in self.ready.pieces() {
            let part = chunk.len().min(max - bytes.len());
            bytes.extend_from_slice(&chunk[..part]);
            if bytes.len() == max {
                break;
            }
        }
        bytes
    }

    /// Removes a header of `bytes` bytes from the front. The application's bytes follow it.
    pub fn skip_header(&mut self, bytes: usize) {
        self.header += bytes as u64;
        self.advance(bytes);
    }

    /// Returns the number of bytes taken off this stream and all earlier ones, headers included. Each byte of a stream
    /// counts once.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the number of bytes that have arrived in order and wait.
    pub fn ready(&self) -> usize {
        self.ready.bytes()
    }

    /// Returns the memory that the inlet holds, in bytes: data in order, data behind gaps, and the overhead of both.
    pub fn held(&self) -> usize {
        let early = self.reassembly.as_ref();
        let early = early.map_or(0, |early| early.held() + early.pieces() * EARLY_COST);
        self.ready.held() + early
    }

    /// Returns the number of bytes that the inlet holds, without overhead.
    pub fn buffered(&self) -> usize {
        self.ready.bytes() + self.reassembly.as_ref().map_or(0, Reassembly::held)
    }

    /// Returns whether everything up to the FIN has arrived.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the number after the FIN's, once everything has arrived (PROTOCOL CONTROL-5).
    pub fn end(&self) -> Option<u64> {
        self.whole.then(|| self.next())
    }

    /// Returns the first number that has not arrived in order: of a byte, of the FIN, or the one after the FIN
    /// (PROTOCOL CONTROL-5).
    pub fn next(&self) -> u64 {
        self.base + self.received.saturating_sub(self.header) + u64::from(self.whole)
    }

    /// Makes the inlet of a flow that another process has handed over, and that has no stream yet.
    pub(crate) fn take_over(received: &HandedReceived) -> Self {
        let mut taken = Self::new();
        for piece in copies(&received.waiting, PACKED_MAX) {
            taken.ready.push(piece);
        }
        taken.ready.pack();
        taken.base = received.next();
        (taken.whole, taken.unread) = (received.whole, false);
        taken
    }

    /// Leaves a stream that is gone. Bytes that have arrived in order stay; the peer sends the rest again.
    pub(crate) fn leave(&mut self) {
        self.reassembly = None;
        self.unread = false;
        self.drain_only = false;
    }

    /// Continues with a new stream. `leg` is its inlet, with the header removed. Its bytes begin with the number
    /// [`Inlet::next`].
    pub(crate) fn resume(&mut self, leg: Self) {
        self.taken += leg.taken;
        self.packet_max = leg.packet_max;
        if self.whole {
            self.drain_only = !leg.whole;
            return;
        }
        self.base = self.next();
        (self.received, self.header) = (leg.received, leg.header);
        (self.reassembly, self.unread) = (leg.reassembly, leg.unread);
        self.whole = leg.whole;
        for piece in leg.ready.pieces() {
            self.ready.push(piece.clone());
        }
    }

    /// Returns whether the stream must still be read although all data has arrived: see [`Inlet::take_in`].
    pub fn is_drain_only(&self) -> bool {
        self.drain_only
    }

    /// Reads a stream whose data is not needed to its end, so that the library forgets it.
    fn spend<T: Stream>(&mut self, stream: &mut T) -> ReadEnd {
        let mut taken = 0;
        let end = stream.read(false, usize::MAX, &mut |_, chunk| taken += chunk.len());
        self.taken += taken as u64;
        self.drain_only = end == ReadEnd::Blocked;
        end
    }

    /// Fills `slices` with bytes in order, at most `most`. Returns how many slices were filled.
    pub(crate) fn slices<'a>(
        &'a self,
        slices: &mut [IoSlice<'a>; WRITE_CHUNKS],
        most: usize,
    ) -> usize {
        self.ready.slices(slices, most)
    }

    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        self.ready.pieces()
    }

    pub(crate) fn advance(&mut self, bytes: usize) {
        self.ready.advance(bytes);
    }

    /// Copies small pieces that have to wait, so that they keep no packets in memory.
    pub fn compact(&mut self) {
        self.ready.compact(copy_below(self.packet_max));
    }

    /// Returns the number of batches of received datagrams, of up to 64 KiB each, that waiting pieces keep in memory.
    pub fn batches(&self) -> usize {
        self.ready.batches()
    }

    /// Copies the pieces that keep batches in memory. [`Inlet::held`] does not change.
    pub fn detach(&mut self) {
        self.ready.detach();
    }

    /// Merges the waiting pieces into a few copies.
    pub fn pack(&mut self) {
        self.ready.pack();
    }

    pub(crate) fn clear(&mut self) {
        self.ready = ReadyBytes::default();
        self.reassembly = None;
    }
}

/// Returns the length below which pieces are copied. A piece that fills less than half of the longest packet must not
/// keep that packet.
fn copy_below(packet_max: usize) -> usize {
    COPY_BELOW.max(packet_max / 2)
}
