//! The content of a ring's slot: one cache line, in four pieces of the processor's widest plain move.
//!
//! A 16-byte load of data that two 8-byte stores have just written must wait until both stores reach the cache. They
//! queue behind every older store, including stores to slots that the other processor has in its cache. A copy of a
//! message that was assembled field by field would therefore wait for a cache line to cross between the processors.
//! This module assembles every piece in a register, and reads and writes it as a whole.

use std::fmt;

use thiserror::Error;

use word_pair::WordPair;

/// Number of 64-bit words in a message.
pub(crate) const WORDS: usize = 8;

/// Largest number of bytes that a message carries inline.
pub const INLINE: usize = 32;

/// A few numbers and up to 32 bytes. A message is copied out of the ring as a whole before it is inspected.
///
/// The users of a channel define the meaning of the fields. Only [`off`](Self::off) and [`len`](Self::len) have a fixed
/// meaning: a payload in the sender's arena. Setters write two words at a time.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Message([WordPair; WORDS / 2]);

/// The error for a payload that is too long to be carried inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0} bytes exceed the {INLINE} of a message: use a buffer")]
pub struct MessageTooLong(usize);

#[cfg(target_arch = "x86_64")]
mod word_pair {
    use std::arch::x86_64::{__m128i, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_unpackhi_epi64};

    #[derive(Clone, Copy)]
    #[repr(transparent)]
    pub(super) struct WordPair(__m128i);

    impl WordPair {
        #[inline(always)]
        pub(super) fn new(low: u64, high: u64) -> Self {
            // SAFETY: every x86-64 processor has SSE2.
            Self(unsafe { _mm_set_epi64x(high.cast_signed(), low.cast_signed()) })
        }

        #[inline(always)]
        pub(super) fn low(self) -> u64 {
            // SAFETY: as above.
            unsafe { _mm_cvtsi128_si64(self.0) }.cast_unsigned()
        }

        #[inline(always)]
        pub(super) fn high(self) -> u64 {
            // SAFETY: as above.
            Self(unsafe { _mm_unpackhi_epi64(self.0, self.0) }).low()
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod word_pair {
    #[derive(Clone, Copy)]
    #[repr(C)]
    pub(super) struct WordPair(u64, u64);

    impl WordPair {
        #[inline(always)]
        pub(super) fn new(low: u64, high: u64) -> Self {
            Self(low, high)
        }

        #[inline(always)]
        pub(super) fn low(self) -> u64 {
            self.0
        }

        #[inline(always)]
        pub(super) fn high(self) -> u64 {
            self.1
        }
    }
}

impl Message {
    /// Creates a message with an operation or a result code, and all other fields zero.
    #[inline(always)]
    pub fn new(op: u16) -> Self {
        Self::default().with_head(0, op, 0, 0)
    }

    /// Returns all words. The low half of the first word, which belongs to the ring, is zero.
    fn to_words(self) -> [u64; WORDS] {
        let mut words = std::array::from_fn(|at| {
            let word_pair = self.0[at / 2];
            if at % 2 == 0 {
                word_pair.low()
            } else {
                word_pair.high()
            }
        });
        words[0] = words[0] >> 32 << 32;
        words
    }

    /// Returns the first word. Its low half belongs to the ring.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        self.0[0].low()
    }

    /// Copies the message in whole pieces even if only parts of the copy are used. Otherwise, the compiler would read
    /// the used parts directly and stall on those that span two pieces.
    #[inline(always)]
    #[must_use]
    pub fn whole(&self) -> Self {
        // SAFETY: it is borrowed.
        unsafe { Self::read_from(self) }
    }

    /// Copies a message from memory that another process may write concurrently. The copy may then mix old and new
    /// content.
    ///
    /// # Safety
    ///
    /// The line at `from` must be readable, and no thread of this process may change it during the copy.
    // SAFETY: the caller upholds the contract.
    #[inline(always)]
    pub(crate) unsafe fn read_from(from: *const Self) -> Self {
        let halves: *const WordPair = from.cast();
        Self(std::array::from_fn(|at| {
            // SAFETY: `at` is one of the four pieces of a line.
            let word_pair = unsafe { halves.add(at) };
            // SAFETY: the piece is readable, any bits are valid words, and the compiler assumes nothing about a
            // volatile read.
            unsafe { word_pair.read_volatile() }
        }))
    }

    /// Copies all words but the first to memory that another process reads.
    ///
    /// # Safety
    ///
    /// The line at `to` must be writable, and this process must hold no plain references to it.
    // SAFETY: the caller upholds the contract.
    #[inline(always)]
    pub(crate) unsafe fn write_rest_to(&self, to: *mut Self) {
        let words: *mut u64 = to.cast();
        // SAFETY: this is the second of the eight words of a line.
        let second = unsafe { words.add(1) };
        // SAFETY: the caller guarantees that the line is writable.
        unsafe { second.write_volatile(self.0[0].high()) };
        let halves: *mut WordPair = to.cast();
        for at in 1..WORDS / 2 {
            // SAFETY: `at` is one of the four pieces of a line.
            let word_pair = unsafe { halves.add(at) };
            // SAFETY: the caller guarantees that the line is writable.
            unsafe { word_pair.write_volatile(self.0[at]) };
        }
    }

    /// Sets the call id, the operation, the flags and the object number.
    #[inline(always)]
    #[must_use]
    pub fn with_head(mut self, cid: u32, op: u16, flags: u16, sock: u32) -> Self {
        let ops = u32::from(op) | u32::from(flags) << 16;
        self.0[0] = WordPair::new(u64::from(cid) << 32, pair(ops, sock));
        self
    }

    /// Sets the call id and the flags.
    #[inline(always)]
    #[must_use]
    pub fn with_call(self, cid: u32, flags: u16) -> Self {
        let (op, sock) = (self.op(), self.sock());
        self.with_head(cid, op, flags, sock)
    }

    /// Sets the number of the object that the message concerns.
    #[inline(always)]
    #[must_use]
    pub fn with_sock(self, sock: u32) -> Self {
        let (cid, op, flags) = (self.cid(), self.op(), self.flags());
        self.with_head(cid, op, flags, sock)
    }

    /// Sets the offset and length of a payload in the sender's arena. For an inline payload, only the length is used.
    #[inline(always)]
    #[must_use]
    pub fn with_payload(mut self, off: u32, len: u32) -> Self {
        self.0[1] = WordPair::new(pair(off, len), self.arg());
        self
    }

    /// Sets the numeric argument.
    #[inline(always)]
    #[must_use]
    pub fn with_arg(mut self, arg: u64) -> Self {
        self.0[1] = WordPair::new(self.0[1].low(), arg);
        self
    }

    /// Sets an inline payload. Fails if it is longer than [`INLINE`] bytes.
    #[inline(always)]
    pub fn with_bytes(self, bytes: &[u8]) -> Result<Self, MessageTooLong> {
        let len = u32::try_from(bytes.len())
            .ok()
            .filter(|len| *len as usize <= INLINE)
            .ok_or(MessageTooLong(bytes.len()))?;
        let (chunks, rest) = bytes.as_chunks::<8>();
        let last = (0..)
            .step_by(8)
            .zip(rest)
            .fold(0, |word, (shift, byte)| word | u64::from(*byte) << shift);
        // `chunks` has at most four elements, and if it has four, `rest` is empty.
        let word = |at: usize| match chunks.get(at) {
            Some(chunk) => u64::from_le_bytes(*chunk),
            None if at == chunks.len() => last,
            None => 0,
        };
        let mut message = self.with_payload(0, len);
        message.0[2] = WordPair::new(word(0), word(1));
        message.0[3] = WordPair::new(word(2), word(3));
        Ok(message)
    }

    /// Returns the id of the call that the message belongs to.
    #[inline(always)]
    pub fn cid(&self) -> u32 {
        high(self.0[0].low())
    }

    /// Returns the number of the operation that is called.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    pub fn op(&self) -> u16 {
        low(self.0[0].high()) as u16
    }

    /// Returns the flags of the message.
    #[inline(always)]
    pub fn flags(&self) -> u16 {
        (low(self.0[0].high()) >> 16) as u16
    }

    /// Returns the number of the object that the message concerns.
    #[inline(always)]
    pub fn sock(&self) -> u32 {
        high(self.0[0].high())
    }

    /// Returns the offset of the payload in the sender's arena.
    #[inline(always)]
    pub fn off(&self) -> u32 {
        low(self.0[1].low())
    }

    /// Returns the length of the payload in bytes.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "`len` is the name of a field")]
    pub fn len(&self) -> u32 {
        high(self.0[1].low())
    }

    /// Returns the numeric argument.
    #[inline(always)]
    pub fn arg(&self) -> u64 {
        self.0[1].high()
    }

    /// Returns the inline payload. If [`len`](Self::len) exceeds [`INLINE`], returns all [`INLINE`] bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        let inline = self.inline();
        inline.get(..self.len() as usize).unwrap_or(inline)
    }

    #[inline(always)]
    fn inline(&self) -> &[u8; INLINE] {
        // The pointer is derived from the whole array: a pointer to one element must not be used to access the next.
        let halves = self.0.as_ptr();
        // SAFETY: this is the third of the four pieces of a line.
        let last: *const WordPair = unsafe { halves.add(2) };
        // SAFETY: these are the last two of four pieces: 32 initialised bytes without padding, borrowed with `self`.
        unsafe { &*last.cast() }
    }
}

impl Default for Message {
    #[inline(always)]
    fn default() -> Self {
        Self([WordPair::new(0, 0); WORDS / 2])
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.to_words() == other.to_words()
    }
}

impl Eq for Message {}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("cid", &self.cid())
            .field("op", &self.op())
            .field("flags", &self.flags())
            .field("sock", &self.sock())
            .field("off", &self.off())
            .field("len", &self.len())
            .field("arg", &self.arg())
            .field("bytes", &self.bytes())
            .finish()
    }
}

#[inline(always)]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
fn low(word: u64) -> u32 {
    word as u32
}

#[inline(always)]
fn high(word: u64) -> u32 {
    low(word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place_in_the_line() {
        let bytes: [u8; INLINE] = std::array::from_fn(|at| u8::try_from(0x1c + at).expect("small"));
        let message = Message::default()
            .with_bytes(&bytes)
            .expect("fits")
            .with_arg(0x1b1a_1918_1716_1514)
            .with_payload(0x0f0e_0d0c, 0x1312_1110)
            .with_head(1, 0x0504, 2, 1)
            .with_sock(0x0b0a_0908)
            .with_call(0x0302_0100, 0x0706);
        let words = message.to_words();
        let line: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // The first four bytes belong to the ring.
        assert_eq!(line[..4], [0; 4]);
        assert_eq!(line[4..], (0..60).collect::<Vec<u8>>());
        assert_eq!(
            (message.cid(), message.op(), message.flags(), message.sock()),
            (0x0302_0100, 0x0504, 0x0706, 0x0b0a_0908)
        );
        assert_eq!(
            (message.off(), message.len(), message.arg()),
            (0x0f0e_0d0c, 0x1312_1110, 0x1b1a_1918_1716_1514)
        );
        assert_eq!(message.bytes(), bytes);
    }

    #[test]
    fn a_payload_of_any_length_that_fits_is_carried() {
        let bytes: Vec<u8> = (1..=33).collect();
        for len in 0..=INLINE {
            let full = Message::default().with_bytes(&[0xff; INLINE]).expect("32");
            let message = full.with_bytes(&bytes[..len]).expect("fits");
            assert_eq!(message.bytes(), &bytes[..len]);
            let rest = &message.inline()[len..];
            assert!(rest.iter().all(|byte| *byte == 0), "{len} bytes");
        }
        assert_eq!(
            Message::default().with_bytes(&bytes),
            Err(MessageTooLong(33))
        );
    }
}
