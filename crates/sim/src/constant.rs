//! A source that sends full packets at a constant rate and ignores losses.

use std::time::{Duration, Instant};

use crate::packet::UDP_HEADERS;

/// Length of an IP packet, bytes.
const LENGTH: usize = 1500;

/// Length of a packet's UDP payload, bytes.
pub(crate) const PAYLOAD: usize = LENGTH - UDP_HEADERS;

#[derive(Debug)]
pub(crate) struct ConstantSource {
    /// Bytes of IP packets per second.
    rate: u64,
    base: Instant,
    sent: u64,
}

impl ConstantSource {
    pub(crate) fn new(rate: u64, now: Instant) -> Self {
        Self {
            rate,
            base: now,
            sent: 0,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let bytes = u128::from(self.sent) * LENGTH as u128;
        let nanos = bytes * 1_000_000_000 / u128::from(self.rate.max(1));
        let after = Duration::from_nanos(u64::try_from(nanos).ok()?);
        self.base.checked_add(after)
    }

    pub(crate) fn poll(&mut self, now: Instant) -> bool {
        let due = self.next_timeout().is_some_and(|at| at <= now);
        self.sent += u64::from(due);
        due
    }
}
