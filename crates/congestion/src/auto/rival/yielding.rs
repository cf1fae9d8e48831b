//! Yielding while packets wait, and noticing that yielding does not help.

use std::time::Instant;

use super::Pressure;
use crate::auto::Auto;
use crate::auto::phase::Phase;
use crate::auto::rest::RestReason;
use crate::curve::BETA;

impl Auto {
    /// Returns by how much to reduce the rate while packets wait, because this sender fills the queue as much as
    /// other flows do.
    ///
    /// The reduction depends on the time that packets wait, not on its share of the round trip, so that long and
    /// short paths yield alike.
    pub(in crate::auto) fn yielding(&self) -> f64 {
        if !self.paced() {
            return 0.0;
        }
        let noise = self.noise().as_secs_f64();
        let least = (noise + YIELD_FROM_S).min(YIELD_FROM * self.floor_s());
        let least = least.max(noise);
        let wait = self.rtt.excess().as_secs_f64() - least;
        let most = self.yield_most();
        (YIELD_PER_S * wait).clamp(self.yielding_slowly(), most)
    }

    /// Returns the reduction on a path on which jitter hides short queues from single packets. It is based on the
    /// mean round-trip time.
    fn yielding_slowly(&self) -> f64 {
        if !self.rtt.jitters() {
            return 0.0;
        }
        let turn = self.rtt.mean_floor().unwrap_or_default().as_secs_f64();
        let wait = self.rtt.mean_s() - turn - YIELD_FROM_S.max(MEAN_WAIT * turn);
        (MEAN_YIELD * wait / turn).clamp(0.0, MEAN_YIELD_MOST)
    }

    pub(super) fn yield_most(&self) -> f64 {
        if self.background {
            YIELD_BACKGROUND
        } else {
            YIELD_MOST
        }
    }

    /// Returns whether the sender has yielded as much as it may for a while, and packets still wait.
    pub(in crate::auto) fn pressed(&self) -> bool {
        self.yielding() >= self.yield_most() && self.pressure.seconds > PRESSED_S
    }

    /// Watches whether packets have waited too long for this sender to be the cause.
    pub(in crate::auto) fn watch_queue(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.pressure.watched);
        self.pressure.watched = now;
        if matches!(self.phase, Phase::Rest(_)) || self.rtt.level().is_none() {
            return;
        }
        if self.starting() {
            self.pressure = Pressure::new(now);
            return;
        }
        if self.follows() {
            self.pressure.forget();
            return;
        }
        if matches!(self.phase, Phase::Cruise { .. }) && self.rival.is_none() && self.limited {
            let waits = if self.yielding() > 0.0 { 1.0 } else { 0.0 };
            let part = (elapsed.as_secs_f64() / (WAITS_ROUNDS * self.rtt_s())).min(1.0);
            self.pressure.share += (waits - self.pressure.share) * part;
            let latest = self.rtt.latest().unwrap_or_default().as_secs_f64();
            self.cruising.add(latest, self.in_flight);
            let asks = self.may_jitter() && !self.batches_wait(now);
            if waits > 0.0 && asks && self.pressure.due(now) {
                self.rest(now, RestReason::Waits);
                return;
            }
        }
        if !self.queued() {
            self.pressure.forget();
            return;
        }
        if self.pressure.in_flight <= 0.0 {
            self.pressure.in_flight = self.in_flight;
            self.pressure.bandwidth = self.bandwidth.get();
        }
        self.pressure.seconds += self.yielding() / self.yield_most() * elapsed.as_secs_f64();
        let known = if self.pressure.queue_known(now) {
            PATIENCE_KNOWN
        } else {
            1.0
        };
        let patience = known * (PATIENCE_S + PATIENCE_ROUNDS * self.rtt_s());
        if self.rival.is_none() && self.limited && self.pressure.seconds > patience {
            if self.pressure.queue_known(now) || !self.long_enough() {
                self.meet_rival(now, BETA * self.pressure.in_flight);
            } else {
                self.rest(now, RestReason::Pressed);
            }
        }
    }
}

/// Time that packets may wait, in addition to [`Auto::noise`], before the sender yields: timers and probes cause that
/// much. On short paths it is limited to `YIELD_FROM` of the floor, because their queues overflow soon after.
const YIELD_FROM_S: f64 = 0.001;
const YIELD_FROM: f64 = 0.4;

/// Reduction of the rate for each second that packets wait, and the maximum reduction. The maximum is reached at 3.6
/// ms, before a buffer of a quarter of 20 ms overflows.
const YIELD_PER_S: f64 = 1.5 / 0.013;
const YIELD_MOST: f64 = 0.3;

/// Without a queue, the mean delay of a round trip varies by the part `MEAN_WAIT` of that round trip. The sender drains
/// the excess over it in two round trips.
const MEAN_WAIT: f64 = 1.0 / 16.0;
const MEAN_YIELD: f64 = 0.5;
const MEAN_YIELD_MOST: f64 = 0.1;

/// Maximum reduction of a controller that leaves other flows all that they want.
const YIELD_BACKGROUND: f64 = 0.85;

/// The bandwidth is not reduced before other flows' probes have passed. If their round-trip time is 100 ms, a probe
/// and the queue that it leaves last three times as long.
const PRESSED_S: f64 = 0.3;

/// Time for which packets may wait before the sender looks for a rival. Flows of this kind have drained the queue by
/// then, because each of them yields.
const PATIENCE_S: f64 = 0.3;
const PATIENCE_ROUNDS: f64 = 10.0;

/// Factor on that time if delays have already shown that they are a queue.
const PATIENCE_KNOWN: f64 = 0.5;

/// Number of round trips over which the sender measures how often packets wait.
const WAITS_ROUNDS: f64 = 4.0;
