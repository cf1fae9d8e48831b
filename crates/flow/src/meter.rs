//! One connection's part of its client's rate, in one direction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::allowance::Allowance;
use crate::bucket::Portion;

/// A direction, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to targets.
    Up,
    /// From targets to the client.
    Down,
}

/// Time after which it is seen that more may be used again, where nobody says so: a month has begun while a flow waited.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The bytes that a connection may move now, out of what its client's connections share.
#[derive(Debug)]
pub struct Meter {
    allowance: Arc<Allowance>,
    way: Way,
    changes: u32,
    /// Bytes that may go now.
    credit: u64,
    /// Those that may go later.
    promised: Option<Portion>,
}

impl Meter {
    /// Nothing is promised yet.
    pub fn new(allowance: Arc<Allowance>, way: Way) -> Self {
        Self {
            changes: allowance.bucket(way).changes(),
            allowance,
            way,
            credit: 0,
            promised: None,
        }
    }

    /// The bytes that may go now, at least one; `u64::MAX` where there is no limit. No more than the quota leaves.
    ///
    /// # Errors
    ///
    /// None may; come again at that time.
    pub fn poll(&mut self, now: Instant) -> Result<u64, Instant> {
        let left = self.allowance.left();
        if left == 0 {
            return Err(now + LOOK_AGAIN);
        }
        self.poll_rate(now).map(|bytes| bytes.min(left))
    }

    fn poll_rate(&mut self, now: Instant) -> Result<u64, Instant> {
        let bucket = self.allowance.bucket(self.way);
        let changes = bucket.changes();
        if changes != self.changes {
            self.changes = changes;
            self.promised = None;
        }
        if self.credit > 0 && bucket.rate().is_some() {
            return Ok(self.credit);
        }
        let Some(portion) = self.promised.take().or_else(|| bucket.promise(now)) else {
            return Ok(u64::MAX);
        };
        if portion.at > now {
            self.promised = Some(portion);
            return Err(portion.at);
        }
        self.credit = portion.bytes;
        Ok(self.credit)
    }

    /// So many of these have gone.
    pub fn spend(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_sub(bytes);
    }
}
