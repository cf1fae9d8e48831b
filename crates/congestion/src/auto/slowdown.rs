//! Detection of a path that has become much slower.
//!
//! The delivered rate shows that long before a measurement ends, because a measurement takes a round trip, and the
//! growing queue makes the round trip longer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Auto;
use super::phase::Phase;
use crate::bytes;

/// The latest arrivals, and the bandwidth before the latest fall.
#[derive(Clone, Debug, Default)]
pub(super) struct Slowdown {
    /// Arrivals over at least one round trip without a queue.
    trail: VecDeque<TrailPoint>,
    /// True if a pause may follow the acknowledgements that are handled now.
    pauses: bool,
    /// Time since which much less arrives than expected while packets wait.
    since: Option<Instant>,
    /// Total number of bytes lost.
    lost: f64,
    /// The bandwidth before the latest fall, and the time of that fall.
    before: Option<(Instant, f64)>,
}

/// The bytes that had arrived and been lost at some time, and when the newest of them had been sent.
#[derive(Clone, Copy, Debug)]
struct TrailPoint {
    at: Instant,
    left: Instant,
    arrived: f64,
    lost: f64,
}

impl Slowdown {
    pub(super) fn on_lost(&mut self, bytes: f64) {
        self.lost += bytes;
    }

    /// Forgets the arrivals, because they do not show the path's capacity.
    pub(super) fn forget(&mut self) {
        self.trail.clear();
        self.since = None;
    }

    /// Handles an acknowledgement of data that no limit held back, or of all data: a pause may follow, which says nothing
    /// about the path.
    pub(super) fn on_pause(&mut self) {
        self.forget();
        self.pauses = true;
    }

    /// Returns the bandwidth before a fall that may be over, or 0.
    pub(super) fn before(&self, now: Instant) -> f64 {
        let recent = |at: Instant| now.saturating_duration_since(at) < REMEMBERED;
        self.before
            .filter(|(at, _)| recent(*at))
            .map_or(0.0, |(_, before)| before)
    }

    /// Records that the path may carry this bandwidth again.
    pub(super) fn expect(&mut self, now: Instant, bandwidth: f64) {
        self.before = Some((now, self.before(now).max(bandwidth)));
    }

    fn note(&mut self, point: TrailPoint, span: Duration) {
        self.trail.push_back(point);
        while self.trail.len() > 2 && point.at.saturating_duration_since(self.trail[1].at) >= span {
            self.trail.pop_front();
        }
    }

    /// Returns the rate, in bytes per second, at which data arrived over `span`, and the rate at which that data and
    /// the lost data had been sent.
    fn rates(&self, span: Duration) -> Option<(f64, f64)> {
        let (first, last) = (self.trail.front()?, self.trail.back()?);
        let arriving = last.at.saturating_duration_since(first.at);
        let leaving = last.left.saturating_duration_since(first.left);
        let arrived = last.arrived - first.arrived;
        let left = arrived + last.lost - first.lost;
        let sent = left / leaving.as_secs_f64().max(1e-6);
        (arriving >= span).then(|| (arrived / arriving.as_secs_f64(), sent))
    }
}

impl Auto {
    /// Returns whether the path was much faster not long ago.
    pub(super) fn was_faster(&self, now: Instant) -> bool {
        self.bandwidth.get() < FALLEN_STILL * self.slowdown.before(now)
    }

    /// Takes the delivered rate as the bandwidth if it is much lower, although packets wait and were sent as fast as
    /// the limits allowed.
    pub(super) fn watch_slowdown(&mut self, now: Instant) {
        let floor = self.rtt.floor().unwrap_or_default();
        let span = floor.max(SPAN_LEAST);
        let pauses = std::mem::take(&mut self.slowdown.pauses);
        if let Some(left) = self.arrived.filter(|_| !pauses) {
            let point = TrailPoint {
                at: now,
                left,
                arrived: bytes::to_f64(self.sampler.delivered()),
                lost: self.slowdown.lost,
            };
            self.slowdown.note(point, span);
        }
        if !self.may_follow() {
            self.follow.forget();
        }
        let silent = self.starting() || matches!(self.phase, Phase::Rest(_));
        if silent || self.rival.is_some() || !self.long_enough() {
            self.slowdown.forget();
            return;
        }
        if self.follows() {
            if let Some((rate, _)) = self.slowdown.rates(span) {
                self.follow(now, rate);
            }
            return;
        }
        let waits = self.rtt.queued_now(WAIT, self.noise().max(WAIT_LEAST));
        let rates = self.slowdown.rates(span).filter(|_| waits);
        let fallen = |(rate, sent): &(f64, f64)| {
            *rate < FALLEN * self.bandwidth.get() && *rate < SLOWED * sent
        };
        let Some((rate, _)) = rates.filter(fallen) else {
            self.slowdown.since = None;
            return;
        };
        let since = *self.slowdown.since.get_or_insert(now);
        if now.saturating_duration_since(since) < span {
            return;
        }
        self.slowdown.forget();
        let before = self.slowdown.before(now).max(self.bandwidth.get());
        self.slowdown.before = Some((now, before));
        if self.may_follow() {
            self.follow.on_fall(now);
        }
        self.bandwidth.reset(rate);
        // Measurements stay below the path's rate until the queue has drained.
        self.bandwidth.add(rate);
        self.pressure.forget();
        self.epoch = self.new_epoch(now);
        self.enter(now, Phase::Down { ended: true });
    }
}

/// Minimum time over which a rate is measured. Links can stand still for that long, and then deliver at once what has
/// accumulated.
const SPAN_LEAST: Duration = Duration::from_millis(40);

/// Share of the bandwidth below which the delivered rate counts as a fall. Yielding and draining leave more than
/// that.
const FALLEN: f64 = 0.55;

/// Share of the sent rate below which the delivered rate counts as a fall. A probe alone reduces it to 0.8.
const SLOWED: f64 = 0.75;

/// Part of the floor, and minimum time, that packets must wait. It is longer than a probe makes them wait.
const WAIT: f64 = 0.25;
const WAIT_LEAST: Duration = Duration::from_millis(5);

/// Time for which a bandwidth is remembered that may return: obstructions of radio links are shorter.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Share of the earlier bandwidth below which it has not returned. Regular probes find the rest soon enough.
const FALLEN_STILL: f64 = 0.5;
