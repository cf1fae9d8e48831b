//! Pacing: how much may be sent now, and when more may be sent.
//!
//! The controller limits the bytes in flight, the rate, and the bytes that may leave at once. All of these limits
//! apply to data before it becomes packets; see the crate documentation.

use std::time::{Duration, Instant};

use crate::Gauge;
use crate::bytes::to_f64;

/// Smallest UDP payload that QUIC may assume (RFC 9000 section 14).
const MTU_MIN: u16 = 1200;

/// After a late timer, the pacer allows up to this much sending time at once. The bytes are also limited to
/// `CATCH_UP_WINDOW` of the window, or `CATCH_UP_PACKETS` packets if that is more, because the queues of short paths
/// hold less.
const CATCH_UP: Duration = Duration::from_millis(2);
const CATCH_UP_WINDOW: f64 = 1.0 / 8.0;
const CATCH_UP_PACKETS: f64 = 4.0;
/// Pacing debt is capped at what the rate carries in this time.
const DEBT_MAX: Duration = Duration::from_millis(20);

/// Added to every wait. A wait that is rounded down ends just before the burst is allowed, and must be repeated.
const ROUND_UP: Duration = Duration::from_micros(1);

/// Number of packets that may leave at once after a pause, as on a new connection (RFC 9002 section 7.7). The short
/// messages of a few interactive flows must not be spread over milliseconds.
const IDLE_BURST_PACKETS: f64 = 10.0;

/// Maximum size of a burst in bytes: one batch of segmentation offload.
const BURST_MAX: f64 = 65_536.0;

/// Minimum size, in bytes, of a burst that is worth waiting for: six packets cost little more to send than one.
const BURST_LONG: f64 = BURST_MAX / 8.0;

/// Paces one connection: decides when bytes may leave, within the limits of its [`Gauge`].
#[derive(Debug)]
pub struct Pacer {
    tokens: f64,
    refilled: Instant,
    /// True if the tokens were used up. Sending resumes once there are enough tokens for a burst. If the pacer never
    /// waited for a burst, every batch of a bulk sender would be one packet; if it always did, one keystroke would
    /// wait for another.
    drained: bool,
    /// Bytes sent since the last wait, or since the token bucket was last full.
    spent: f64,
}

impl Pacer {
    /// Creates a pacer that allows a first burst at once.
    pub fn new(now: Instant) -> Self {
        Self {
            tokens: IDLE_BURST_PACKETS * f64::from(MTU_MIN),
            refilled: now,
            drained: false,
            spent: 0.0,
        }
    }

    /// Returns the number of bytes that may be sent now.
    ///
    /// # Errors
    ///
    /// If nothing may be sent now, returns the time at which that changes, or `None` if only an acknowledgement
    /// changes it.
    pub fn allowance(
        &mut self,
        now: Instant,
        gauge: &Gauge,
        mtu: u16,
    ) -> Result<usize, Option<Instant>> {
        let limits = gauge.limits();
        let room = limits.window.saturating_sub(gauge.in_flight());
        // Reopening the window for every single acknowledged packet would make each batch as small as one packet.
        let least = (limits.window / 4).min(limits.quantum);
        if room == 0 || (room < least && gauge.in_flight() > 0) {
            return Err(None);
        }
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let rate = limits.rate;
        let Some(rate) = rate else {
            return Ok(room);
        };
        let burst = to_f64(limits.quantum).clamp(f64::from(mtu), BURST_MAX);
        let late = Self::catch_up(rate, gauge, mtu);
        self.refill(now, rate, burst.max(late), mtu);
        // After a full burst, wait for another full burst; otherwise tokens go packet by packet. Making packets takes
        // time, in which tokens for one or two more packets arrive, and this would repeat for every batch.
        let bulk = self.drained || (self.spent >= burst && burst >= BURST_LONG);
        let enough = if bulk { burst } else { f64::from(mtu) };
        let enough = enough.min(to_f64(room as u64));
        self.drained = self.tokens < enough;
        if self.drained {
            self.spent = 0.0;
            let wait = (burst - self.tokens) / rate;
            return Err(Some(now + Duration::from_secs_f64(wait) + ROUND_UP));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rates are bounded, and so is the time that tokens gather"
        )]
        Ok(room.min(self.tokens as usize))
    }

    /// Records that `bytes` were sent.
    pub fn on_sent(&mut self, bytes: usize, rate: Option<f64>) {
        if let Some(rate) = rate {
            self.spent += to_f64(bytes as u64);
            let debt = rate * DEBT_MAX.as_secs_f64();
            self.tokens = (self.tokens - to_f64(bytes as u64)).max(-debt);
        }
    }

    /// Returns the bytes that may leave at once after a late timer, and after a time in which the caller slept on
    /// purpose (one batch at most). The caller bases its sleep on the traffic of the whole worker, whose rate may be
    /// far below what this connection may send.
    fn catch_up(rate: f64, gauge: &Gauge, mtu: u16) -> f64 {
        let window = to_f64(gauge.window());
        let part = (window * CATCH_UP_WINDOW).max(CATCH_UP_PACKETS * f64::from(mtu));
        let slept = rate * gauge.sleeps().as_secs_f64();
        (rate * CATCH_UP.as_secs_f64()).min(part) + slept.min(BURST_MAX)
    }

    fn refill(&mut self, now: Instant, rate: f64, burst: f64, mtu: u16) {
        let elapsed = now.saturating_duration_since(self.refilled).as_secs_f64();
        let idle = IDLE_BURST_PACKETS * f64::from(mtu).min(BURST_MAX / IDLE_BURST_PACKETS);
        let most = burst.max(idle);
        self.tokens += rate * elapsed;
        if self.tokens >= most {
            self.tokens = most;
            self.spent = 0.0;
        }
        self.refilled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ControllerView, Limits};

    /// Returns the bytes allowed to a sender of 1 Gbit/s after one second of rest, if its caller sleeps for `sleeps`
    /// in each turn.
    fn after_rest(sleeps: Duration) -> usize {
        let gauge = Gauge::new();
        let limits = Limits {
            window: 10_000_000,
            rate: Some(125e6),
            quantum: 65_536,
        };
        gauge.publish(limits, ControllerView::default(), None, None);
        gauge.set_sleeps(sleeps);
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        let later = start + Duration::from_secs(1);
        pacer.allowance(later, &gauge, 1200).expect("a full bucket")
    }

    #[test]
    fn a_sleep_is_made_up_for_by_one_batch_at_most() {
        let awake = after_rest(Duration::ZERO);
        let short = after_rest(Duration::from_micros(200));
        assert_eq!(short, awake + 25_000, "the bytes of 200 us of sleep");
        assert_eq!(after_rest(Duration::from_millis(6)), awake + 65_536);
    }
}
