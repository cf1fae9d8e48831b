//! The limits of one client over all its connections and workers, and its use: a rate in each direction, a number of
//! flows, and bytes per month.
//!
//! The numbers are atomics that are read and changed on the data path, so that no thread waits for another. Each number
//! stands for itself and orders no other memory, so all accesses are relaxed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use crate::bucket::Bucket;
use crate::meter::FlowDirection;

/// The limits of one client. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllowanceLimits {
    /// Flows that may be open at once.
    pub flows: Option<u64>,
    /// Rate from the client to targets, in bytes per second.
    pub rate_up: Option<u64>,
    /// Rate from targets to the client, in bytes per second.
    pub rate_down: Option<u64>,
    /// Bytes per month, both directions together.
    pub quota: Option<u64>,
}

/// The limits of a client, and what it has used.
#[derive(Debug)]
pub struct Allowance {
    up: Bucket,
    down: Bucket,
    /// [`NONE`] if there is no limit. The same for `quota`.
    flows_max: AtomicU64,
    flows: AtomicU64,
    quota: AtomicU64,
    used: AtomicU64,
    moved_up: AtomicU64,
    moved_down: AtomicU64,
    /// Incremented when the client may use more again: on a new quota, or a new month.
    renewals: AtomicU32,
}

/// A place for one open flow. It counts until it is dropped.
#[derive(Debug)]
pub struct FlowPlace(Arc<Allowance>);

/// A client's limits and its use, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientUsage {
    /// The limits of the client.
    pub limits: AllowanceLimits,
    /// Number of open flows.
    pub flows: u64,
    /// Bytes that count against the quota this month.
    pub used: u64,
    /// Bytes from the client to targets since the process started.
    pub up: u64,
    /// Bytes from targets to the client since the process started.
    pub down: u64,
}

const NONE: u64 = u64::MAX;

/// Cap on the bytes reported as used earlier: half of what the counter holds.
const USED_MOST: u64 = u64::MAX / 2;

impl Allowance {
    /// Creates an allowance without limits, of which nothing has been used. No later call may pass an earlier time.
    pub fn new(now: Instant) -> Self {
        Self {
            up: Bucket::new(now),
            down: Bucket::new(now),
            flows_max: AtomicU64::new(NONE),
            flows: AtomicU64::new(0),
            quota: AtomicU64::new(NONE),
            used: AtomicU64::new(0),
            moved_up: AtomicU64::new(0),
            moved_down: AtomicU64::new(0),
            renewals: AtomicU32::new(0),
        }
    }

    /// Sets the limits. Setting equal limits again changes nothing.
    pub fn set(&self, limits: AllowanceLimits) {
        self.up.set_rate(limits.rate_up);
        self.down.set_rate(limits.rate_down);
        let flows = limits.flows.unwrap_or(NONE);
        self.flows_max.store(flows, Ordering::Relaxed);
        let quota = limits.quota.unwrap_or(NONE);
        if self.quota.swap(quota, Ordering::Relaxed) != quota {
            self.renewals.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets the bytes used this month: after a start of the process, or when a new month begins.
    pub fn set_used(&self, bytes: u64) {
        // The value may come from a file. It is capped so that later additions cannot overflow the counter.
        self.used.store(bytes.min(USED_MOST), Ordering::Relaxed);
        self.renewals.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more flow. `None` if the limit on open flows is reached.
    pub fn enter(self: &Arc<Self>) -> Option<FlowPlace> {
        let most = self.flows_max.load(Ordering::Relaxed);
        let more = |open: u64| (open < most).then_some(open + 1);
        let counted = self
            .flows
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.ok().map(|_| FlowPlace(self.clone()))
    }

    /// Counts one more flow above the limit: another flow of the client gives way to it, and will soon have ended.
    pub fn enter_above(self: &Arc<Self>) -> FlowPlace {
        self.flows.fetch_add(1, Ordering::Relaxed);
        FlowPlace(self.clone())
    }

    /// Counts bytes that have moved.
    pub fn note_moved(&self, way: FlowDirection, bytes: u64) {
        let moved = match way {
            FlowDirection::Up => &self.moved_up,
            FlowDirection::Down => &self.moved_down,
        };
        moved.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns whether the month's quota is used up.
    pub fn is_used_up(&self) -> bool {
        self.left() == 0
    }

    /// Returns the number of bytes that may still be used this month; `u64::MAX` if there is no quota.
    pub fn left(&self) -> u64 {
        match self.quota.load(Ordering::Relaxed) {
            NONE => NONE,
            quota => quota.saturating_sub(self.used()),
        }
    }

    /// Returns the number of bytes used this month.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns a counter that changes whenever a used-up quota may be available again.
    pub fn renewals(&self) -> u32 {
        self.renewals.load(Ordering::Relaxed)
    }

    /// Returns the current limits and use.
    pub fn usage(&self) -> ClientUsage {
        let limit = |limit: &AtomicU64| {
            let limit = limit.load(Ordering::Relaxed);
            (limit != NONE).then_some(limit)
        };
        ClientUsage {
            limits: AllowanceLimits {
                flows: limit(&self.flows_max),
                rate_up: self.up.rate(),
                rate_down: self.down.rate(),
                quota: limit(&self.quota),
            },
            flows: self.flows.load(Ordering::Relaxed),
            used: self.used(),
            up: self.moved_up.load(Ordering::Relaxed),
            down: self.moved_down.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn bucket(&self, way: FlowDirection) -> &Bucket {
        match way {
            FlowDirection::Up => &self.up,
            FlowDirection::Down => &self.down,
        }
    }
}

impl Drop for FlowPlace {
    fn drop(&mut self) {
        self.0.flows.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
