//! What a slot of a ring carries: one cache line, in four pieces of the processor's widest plain moves.
//!
//! A load of 16 bytes that were just written by two stores of 8 has to wait until both have reached the cache, and they
//! wait there behind every older store: also behind those to slots that the other processor has in its cache. So a copy of
//! a message that was put together field by field would wait for a line to cross between the processors. Here every piece
//! is put together in a register, and written and read as a whole.

use std::fmt;

use thiserror::Error;

use half::Half;

/// 64-bit words of a message.
pub(crate) const WORDS: usize = 8;

/// Bytes that a message carries itself.
pub const INLINE: usize = 32;

/// A few numbers and up to 32 bytes, copied out of the ring as a whole before it is looked at.
///
/// The users of a channel agree on what the fields mean; only [`off`](Self::off) and [`len`](Self::len) mean the same to
/// all, a payload in the sender's arena. Fields are set two words at a time.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Message([Half; WORDS / 2]);

/// More bytes than a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0} bytes: a message carries {INLINE}; put more into a buffer")]
pub struct MessageTooLong(usize);

#[cfg(target_arch = "x86_64")]
mod half {
    use std::arch::x86_64::{__m128i, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_unpackhi_epi64};

    #[derive(Clone, Copy)]
    #[repr(transparent)]
    pub(super) struct Half(__m128i);

    impl Half {
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
mod half {
    #[derive(Clone, Copy)]
    #[repr(C)]
    pub(super) struct Half(u64, u64);

    impl Half {
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
    /// A message that says what is to be done, or how it went.
    #[inline(always)]
    pub fn new(op: u16) -> Self {
        Self::default().with_head(0, op, 0, 0)
    }

    /// All words; the low half of the first, which is the ring's, as zero.
    fn to_words(self) -> [u64; WORDS] {
        let mut words = std::array::from_fn(|at| {
            let half = self.0[at / 2];
            if at % 2 == 0 { half.low() } else { half.high() }
        });
        words[0] = words[0] >> 32 << 32;
        words
    }

    /// The first word, of which the low half is the ring's.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        self.0[0].low()
    }

    /// A copy in whole pieces, also where only parts of it are used: the compiler would read these by themselves, and wait
    /// where they are parts of two pieces.
    #[inline(always)]
    #[must_use]
    pub fn whole(&self) -> Self {
        // SAFETY: it is borrowed.
        unsafe { Self::read_from(self) }
    }

    /// Copies memory that another process may write to meanwhile: the copy is then of what it makes of it.
    ///
    /// # Safety
    ///
    /// The line there can be read, and nobody in this process changes it meanwhile.
    // SAFETY: it is the caller's promise.
    #[inline(always)]
    pub(crate) unsafe fn read_from(from: *const Self) -> Self {
        let halves: *const Half = from.cast();
        Self(std::array::from_fn(|at| {
            // SAFETY: one of the four pieces of a line.
            let half = unsafe { halves.add(at) };
            // SAFETY: it can be read, any bits are two words, and the compiler believes nothing of what is read.
            unsafe { half.read_volatile() }
        }))
    }

    /// Copies all but the first word to memory that another process reads.
    ///
    /// # Safety
    ///
    /// The line there can be written, and nobody in this process has plain references to it.
    // SAFETY: it is the caller's promise.
    #[inline(always)]
    pub(crate) unsafe fn write_rest_to(&self, to: *mut Self) {
        let words: *mut u64 = to.cast();
        // SAFETY: the second of the eight words of a line.
        let second = unsafe { words.add(1) };
        // SAFETY: it can be written.
        unsafe { second.write_volatile(self.0[0].high()) };
        let halves: *mut Half = to.cast();
        for at in 1..WORDS / 2 {
            // SAFETY: one of the four pieces of a line.
            let half = unsafe { halves.add(at) };
            // SAFETY: it can be written.
            unsafe { half.write_volatile(self.0[at]) };
        }
    }

    /// With what says which call it belongs to, what is to be done, how, and to what.
    #[inline(always)]
    #[must_use]
    pub fn with_head(mut self, cid: u32, op: u16, flags: u16, sock: u32) -> Self {
        let ops = u32::from(op) | u32::from(flags) << 16;
        self.0[0] = Half::new(u64::from(cid) << 32, pair(ops, sock));
        self
    }

    /// With the call that it belongs to, and how.
    #[inline(always)]
    #[must_use]
    pub fn with_call(self, cid: u32, flags: u16) -> Self {
        let (op, sock) = (self.op(), self.sock());
        self.with_head(cid, op, flags, sock)
    }

    /// With the number of what it is about.
    #[inline(always)]
    #[must_use]
    pub fn with_sock(self, sock: u32) -> Self {
        let (cid, op, flags) = (self.cid(), self.op(), self.flags());
        self.with_head(cid, op, flags, sock)
    }

    /// With a payload in the sender's arena; or only the length of one that it carries itself.
    #[inline(always)]
    #[must_use]
    pub fn with_payload(mut self, off: u32, len: u32) -> Self {
        self.0[1] = Half::new(pair(off, len), self.arg());
        self
    }

    /// With a number.
    #[inline(always)]
    #[must_use]
    pub fn with_arg(mut self, arg: u64) -> Self {
        self.0[1] = Half::new(self.0[1].low(), arg);
        self
    }

    /// With a payload that it carries itself.
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
        // The number of chunks is at most four, and with four there is no rest.
        let word = |at: usize| match chunks.get(at) {
            Some(chunk) => u64::from_le_bytes(*chunk),
            None if at == chunks.len() => last,
            None => 0,
        };
        let mut message = self.with_payload(0, len);
        message.0[2] = Half::new(word(0), word(1));
        message.0[3] = Half::new(word(2), word(3));
        Ok(message)
    }

    /// Which call it belongs to.
    #[inline(always)]
    pub fn cid(&self) -> u32 {
        high(self.0[0].low())
    }

    /// What is to be done.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    pub fn op(&self) -> u16 {
        low(self.0[0].high()) as u16
    }

    /// How.
    #[inline(always)]
    pub fn flags(&self) -> u16 {
        (low(self.0[0].high()) >> 16) as u16
    }

    /// To what.
    #[inline(always)]
    pub fn sock(&self) -> u32 {
        high(self.0[0].high())
    }

    /// First byte of the payload in the sender's arena.
    #[inline(always)]
    pub fn off(&self) -> u32 {
        low(self.0[1].low())
    }

    /// Bytes of the payload.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "it is a field's name")]
    pub fn len(&self) -> u32 {
        high(self.0[1].low())
    }

    /// A number.
    #[inline(always)]
    pub fn arg(&self) -> u64 {
        self.0[1].high()
    }

    /// A payload that it carries itself; all [`INLINE`] bytes where [`len`](Self::len) says more.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        let inline = self.inline();
        inline.get(..self.len() as usize).unwrap_or(inline)
    }

    #[inline(always)]
    fn inline(&self) -> &[u8; INLINE] {
        // From all of them: a pointer to one may not be used for the next.
        let halves = self.0.as_ptr();
        // SAFETY: the third of the four pieces of a line.
        let last: *const Half = unsafe { halves.add(2) };
        // SAFETY: the last two of four pieces, which are 32 bytes without padding, initialised and borrowed with `self`.
        unsafe { &*last.cast() }
    }
}

impl Default for Message {
    #[inline(always)]
    fn default() -> Self {
        Self([Half::new(0, 0); WORDS / 2])
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
#[expect(clippy::cast_possible_truncation, reason = "takes a word apart")]
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
            .expect("as many as it carries")
            .with_arg(0x1b1a_1918_1716_1514)
            .with_payload(0x0f0e_0d0c, 0x1312_1110)
            .with_head(1, 0x0504, 2, 1)
            .with_sock(0x0b0a_0908)
            .with_call(0x0302_0100, 0x0706);
        let words = message.to_words();
        let line: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // The first four bytes are the ring's.
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
            let message = full.with_bytes(&bytes[..len]).expect("it fits");
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
