//! The rate of one direction of a client, which all its connections share.
//!
//! A generic cell rate algorithm (ITU-T I.371): one number says until when bytes are promised, and who wants more moves it
//! on. So each that waits has a time of its own, in the order in which they came: none finds that another was quicker, on
//! whatever thread it is.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a client that was idle may send at once, as a time at its rate.
const BURST: Duration = Duration::from_millis(50);

/// The same at low rates, bytes: a few packets.
const BURST_MIN: u64 = 4 * PORTION_MIN;

/// Bytes are promised in portions: of one packet where the rate is low, of one batch where it is high.
const PORTION: Duration = Duration::from_millis(4);
const PORTION_MIN: u64 = 1200;
const PORTION_MAX: u64 = 64 * 1024;

const NANOS: u128 = 1_000_000_000;

/// Bytes a second of one direction, promised in portions to whoever asks.
///
/// Threads share it without a lock. Its numbers order nothing but themselves.
#[derive(Debug)]
pub(crate) struct Bucket {
    base: Instant,
    /// Bytes a second; 0: any number.
    rate: AtomicU64,
    /// Grows with each change of the rate: what was promised before is void.
    changes: AtomicU32,
    /// Until when bytes are promised, nanoseconds after `base`.
    promised: AtomicU64,
}

/// Some bytes, and when they may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    pub(crate) bytes: u64,
    pub(crate) at: Instant,
}

impl Bucket {
    /// Without a limit.
    pub(crate) fn new(base: Instant) -> Self {
        Self {
            base,
            rate: AtomicU64::new(0),
            changes: AtomicU32::new(0),
            promised: AtomicU64::new(0),
        }
    }

    /// Sets the rate, bytes a second; `None`: there is no limit.
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

    /// Promises the next portion; `None`: there is no limit.
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
        // What is promised lies at most a portion for each connection ahead.
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
