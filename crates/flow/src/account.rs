//! One account of the memory that a process holds for its peers and its applications.
//!
//! Engines lease parts of the account and charge their own lease, so that nothing is shared on the path of a
//! byte. What a peer is *allowed* to make us hold is charged when it is allowed, what an application makes
//! us hold when it is there. Where the account runs low, windows shrink and shares get small; where it is empty, new
//! connections and flows are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::window::{self, ReceiveWindow};

/// Parts in which engines lease: few enough that it is rare, small enough that many engines do not starve each
/// other.
const PARTS: u64 = 256;
const PART_MIN: u64 = 16 * 1024;
const PART_MAX: u64 = 1 << 20;

/// The reserve: an eighth of a small budget, at most 1 MiB, or 1/64 of a large one. That lets dozens of connections send a
/// little each on a small budget, and thousands on a large one.
const RESERVE_PART: u64 = 8;
const RESERVE_SMALL: u64 = 1 << 20;
const RESERVE_PART_LARGE: u64 = 64;

/// Least credit of a connection whose flows hold all of its window, as a part of the free memory. Each further flow that
/// stops reading takes two or three times as much. 256 KiB carry 100 Mbit/s at 20 ms.
const FLOOR_PART: u64 = 256;
const FLOOR_MAX: u64 = 256 * 1024;

/// The account of a process. Clones are the same account.
#[derive(Clone, Debug)]
pub struct Account(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    budget: u64,
    leased: AtomicU64,
}

impl Account {
    /// An account of `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Self(Arc::new(Shared {
            budget,
            leased: AtomicU64::new(0),
        }))
    }

    /// What may be held in all, bytes.
    pub fn budget(&self) -> u64 {
        self.0.budget
    }

    /// What engines have leased, bytes.
    pub fn leased(&self) -> u64 {
        // Only a sum: no other memory hangs on it. The same below.
        self.0.leased.load(Ordering::Relaxed)
    }

    fn lease(&self, bytes: u64) -> bool {
        let more = |leased: u64| {
            leased
                .checked_add(bytes)
                .filter(|&sum| sum <= self.0.budget)
        };
        self.0
            .leased
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Leases `bytes` that are held already, whether there are so many or not.
    fn overdraw(&self, bytes: u64) {
        self.0.leased.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.0.leased.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One engine's part of an account. What is leased goes back when it is dropped.
#[derive(Debug)]
pub struct Lease {
    account: Account,
    part: u64,
    leased: u64,
    charged: u64,
}

impl Lease {
    /// A lease of nothing yet.
    pub fn new(account: Account) -> Self {
        let part = (account.budget() / PARTS).clamp(PART_MIN, PART_MAX);
        Self {
            account,
            part,
            leased: 0,
            charged: 0,
        }
    }

    /// Memory that is charged at the moment, bytes.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// What could still be charged, bytes: by this engine or by any other.
    pub fn free(&self) -> u64 {
        let unleased = self.account.budget().saturating_sub(self.account.leased());
        unleased + self.leased.saturating_sub(self.charged)
    }

    /// The part of the budget that connections, larger windows and most flows leave alone, so that those that hold little
    /// can always go on, bytes.
    pub fn reserve(&self) -> u64 {
        let budget = self.account.budget();
        (budget / RESERVE_PART)
            .min(RESERVE_SMALL)
            .max(budget / RESERVE_PART_LARGE)
    }

    /// Memory that is free beside the reserve, bytes.
    pub fn free_for_newcomers(&self) -> u64 {
        self.free().saturating_sub(self.reserve())
    }

    /// Whether a holder that would have `own` bytes may have them. A holder with many is refused before one with few; the
    /// reserve is for holders with next to nothing, and the last eighth of it for those that are there already.
    pub fn has_room(&self, own: u64) -> bool {
        let little = self.free().saturating_sub(self.reserve() / 8) / 8;
        own <= self.free_for_newcomers().max(little)
    }

    /// Whether less than a quarter of the budget is free.
    pub fn is_scarce(&self) -> bool {
        self.free() < self.account.budget() / 4
    }

    /// Whether less than half of the budget is free.
    pub fn is_half_full(&self) -> bool {
        self.free() < self.account.budget() / 2
    }

    /// Whether at least three quarters of the budget are free.
    pub fn is_plenty(&self) -> bool {
        self.free() > self.account.budget() / 4 * 3
    }

    /// The credit that a connection gets whatever its flows hold, bytes.
    pub fn floor(&self) -> u64 {
        if self.free() <= self.reserve() / 2 {
            return 0;
        }
        (self.free_for_newcomers() / FLOOR_PART).clamp(window::FLOOR, FLOOR_MAX)
    }

    /// The window that a connection begins with, which has `own` bytes already.
    pub fn first_window(&self, needed: u64, own: u64, known: bool) -> u64 {
        let free = self.free_for_newcomers() + own;
        ReceiveWindow::first(needed, free, self.account.budget(), known)
    }

    /// Charges `bytes` if there are so many.
    pub fn try_charge(&mut self, bytes: u64) -> bool {
        let wanted = self.charged + bytes;
        if wanted > self.leased {
            let short = wanted - self.leased;
            let most = short.max(self.part);
            let taken = [most, short]
                .into_iter()
                .find(|&more| self.account.lease(more));
            let Some(taken) = taken else {
                return false;
            };
            self.leased += taken;
        }
        self.charged = wanted;
        true
    }

    /// Charges `bytes` that are held already.
    pub fn charge(&mut self, bytes: u64) {
        if !self.try_charge(bytes) {
            let short = self.charged + bytes - self.leased;
            self.account.overdraw(short);
            self.leased += short;
            self.charged += bytes;
        }
    }

    /// Gives `bytes` back.
    pub fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.charged, "more is given back than was charged");
        self.charged = self.charged.saturating_sub(bytes);
        // One part stays, so that a byte more or less is not a lease more or less.
        let spare = self.leased - self.charged;
        if spare >= 2 * self.part {
            let back = spare - self.part;
            self.account.give_back(back);
            self.leased -= back;
        }
    }

    /// Moves a charge from `*before` to `after`.
    pub fn adjust(&mut self, before: &mut u64, after: u64) {
        if after > *before {
            self.charge(after - *before);
        } else {
            self.release(*before - after);
        }
        *before = after;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.account.give_back(self.leased);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_budget_is_one_for_all_engines() {
        let account = Account::new(4 * MIB);
        let (mut one, mut other) = (Lease::new(account.clone()), Lease::new(account.clone()));
        assert!(one.try_charge(3 * MIB));
        assert!(!other.try_charge(2 * MIB) && other.charged() == 0);
        assert!(other.try_charge(MIB - PART_MIN));
        one.release(2 * MIB);
        assert!(other.try_charge(MIB));
        drop((one, other));
        assert_eq!(account.leased(), 0);
    }

    // At the limit and one above.
    #[test]
    fn the_last_byte_can_be_charged_and_no_more() {
        let mut lease = Lease::new(Account::new(MIB));
        assert!(lease.try_charge(MIB - 1) && lease.free() == 1);
        assert!(lease.try_charge(1) && !lease.try_charge(1));
        assert_eq!(lease.free(), 0);
    }

    #[test]
    fn what_is_held_already_counts_even_above_the_budget() {
        let account = Account::new(MIB);
        let mut lease = Lease::new(account.clone());
        lease.charge(3 * MIB);
        assert_eq!((lease.charged(), lease.free()), (3 * MIB, 0));
        lease.release(3 * MIB);
        assert!(account.leased() <= 2 * PART_MIN && lease.try_charge(MIB));
    }

    proptest! {
        #[test]
        fn leases_add_up(steps in proptest::collection::vec((0usize..3, any::<bool>(), 0..100_000u64), 1..200)) {
            let account = Account::new(MIB);
            let mut leases: Vec<Lease> = (0..3).map(|_| Lease::new(account.clone())).collect();
            for (which, more, bytes) in steps {
                let lease = &mut leases[which];
                if more {
                    lease.try_charge(bytes);
                } else {
                    lease.release(bytes.min(lease.charged()));
                }
                let charged: u64 = leases.iter().map(Lease::charged).sum();
                prop_assert!(charged <= account.leased() && account.leased() <= MIB);
            }
        }
    }
}
