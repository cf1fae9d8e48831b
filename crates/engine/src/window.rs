//! Flow-control windows that follow bandwidth x delay under a budget.

use std::time::{Duration, Instant};

use crate::pacer::as_f64;

/// Where every connection starts: enough for 1 Gbit/s at 8 ms, little enough for ten thousand strangers.
/// It doubles every round trip of 10 ms or more if need be, as fast as slow start does.
pub(crate) const INITIAL: u64 = 2 << 20;

/// Shortest measuring interval. Threads that share cores take turns of milliseconds, and within a turn
/// a receiver finds far more than the path brings on average.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Round trips are taken to be at least this long: the threads at both ends are not always running.
const RTT_MIN: Duration = Duration::from_millis(1);

/// The receive window of one connection.
///
/// It doubles whenever more than a sixth of it was used up in one round trip: a peer at its start sends
/// 2.5 times as much in each, and what it sends meets the window announced a round trip before.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    size: u64,
    /// The most that use has made it; 0: it is as it was at first.
    needed: u64,
    /// Extra credit for flows whose application does not read: they keep theirs without starving others.
    parked: u64,
    epoch: Instant,
    delivered: u64,
}

impl ReceiveWindow {
    /// What to begin with where an earlier connection to the same peer `needed` so much.
    pub(crate) fn first(needed: u64, budget: u64) -> u64 {
        needed.min(budget).max(INITIAL)
    }

    /// Begins with `size` bytes.
    pub(crate) fn new(now: Instant, size: u64) -> Self {
        Self {
            size,
            needed: 0,
            parked: 0,
            epoch: now,
            delivered: 0,
        }
    }

    /// Notes how much was delivered in total so far; `Some` is the new window to announce.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        rtt: Duration,
        delivered: u64,
        parked: u64,
        budget: u64,
    ) -> Option<u64> {
        let before = self.total(budget);
        self.parked = parked;
        let interval = rtt.max(INTERVAL_MIN);
        let elapsed = now.saturating_duration_since(self.epoch);
        if elapsed >= interval {
            let share = rtt.max(RTT_MIN).as_secs_f64() / elapsed.as_secs_f64();
            if as_f64(delivered - self.delivered) * share > as_f64(self.size / 6) {
                self.size = (self.size * 2).min(budget.max(INITIAL));
                self.needed = self.size;
            }
            self.epoch = now;
            self.delivered = delivered;
        }
        let after = self.total(budget);
        (after != before).then_some(after)
    }

    /// What the next connection to the same peer should begin with; 0: like any.
    pub(crate) fn needed(&self) -> u64 {
        self.needed
    }

    /// The window announced to the peer.
    pub(crate) fn total(&self, budget: u64) -> u64 {
        (self.size + self.parked).min(budget.max(self.size))
    }
}

/// The send window: unacknowledged data kept for retransmission. The library frees only the contiguous
/// acknowledged prefix, so with losses it has to span several congestion windows.
pub(crate) fn send_window(congestion_window: u64, budget: u64) -> u64 {
    (congestion_window.saturating_mul(5) + (1 << 20)).min(budget)
}
