//! Where a stream's bytes go as soon as they have arrived: in order for the application, or behind a gap.
//!
//! Nothing is left in the QUIC library. What it holds pins whole packets, and of gaps it bears only so many; here
//! small pieces are copied, and every byte and every piece counts ([`Inlet::held`]). An `Inlet` begins with the stream:
//! first the header is taken off its front ([`Inlet::header`], [`Inlet::skip_header`]), then a flow owns it.

use std::io::IoSlice;

use bytes::Bytes;

use crate::ready::{Ready, WRITE_CHUNKS};
use crate::stream::ReadEnd;
use crate::{Reassembly, Stream};

/// Smaller pieces are copied where they have to wait: a slice keeps the whole packet alive that it came in.
const COPY_BELOW: usize = 1024;

/// What a piece behind a gap costs besides its bytes: its place in a tree.
const EARLY_COST: usize = 160;

/// The receiving part of one stream.
#[derive(Debug)]
pub struct Inlet {
    /// In order, to be consumed.
    ready: Ready,
    /// Bytes read from the stream in order so far; the offset at which reassembly takes over.
    received: u64,
    /// `Some` from the first gap on: from then on the stream is read unordered.
    reassembly: Option<Reassembly>,
    /// STREAM frames have been announced since the stream was last read to its end.
    news: bool,
    /// Everything up to the FIN is here, or was.
    whole: bool,
    /// The flow was whole before it came to its present stream, of which only the end is of interest.
    spent: bool,
    /// Bytes taken off the stream, and off those before it.
    taken: u64,
    header: u64,
    /// Number of the application's first byte on this stream.
    base: u64,
    /// Longest packet that the peer has sent.
    packet_max: usize,
}

impl Default for Inlet {
    fn default() -> Self {
        Self::new()
    }
}

impl Inlet {
    /// An inlet for a stream of which something may have arrived.
    pub fn new() -> Self {
        Self {
            ready: Ready::default(),
            received: 0,
            reassembly: None,
            news: true,
            whole: false,
            spent: false,
            taken: 0,
            header: 0,
            base: 0,
            packet_max: 0,
        }
    }

    /// A STREAM frame arrived; packets have at most so many bytes.
    pub fn handle_readable(&mut self, packet_max: usize) {
        self.news = true;
        self.packet_max = packet_max;
    }

    /// Takes at most about `max` bytes off the stream.
    pub fn take_in<T: Stream>(&mut self, stream: &mut T, max: usize) -> ReadEnd {
        if self.spent {
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
            if end == ReadEnd::Blocked && taken == 0 && self.news && self.reassembly.is_none() {
                // Something has arrived, and it is not the next byte.
                self.reassembly = Some(Reassembly::starting_at(self.received));
                continue;
            }
            match end {
                ReadEnd::Finished => self.whole = true,
                ReadEnd::More => return end,
                ReadEnd::Blocked | ReadEnd::Reset(_) | ReadEnd::Gone => {}
            }
            self.news = false;
            return end;
        }
    }

    /// The first bytes, at most so many, for a parser of the header.
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

    /// The header has so many bytes; what follows is the application's.
    pub fn skip_header(&mut self, bytes: usize) {
        self.header += bytes as u64;
        self.advance(bytes);
    }

    /// Bytes taken off the stream in all, once each.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes that are here in order.
    pub fn ready(&self) -> usize {
        self.ready.bytes()
    }

    /// Memory that the inlet holds, bytes: data in order, data behind a gap, and what keeping them costs.
    pub fn held(&self) -> usize {
        let early = self.reassembly.as_ref();
        let early = early.map_or(0, |early| early.held() + early.pieces() * EARLY_COST);
        self.ready.held() + early
    }

    /// Bytes that the peer has been given back the credit for, once they are consumed.
    pub fn buffered(&self) -> usize {
        self.ready.bytes() + self.reassembly.as_ref().map_or(0, Reassembly::held)
    }

    /// Whether everything up to the FIN is here, or was.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The number after the FIN's, once everything is here (PROTOCOL CONTROL-5).
    pub fn end(&self) -> Option<u64> {
        self.whole.then(|| self.next())
    }

    /// The first number that is not here in order: of a byte, of the FIN, or after it (PROTOCOL CONTROL-5).
    pub fn next(&self) -> u64 {
        self.base + self.received.saturating_sub(self.header) + u64::from(self.whole)
    }

    /// The stream is gone. What it brought in order stays, the rest will come again.
    pub(crate) fn leave(&mut self) {
        self.reassembly = None;
        self.news = false;
        self.spent = false;
    }

    /// Goes on with a new stream, whose header has been taken off `leg`: it begins with the number [`Inlet::next`].
    pub(crate) fn go_on(&mut self, leg: Self) {
        self.taken += leg.taken;
        self.packet_max = leg.packet_max;
        if self.whole {
            self.spent = !leg.whole;
            return;
        }
        self.base = self.next();
        (self.received, self.header) = (leg.received, leg.header);
        (self.reassembly, self.news) = (leg.reassembly, leg.news);
        self.whole = leg.whole;
        for piece in leg.ready.pieces() {
            self.ready.push(piece.clone());
        }
    }

    /// Whether the stream has still to be read although everything is here: see [`Inlet::take_in`].
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// Reads a stream of which nothing is wanted to its end, so that the library forgets it.
    fn spend<T: Stream>(&mut self, stream: &mut T) -> ReadEnd {
        let mut taken = 0;
        let end = stream.read(false, usize::MAX, &mut |_, chunk| taken += chunk.len());
        self.taken += taken as u64;
        self.spent = end == ReadEnd::Blocked;
        end
    }

    /// The bytes in order, at most so many; returns how many slices they take.
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

    /// Batches of received datagrams, of up to 64 KiB each, that stay in memory because of pieces that wait.
    pub fn batches(&self) -> usize {
        self.ready.batches()
    }

    /// Copies the pieces that keep batches in memory. What this holds ([`Inlet::held`]) stays the same.
    pub fn detach(&mut self) {
        self.ready.detach();
    }

    /// Copies the pieces that wait into few.
    pub fn pack(&mut self) {
        self.ready.pack();
    }

    pub(crate) fn clear(&mut self) {
        self.ready = Ready::default();
        self.reassembly = None;
    }
}

/// A piece that fills less than half of the longest packet is not worth the packet.
fn copy_below(packet_max: usize) -> usize {
    COPY_BELOW.max(packet_max / 2)
}
