//! A path that has become much slower: what arrives tells so long before a measurement ends, for that takes a round trip,
//! which the queue makes longer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Auto;
use super::phase::Phase;
use crate::bytes;

/// The latest arrivals.
#[derive(Clone, Debug, Default)]
pub(super) struct Fall {
    /// Over a round trip without queue, at least.
    trail: VecDeque<Mark>,
    /// Since when much less arrives than should, and packets wait.
    since: Option<Instant>,
    /// Bytes lost in total.
    lost: f64,
    /// The bandwidth before the latest fall, and when that was.
    before: Option<(Instant, f64)>,
}

/// Bytes that had arrived and been lost at a time, and when the newest of them had left.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    left: Instant,
    arrived: f64,
    lost: f64,
}

impl Fall {
    pub(super) fn on_lost(&mut self, bytes: f64) {
        self.lost += bytes;
    }

    /// Forgets what arrived: it does not tell what the path carries.
    pub(super) fn forget(&mut self) {
        self.trail.clear();
        self.since = None;
    }

    /// The bandwidth before a fall that may be over.
    pub(super) fn before(&self, now: Instant) -> f64 {
        let recent = |at: Instant| now.saturating_duration_since(at) < REMEMBERED;
        self.before
            .filter(|(at, _)| recent(*at))
            .map_or(0.0, |(_, before)| before)
    }

    /// Supposes that the path may carry so much again.
    pub(super) fn expect(&mut self, now: Instant, bandwidth: f64) {
        self.before = Some((now, self.before(now).max(bandwidth)));
    }

    fn note(&mut self, mark: Mark, span: Duration) {
        self.trail.push_back(mark);
        while self.trail.len() > 2 && mark.at.saturating_duration_since(self.trail[1].at) >= span {
            self.trail.pop_front();
        }
    }

    /// Bytes per second that arrived over `span`, and those at which they and what was lost had left.
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
    /// Whether the path was much faster not long ago.
    pub(super) fn was_faster(&self, now: Instant) -> bool {
        self.bandwidth.get() < FALLEN_STILL * self.fall.before(now)
    }

    /// Takes what arrives for the bandwidth where it is much less, while packets wait that left as fast as they might.
    pub(super) fn watch_fall(&mut self, now: Instant) {
        let floor = self.rtt.floor().unwrap_or_default();
        let span = floor.max(SPAN_LEAST);
        if let Some(left) = self.arrived {
            let mark = Mark {
                at: now,
                left,
                arrived: bytes::to_f64(self.sampler.delivered()),
                lost: self.fall.lost,
            };
            self.fall.note(mark, span);
        }
        let silent = self.starting() || matches!(self.phase, Phase::Rest(_));
        if silent || self.rival.is_some() || !self.long_enough() {
            self.fall.forget();
            return;
        }
        let waits = self.rtt.queued_now(WAIT, self.noise().max(WAIT_LEAST));
        let rates = self.fall.rates(span).filter(|_| waits);
        let fallen = |(rate, sent): &(f64, f64)| {
            *rate < FALLEN * self.bandwidth.get() && *rate < SLOWED * sent
        };
        let Some((rate, _)) = rates.filter(fallen) else {
            self.fall.since = None;
            return;
        };
        let since = *self.fall.since.get_or_insert(now);
        if now.saturating_duration_since(since) < span {
            return;
        }
        self.fall.forget();
        let before = self.fall.before(now).max(self.bandwidth.get());
        self.fall.before = Some((now, before));
        self.bandwidth.reset(rate);
        // Measurements are lower than the path's rate until the queue has drained.
        self.bandwidth.add(rate);
        self.pressure.forget();
        self.epoch = self.new_epoch(now);
        self.enter(now, Phase::Down { ended: true });
    }
}

/// Shortest time over which a rate is told: links stand still for as long, and deliver then what has gathered.
const SPAN_LEAST: Duration = Duration::from_millis(40);

/// Part of the bandwidth that arrives: giving way and draining leave more.
const FALLEN: f64 = 0.55;

/// Part of what is sent that arrives: a probe of ours makes it 0.8.
const SLOWED: f64 = 0.75;

/// Packets wait for this part of the floor, and so long: more than probes make them wait.
const WAIT: f64 = 0.25;
const WAIT_LEAST: Duration = Duration::from_millis(5);

/// How long a bandwidth is remembered that may come back: what blocks radio links lasts for less.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Part of it below which it has not come back: probes find the rest soon enough.
const FALLEN_STILL: f64 = 0.5;
