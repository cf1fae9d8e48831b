//! Holding a part of the path against a flow that does not yield to loss, as BBR does
//! (draft-cardwell-iccrg-bbr-congestion-control-00).

use std::time::{Duration, Instant};

use super::aggregation::Aggregation;
use crate::auto::epoch::RateSample;
use crate::auto::plateau::Plateau;

/// Keeps as much in flight as two round trips carry, regardless of losses, and sends a quarter more in every eighth
/// round trip.
#[derive(Clone, Copy, Debug)]
pub(in crate::auto) struct Hold {
    /// Start time of the cycle of rates, after the initial rise; `None` during the rise.
    cycle: Option<Instant>,
    /// Start time of this hold, or of the sibling's hold that it follows.
    pub(super) begun: Instant,
    plateau: Plateau,
    aggregation: Aggregation,
    /// A fair part of what all flows carry, in bytes per second.
    part: f64,
    /// Time of the latest lull.
    pub(super) lull: Instant,
    /// The window and the bandwidth before the hold, and the rate that all flows carry together.
    pub(super) window: f64,
    bandwidth: f64,
    capacity: f64,
}

impl Hold {
    pub(super) fn new(now: Instant, window: f64, bandwidth: f64, capacity: f64, part: f64) -> Self {
        Self {
            cycle: None,
            begun: now,
            plateau: Plateau::default(),
            aggregation: Aggregation::new(now),
            part,
            lull: now,
            window,
            bandwidth,
            capacity,
        }
    }

    /// Records that `bytes` have arrived. `bandwidth` is in bytes per second, `rtt_s` in seconds.
    pub(super) fn on_arrived(&mut self, now: Instant, bytes: f64, bandwidth: f64, rtt_s: f64) {
        self.aggregation.on_arrived(now, bytes, bandwidth, rtt_s);
    }

    pub(super) fn on_epoch(&mut self, now: Instant, outcome: RateSample) {
        if self.cycle.is_none() && self.plateau.reached(outcome) {
            self.cycle = Some(now);
        }
    }

    /// Returns the window over what a round trip carries, and the rate over the bandwidth. If `alone` is false, all
    /// siblings follow the same cycle, so that they send more at the same time, as a single flow would.
    pub(in crate::auto) fn gains(&self, now: Instant, floor_s: f64, alone: bool) -> (f64, f64) {
        let Some(cycle) = self.cycle else {
            return (RISE, RISE);
        };
        let cycle = if alone { cycle } else { self.begun };
        let into = now.saturating_duration_since(cycle).as_secs_f64() % (ROUNDS * floor_s);
        let rate = match into / floor_s {
            round if round < 1.0 => UP,
            round if round < 2.0 => DOWN,
            _ => 1.0,
        };
        (WINDOW, MARGIN * rate)
    }

    /// Returns the bytes in flight in addition to the window: the bytes that accumulate at a sender and a receiver of
    /// such a part. If all flows have as much in flight as two round trips carry, flows with more of these bytes get
    /// more of the path. If `alone` is false, siblings have such bytes, too, so that the measured ones do not count.
    pub(in crate::auto) fn gathered(&self, floor_s: f64, bandwidth: f64, alone: bool) -> f64 {
        let part = if floor_s > LONG_S {
            GATHERED_PART_S * self.part
        } else {
            0.0
        };
        let extra = if alone {
            self.aggregation.bytes(bandwidth)
        } else {
            0.0
        };
        part.max(GATHERED_S * bandwidth + extra)
    }

    /// Returns whether the hold has had enough time and was wrong, because the queue is not BBR's. It was wrong if
    /// the `bandwidth` is now much lower than before, or is almost the whole capacity.
    pub(super) fn is_wrong(&self, now: Instant, bandwidth: f64, floor_s: f64) -> bool {
        let right = IN_VAIN * self.bandwidth..TOO_MUCH * self.capacity;
        let time = Duration::from_secs_f64(TRIAL_S + TRIAL_ROUNDS * floor_s);
        let tried = |cycle| now.saturating_duration_since(cycle) > time;
        self.cycle.is_some_and(tried) && !right.contains(&bandwidth)
    }

    /// Returns whether the flow against which this sender holds has gone, because no lull has occurred for too long.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.lull) > LULL_AGE
    }
}

/// BBR's gains. During the rise, window and rate are multiplied by `RISE`, which is 2 / ln 2. Afterwards the window is
/// `WINDOW` times what a round trip carries. The rate follows a cycle of `ROUNDS` round trips: `UP` in the first,
/// `DOWN` in the second, 1 in the others.
const RISE: f64 = 2.885;
const WINDOW: f64 = 2.0;
const ROUNDS: f64 = 8.0;
const UP: f64 = 1.25;
const DOWN: f64 = 0.75;

/// Linux's BBR allows for some milliseconds of bursts and late acknowledgements, and so does this sender. On much
/// longer paths it also allows for the bytes of a fair part that it does not have yet.
const GATHERED_S: f64 = 0.003;
const GATHERED_PART_S: f64 = 0.004;
const LONG_S: f64 = 0.015;

/// Share of the rate that Linux's BBR uses; it gives up the rest.
const MARGIN: f64 = 0.99;

/// Time for which a hold is tried, the part of the earlier bandwidth that it must bring, and the part of the capacity
/// that is too much.
const TRIAL_S: f64 = 0.5;
const TRIAL_ROUNDS: f64 = 16.0;
const IN_VAIN: f64 = 0.4;
const TOO_MUCH: f64 = 0.75;

/// Two and a half of BBR's intervals between lulls.
const LULL_AGE: Duration = Duration::from_secs(25);
