//! How much may be sent now, and when more.
//!
//! The controller says how much may be in flight, how fast it leaves and how much may leave at once. All of
//! it acts on data before it becomes packets, see the crate documentation.

use std::time::{Duration, Instant};

use crate::Gauge;
use crate::bytes::to_f64;

/// Smallest UDP payload QUIC may assume (RFC 9000 section 14).
const MTU_MIN: u16 = 1200;

/// A late timer may be made up for by this much sending at once, but by no more than a part of the window: queues of
/// short paths hold less. Pacing debt is capped at this.
const CATCH_UP: Duration = Duration::from_millis(2);
const CATCH_UP_WINDOW: f64 = 1.0 / 8.0;
const CATCH_UP_PACKETS: f64 = 4.0;
const DEBT_MAX: Duration = Duration::from_millis(20);

/// Added to every wait: one that is rounded down ends just before the burst is allowed, and repeats.
const ROUND_UP: Duration = Duration::from_micros(1);

/// After a pause this many packets may go at once, as a new connection may (RFC 9002 section 7.7): what
/// a few interactive flows have to say must not be spread over milliseconds.
const IDLE_BURST_PACKETS: f64 = 10.0;

/// A burst never exceeds one segmentation-offload batch.
const BURST_MAX: f64 = 65_536.0;

/// A burst of at least so much is worth waiting for: six packets cost little more to send than one.
const BURST_LONG: f64 = BURST_MAX / 8.0;

/// Pacing of one connection: when bytes may leave, by the limits that its [`Gauge`] shows.
#[derive(Debug)]
pub struct Pacer {
    tokens: f64,
    refilled: Instant,
    /// The tokens were used up: bytes go again once there are enough for a burst. Without this every
    /// batch of a bulk sender would be one packet; with it always, one keystroke would wait for another.
    drained: bool,
    /// Bytes sent since there was a wait, or since tokens were at their most.
    spent: f64,
}

impl Pacer {
    /// A pacer that allows a first burst at once.
    pub fn new(now: Instant) -> Self {
        Self {
            tokens: IDLE_BURST_PACKETS * f64::from(MTU_MIN),
            refilled: now,
            drained: false,
            spent: 0.0,
        }
    }

    /// Bytes that may be sent now; 0 with the moment at which that changes, where time will change it.
    pub fn allowance(
        &mut self,
        now: Instant,
        gauge: &Gauge,
        mtu: u16,
    ) -> Result<usize, Option<Instant>> {
        let limits = gauge.limits();
        let room = limits.window.saturating_sub(gauge.in_flight());
        // Opening for every single acknowledged packet would make each batch that small.
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
        // After a full burst the next one is waited for: making packets takes time, in which tokens for one or two
        // more come in, and so on for ever.
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

    /// Notes that `bytes` were sent.
    pub fn on_sent(&mut self, bytes: usize, rate: Option<f64>) {
        if let Some(rate) = rate {
            self.spent += to_f64(bytes as u64);
            let debt = rate * DEBT_MAX.as_secs_f64();
            self.tokens = (self.tokens - to_f64(bytes as u64)).max(-debt);
        }
    }

    /// Bytes that may be made up for: of a late timer, and of the time that the caller sleeps on purpose, a batch at most. It
    /// sleeps for what the worker moves, which may be far less than this connection may send.
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
    use crate::{Limits, View};

    /// Bytes allowed to a sender of 1 Gbit/s that has rested for a second, with its caller asleep for so long each time.
    fn after_rest(sleeps: Duration) -> usize {
        let gauge = Gauge::new();
        let limits = Limits {
            window: 10_000_000,
            rate: Some(125e6),
            quantum: 65_536,
        };
        gauge.publish(limits, View::default(), None, None);
        gauge.set_sleeps(sleeps);
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        let later = start + Duration::from_secs(1);
        pacer.allowance(later, &gauge, 1200).expect("it has rested")
    }

    #[test]
    fn sleep_is_made_up_for_by_a_batch_at_most() {
        let awake = after_rest(Duration::ZERO);
        let short = after_rest(Duration::from_micros(200));
        assert_eq!(short, awake + 25_000, "what would have left in 200 us");
        assert_eq!(after_rest(Duration::from_millis(6)), awake + 65_536);
    }
}
