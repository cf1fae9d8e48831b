//! The course of a rest, from its beginning to its end.

use std::time::{Duration, Instant};

use super::{Rest, RestReason, Swings};
use crate::auto::phase::Phase;
use crate::auto::{ACK_LATE_S, Auto};
use crate::bytes;

impl Auto {
    pub(in crate::auto) fn rest(&mut self, now: Instant, reason: RestReason) {
        let start = self.before_drain.filter(|_| reason == RestReason::Start);
        let (mean_before, in_flight_before) = start.unwrap_or_else(|| self.cruise_means());
        self.rtt.restart();
        let rest = Rest {
            reason,
            mean_before,
            in_flight_before,
            lowest_mean: self.rtt.lowest_mean_s(),
            drained: None,
            in_vain: false,
            since: None,
            least: Duration::MAX,
            low: Duration::MAX,
            high: Duration::ZERO,
            swings: Swings::of(self.swing(mean_before)),
            sum: 0.0,
            in_flight: 0.0,
            acks: 0.0,
        };
        self.pressure.ask(now);
        self.siblings.rested = Some((now, reason != RestReason::Routine));
        self.enter(now, Phase::Rest(rest));
    }

    /// Returns whether the round trip is longer than threads and late acknowledgements make it appear. On shorter
    /// paths only packets that are later than that justify a question.
    pub(in crate::auto) fn long_enough(&self) -> bool {
        self.floor_s() > ACK_LATE_S
    }

    /// Returns whether packets are so late on average that jitter may be the reason. On a short path jitter may take
    /// several round trips, so the length of the path does not matter.
    pub(in crate::auto) fn may_jitter(&self) -> bool {
        let (mean, _) = self.cruising.means();
        self.paced() && (self.rtt.jitters() || mean > self.may_jitter_above_s())
    }

    /// Returns whether workers that sleep explain for how long packets wait: for a sleep at each end, and for the other
    /// packets of their batch. If yielding to that costs nothing, a question would cost more than its answer could save.
    pub(in crate::auto) fn batches_wait(&self, now: Instant) -> bool {
        let (mean, _) = self.cruising.means();
        let batches = 3.0 * self.sleeps.as_secs_f64();
        let explained = mean <= self.floor_s() + ACK_LATE_S + batches;
        self.pressure.settled && explained && self.carries_bandwidth(now)
    }

    /// Returns whether this cruise carries nearly the bandwidth, or is too young to tell. A flow whose bandwidth has
    /// fallen by much does not, because other flows may have taken it.
    fn carries_bandwidth(&self, now: Instant) -> bool {
        let most = self.most.get(f64::max).unwrap_or(0.0);
        if self.together() < FALLEN * most {
            return false;
        }
        let arrived = bytes::to_f64(self.sampler.delivered() - self.phase_delivered);
        let seconds = self.phase_s(now);
        seconds < CARRY_ROUNDS * self.floor_s()
            || arrived >= CARRIES * self.bandwidth.get() * seconds
    }

    /// Returns the mean round-trip time, in seconds, above which the sender needs to know whether jitter is the
    /// reason.
    pub(super) fn may_jitter_above_s(&self) -> f64 {
        let floor = self.floor_s();
        floor + ACK_LATE_S.max(floor * LATE_SHARE + self.noise().as_secs_f64())
    }

    /// Returns by how much delays swing at least if jitter is the reason for the mean round-trip time `mean_s`.
    fn swing(&self, mean_s: f64) -> Duration {
        let late = Duration::from_secs_f64((mean_s - self.floor_s()).max(0.0));
        SWING_LEAST.max(late.mul_f64(SWING))
    }

    /// Returns the mean round-trip time in seconds and the bytes in flight before the rest.
    fn cruise_means(&self) -> (f64, f64) {
        let now = (self.rtt.mean_s(), self.in_flight);
        let cruise_means = self.cruising.means();
        // The earlier mean does not describe a queue that grows.
        let grows = now.0 >= GROWS * cruise_means.0;
        if grows { now } else { cruise_means }
    }

    pub(in crate::auto) fn step_rest(&mut self, now: Instant, mut rest: Rest) {
        let Some(drained) = rest.drained else {
            let room = self.in_flight <= DRAINED * self.bdp();
            // The packets in flight before the rest leave the path within one such round trip.
            let round = self.floor_s().max(rest.mean_before);
            if room || self.phase_s(now) > DRAIN_ROUNDS * round {
                rest.drained = Some(now);
                rest.in_vain = !room;
                self.rtt.restart();
                self.phase = Phase::Rest(rest);
            }
            return;
        };
        let Some(latest) = self.rtt.latest().filter(|_| self.arrived >= Some(drained)) else {
            self.rtt.restart();
            return;
        };
        let floor = self.rtt.floor().unwrap_or_default();
        rest.on_ack(latest, self.late, self.rtt.level(), self.in_flight);
        let since = *rest.since.get_or_insert(now);
        let few = !rest.is_certain() && now < since + ROUNDS_MOST * floor;
        if few || now < since + REST_TIME.max(floor) {
            self.phase = Phase::Rest(rest);
        } else {
            self.end_rest(now, rest);
        }
    }
}

/// Minimum duration of a rest, even if the round trip is shorter: other flows must notice the rest too.
const REST_TIME: Duration = Duration::from_millis(100);

/// Part of the bytes that fill the path. If fewer are in flight, no packet waits. The rest waits for this state for up
/// to `DRAIN_ROUNDS` round trips.
const DRAINED: f64 = 0.8;
const DRAIN_ROUNDS: f64 = 4.0;

/// Number of round trips for which a rest waits for enough acknowledgements.
const ROUNDS_MOST: u32 = 4;

/// Factor by which the mean of one round trip exceeds that of the cruise if the queue grows.
const GROWS: f64 = 1.25;

/// Part of a round trip below which the mean delay does not justify a question.
const LATE_SHARE: f64 = 1.0 / 24.0;

/// Part of the bandwidth that a cruise carries if yielding costs nothing, and the number of round trips that show it.
/// The rate of a single one differs by a few percent if workers sleep.
const CARRIES: f64 = 0.87;
const CARRY_ROUNDS: f64 = 2.0;

/// Part of the highest recent rate below which the bandwidth has fallen by much.
const FALLEN: f64 = 0.6;

/// Minimum swing of jitter: this part of the mean delay, and more than acknowledgements are late.
const SWING: f64 = 1.0 / 6.0;
const SWING_LEAST: Duration = Duration::from_micros(3200);
