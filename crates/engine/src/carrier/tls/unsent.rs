//! The number of bytes that the system keeps unsent. What is queued delays all that follows: answers, messages, and flows
//! that move to another connection. So it is a tenth of a second at the rate of the connection.

use std::time::{Duration, Instant};

/// Bounds of the limit. The upper one is two batches of records, which keep the system busy at any rate.
const UNSENT_MIN: u32 = 64 * 1024;
const UNSENT_MAX: u32 = 512 * 1024;

/// The limit that sockets begin with.
pub const UNSENT_FIRST: u32 = 128 * 1024;

/// Time in which the rate is measured. After [`PAUSE`], the connection had little to send.
const SAMPLE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct UnsentLimit {
    since: Option<Instant>,
    bytes: u64,
    most: u32,
}

impl UnsentLimit {
    pub(super) fn new() -> Self {
        Self {
            since: None,
            bytes: 0,
            most: UNSENT_FIRST,
        }
    }

    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Handles `bytes` that the system has taken. Returns the limit, if it changes.
    pub(super) fn handle_sent(&mut self, now: Instant, bytes: u64) -> Option<u32> {
        let since = *self.since.get_or_insert(now);
        self.bytes += bytes;
        let span = now - since;
        if span < SAMPLE {
            return None;
        }
        let moved = std::mem::take(&mut self.bytes);
        self.since = Some(now);
        if span > PAUSE {
            return None;
        }
        let queued = u128::from(moved) * SAMPLE.as_micros() / span.as_micros();
        let queued = u32::try_from(queued).unwrap_or(u32::MAX).min(UNSENT_MAX);
        // A power of two, so that it seldom changes.
        let most = queued.next_power_of_two().max(UNSENT_MIN);
        (std::mem::replace(&mut self.most, most) != most).then_some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends at a rate in bytes per second. Returns the limit.
    fn at_rate(limit: &mut UnsentLimit, now: &mut Instant, rate: u64) -> u32 {
        for _ in 0..100 {
            *now += SAMPLE / 10;
            limit.handle_sent(*now, rate / 100);
        }
        limit.most()
    }

    #[test]
    fn the_limit_follows_the_rate_within_its_bounds() {
        let (mut limit, mut now) = (UnsentLimit::new(), Instant::now());
        assert_eq!(at_rate(&mut limit, &mut now, 125_000), UNSENT_MIN);
        assert_eq!(at_rate(&mut limit, &mut now, 1_250_000), 128 * 1024);
        assert_eq!(at_rate(&mut limit, &mut now, 1 << 30), UNSENT_MAX);
        assert_eq!(at_rate(&mut limit, &mut now, 2_000_000), 256 * 1024);
        // A message after a pause says nothing about the rate.
        assert_eq!(limit.handle_sent(now + 2 * PAUSE, 100), None);
        assert_eq!(limit.most(), 256 * 1024);
    }
}
