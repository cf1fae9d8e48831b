//! Giving way while packets wait, and noticing that it does not help.

use std::time::Instant;

use super::Pressure;
use crate::auto::Auto;
use crate::auto::phase::Phase;
use crate::auto::rest::Reason;
use crate::curve::BETA;

impl Auto {
    /// How much less to send while packets wait: what waits is ours as much as that of others. It depends on the
    /// time they wait, not on its share of the round trip, so that long and short paths give way alike.
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

    /// The same where jitter hides short queues from single packets: by what packets take on average.
    fn yielding_slowly(&self) -> f64 {
        if !self.rtt.jitters() {
            return 0.0;
        }
        let turn = self.rtt.turn().unwrap_or_default().as_secs_f64();
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

    /// As little as giving way allows is sent, for a while already, and still packets wait.
    pub(in crate::auto) fn pressed(&self) -> bool {
        self.yielding() >= self.yield_most() && self.pressure.seconds > PRESSED_S
    }

    /// Looks whether packets have waited too long for it to be our doing.
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
        if matches!(self.phase, Phase::Cruise { .. }) && self.rival.is_none() && self.limited {
            let waits = if self.yielding() > 0.0 { 1.0 } else { 0.0 };
            let part = (elapsed.as_secs_f64() / (WAITS_ROUNDS * self.rtt_s())).min(1.0);
            self.pressure.share += (waits - self.pressure.share) * part;
            let latest = self.rtt.latest().unwrap_or_default().as_secs_f64();
            self.cruising.add(latest, self.in_flight);
            if waits > 0.0 && self.late() && self.pressure.due(now) {
                self.rest(now, Reason::Waits);
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
        let known = if self.pressure.knows(now) {
            PATIENCE_KNOWN
        } else {
            1.0
        };
        let patience = known * (PATIENCE_S + PATIENCE_ROUNDS * self.rtt_s());
        if self.rival.is_none() && self.limited && self.pressure.seconds > patience {
            if self.pressure.knows(now) || !self.long_enough() {
                self.meet_rival(now, BETA * self.pressure.in_flight);
            } else {
                self.rest(now, Reason::Pressed);
            }
        }
    }
}

/// Packets may wait this long, beside [`Auto::noise`], before we give way: timers and probes do that. On short paths
/// it is this share of the floor: their queues overflow soon after.
const YIELD_FROM_S: f64 = 0.001;
const YIELD_FROM: f64 = 0.4;

/// Share by which less is sent for each second that packets wait, and the most: all of it at 3.6 ms, before
/// a buffer of a quarter of 20 ms overflows.
const YIELD_PER_S: f64 = 1.5 / 0.013;
const YIELD_MOST: f64 = 0.3;

/// Means over a round trip differ by this share of it where nothing waits; what they are above that is drained in two.
const MEAN_WAIT: f64 = 1.0 / 16.0;
const MEAN_YIELD: f64 = 0.5;
const MEAN_YIELD_MOST: f64 = 0.1;

/// The most where all other flows are to have what they want.
const YIELD_BACKGROUND: f64 = 0.85;

/// Others' probes are waited out before the bandwidth is taken to be less: where their round trip is 100 ms, a probe
/// and the queue it leaves take thrice that.
const PRESSED_S: f64 = 0.3;

/// Our own kind has drained the queue by then, each of them giving way.
const PATIENCE_S: f64 = 0.3;
const PATIENCE_ROUNDS: f64 = 10.0;

/// Part of it where delays have answered that it is a queue.
const PATIENCE_KNOWN: f64 = 0.5;

/// Round trips over which it is looked at how often packets wait.
const WAITS_ROUNDS: f64 = 4.0;
