//! What a slot of a ring carries: one cache line.

/// 64-bit words of an item.
pub(crate) const WORDS: usize = 8;

/// Bytes that an item carries itself.
pub const INLINE: usize = 32;

/// A message: copied out of the ring as a whole before anybody looks at it. What the fields mean is the user's matter;
/// only [`off`](Self::off) and [`len`](Self::len) mean the same to all, a payload in the sender's arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Which call it belongs to.
    pub cid: u32,
    /// What is to be done.
    pub op: u16,
    /// How.
    pub flags: u16,
    /// To what.
    pub sock: u32,
    /// First byte of the payload in the sender's arena.
    pub off: u32,
    /// Bytes of the payload; up to [`INLINE`] may be in [`inline`](Self::inline) instead.
    pub len: u32,
    /// A number.
    pub arg: u64,
    /// A short payload.
    pub inline: [u8; INLINE],
}

impl Item {
    /// As it stands in a slot; the low half of the first word is the ring's.
    #[inline]
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let ops = u32::from(self.op) | u32::from(self.flags) << 16;
        let mut words = [
            pair(0, self.cid),
            pair(ops, self.sock),
            pair(self.off, self.len),
            self.arg,
            0,
            0,
            0,
            0,
        ];
        for (word, bytes) in words[4..].iter_mut().zip(self.inline.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }

    /// The reverse of [`to_words`](Self::to_words).
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes the halves of words apart"
    )]
    pub(crate) fn from_words(words: [u64; WORDS]) -> Self {
        let high = |word: u64| (word >> 32) as u32;
        let mut inline = [0; INLINE];
        for (bytes, word) in inline.as_chunks_mut::<8>().0.iter_mut().zip(&words[4..]) {
            *bytes = word.to_le_bytes();
        }
        Self {
            cid: high(words[0]),
            op: words[1] as u16,
            flags: (words[1] >> 16) as u16,
            sock: high(words[1]),
            off: words[2] as u32,
            len: high(words[2]),
            arg: words[3],
            inline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place_in_the_line() {
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
        let bytes: Vec<u8> = item
            .to_words()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        assert_eq!(bytes[..4], [0; 4]);
        let expected: Vec<u8> = (0..60).collect();
        assert_eq!(bytes[4..], expected);
        assert_eq!(Item::from_words(item.to_words()), item);
    }
}
