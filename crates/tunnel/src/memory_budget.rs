//! The memory budget of a process: given by the user, or a part of the memory that the process may use.
//!
//! Open it before the process is confined. [`MemoryBudget::run`] reads the limits again while the process runs, because
//! a service manager or a container runtime can change them.

use std::fmt;
use std::future::pending;
use std::time::Duration;

use quictun_engine::Account;
use quictun_sys::{LimitSource, MemoryLimits};
use tracing::{debug, info};

/// Largest default. More is rarely of use: it carries thousands of flows with full windows.
const DEFAULT_MAX: u64 = 1 << 30;

/// Smallest budget, as for the flag.
const DEFAULT_MIN: u64 = 1 << 20;

/// Memory beside the budget, at least: the process and its keeper take some 30 MiB, and 60 slow readers let the kernel hold
/// 10 to 16 MiB in TCP sockets, which count to the control group as well.
const BASE: u64 = 64 << 20;

/// Time between two looks at the limits. A look reads a few files of the kernel, which takes microseconds.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct MemoryBudget {
    account: Account,
    /// The reason for the present budget.
    reason: BudgetReason,
    /// The limits that the budget follows. `None` if the user has set it.
    limits: Option<MemoryLimits>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BudgetReason {
    Set,
    Default,
    Limit(u64, LimitSource),
}

impl fmt::Display for BudgetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set => f.write_str("--memory-budget"),
            Self::Default => f.write_str("the default"),
            Self::Limit(limit, source) => write!(f, "{source}: {} MiB", limit >> 20),
        }
    }
}

impl MemoryBudget {
    /// Creates the account of the process. `set` is the user's budget; `None` follows the limits of the system.
    pub(crate) fn open(set: Option<u64>) -> Self {
        let limits = set.is_none().then(MemoryLimits::open);
        let (budget, reason) = match (set, &limits) {
            (Some(set), _) => (set, BudgetReason::Set),
            (None, limits) => default(limits.as_ref().and_then(MemoryLimits::least)),
        };
        Self {
            account: Account::new(budget),
            reason,
            limits,
        }
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Logs the budget and its reason. A person at a terminal reads it among the details only.
    pub(crate) fn log(&self, at_terminal: bool) {
        let (budget_mib, reason) = (self.account.budget() >> 20, self.reason);
        if at_terminal {
            debug!(target: "quictun", budget_mib, %reason, "memory budget");
        } else {
            info!(target: "quictun", budget_mib, %reason, "memory budget");
        }
    }

    /// Follows the limits. Never returns.
    pub(crate) async fn run(mut self) {
        if self.limits.is_none() {
            return pending().await;
        }
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.refresh();
        }
    }

    fn refresh(&mut self) {
        let Some(limits) = &self.limits else {
            return;
        };
        let (budget, reason) = default(limits.least());
        if budget != self.account.budget() {
            self.account.set_budget(budget);
            self.reason = reason;
            self.log(false);
        }
    }
}

/// Returns the default budget under this limit, and its reason: half of the limit, because buffers of the kernel grow with
/// the number of sockets.
fn default(limit: Option<(u64, LimitSource)>) -> (u64, BudgetReason) {
    let Some((limit, source)) = limit else {
        return (DEFAULT_MAX, BudgetReason::Default);
    };
    let budget = limit.saturating_sub(BASE).min(limit / 2);
    if budget >= DEFAULT_MAX {
        return (DEFAULT_MAX, BudgetReason::Default);
    }
    (
        budget.max(limit / 8).max(DEFAULT_MIN),
        BudgetReason::Limit(limit, source),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_default_is_half_of_the_limit_and_leaves_room_for_the_process() {
        let source = LimitSource::GroupMax;
        for (limit, budget) in [
            (1, 1),
            (4, 1),
            (64, 8),
            (100, 36),
            (128, 64),
            (256, 128),
            (2047, 1023),
        ] {
            let limit = limit * MIB;
            let (is, reason) = default(Some((limit, source)));
            assert_eq!(is >> 20, budget, "{limit}");
            assert_eq!(reason, BudgetReason::Limit(limit, source));
        }
        for limit in [None, Some((2048 * MIB, source)), Some((u64::MAX, source))] {
            assert_eq!(default(limit), (DEFAULT_MAX, BudgetReason::Default));
        }
    }

    #[test]
    fn a_budget_that_the_user_sets_follows_no_limit() {
        let mut memory = MemoryBudget::open(Some(3 * MIB));
        memory.refresh();
        assert_eq!(memory.account().budget(), 3 * MIB);
        let mut memory = MemoryBudget::open(None);
        let budget = memory.account().budget();
        memory.account().set_budget(1);
        memory.refresh();
        assert_eq!(memory.account().budget(), budget);
    }
}
