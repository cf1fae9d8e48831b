//! Remembers the addresses that another address of the same target has outrun, so that the next dial tries them last
//! (RFC 8305 section 5).
//!
//! All workers share the memory. An entry ends after [`LIFETIME`], when the address wins a race, and when the network of
//! this host changes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which an address is tried last. A repaired path is used again after it; each dial that finds the path still
/// broken costs a quarter of a second.
const LIFETIME: Duration = Duration::from_mins(10);

/// Maximum number of addresses, about 64 KiB. Clients choose the names, so they could fill any memory.
const MAX: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct DialMemory(Arc<Mutex<HashMap<SocketAddr, Instant>>>);

impl DialMemory {
    /// Puts the addresses that were outrun last. The order is kept otherwise.
    pub(super) fn sort(&self, now: Instant, addresses: &mut [SocketAddr]) {
        let outrun = self.lock();
        addresses.sort_by_key(|address| outrun.get(address).is_some_and(|end| now < *end));
    }

    /// Records a race that `winner` has won while the others did not answer.
    pub(super) fn record(
        &self,
        now: Instant,
        winner: SocketAddr,
        others: impl Iterator<Item = SocketAddr>,
    ) {
        let mut outrun = self.lock();
        outrun.remove(&winner);
        for other in others.filter(|other| *other != winner) {
            if outrun.len() >= MAX {
                outrun.retain(|_, end| now < *end);
            }
            if outrun.len() >= MAX {
                outrun.clear();
            }
            outrun.insert(other, now + LIFETIME);
        }
    }

    /// Forgets everything: the network has changed.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> SocketAddr {
        let port = u16::try_from(number).expect("a port");
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn sorted(memory: &DialMemory, now: Instant, numbers: [usize; 3]) -> [usize; 3] {
        let mut addresses = numbers.map(address);
        memory.sort(now, &mut addresses);
        addresses.map(|address| usize::from(address.port()))
    }

    #[test]
    fn an_address_that_was_outrun_is_last_until_it_wins_or_the_memory_ends() {
        let (memory, now) = (DialMemory::default(), Instant::now());
        memory.record(now, address(2), [1, 2].map(address).into_iter());
        assert_eq!(sorted(&memory, now, [1, 2, 3]), [2, 3, 1]);
        let end = now + LIFETIME;
        let last = now + LIFETIME.saturating_sub(Duration::from_nanos(1));
        assert_eq!(sorted(&memory, last, [1, 2, 3]), [2, 3, 1]);
        assert_eq!(sorted(&memory, end, [1, 2, 3]), [1, 2, 3]);
        memory.record(now, address(1), std::iter::empty());
        assert_eq!(sorted(&memory, now, [1, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn a_change_of_the_network_clears_the_memory() {
        let (memory, now) = (DialMemory::default(), Instant::now());
        memory.record(now, address(2), std::iter::once(address(1)));
        memory.clone().clear();
        assert_eq!(sorted(&memory, now, [1, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn the_memory_is_bounded_and_prefers_entries_that_count() {
        let (memory, now) = (DialMemory::default(), Instant::now());
        memory.record(now, address(0), (1..=MAX).map(address));
        assert_eq!(memory.lock().len(), MAX);
        // All entries still count: the new one replaces them.
        memory.record(now, address(0), std::iter::once(address(MAX + 1)));
        assert_eq!(memory.lock().len(), 1);
        // Entries that have ended make room first.
        memory.record(now, address(0), (1..MAX).map(address));
        let later = now + LIFETIME;
        memory.record(later, address(0), std::iter::once(address(MAX + 2)));
        assert_eq!(memory.lock().len(), 1);
    }
}
