//! The part of a path that each of several connections gets. The parts add up to the capacity of the path, and become
//! equal.
//!
//! A connection that begins beside siblings takes an equal part at once, and they leave it that much. After a
//! connection has stopped sending, the others find its part by probing. If members turn out to be on separate paths,
//! probes that meet no queue show it.

use std::time::{Duration, Instant};

use crate::auto::Auto;
use crate::auto::bandwidth::Bandwidth;
use crate::auto::epoch::RateSample;
use crate::auto::phase::Phase;
use crate::ensemble::SiblingSummary;

impl Auto {
    /// Records the delivered rate, and scales down a bandwidth that is too high.
    ///
    /// Each member's bandwidth is its highest rate. The members reached these rates at different times, so the sum of
    /// the bandwidths exceeds what all members had together.
    pub(in crate::auto) fn measure_together(&mut self, outcome: RateSample) {
        if !outcome.limited {
            return;
        }
        self.siblings.rate = outcome.rate;
        let SiblingSummary {
            settled,
            bandwidth,
            rate,
            ..
        } = self.siblings.summary;
        if settled == 0 || self.starting() {
            self.siblings.total = Bandwidth::default();
            return;
        }
        self.siblings.total.add(outcome.rate + rate);
        let part = self.siblings.total.most() / (self.bandwidth.most() + bandwidth);
        if part < 1.0 {
            let mean = (self.bandwidth.most() + bandwidth) / f64::from(settled + 1);
            let over = EQUALIZE * (self.bandwidth.most() / mean - 1.0);
            let weight = (1.0 + over).clamp(0.0, EQUALIZE);
            self.bandwidth
                .scale((1.0 - weight * (1.0 - part)).max(SCALE_LEAST));
        }
    }

    /// Returns whether the controller knows nothing about the path yet.
    pub(super) fn is_new(&self) -> bool {
        self.phase == Phase::Startup && !self.siblings.started
    }

    /// Starts beside siblings with a part of what they have, if nothing is known yet or if they may have taken this
    /// controller's part.
    pub(super) fn take_part(&mut self, now: Instant) {
        let idle = Duration::from_secs_f64(IDLE_S + IDLE_ROUNDS * self.floor_s());
        let before = self.siblings.busy;
        if self.limited {
            self.siblings.busy = Some(now);
        }
        let long = before.is_none_or(|busy| now.saturating_duration_since(busy) > idle);
        let new = self.is_new();
        let Some(part) = self.part().filter(|_| self.limited && (new || long)) else {
            return;
        };
        if new {
            self.siblings.started = true;
            // A remembered window fills the whole path, which the siblings already fill.
            self.resume = None;
            self.siblings.untried = true;
            self.enter(now, Phase::Cruise { left: 2 });
        } else if self.rival.is_some() || self.starting() || self.bandwidth.get() <= part {
            return;
        }
        self.set_part(now, part);
        self.siblings.part_taken = Some(now);
        self.siblings.seen = Some(now);
    }

    /// Leaves their part to siblings that have just begun.
    pub(super) fn make_room(&mut self, now: Instant) {
        let SiblingSummary {
            settled,
            begun,
            part_taken,
            ..
        } = self.siblings.summary;
        self.siblings.seen = self.siblings.seen.max(part_taken);
        if begun == 0 || self.rival.is_some() || self.is_new() {
            return;
        }
        let count = f64::from(settled + 1);
        let part = (count - f64::from(begun)).max(1.0) / count;
        self.set_part(now, part * self.bandwidth.get());
    }

    /// Claims the bandwidth of siblings that have nothing more to send.
    pub(super) fn claim(&mut self, now: Instant, before: SiblingSummary) {
        let summary = self.siblings.summary;
        let gone = summary.busy < before.busy && summary.settled < before.settled;
        if !gone || self.rival.is_some() || self.starting() {
            return;
        }
        let freed = (before.bandwidth - summary.bandwidth).max(0.0);
        let part = freed / summary.count();
        self.slowdown.expect(now, self.bandwidth.get() + part);
    }

    fn set_part(&mut self, now: Instant, bandwidth: f64) {
        self.bandwidth.reset(bandwidth);
        self.epoch = self.new_epoch(now);
        self.siblings.settling = true;
    }

    /// Ends the startup phase, after the queue that it left has drained. Siblings whose startup phases have
    /// overlapped have found the same path together.
    pub(in crate::auto) fn end_drain(&mut self, now: Instant) {
        let first = !std::mem::replace(&mut self.siblings.started, true);
        let SiblingSummary {
            settled, bandwidth, ..
        } = self.siblings.summary;
        if first && settled > 0 {
            let mean = (self.bandwidth.get() + bandwidth) / f64::from(settled + 1);
            self.set_part(now, mean.min(START_MOST * self.bandwidth.get()));
        }
    }

    /// Returns the bytes per second that siblings leave to a connection that begins beside them. Returns `None` if
    /// none of them fills the path.
    pub(super) fn part(&self) -> Option<f64> {
        let SiblingSummary {
            settled, bandwidth, ..
        } = self.siblings.summary;
        (settled > 0).then(|| bandwidth / f64::from(settled + 1))
    }

    /// Returns the factor by which this controller yields more than siblings with the mean bandwidth.
    pub(in crate::auto) fn weight(&self) -> f64 {
        let SiblingSummary {
            settled, bandwidth, ..
        } = self.siblings.summary;
        let own = self.bandwidth.get();
        if settled == 0 || own <= 0.0 {
            return 1.0;
        }
        let mean = (own + bandwidth) / f64::from(settled + 1);
        (own / mean).clamp(WEIGHT_LEAST, WEIGHT_MOST)
    }
}

/// Idle time after which a member has left, as its siblings see it.
const IDLE_S: f64 = 0.3;
const IDLE_ROUNDS: f64 = 2.0;

/// Members above the mean give up more of the excess of the sum, by this factor. A member a quarter above the mean
/// gives up twice its part, and a member a quarter below it gives up nothing.
const EQUALIZE: f64 = 4.0;

/// Maximum factor by which the bandwidth found by a startup phase beside siblings is raised. Such a phase finds at
/// least a quarter of what the connection may have.
const START_MOST: f64 = 4.0;

/// Lowest factor by which one measurement scales the bandwidth: the measurement may have met a standstill.
const SCALE_LEAST: f64 = 0.75;

/// Limits of the factor by which members with more bandwidth yield more.
const WEIGHT_LEAST: f64 = 0.5;
const WEIGHT_MOST: f64 = 2.0;
