//! One connection's share of its client's rate, in one direction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::allowance::Allowance;
use crate::bucket::Portion;

/// A direction, as seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowDirection {
    /// From the client to targets.
    Up,
    /// From targets to the client.
    Down,
}

/// Interval at which a used-up quota is checked again. It covers renewals that cause no event, such as the start of a
/// month while a flow waits.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Maximum number of bytes of one turn of a client with a quota. Workers count bytes after they have moved, so each may
/// move a turn while another uses up the quota.
const QUOTA_TURN_MAX: u64 = 64 * 1024;

/// The bytes that a connection may move now, out of the rate that all connections of its client share.
#[derive(Debug)]
pub struct Meter {
    allowance: Arc<Allowance>,
    way: FlowDirection,
    changes: u32,
    /// Bytes that may be moved now.
    credit: u64,
    /// Bytes that were moved beyond the credit, as a datagram cannot be cut. The next portions pay for them.
    debt: u64,
    /// The next portion, which may be moved later.
    promised: Option<Portion>,
}

impl Meter {
    /// Creates a meter without a promised portion.
    pub fn new(allowance: Arc<Allowance>, way: FlowDirection) -> Self {
        Self {
            changes: allowance.bucket(way).changes(),
            allowance,
            way,
            credit: 0,
            debt: 0,
            promised: None,
        }
    }

    /// Returns the number of bytes that may be moved now, at least one; `u64::MAX` if there is no limit. With a quota,
    /// returns at most what it leaves, and at most 64 KiB. Workers that move bytes at the same time exceed the quota by
    /// at most 64 KiB for each worker but one.
    ///
    /// # Errors
    ///
    /// No bytes may be moved now. Call again at the returned time.
    pub fn poll(&mut self, now: Instant) -> Result<u64, Instant> {
        let left = self.allowance.left();
        if left == 0 {
            return Err(now + LOOK_AGAIN);
        }
        let most = if left == u64::MAX {
            left
        } else {
            left.min(QUOTA_TURN_MAX)
        };
        self.poll_rate(now).map(|bytes| bytes.min(most))
    }

    fn poll_rate(&mut self, now: Instant) -> Result<u64, Instant> {
        let bucket = self.allowance.bucket(self.way);
        let changes = bucket.changes();
        if changes != self.changes {
            self.changes = changes;
            (self.promised, self.debt) = (None, 0);
        }
        if self.credit > 0 && bucket.rate().is_some() {
            return Ok(self.credit);
        }
        loop {
            let Some(portion) = self.promised.take().or_else(|| bucket.promise(now)) else {
                return Ok(u64::MAX);
            };
            if portion.at > now {
                self.promised = Some(portion);
                return Err(portion.at);
            }
            let paid = self.debt.min(portion.bytes);
            self.debt -= paid;
            self.credit = portion.bytes - paid;
            if self.credit > 0 {
                return Ok(self.credit);
            }
        }
    }

    /// Subtracts `bytes`, which were moved, from the credit, or from that of later portions.
    pub fn spend(&mut self, bytes: u64) {
        if self.allowance.bucket(self.way).rate().is_some() {
            self.debt += bytes.saturating_sub(self.credit);
        }
        self.credit = self.credit.saturating_sub(bytes);
    }
}
