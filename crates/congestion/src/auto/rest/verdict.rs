//! The verdict of a rest: jitter, this sender's own queue, or a rival.

use std::time::{Duration, Instant};

use super::findings::{Findings, UNANSWERED, UNANSWERED_RIVAL};
use super::starvation::STARVED;
use super::{Rest, RestReason};
use crate::auto::Auto;
use crate::auto::phase::{CRUISE_EPOCHS_MAX, Phase};
use crate::curve::BETA;

impl Auto {
    pub(super) fn end_rest(&mut self, now: Instant, rest: Rest) {
        let findings = self.findings(&rest);
        let Findings {
            floor,
            carried,
            answered,
            queued,
            ..
        } = findings;
        let little = findings.carries_less_than(STARVED);
        // Delays cannot react to a flow that has almost nothing in flight.
        let jitter = !(little && self.rival.is_some()) && self.is_jitter(now, &rest);
        let contrary = jitter && self.contradicts_queue(now);
        let jitter = jitter && !contrary;
        // If the queue has drained completely, delays could not react more than they did.
        let share = answered.filter(|share| queued || *share > SHARE_SURE);
        let check = rest.reason == RestReason::Check;
        self.learn_share(now, share, rest.in_flight_before, carried, check);
        // For the same reason, such a flow cannot tell BBR's queue from a longer path.
        let longer = !little && self.path_is_longer(now, &rest, floor);
        // A queue that was this sender's alone has mostly drained by now.
        let stays = queued && rest.least.as_secs_f64() > self.rtt.drained_s(rest.mean_before);
        // BBR's queue may be equally long in two rests if such a flow hardly changes it.
        if queued && little && findings.queue_is_of_others() {
            self.rtt.searched(now);
        } else {
            self.rtt.renew(now, rest.least);
        }
        if longer {
            self.on_longer_path(now, &rest);
        } else if jitter {
            self.on_jitter(now, &rest);
        } else if !contrary {
            let starved = self.is_starved(now, &rest, &findings);
            self.on_no_jitter(now, &rest, queued, stays, starved);
        }
        self.epoch = self.new_epoch(now);
        let asked = rest.reason != RestReason::Routine;
        if jitter && asked && self.was_misled(&rest, floor) {
            self.restart(now);
            return;
        }
        let careful = self.cruise == CRUISE_EPOCHS_MAX || asked && !jitter && !longer;
        let left = if careful { self.cruise } else { 1 };
        self.enter(now, Phase::Cruise { left });
    }

    /// Returns whether delays do not depend on what is sent.
    fn is_jitter(&self, now: Instant, rest: &Rest) -> bool {
        // Packets have waited for long before a sender is pressed, so even a short delay has a reason.
        let pressed = rest.reason == RestReason::Pressed;
        let late = pressed || self.rtt.jitters() || rest.mean() > self.may_jitter_above_s();
        // A queue of other flows drains from time to time. After the startup phase too little has been seen of it.
        let drains = rest.reason != RestReason::Start
            && rest.lowest_mean < self.rtt.drained_s(rest.mean_before);
        let beside = self.rival.is_some();
        let unanswered = if beside { UNANSWERED_RIVAL } else { UNANSWERED };
        let answer = rest.answer(self.bandwidth.get());
        let deaf = (CONTRARY..unanswered).contains(&answer);
        let back = self.pressure.rival_suspected(now);
        late && deaf && !drains && !back && rest.swings()
    }

    /// Returns whether a verdict of jitter contradicts a queue of other flows, which an earlier rest has shown. The
    /// next rest, which follows soon, decides.
    fn contradicts_queue(&mut self, now: Instant) -> bool {
        let queue = self.rival.is_none() && self.pressure.waits_behind_others(now);
        let contrary = queue && !self.pressure.doubted;
        self.pressure.doubted = contrary;
        if contrary {
            self.pressure.reset_patience();
        }
        contrary
    }

    /// Learns how long packets take without a queue. Since delays did not react, there was no queue before the rest
    /// either.
    fn on_jitter(&mut self, now: Instant, rest: &Rest) {
        let quiet = self.rtt.quiet_s();
        let mean = Duration::from_secs_f64(rest.mean());
        let before = Duration::from_secs_f64(rest.mean_before).max(mean);
        let spread = rest.high.saturating_sub(rest.low) + before.saturating_sub(mean);
        self.rtt.record_jitter(now, rest.low, spread, before);
        if self.rtt.quiet_s() > RELENT * quiet {
            self.pressure.reset_patience();
        }
        self.end_rivalry(now);
        self.pressure.forget_rival();
        if self.pressure.bandwidth > self.bandwidth.get() {
            self.bandwidth.reset(self.pressure.bandwidth);
        }
    }

    fn on_no_jitter(
        &mut self,
        now: Instant,
        rest: &Rest,
        queued: bool,
        stays: bool,
        starved: bool,
    ) {
        self.pressure.doubted = false;
        let waited = matches!(rest.reason, RestReason::Waits | RestReason::Pressed);
        self.pressure.settled |= waited;
        let pressed = stays && rest.reason == RestReason::Pressed;
        let alone = self.siblings.summary.is_none();
        let overflows = rest.reason == RestReason::Overflows && (alone || queued);
        if pressed || overflows {
            self.meet_rival(now, BETA * self.pressure.in_flight);
        } else if starved && waited && self.rival.is_none() {
            self.meet_rival(now, BETA * rest.in_flight_before());
        } else if rest.reason != RestReason::Check {
            self.rest_beside_rival(now, queued);
        }
        self.rtt.forget_assumed_jitter();
        if stays && rest.is_certain() && rest.reason != RestReason::Start {
            self.pressure.note_queue(now);
        }
        // The bandwidth is at most the rate at which data arrived while packets waited.
        let carried = rest.carried();
        if waited && self.rival.is_none() && carried < CARRIED * self.bandwidth.most() {
            self.bandwidth.reset(carried);
        }
    }

    /// Returns whether jitter was taken for the path's limit. A startup phase that jitter has ended then continues,
    /// provided it has found more than the previous one.
    fn was_misled(&mut self, rest: &Rest, floor: Duration) -> bool {
        let found = self.bandwidth.get();
        let more = found > STARTED_MORE * std::mem::replace(&mut self.started, found);
        more && rest.high > floor + (floor / 16).max(LATE)
    }
}

/// A share above this exceeds that of any other flow, and may be larger than it appears.
const SHARE_SURE: f64 = 0.5;

/// Delays that react by less than this negative value have grown, so other flows fill the queue.
const CONTRARY: f64 = -0.35;

/// Factor by which the time without a queue must have grown for delays to be expected to vary again soon.
const RELENT: f64 = 1.05;

/// Part of the bandwidth. If less than that arrived while packets waited, the bandwidth has fallen.
const CARRIED: f64 = 0.5;

/// Factor by which a startup phase must exceed the previous one in order to continue.
const STARTED_MORE: f64 = 1.25;

/// Acknowledgements may be this late by themselves.
const LATE: Duration = Duration::from_millis(3);
