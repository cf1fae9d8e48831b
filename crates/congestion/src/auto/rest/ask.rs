//! A rest from its beginning to its end.

use std::time::{Duration, Instant};

use super::{Reason, Rest, Swings};
use crate::auto::phase::Phase;
use crate::auto::{ACK_LATE_S, Auto};

impl Auto {
    pub(in crate::auto) fn rest(&mut self, now: Instant, reason: Reason) {
        let start = self.before_drain.filter(|_| reason == Reason::Start);
        let (mean_before, in_flight_before) = start.unwrap_or_else(|| self.cruised());
        self.rtt.restart();
        let rest = Rest {
            reason,
            mean_before,
            in_flight_before,
            ebb: self.rtt.ebb_s(),
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
        self.siblings.rested = Some((now, reason != Reason::Routine));
        self.enter(now, Phase::Rest(rest));
    }

    /// Whether a round trip is longer than threads and late acknowledgements make it seem: elsewhere nothing is asked.
    pub(in crate::auto) fn long_enough(&self) -> bool {
        self.floor_s() > ACK_LATE_S
    }

    /// Whether packets are so late on average that jitter may be the reason.
    pub(in crate::auto) fn late(&self) -> bool {
        let (mean, _) = self.cruising.means();
        self.long_enough() && (self.rtt.jitters() || mean > self.late_s())
    }

    /// A mean round-trip time, in seconds, above which it matters whether it is jitter.
    pub(super) fn late_s(&self) -> f64 {
        let floor = self.floor_s();
        floor + ACK_LATE_S.max(floor * LATE_SHARE + self.noise().as_secs_f64())
    }

    /// By how much delays swing at least where it is jitter that makes their mean so long.
    fn swing(&self, mean_s: f64) -> Duration {
        let late = Duration::from_secs_f64((mean_s - self.floor_s()).max(0.0));
        SWING_LEAST.max(late.mul_f64(SWING))
    }

    /// Mean round-trip time in seconds and bytes in flight before now.
    fn cruised(&self) -> (f64, f64) {
        let now = (self.rtt.mean_s(), self.in_flight);
        let cruised = self.cruising.means();
        // A queue that grows is not measured by what was before it.
        let grows = now.0 >= GROWS * cruised.0;
        if grows { now } else { cruised }
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
        rest.see(latest, self.late, self.rtt.level(), self.in_flight);
        let since = *rest.since.get_or_insert(now);
        let few = !rest.is_certain() && now < since + ROUNDS_MOST * floor;
        if few || now < since + REST_TIME.max(floor) {
            self.phase = Phase::Rest(rest);
        } else {
            self.end_rest(now, rest);
        }
    }
}

/// How long a rest lasts where the round trip is shorter: others must see it to rest, too.
const REST_TIME: Duration = Duration::from_millis(100);

/// Part of what fills the path that is in flight when surely nothing waits, and for how many round trips that is waited
/// for.
const DRAINED: f64 = 0.8;
const DRAIN_ROUNDS: f64 = 4.0;

/// For how many round trips enough acknowledgements are waited for.
const ROUNDS_MOST: u32 = 4;

/// A mean of one round trip so much above that of a cruise shows that it grows.
const GROWS: f64 = 1.25;

/// A mean delay of less than this part of a round trip is not worth a question.
const LATE_SHARE: f64 = 1.0 / 24.0;

/// Jitter swings by this part of the mean delay at least, and by more than acknowledgements are late.
const SWING: f64 = 1.0 / 6.0;
const SWING_LEAST: Duration = Duration::from_micros(3200);
