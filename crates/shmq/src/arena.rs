//! Allocation of the local side's arena. The allocator's state is in private memory, where the peer cannot reach it.
//!
//! The allocator is a buddy system: blocks are powers of two, a free block is halved until it fits, and two free halves
//! merge again.

use crate::layout::PAGE;

/// Smallest block in bytes: a cache line, so that payloads do not share one.
const LINE: u32 = 64;

/// Largest number of blocks. The smallest block grows with the arena, which keeps the table of blocks short.
const MAX_BLOCKS: u32 = 1 << 16;

/// The absent block; ends a list.
const NONE: u32 = u32::MAX;

const ORDERS: usize = 32;

/// An allocated part of the local arena, valid until it is passed to [`crate::Channel::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the space stays allocated until it is released"]
pub struct Allocation {
    off: u32,
    len: u32,
}

impl Allocation {
    /// Returns the offset of the first byte in the arena.
    pub fn off(&self) -> u32 {
        self.off
    }

    /// Returns the length in bytes, which is never 0.
    #[expect(clippy::len_without_is_empty, reason = "its length is never 0")]
    pub fn len(&self) -> u32 {
        self.len
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// The first unit of a free block of this order.
    Free {
        order: u8,
        before: u32,
        after: u32,
    },
    /// The first unit of an allocated block of this order.
    Taken {
        order: u8,
    },
    Inside,
}

#[derive(Debug)]
pub(crate) struct Arena {
    /// Size of the smallest block, in bytes.
    unit: u32,
    /// One element for each unit.
    blocks: Vec<Block>,
    free: [u32; ORDERS],
}

impl Arena {
    /// Creates an arena of `len` bytes, which must be a multiple of the page size.
    pub(crate) fn new(len: u32) -> Self {
        let unit = LINE.max((len / MAX_BLOCKS).next_power_of_two());
        debug_assert!(len.is_multiple_of(PAGE), "arena of partial pages");
        let units = len / unit;
        let mut arena = Self {
            unit,
            blocks: vec![Block::Inside; units as usize],
            free: [NONE; ORDERS],
        };
        // Insert the largest block that fits, from left to right. Every block then starts at a multiple of its length.
        let mut at = 0;
        while at < units {
            let order = (units - at).ilog2();
            arena.insert(at, order);
            at += 1 << order;
        }
        arena
    }

    /// Allocates a contiguous block of at least `len` bytes. Returns `None` if there is no such block or if `len` is 0.
    pub(crate) fn reserve(&mut self, len: u32) -> Option<Allocation> {
        let units = len.checked_next_multiple_of(self.unit)? / self.unit;
        let order = units
            .checked_next_power_of_two()
            .filter(|_| len > 0)?
            .ilog2();
        let found = (order..).zip(self.free.get(order as usize..)?);
        let (mut size, at) = found
            .map(|(size, at)| (size, *at))
            .find(|(_, at)| *at != NONE)?;
        self.remove(at);
        while size > order {
            size -= 1;
            self.insert(at + (1 << size), size);
        }
        self.blocks[at as usize] = Block::Taken { order: low(order) };
        Some(Allocation {
            off: at * self.unit,
            len,
        })
    }

    pub(crate) fn release(&mut self, reserved: &Allocation) {
        let mut at = reserved.off / self.unit;
        let Some(Block::Taken { order }) = self.blocks.get(at as usize) else {
            debug_assert!(false, "{reserved:?} does not belong to this arena");
            return;
        };
        let mut order = u32::from(*order);
        self.blocks[at as usize] = Block::Inside;
        loop {
            let buddy = at ^ (1 << order);
            match self.blocks.get(buddy as usize) {
                Some(Block::Free { order: same, .. }) if u32::from(*same) == order => {
                    self.remove(buddy);
                    at = at.min(buddy);
                    order += 1;
                }
                _ => break,
            }
        }
        self.insert(at, order);
    }

    fn insert(&mut self, at: u32, order: u32) {
        let after = std::mem::replace(&mut self.free[order as usize], at);
        self.blocks[at as usize] = Block::Free {
            order: low(order),
            before: NONE,
            after,
        };
        if let Some(Block::Free { before, .. }) = self.blocks.get_mut(after as usize) {
            *before = at;
        }
    }

    fn remove(&mut self, at: u32) {
        let Block::Free {
            order,
            before,
            after,
        } = self.blocks[at as usize]
        else {
            debug_assert!(false, "only free blocks are in lists");
            return;
        };
        self.blocks[at as usize] = Block::Inside;
        match self.blocks.get_mut(before as usize) {
            Some(Block::Free { after: link, .. }) => *link = after,
            _ => self.free[order as usize] = after,
        }
        if let Some(Block::Free { before: link, .. }) = self.blocks.get_mut(after as usize) {
            *link = before;
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below 32")]
fn low(order: u32) -> u8 {
    order as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::MAX_ARENA;

    fn whole(arena: &mut Arena, len: u32) -> bool {
        let Some(all) = arena.reserve(len) else {
            return false;
        };
        arena.release(&all);
        true
    }

    #[test]
    fn sizes_from_nothing_to_the_largest_arena_are_handled() {
        let mut none = Arena::new(0);
        assert_eq!(none.reserve(1), None);
        let mut page = Arena::new(PAGE);
        assert_eq!(page.reserve(0), None);
        assert_eq!(page.reserve(PAGE + 1), None);
        assert_eq!(page.reserve(u32::MAX), None);
        assert!(whole(&mut page, PAGE));
        let mut most = Arena::new(MAX_ARENA);
        assert_eq!(most.reserve(MAX_ARENA + 1), None);
        assert!(whole(&mut most, MAX_ARENA));
        assert!(most.blocks.len() <= MAX_BLOCKS as usize);
    }

    proptest! {
        #[test]
        fn allocations_do_not_overlap_and_all_can_be_freed(
            pages in 1_u32..40,
            steps in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..3 * PAGE, any::<bool>()), 1..200),
        ) {
            let len = pages * PAGE;
            let mut arena = Arena::new(len);
            let fresh = arena.free;
            let mut taken: Vec<Allocation> = Vec::new();
            for (which, bytes, give_back) in steps {
                if give_back && !taken.is_empty() {
                    let part = taken.swap_remove(which.index(taken.len()));
                    arena.release(&part);
                } else if let Some(part) = arena.reserve(bytes) {
                    prop_assert_eq!(part.len(), bytes);
                    prop_assert!(part.off() + bytes <= len && part.off() % LINE == 0);
                    prop_assert!(part.off().is_multiple_of(bytes.next_power_of_two()), "block start is misaligned");
                    for other in &taken {
                        let apart = part.off() + part.len() <= other.off() || other.off() + other.len() <= part.off();
                        prop_assert!(apart, "{part:?} overlaps {other:?}");
                    }
                    taken.push(part);
                } else {
                    prop_assert!(bytes == 0 || bytes.next_power_of_two() > len / 2 || !taken.is_empty());
                }
            }
            for part in taken {
                arena.release(&part);
            }
            for (now, then) in arena.free.iter().zip(fresh) {
                prop_assert_eq!(*now == NONE, then == NONE, "free blocks were not merged");
            }
        }
    }
}
