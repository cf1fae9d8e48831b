//! The layout of a region and the header that describes it.
//!
//! ```text
//!  0          header, 64 bytes, written before either process maps the region and never read from the mapping
//!  4096       doorbell of side 0, 128 bytes; doorbell of side 1
//!  8192       cursors of ring 0 (side 0 writes messages), 3 x 128 bytes; cursors of ring 1 (side 1 writes messages)
//!  12288      slots of ring 0, 4096 x 64 bytes
//!  274432     slots of ring 1
//!  536576     arena of side 0 (side 0 writes payloads); arena of side 1
//! ```
//!
//! The length of the arenas determines the whole layout. A header is accepted only if it is byte for byte what this
//! version would have written.

use thiserror::Error;

use crate::doorbell::Doorbell;
use crate::ring::Cursors;
use crate::slot::Slot;

/// Base-2 logarithm of the number of slots in a ring.
const RING_ORDER: u32 = 12;

/// Slots of a ring: 256 KiB, so that both rings fit into a core's second-level cache.
pub const SLOTS: usize = 1 << RING_ORDER;

/// The version of the region's format.
pub const ABI_VERSION: u32 = 1;

/// Longest arena in bytes: offsets have 32 bits, and no user needs more.
pub const MAX_ARENA: u32 = 1 << 28;

/// Page size in bytes. The length of an arena is a multiple of it.
pub const PAGE: u32 = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"quicshmq");

pub(crate) const HEADER: usize = 64;

const DOORBELLS: usize = 4096;
const CURSORS: usize = 8192;
const SLOTS_AT: usize = 12288;
const RING: usize = SLOTS * size_of::<Slot>();
const ARENAS: usize = SLOTS_AT + 2 * RING;

const _: () = {
    assert!(size_of::<Slot>() == 64 && size_of::<Doorbell>() == 128 && size_of::<Cursors>() == 384);
    assert!(DOORBELLS + 2 * size_of::<Doorbell>() <= CURSORS);
    assert!(CURSORS + 2 * size_of::<Cursors>() <= SLOTS_AT);
    assert!(
        cfg!(target_endian = "little"),
        "the format is little-endian, and the code does not convert byte order"
    );
};

/// One of the two processes that share a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionSide {
    /// The process that created the region.
    First,
    /// The process that received the region's descriptor.
    Second,
}

impl RegionSide {
    /// Returns the other side.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// The reason why a header is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The memory holds something other than a region.
    #[error("bad region magic")]
    Magic,
    /// The peer uses another version of the format.
    #[error(
        "version {0}, but this program supports {ABI_VERSION}: use the same release on both sides"
    )]
    Version(u32),
    /// The length of the arenas is not allowed.
    #[error("arenas of {0} bytes: use a multiple of {PAGE}, at most {MAX_ARENA} bytes")]
    Arena(u64),
    /// Another field differs from what this version writes.
    #[error("fields differ from what version {ABI_VERSION} writes")]
    Fields,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Length of each side's arena, in bytes.
    pub(crate) arena: u32,
    pub(crate) generation: u64,
}

impl Layout {
    pub(crate) fn new(arena: u32, generation: u64) -> Result<Self, HeaderError> {
        if arena > MAX_ARENA || !arena.is_multiple_of(PAGE) {
            return Err(HeaderError::Arena(u64::from(arena)));
        }
        Ok(Self { arena, generation })
    }

    pub(crate) fn len(self) -> usize {
        ARENAS + 2 * self.arena as usize
    }

    /// Encodes the header: magic, version, flags, order of the rings, bytes of a message, offset and length of an
    /// arena, and generation. The rest is zero.
    pub(crate) fn to_header(self) -> [u8; HEADER] {
        let words = [
            MAGIC,
            u64::from(ABI_VERSION),
            u64::from(RING_ORDER) | (size_of::<Slot>() as u64) << 32,
            ARENAS as u64,
            u64::from(self.arena),
            self.generation,
        ];
        let mut bytes = [0; HEADER];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    pub(crate) fn from_header(bytes: &[u8; HEADER]) -> Result<Self, HeaderError> {
        let word = |at: usize| u64::from_le_bytes(bytes.as_chunks::<8>().0[at]);
        if word(0) != MAGIC {
            return Err(HeaderError::Magic);
        }
        let version = u32::from_le_bytes(bytes.as_chunks::<4>().0[2]);
        if version != ABI_VERSION {
            return Err(HeaderError::Version(version));
        }
        let arena = u32::try_from(word(4)).map_err(|_| HeaderError::Arena(word(4)))?;
        let layout = Self::new(arena, word(5))?;
        if layout.to_header() != *bytes {
            return Err(HeaderError::Fields);
        }
        Ok(layout)
    }

    pub(crate) fn doorbell(side: RegionSide) -> usize {
        DOORBELLS + side as usize * size_of::<Doorbell>()
    }

    /// Returns the offset of the cursors of the ring that `side` writes messages into.
    pub(crate) fn cursors(side: RegionSide) -> usize {
        CURSORS + side as usize * size_of::<Cursors>()
    }

    /// Returns the offset of the slots of the ring that `side` writes messages into.
    pub(crate) fn slots(side: RegionSide) -> usize {
        SLOTS_AT + side as usize * RING
    }

    /// Returns the offset of the arena that `side` writes payloads into.
    pub(crate) fn arena(self, side: RegionSide) -> usize {
        ARENAS + side as usize * self.arena as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unchanged_header_is_accepted() {
        let layout = Layout::new(8192, 7).expect("a valid layout");
        let header = layout.to_header();
        assert_eq!(Layout::from_header(&header), Ok(layout));
        for at in 0..HEADER {
            let mut bad = header;
            bad[at] ^= 0x81;
            let read = Layout::from_header(&bad);
            // The arena's length and the generation also have other valid values.
            if let Ok(other) = read {
                assert!((32..48).contains(&at), "byte {at} is not checked");
                assert_ne!(other, layout);
            }
        }
    }

    #[test]
    fn arenas_are_whole_pages_up_to_a_limit() {
        for good in [0, PAGE, MAX_ARENA] {
            assert!(Layout::new(good, 0).is_ok(), "{good}");
        }
        for bad in [1, PAGE - 1, PAGE + 1, MAX_ARENA + PAGE, u32::MAX] {
            assert_eq!(Layout::new(bad, 0), Err(HeaderError::Arena(u64::from(bad))));
        }
    }
}
