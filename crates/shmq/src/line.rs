//! An item as it is moved about: a cache line in four pieces of the processor's widest plain moves.
//!
//! A load of 16 bytes that were just written by two stores of 8 has to wait until both have reached the cache, and they
//! wait there behind every older store: also behind those to slots that the other processor has in its cache. So a copy of
//! an item that was put together field by field would wait for a line to cross between the processors. Here every piece
//! is put together in a register, and written and read as a whole.

use std::fmt;

use crate::item::{INLINE, Item, WORDS};
use half::Half;

/// An [`Item`] whose copies are cheap. It has the same fields; they are set all at once, or two words at a time.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Line([Half; WORDS / 2]);

#[cfg(target_arch = "x86_64")]
mod half {
    use std::arch::x86_64::{__m128i, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_unpackhi_epi64};

    /// Two words.
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
    /// Two words.
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

impl Line {
    #[inline(always)]
    pub(crate) fn from_words(words: [u64; WORDS]) -> Self {
        Self([
            Half::new(words[0], words[1]),
            Half::new(words[2], words[3]),
            Half::new(words[4], words[5]),
            Half::new(words[6], words[7]),
        ])
    }

    #[inline(always)]
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let halves = self.0;
        [
            halves[0].low(),
            halves[0].high(),
            halves[1].low(),
            halves[1].high(),
            halves[2].low(),
            halves[2].high(),
            halves[3].low(),
            halves[3].high(),
        ]
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

    /// With a payload that it carries itself; nothing where that is longer than [`INLINE`].
    #[inline(always)]
    pub fn with_inline(self, bytes: &[u8]) -> Option<Self> {
        let len = u32::try_from(bytes.len())
            .ok()
            .filter(|len| *len as usize <= INLINE)?;
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
        let mut line = self.with_payload(0, len);
        line.0[2] = Half::new(word(0), word(1));
        line.0[3] = Half::new(word(2), word(3));
        Some(line)
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

    /// A short payload.
    #[inline(always)]
    pub fn inline(&self) -> &[u8; INLINE] {
        // From all of them: a pointer to one may not be used for the next.
        let halves = self.0.as_ptr();
        // SAFETY: the third of the four pieces of a line.
        let last: *const Half = unsafe { halves.add(2) };
        // SAFETY: the last two of four pieces, which are 32 bytes without padding, initialised and borrowed with `self`.
        unsafe { &*last.cast() }
    }
}

impl Default for Line {
    #[inline(always)]
    fn default() -> Self {
        Self([Half::new(0, 0); WORDS / 2])
    }
}

impl From<Item> for Line {
    #[inline]
    fn from(item: Item) -> Self {
        Self::from_words(item.to_words())
    }
}

impl From<Line> for Item {
    #[inline]
    fn from(line: Line) -> Self {
        Self::from_words(line.to_words())
    }
}

impl PartialEq for Line {
    fn eq(&self, other: &Self) -> bool {
        self.to_words() == other.to_words()
    }
}

impl Eq for Line {}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Item::from(*self).fmt(f)
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
    fn a_line_is_the_item() {
        let item = Item {
            cid: 0x0302_0100,
            op: 0x0504,
            flags: 0x0706,
            sock: 0x0b0a_0908,
            off: 0x0f0e_0d0c,
            len: 0x1312_1110,
            arg: 0x1b1a_1918_1716_1514,
            inline: std::array::from_fn(|at| u8::try_from(0x1c + at).expect("small")),
        };
        let line = Line::from(item);
        assert_eq!(Item::from(line), item);
        assert_eq!(
            (line.cid(), line.op(), line.flags(), line.sock()),
            (item.cid, item.op, item.flags, item.sock)
        );
        assert_eq!(
            (line.off(), line.len(), line.arg()),
            (item.off, item.len, item.arg)
        );
        assert_eq!(*line.inline(), item.inline);
        let made = Line::default()
            .with_arg(item.arg)
            .with_payload(item.off, item.len)
            .with_head(1, item.op, 2, item.sock)
            .with_call(item.cid, item.flags);
        let bare = Item {
            inline: [0; INLINE],
            ..item
        };
        assert_eq!(Item::from(made), bare);
    }

    #[test]
    fn a_payload_of_any_length_that_fits_is_carried() {
        let bytes: Vec<u8> = (1..=33).collect();
        for len in 0..=INLINE {
            let full = Line::default().with_inline(&[0xff; INLINE]).expect("32");
            let line = full.with_inline(&bytes[..len]).expect("it fits");
            assert_eq!(line.len() as usize, len);
            let (some, rest) = line.inline().split_at(len);
            assert_eq!(some, &bytes[..len]);
            assert!(rest.iter().all(|byte| *byte == 0), "{len} bytes");
        }
        assert!(Line::default().with_inline(&bytes).is_none());
    }
}
