//! The account of the memory that a process holds for its peers and its applications.
//!
//! Engines lease parts of the account and charge their own lease, so the data path shares nothing. Memory that a peer
//! is *allowed* to use is charged when it is allowed; memory that an application uses is charged when it is used. When
//! the account runs low, windows and shares shrink. When it is empty, new connections and flows are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::window::{self, ReceiveWindow};

/// Number of parts into which the budget is divided for leases. Leasing should be rare, and many engines must not
/// starve each other.
const PARTS: u64 = 256;
const PART_MIN: u64 = 16 * 1024;
const PART_MAX: u64 = 1 << 20;

/// The reserve: an eighth of a small budget, at most 1 MiB, or 1/64 of a large one. So dozens of connections can each
/// send a little on a small budget, and thousands on a large one.
const RESERVE_PART: u64 = 8;
const RESERVE_SMALL: u64 = 1 << 20;
const RESERVE_PART_LARGE: u64 = 64;

/// Minimum credit of a connection whose flows hold all of its window, as a part of the free memory. Each further flow
/// that stops reading takes two or three times as much. 256 KiB carry 100 Mbit/s at 20 ms.
const FLOOR_PART: u64 = 256;
const FLOOR_MAX: u64 = 256 * 1024;

/// The account of a process. Clones share the same account.
#[derive(Clone, Debug)]
pub struct Account(Arc<AccountState>);

#[derive(Debug)]
struct AccountState {
    budget: AtomicU64,
    leased: AtomicU64,
}

impl Account {
    /// Creates an account of `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Self(Arc::new(AccountState {
            budget: AtomicU64::new(budget),
            leased: AtomicU64::new(0),
        }))
    }

    /// Returns the memory that the process may hold in total, in bytes.
    pub fn budget(&self) -> u64 {
        // Relaxed is enough here and below: neither number orders other memory.
        self.0.budget.load(Ordering::Relaxed)
    }

    /// Changes the budget. What is leased beyond a smaller budget stays leased, and nothing more is until it is returned.
    pub fn set_budget(&self, budget: u64) {
        self.0.budget.store(budget, Ordering::Relaxed);
    }

    /// Returns the memory that engines have leased, in bytes.
    pub fn leased(&self) -> u64 {
        self.0.leased.load(Ordering::Relaxed)
    }

    fn lease(&self, bytes: u64) -> bool {
        let budget = self.budget();
        let more = |leased: u64| leased.checked_add(bytes).filter(|&sum| sum <= budget);
        self.0
            .leased
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Leases `bytes` that are already held, even beyond the budget.
    fn overdraw(&self, bytes: u64) {
        self.0.leased.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.0.leased.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One engine's part of an account. Dropping it returns everything that it leased.
#[derive(Debug)]
pub struct Lease {
    account: Account,
    part: u64,
    leased: u64,
    charged: u64,
}

impl Lease {
    /// Creates a lease that holds nothing yet.
    pub fn new(account: Account) -> Self {
        let part = (account.budget() / PARTS).clamp(PART_MIN, PART_MAX);
        Self {
            account,
            part,
            leased: 0,
            charged: 0,
        }
    }

    /// Returns the memory that is charged now, in bytes.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// Returns the memory that this or any other engine could still charge, in bytes.
    pub fn free(&self) -> u64 {
        let unleased = self.account.budget().saturating_sub(self.account.leased());
        unleased + self.leased.saturating_sub(self.charged)
    }

    /// Returns the part of the budget, in bytes, that connections, larger windows and most flows do not use. It keeps
    /// holders of little memory able to continue.
    pub fn reserve(&self) -> u64 {
        let budget = self.account.budget();
        (budget / RESERVE_PART)
            .min(RESERVE_SMALL)
            .max(budget / RESERVE_PART_LARGE)
    }

    /// Returns the free memory without the reserve, in bytes.
    pub fn free_for_newcomers(&self) -> u64 {
        self.free().saturating_sub(self.reserve())
    }

    /// Returns whether a holder may hold `own` bytes in total. A holder of much is refused before a holder of little.
    /// The reserve is for holders of very little, and the last eighth of it for those that exist already.
    pub fn has_room(&self, own: u64) -> bool {
        let little = self.free().saturating_sub(self.reserve() / 8) / 8;
        own <= self.free_for_newcomers().max(little)
    }

    /// Returns whether less than a quarter of the budget is free.
    pub fn is_scarce(&self) -> bool {
        self.free() < self.account.budget() / 4
    }

    /// Returns whether less than half of the budget is free.
    pub fn is_half_full(&self) -> bool {
        self.free() < self.account.budget() / 2
    }

    /// Returns whether more than three quarters of the budget are free.
    pub fn is_plenty(&self) -> bool {
        self.free() > self.account.budget() / 4 * 3
    }

    /// Returns the credit that a connection gets however much its flows hold, in bytes.
    pub fn floor(&self) -> u64 {
        if self.free() <= self.reserve() / 2 {
            return 0;
        }
        (self.free_for_newcomers() / FLOOR_PART).clamp(window::FLOOR, FLOOR_MAX)
    }

    /// Returns the first window of a connection that already has `own` bytes charged. See [`ReceiveWindow::first`] for
    /// `needed` and `known`.
    pub fn first_window(&self, needed: u64, own: u64, known: bool) -> u64 {
        let free = self.free_for_newcomers() + own;
        ReceiveWindow::first(needed, free, self.account.budget(), known)
    }

    /// Charges `bytes` if the account has that much free. Returns whether it did.
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

    /// Charges `bytes` that are already held, even beyond the budget.
    pub fn charge(&mut self, bytes: u64) {
        if !self.try_charge(bytes) {
            let short = self.charged + bytes - self.leased;
            self.account.overdraw(short);
            self.leased += short;
            self.charged += bytes;
        }
    }

    /// Releases a charge of `bytes`.
    pub fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.charged, "release exceeds the charged bytes");
        self.charged = self.charged.saturating_sub(bytes);
        // One part stays leased, so that small changes do not lease and return parts all the time.
        let spare = self.leased - self.charged;
        if spare >= 2 * self.part {
            let back = spare - self.part;
            self.account.give_back(back);
            self.leased -= back;
        }
    }

    /// Changes a charge from `*before` to `after`, and stores the new value in `*before`.
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
    fn a_smaller_budget_takes_nothing_away_and_grants_nothing_more() {
        let account = Account::new(4 * MIB);
        let mut lease = Lease::new(account.clone());
        assert!(lease.try_charge(3 * MIB));
        account.set_budget(MIB);
        assert_eq!(lease.charged(), 3 * MIB);
        assert!(!lease.try_charge(MIB));
        lease.release(3 * MIB);
        assert!(!lease.try_charge(MIB + 1));
        account.set_budget(4 * MIB);
        assert!(lease.try_charge(3 * MIB));
    }

    #[test]
    fn all_engines_share_one_budget() {
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

    // The limit itself, and one byte above it.
    #[test]
    fn the_last_byte_can_be_charged_and_no_more() {
        let mut lease = Lease::new(Account::new(MIB));
        assert!(lease.try_charge(MIB - 1) && lease.free() == 1);
        assert!(lease.try_charge(1) && !lease.try_charge(1));
        assert_eq!(lease.free(), 0);
    }

    #[test]
    fn memory_that_is_held_already_counts_even_above_the_budget() {
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
