//! The times at which transactions should begin.
//!
//! In a closed loop, a transaction begins when the one before it has ended. In an open loop, the times are fixed before
//! the first transaction. Latency counts from that time, not from the time at which the transaction could begin. So a
//! slow answer shows in every transaction that had to wait for it (no coordinated omission).
//! [`TransactionSchedule::left_over`] counts the transactions that still wait when the time is over.

use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::stop::{Stop, WakeReason};

#[derive(Debug)]
pub(crate) struct TransactionSchedule {
    start: Instant,
    /// Time between two transactions of this flow; `None` in a closed loop.
    step: Option<Duration>,
    next: u32,
}

/// Transactions of an open loop that were due but not done when the time was over. Their latencies are unknown; they
/// exceed the time already waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnansweredTransactions {
    /// Number of these transactions.
    pub count: u64,
    /// Time that the first of them had waited by then, in microseconds.
    pub longest_us: u64,
}

impl UnansweredTransactions {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            longest_us: self.longest_us.max(other.longest_us),
        }
    }
}

impl TransactionSchedule {
    /// Creates the pace of flow `index` of the plan. Must be called on the thread that waits.
    pub(crate) fn new(plan: &Plan, index: u32, start: Instant) -> Self {
        let step = plan.rate.map(|rate| {
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let rate = rate as f64;
            Duration::from_secs_f64(f64::from(plan.total_flows()) / rate)
        });
        if step.is_some() {
            // A sleep that ends late would look like a slow answer. Without this setting the pace is only less precise.
            let one = NonZeroU64::new(1);
            if rustix::thread::set_current_timer_slack(one).is_err() {}
        }
        let shift = step.map_or(Duration::ZERO, |step| {
            step.mul_f64(f64::from(index) / f64::from(plan.total_flows().max(1)))
        });
        Self {
            start: start + shift,
            step,
            next: 0,
        }
    }

    /// Returns the time at which the next transaction should begin, or `None` if it should begin now.
    pub(crate) fn due(&self) -> Option<Instant> {
        Some(self.start + self.step?.saturating_mul(self.next))
    }

    pub(crate) fn advance(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    /// Returns the transactions that were due between two times and are not done. `under_way` means that the last one
    /// begun is not done.
    ///
    /// Returns `None` in a closed loop, where only the transaction in progress can be undone.
    pub(crate) fn left_over(
        &self,
        under_way: bool,
        from: Instant,
        until: Instant,
    ) -> Option<UnansweredTransactions> {
        let step = self.step?.as_nanos().max(1);
        // Number of the first transaction due at or after `moment`.
        let first_at = |moment: Instant| {
            let elapsed = moment.saturating_duration_since(self.start).as_nanos();
            u32::try_from(elapsed.div_ceil(step)).unwrap_or(u32::MAX)
        };
        let undone = self.next.saturating_sub(u32::from(under_way));
        let first = undone.max(first_at(from));
        let count = first_at(until).saturating_sub(first);
        if count == 0 {
            return Some(UnansweredTransactions::default());
        }
        let due = self.start + self.step?.saturating_mul(first);
        let longest = until.saturating_duration_since(due).as_micros();
        Some(UnansweredTransactions {
            count: count.into(),
            longest_us: u64::try_from(longest).unwrap_or(u64::MAX),
        })
    }

    /// Waits for the time of the next transaction and returns it, or `None` if the measurement is to end.
    pub(crate) fn wait(&mut self, stop: &Stop) -> io::Result<Option<Instant>> {
        let due = self.due();
        self.advance();
        let Some(due) = due else {
            return Ok((!stop.is_raised()).then(Instant::now));
        };
        while Instant::now() < due {
            if stop.wait(Some(due))? == WakeReason::Stopped {
                return Ok(None);
            }
        }
        Ok((!stop.is_raised()).then_some(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Mode, Transport};

    #[test]
    fn the_flows_of_an_open_loop_take_turns() {
        let plan = Plan {
            rate: Some(1000),
            flows: 4,
            ..Plan::new(Transport::Tcp, Mode::Rr)
        };
        let start = Instant::now();
        let mut paces: Vec<TransactionSchedule> = (0..4)
            .map(|index| TransactionSchedule::new(&plan, index, start))
            .collect();
        for millis in 0..40 {
            let pace = &mut paces[millis % 4];
            let expected = Duration::from_millis(millis as u64);
            assert_eq!(pace.due(), Some(start + expected));
            pace.advance();
        }
    }

    #[test]
    fn unanswered_transactions_are_counted_at_the_end() {
        let plan = Plan {
            rate: Some(1000),
            flows: 2,
            ..Plan::new(Transport::Tcp, Mode::Rr)
        };
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let left_over = |index, begun: u32, under_way, from, until| {
            let mut pace = TransactionSchedule::new(&plan, index, start);
            for _ in 0..begun {
                pace.advance();
            }
            let left = pace.left_over(under_way, at(from), at(until));
            left.map(|left| (left.count, left.longest_us))
        };
        // This flow's transactions are due at 0, 2 and 4 ms; the other flow's at 1, 3 and 5 ms.
        assert_eq!(left_over(0, 3, false, 0, 6), Some((0, 0)));
        assert_eq!(left_over(0, 3, true, 0, 6), Some((1, 2000)));
        assert_eq!(left_over(0, 3, true, 0, 20), Some((8, 16_000)));
        assert_eq!(left_over(1, 3, true, 0, 20), Some((8, 15_000)));
        assert_eq!(left_over(0, 1, true, 10, 20), Some((5, 10_000)), "warm-up");
        let closed = Plan { rate: None, ..plan };
        let pace = TransactionSchedule::new(&closed, 0, start);
        assert_eq!(pace.left_over(true, start, at(20)), None);
        let (one, other) = (
            UnansweredTransactions {
                count: 1,
                longest_us: 5,
            },
            UnansweredTransactions {
                count: 2,
                longest_us: 3,
            },
        );
        assert_eq!(
            one.and(other),
            UnansweredTransactions {
                count: 3,
                longest_us: 5
            }
        );
    }

    #[test]
    fn the_latency_of_a_late_transaction_starts_at_its_due_time() {
        let plan = Plan {
            rate: Some(1_000_000),
            ..Plan::new(Transport::Tcp, Mode::Rr)
        };
        let stop = Stop::new().expect("new stop");
        let start = Instant::now();
        let mut pace = TransactionSchedule::new(&plan, 0, start);
        while start.elapsed() < Duration::from_millis(1) {}
        for micros in 0..1000 {
            let due = pace.wait(&stop).expect("wait");
            assert_eq!(due, Some(start + Duration::from_micros(micros)));
        }
        stop.raise();
        assert_eq!(pace.wait(&stop).expect("wait"), None);
    }
}
