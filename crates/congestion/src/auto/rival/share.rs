//! Sharing with a rival by a window like CUBIC's, from the time the rival is met until it has gone.

use std::time::{Duration, Instant};

use super::hold::Hold;
use super::lull::{Lull, Lulls};
use super::overflow::OVERFLOWS;
use super::unresponsive::Unresponsive;
use super::{Rival, WINDOW_LEAST, WindowRise};
use crate::auto::Auto;
use crate::auto::epoch::RateSample;
use crate::auto::phase::{CRUISE_EPOCHS, CRUISE_EPOCHS_MAX, Phase};
use crate::auto::recent_extreme::RecentExtreme;
use crate::curve::Curve;
use crate::ensemble::{SiblingSummary, Stance};

impl Auto {
    pub(in crate::auto) fn meet_rival(&mut self, now: Instant, window: f64) {
        if !self.background && !self.is_small() {
            self.begin_rivalry(now, window);
        }
    }

    pub(in crate::auto) fn begin_rivalry(&mut self, now: Instant, window: f64) {
        let left = CRUISE_EPOCHS;
        self.enter(now, Phase::Cruise { left });
        let most = self.most.get(f64::max).unwrap_or(0.0);
        self.siblings.stance = Some((now, Stance::Beside));
        self.trials.begin(now, self.sampler.delivered());
        self.rival = Some(Rival {
            window: window.max(WINDOW_LEAST * self.mtu),
            curve: Curve::default(),
            rise: WindowRise {
                goal: f64::MAX,
                overflows: 1,
            },
            capacity: None,
            carried: (None, None),
            overflowed: now,
            waited: None,
            longest: RecentExtreme::default(),
            check: self.long_enough().then_some(now + CHECK),
            checks: 0,
            rests: 0,
            before: most,
            lulls: Lulls::default(),
            unresponsive: Unresponsive::new(now),
            hold: None,
            hold_from: None,
        });
    }

    pub(in crate::auto) fn on_rival_ack(&mut self, now: Instant, bytes: f64) {
        // The queue of a trial says nothing about the rival.
        if self.rival.is_none() || matches!(self.phase, Phase::Trial(_)) {
            return;
        }
        self.watch_lulls(now);
        let waits = self.yielding() >= self.yield_most();
        let (floor, rtt, mean) = (self.floor_s(), self.rtt_s(), self.rtt.mean_s());
        let bandwidth = self.bandwidth.get();
        let summary = self.siblings.summary;
        let Some(rival) = &mut self.rival else { return };
        if waits {
            rival.waited = Some(now);
        }
        rival.longest.add(now, mean, LONGEST_AGE, f64::max);
        if let Some(cruise) = rival.gone(now, floor) {
            self.end_rivalry(now);
            self.cruise = cruise;
            let left = if cruise == CRUISE_EPOCHS { 1 } else { cruise };
            self.enter(now, Phase::Cruise { left });
            return;
        }
        if let Some(hold) = &mut rival.hold {
            hold.on_arrived(now, bytes, bandwidth, rtt);
            return;
        }
        if rival.rise.continues(rival.window) {
            rival.window += RISE * bytes;
        } else if self.in_flight > 0.5 * rival.window {
            let count = summary.count();
            let (window, bytes) = (count * rival.window, count * bytes);
            let grown = rival.curve.grow(now, window, bytes, rtt, self.mtu) / count;
            let capacity = rival.capacity.filter(|_| waits);
            let most = capacity.map_or(f64::MAX, |capacity| SHARE_MOST * capacity * rtt);
            rival.window = grown.min(most);
        }
        rival.equalize(bytes, &summary);
    }

    /// Watches for signs that the rival empties the queue as BBR does or ignores overflows, and then holds a part of
    /// the path.
    fn watch_lulls(&mut self, now: Instant) {
        let (floor, mean) = (self.floor_s(), self.rtt.mean_s());
        let Some(rival) = &mut self.rival else { return };
        let resting = matches!(self.phase, Phase::Rest(_));
        let lull = if resting {
            None
        } else {
            rival.lulls.watch(now, mean, floor, rival.overflowed)
        };
        let (bandwidth, together) = (self.bandwidth.get(), self.together());
        let count = self.siblings.summary.count();
        let most = self.most.get(f64::max).unwrap_or(0.0);
        let Some(rival) = &mut self.rival else { return };
        let held = rival.holds();
        if !resting {
            rival.unresponsive.watch(now, mean, floor, rival.overflowed);
        }
        if !resting && rival.on_unanswered(now, together, most, count) {
            self.bandwidth.reset(bandwidth);
        }
        if let Some(lull) = lull {
            // A lull is not a reaction to an overflow.
            rival.unresponsive.forget();
            self.rtt.renew(now, lull.least);
            if rival.on_lull(now, lull, together, most, count) {
                self.bandwidth.reset(bandwidth);
            }
        }
        rival.end_hold(now, together, floor, self.in_flight);
        match (held, rival.holds()) {
            (false, true) => self.siblings.stance = Some((now, Stance::Holding)),
            (true, false) => self.siblings.stance = Some((now, Stance::Beside)),
            _ => {}
        }
    }

    /// Holds a part of the path because siblings do. Each member ends its hold by itself: if one ends it because its
    /// part is too large, the others have less afterwards.
    pub(in crate::auto) fn hold_as_others(&mut self, now: Instant, at: Instant) {
        let (bandwidth, together) = (self.bandwidth.get(), self.together());
        let count = self.siblings.summary.count();
        let most = self.most.get(f64::max).unwrap_or(0.0);
        let Some(rival) = &mut self.rival else { return };
        if !rival.holds() && rival.hold_from.is_none_or(|from| now >= from) {
            rival.begin_hold(now, together, most, count);
            if let Some(hold) = &mut rival.hold {
                hold.begun = at;
            }
            self.bandwidth.reset(bandwidth);
        }
    }

    /// Learns this sender's `share` of what all flows carry, if the rest could measure it. Before the rest,
    /// `in_flight` bytes were in flight, and `carried` bytes per second arrived. `check` is true if the rest was a
    /// check of the rival.
    pub(in crate::auto) fn learn_share(
        &mut self,
        now: Instant,
        share: Option<f64>,
        in_flight: f64,
        carried: f64,
        check: bool,
    ) {
        let count = self.siblings.summary.count();
        let all = if self.siblings.summary.is_none() {
            SHARE_ALL
        } else {
            SHARE_ALL_TOGETHER
        };
        let Some(rival) = &mut self.rival else { return };
        rival.lulls.rested(now);
        rival.unresponsive.rested(now);
        let Some(share) = share else { return };
        if share > all && !rival.holds() {
            // The whole queue was this sender's.
            self.end_rivalry(now);
            self.bandwidth.reset(carried);
            return;
        }
        rival.carried = (
            rival.carried.1,
            Some(count * carried / share.max(SHARE_LEAST)),
        );
        rival.capacity = (share > SHARE_MOST).then_some(carried / share);
        if check && share < SHARE_SMALL {
            let goal = SHARE_GOAL / share.max(SHARE_LEAST);
            rival.rise = WindowRise {
                goal: goal.min(RISE_MOST) * in_flight,
                overflows: RISE_OVERFLOWS,
            };
            rival.checks += 1;
            let rounds = Duration::from_secs_f64(CHECK_ROUNDS * in_flight / carried);
            let again = rival.checks < CHECKS;
            rival.check = again.then_some(now + CHECK.max(rounds));
        }
    }

    /// Counts a rest that saw no queue. Either no other flow is present, or the queue was so short that it has
    /// drained once.
    pub(in crate::auto) fn rest_beside_rival(&mut self, now: Instant, queued: bool) {
        let Some(rival) = &mut self.rival else { return };
        // BBR empties the queue from time to time.
        if queued || rival.holds() {
            rival.rests = 0;
            return;
        }
        rival.rests += 1;
        let waited = rival
            .waited
            .is_some_and(|at| now.saturating_duration_since(at).as_secs_f64() < QUIET_S);
        let most = self.bandwidth.most() + self.siblings.summary.bandwidth;
        let shared = most < SHARED * rival.before;
        // A connection that began beside the rival has not seen the path without it.
        let unknown = most > UNKNOWN * rival.before && rival.rests < RESTS_UNKNOWN;
        if !waited || !(shared || unknown) || rival.rests >= RESTS {
            self.end_rivalry(now);
        }
    }

    pub(in crate::auto) fn end_rivalry(&mut self, now: Instant) {
        if let Some(rival) = self.rival.take() {
            self.siblings.stance = Some((now, Stance::Alone));
            // One more overflow soon means that the rival is back.
            self.overflows = OVERFLOWS - 1;
            self.overflowed = Some(now);
            self.pressure.seconds = 0.0;
            self.pressure.in_flight = 0.0;
            // Flows that empty the queue from time to time only seem to have gone.
            self.pressure.rival_gone = rival.lulls.seen().then_some(now);
            self.cruise = CRUISE_EPOCHS_MAX;
        }
    }

    /// Handles a measurement beside a rival. The window kept beside the rival limits sending, and the measured rates
    /// are kept for the time afterwards.
    pub(in crate::auto) fn on_rival_epoch(&mut self, now: Instant, outcome: RateSample) {
        if let Some(hold) = self.rival.as_mut().and_then(|rival| rival.hold.as_mut()) {
            hold.on_epoch(now, outcome);
        }
        let Phase::Cruise { left } = &mut self.phase else {
            return;
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            *left = CRUISE_EPOCHS;
            self.bandwidth.clear_bound();
            self.bandwidth.end_cycle();
            self.siblings.total.end_cycle();
        }
    }
}

impl Rival {
    /// Returns the bytes per second that all flows carry, according to the latest rests. It takes the higher of two
    /// values, because one rest may have met a lull and measured too little.
    fn carry(&self) -> Option<f64> {
        let (before, latest) = self.carried;
        before.into_iter().chain(latest).reduce(f64::max)
    }

    /// Returns whether a lull shows that the sender should hold. `bandwidth` is that of this sender and its siblings,
    /// and `most` is its highest recent value.
    fn on_lull(&mut self, now: Instant, lull: Lull, bandwidth: f64, most: f64, count: f64) -> bool {
        if let Some(hold) = &mut self.hold {
            hold.lull = now;
            return false;
        }
        // CUBIC also empties a short queue, and a longer one if it yields twice, but seldom at BBR's interval.
        let measured = self.carry();
        let starved = bandwidth < STARVED * most.max(measured.unwrap_or(0.0));
        let before = u32::from(!lull.deep) + u32::from(!starved);
        if lull.regular >= before && self.hold_from.is_none_or(|from| now >= from) {
            self.begin_hold(now, bandwidth, most, count);
        }
        self.holds()
    }

    /// Returns whether unanswered overflows show that the sender should hold, because little of the path is left to
    /// it.
    fn on_unanswered(&mut self, now: Instant, bandwidth: f64, most: f64, count: f64) -> bool {
        let all = most.max(self.carry().unwrap_or(0.0));
        let due = !self.holds() && self.hold_from.is_none_or(|from| now >= from);
        let begins = due && all > 0.0 && self.unresponsive.is_certain(now, bandwidth / all);
        if begins {
            self.begin_hold(now, bandwidth, all, count);
        }
        begins
    }

    /// Begins to hold a part. `bandwidth` is that of all `count` connections, and `most` is its highest recent value.
    fn begin_hold(&mut self, now: Instant, bandwidth: f64, most: f64, count: f64) {
        let carried = self.carry();
        // A large share is measured well. An unknown capacity is assumed to be large.
        let measured = carried.filter(|all| bandwidth > SHARE_SMALL * all);
        let capacity = match measured {
            Some(all) => most.max(all),
            // The rate of the startup phase, perhaps measured beside other flows, may be less than the capacity. What
            // was measured beside the rival is less.
            None if self.before > KNOWN * bandwidth => SEEN * most,
            None => f64::MAX,
        };
        let part = PART * most.max(carried.unwrap_or(0.0)) / count;
        self.hold = Some(Hold::new(now, self.window, bandwidth, capacity, part));
        // A rest would end the rise before it has found what can be held.
        self.check = None;
    }

    /// Moves the window towards the mean window of `summary`, as `bytes` arrive.
    fn equalize(&mut self, bytes: f64, summary: &SiblingSummary) {
        if summary.beside > 0 {
            let mean = (self.window + summary.window) / f64::from(summary.beside + 1);
            let part = (bytes / (EQUAL_WINDOWS * self.window)).min(1.0);
            self.window += part * (mean - self.window);
        }
    }

    fn end_hold(&mut self, now: Instant, bandwidth: f64, floor_s: f64, in_flight: f64) {
        let Some(hold) = &self.hold else { return };
        let (pause, window) = if hold.is_wrong(now, bandwidth, floor_s) {
            (PAUSE_WRONG, hold.window)
        } else if hold.is_over(now) {
            (PAUSE_OVER, in_flight)
        } else {
            return;
        };
        self.hold = None;
        self.hold_from = Some(now + pause);
        self.window = window;
    }

    /// Returns the number of measurements until the next probe if the rival has gone, because packets have not waited
    /// for long enough. Returns `None` if it has not.
    fn gone(&self, now: Instant, floor_s: f64) -> Option<u32> {
        let latest = self.waited.max(Some(self.overflowed)).unwrap_or(now);
        let quiet = now.saturating_duration_since(latest).as_secs_f64();
        // A flow that yields to loss never empties a queue that held more than three tenths of what was in flight.
        if self.holds() || self.longest_s() > DEEP * floor_s {
            (quiet > QUIET_DEEP_S + QUIET_DEEP_ROUNDS * floor_s).then_some(CRUISE_EPOCHS)
        } else {
            (quiet > QUIET_S + QUIET_ROUNDS * floor_s).then_some(CRUISE_EPOCHS_MAX)
        }
    }
}

/// Time without overflows and long waits after which the rival has gone. CUBIC's own cycle is shorter.
const QUIET_S: f64 = 8.0;
const QUIET_ROUNDS: f64 = 20.0;

/// The same time after a round trip of more than `DEEP` times the floor. CUBIC never empties such a queue, so a shorter
/// time suffices. It is longer than BBR's lulls.
const DEEP: f64 = 1.45;
const QUIET_DEEP_S: f64 = 1.0;
const QUIET_DEEP_ROUNDS: f64 = 6.0;
const LONGEST_AGE: Duration = Duration::from_secs(30);

/// A bandwidth below this part of the earlier one means that the flow still shares the link.
const SHARED: f64 = 0.9;

/// Time from the meeting of a rival to the first check, minimum distance of checks in round trips, and maximum number
/// of checks.
const CHECK: Duration = Duration::from_millis(1500);
const CHECK_ROUNDS: f64 = 12.0;
const CHECKS: u32 = 3;

/// Window growth per arrived byte, as in `HyStart++` once a queue is seen (RFC 9406 section 4.2).
const RISE: f64 = 0.25;

/// A share below `SHARE_SMALL` may be less than a fair one, so the window is raised towards `SHARE_GOAL`. One step
/// raises it by at most the factor `RISE_MOST`, and a rise ends after `RISE_OVERFLOWS` overflows.
const SHARE_SMALL: f64 = 0.35;
const SHARE_GOAL: f64 = 0.4;
const SHARE_LEAST: f64 = 0.02;
const RISE_MOST: f64 = 4.0;
const RISE_OVERFLOWS: u32 = 3;

/// Share from which on there cannot be a rival.
const SHARE_ALL: f64 = 0.85;

/// The same share for several connections, whose rests do not begin at exactly the same time.
const SHARE_ALL_TOGETHER: f64 = 0.75;

/// Share above which the measured capacity is reliable. The window grows to at most this share of that capacity.
const SHARE_MOST: f64 = 0.5;

/// Number of windows' worth of arrivals in which the windows of several connections become equal.
const EQUAL_WINDOWS: f64 = 8.0;

/// Part of what all flows carry, or of the highest rate that this sender had, below which the share may be unfair.
const STARVED: f64 = 0.3;

/// Factor on the highest rate that this sender had, which may be the capacity of the path.
const SEEN: f64 = 1.25;

/// Part of the path's capacity that is fair beside one other flow.
const PART: f64 = 0.5;

/// Multiple of the current bandwidth. A rate above it, if seen, shows the capacity of the path.
const KNOWN: f64 = 3.0;

/// Time for which the sender does not hold again after a wrong hold, and after a hold whose rival has gone.
const PAUSE_WRONG: Duration = Duration::from_secs(10);
const PAUSE_OVER: Duration = Duration::from_mins(1);

/// Number of rests without a queue after which the rival has gone, even if packets waited long in between. Six rests
/// take 80 s, in which shares become equal. `RESTS_UNKNOWN` rests suffice if the connection may have begun beside the
/// rival.
const RESTS: u32 = 6;
const RESTS_UNKNOWN: u32 = 2;

/// A bandwidth above this multiple of the earlier one may be the path's alone, or may still be shared.
const UNKNOWN: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Loss, Model as _};

    #[test]
    fn persistent_congestion_beside_a_rival_restarts_the_startup_phase() {
        let now = Instant::now();
        let mut auto = Auto::new(now, 1250);
        auto.meet_rival(now, 10_000.0);
        assert_eq!(auto.view().phase, "rival");
        let loss = Loss {
            bytes: 1250,
            persistent: true,
        };
        auto.on_lost(now, now, loss);
        assert_eq!(auto.view().phase, "startup");
    }
}
