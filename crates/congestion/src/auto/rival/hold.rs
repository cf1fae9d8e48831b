//! Holding a part of the path against a flow that does not yield to loss, as BBR holds its own
//! (draft-cardwell-iccrg-bbr-congestion-control-00).

use std::time::{Duration, Instant};

use crate::auto::epoch::Outcome;
use crate::auto::plateau::Plateau;

/// As much in flight as two round trips carry, whatever is lost, and every eighth round trip a quarter more.
#[derive(Clone, Copy, Debug)]
pub(in crate::auto) struct Hold {
    /// When its cycle began, after the rise.
    cycle: Option<Instant>,
    /// When it began, or that of a sibling which it follows.
    pub(super) begun: Instant,
    plateau: Plateau,
    /// A fair part of what all flows carry, in bytes per second.
    part: f64,
    /// The latest lull.
    pub(super) lull: Instant,
    /// The window and the bandwidth before, and what all flows carry.
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
            part,
            lull: now,
            window,
            bandwidth,
            capacity,
        }
    }

    pub(super) fn on_epoch(&mut self, now: Instant, outcome: Outcome) {
        if self.cycle.is_none() && self.plateau.reached(outcome) {
            self.cycle = Some(now);
        }
    }

    /// The window over what a round trip carries, and the rate over the bandwidth. Unless this is `alone`, siblings have the
    /// same cycle: they send more at the same time, as one flow would.
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

    /// Bytes in flight beside the window: as many as a sender and a receiver of such a part gather. Where all flows have as much
    /// in flight as two round trips carry, those that have more beside it get more of the path.
    pub(in crate::auto) fn gathered(&self, floor_s: f64, bandwidth: f64) -> f64 {
        let part = if floor_s > LONG_S {
            GATHERED_PART_S * self.part
        } else {
            0.0
        };
        part.max(GATHERED_S * bandwidth)
    }

    /// Whether it has had time, and has made much less of the `bandwidth`, or nearly all that there is: what waits is not
    /// BBR's.
    pub(super) fn is_wrong(&self, now: Instant, bandwidth: f64, floor_s: f64) -> bool {
        let right = IN_VAIN * self.bandwidth..TOO_MUCH * self.capacity;
        let time = Duration::from_secs_f64(TRIAL_S + TRIAL_ROUNDS * floor_s);
        let tried = |cycle| now.saturating_duration_since(cycle) > time;
        self.cycle.is_some_and(tried) && !right.contains(&bandwidth)
    }

    /// Whether there was no lull for so long that the flow it was meant for has gone.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.lull) > LULL_AGE
    }
}

/// BBR's gains: 2 / ln 2 as it begins, two round trips' worth in flight later, and a cycle of eight round trips.
const RISE: f64 = 2.885;
const WINDOW: f64 = 2.0;
const ROUNDS: f64 = 8.0;
const UP: f64 = 1.25;
const DOWN: f64 = 0.75;

/// Linux's BBR allows for some milliseconds of bursts and late acknowledgements; so do we, and on paths that are much longer
/// for those of a fair part that is not ours yet.
const GATHERED_S: f64 = 0.003;
const GATHERED_PART_S: f64 = 0.004;
const LONG_S: f64 = 0.015;

/// Part of the rate that Linux's BBR gives up.
const MARGIN: f64 = 0.99;

/// How long it is tried, the part of the bandwidth before that it must bring, and the part of all that is too much.
const TRIAL_S: f64 = 0.5;
const TRIAL_ROUNDS: f64 = 16.0;
const IN_VAIN: f64 = 0.4;
const TOO_MUCH: f64 = 0.75;

/// Two of BBR's lulls and a half.
const LULL_AGE: Duration = Duration::from_secs(25);
