//! The rate limit of one direction of a client, shared by all its connections.
//!
//! This is a generic cell rate algorithm (ITU-T I.371). One number holds the time until which bytes are promised. Each
//! caller that wants bytes advances that time, and its portion is due at the new time. So every waiting caller has a
//! time of its own, in order of arrival, and cannot be overtaken by another, whatever thread it runs on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of bytes that an idle client may send at once, as a time at its rate.
const BURST: Duration = Duration::from_millis(50);

/// The smallest burst at low rates, in bytes: a few packets.
const BURST_MIN: u64 = 4 * PORTION_MIN;

/// Bytes are promised in portions: one packet at low rates, one batch at high rates.
const PORTION: Duration = Duration::from_millis(4);
const PORTION_MIN: u64 = 1200;
const PORTION_MAX: u64 = 64 * 1024;

const NANOS: u128 = 1_000_000_000;

/// A rate in bytes per second for one direction, promised in portions to any caller.
///
/// Threads share it without a lock. Its numbers order no other memory, so all accesses are relaxed.
#[derive(Debug)]
pub(crate) struct Bucket {
    base: Instant,
    /// Bytes per second; 0 means no limit.
    rate: AtomicU64,
    /// Incremented at each change of the rate. Portions promised before the change are no longer valid.
    changes: AtomicU32,
    /// Time until which bytes are promised, in nanoseconds after `base`.
    promised: AtomicU64,
}

/// A number of bytes, and the time at which they may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    pub(crate) bytes: u64,
    pub(crate) at: Instant,
}

impl Bucket {
    /// Creates a bucket without a limit.
    pub(crate) fn new(base: Instant) -> Self {
        Self {
            base,
            rate: AtomicU64::new(0),
            changes: AtomicU32::new(0),
            promised: AtomicU64::new(0),
        }
    }

    /// Sets the rate in bytes per second; `None` removes the limit.
    pub(crate) fn set_rate(&self, rate: Option<u64>) {
        let rate = rate.map_or(0, |rate| rate.max(1));
        if self.rate.swap(rate, Ordering::Relaxed) != rate {
            self.promised.store(0, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|&rate| rate > 0)
    }

    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Promises the next portion; `None` if there is no limit.
    pub(crate) fn promise(&self, now: Instant) -> Option<Portion> {
        let rate = self.rate()?;
        let per_portion = u128::from(rate) * PORTION.as_nanos() / NANOS;
        let bytes = u64::try_from(per_portion).unwrap_or(u64::MAX);
        let bytes = bytes.clamp(PORTION_MIN, PORTION_MAX);
        let cost = time_of(bytes, rate);
        let burst = nanos(BURST).max(time_of(BURST_MIN, rate));
        let from = nanos(now.saturating_duration_since(self.base)).saturating_sub(burst);
        let next = |promised: u64| Some(promised.max(from).saturating_add(cost));
        let before = self
            .promised
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let promised = before.unwrap_or_else(|before| before).max(from);
        let until = Duration::from_nanos(promised.saturating_add(cost));
        // The promised time is at most one portion per connection ahead of now.
        let at = self.base.checked_add(until).unwrap_or(now);
        Some(Portion { bytes, at })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn time_of(bytes: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(bytes) * NANOS / u128::from(rate)).unwrap_or(u64::MAX)
}
