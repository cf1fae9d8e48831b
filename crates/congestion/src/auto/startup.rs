//! Start: up to 2.5 times as much in every round trip, until a queue, loss or no further growth shows the limit.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Auto;
use super::epoch::Outcome;
use super::phase::Phase;

/// Where growth stands.
#[derive(Clone, Debug)]
pub(super) struct Startup {
    window: f64,
    /// The latest batch that arrived was sent as fast as it was allowed to be.
    pub(super) pressing: bool,
    /// A queue may have begun: no more growth until it is gone.
    held: bool,
    /// Since when there has been a queue that may be the path's limit.
    full: Option<Instant>,
    /// The fastest arrival of a measurement, and how many since did not beat it by much.
    best: f64,
    flat: u32,
    /// Times and bytes arrived in total, for the rate of now.
    trail: VecDeque<(Instant, u64)>,
}

impl Startup {
    pub(super) fn first(mtu: f64) -> Self {
        Self::from(FIRST_FLIGHT * mtu, 0.0)
    }

    fn from(window: f64, best: f64) -> Self {
        Self {
            window,
            pressing: false,
            held: false,
            full: None,
            best,
            flat: 0,
            trail: VecDeque::new(),
        }
    }

    pub(super) fn on_settled(&mut self, bytes: f64) {
        if !self.held {
            self.window += (GROWTH - 1.0) * bytes;
        }
    }

    fn note(&mut self, now: Instant, delivered: u64, span: Duration) {
        self.trail.push_back((now, delivered));
        while self.trail.len() > 2 && now.saturating_duration_since(self.trail[1].0) >= span {
            self.trail.pop_front();
        }
    }

    /// Bytes per second that arrived over the last part of a round trip.
    fn rate(&self) -> Option<f64> {
        let (start, first) = *self.trail.front()?;
        let (end, last) = *self.trail.back()?;
        let elapsed = end.saturating_duration_since(start).as_secs_f64();
        (elapsed > 0.0005).then(|| crate::bytes::to_f64(last - first) / elapsed)
    }

    /// Window and rate, on a `long` path or a short one.
    pub(super) fn limits(&self, floor_s: f64, long: bool) -> (f64, f64) {
        let rate = self.window / floor_s;
        if self.held {
            (self.window, HELD * self.rate().unwrap_or(rate))
        } else {
            let pacing = if long { PACING_LONG } else { PACING };
            (self.window, pacing * rate)
        }
    }

    /// Whether what arrives has ceased to grow.
    fn flat(&mut self, outcome: Outcome) -> bool {
        if outcome.limited && outcome.rate > GROWTH_LEAST * self.best {
            self.best = outcome.rate;
            self.flat = 0;
        } else if outcome.limited {
            self.flat += 1;
        }
        self.flat >= FLAT_ROUNDS
    }
}

impl Auto {
    pub(super) fn on_startup_ack(&mut self, now: Instant) {
        let span = Duration::from_secs_f64(self.floor_s() / 4.0).max(TRAIL_LEAST);
        self.startup.note(now, self.sampler.delivered(), span);
        // A queue that we did not fill is not the path's limit: where little is sent, the round-trip time shows
        // the queue of the other direction.
        let pressing = self.startup.pressing;
        // A first sign of a queue is enough to stop growing: what is known of now was sent a round trip
        // ago, and more than twice as much is sent by now. It may be noise, and then growth goes on.
        let begins = self
            .rtt
            .queue_begins(1.0 / 50.0, Duration::from_micros(500));
        self.startup.held = pressing && begins;
        self.resume_path();
        let queued = self.rtt.queued_now(1.0 / 8.0, Duration::from_millis(1));
        let full = pressing && queued;
        let since = *self.startup.full.get_or_insert(now);
        if !full {
            self.startup.full = None;
        } else if now.saturating_duration_since(since) >= span.saturating_sub(SOON) {
            self.leave_startup(now);
        }
    }

    /// Goes on where an earlier connection was, once there is use for it and the first round trip has shown
    /// that the path may be the same. A queue or loss ends the start as it always does, with what arrived.
    fn resume_path(&mut self) {
        if !self.limited || self.startup.held {
            return;
        }
        let Some(resume) = self.resume.take() else {
            return;
        };
        let lossy = self.excessive(self.phase_arrived, self.phase_lost, false);
        if let Some(window) = self.rtt.floor().and_then(|rtt| resume.jump(rtt))
            && !lossy
        {
            self.startup.window = self.startup.window.max(window);
        }
    }

    pub(super) fn on_startup_epoch(&mut self, now: Instant, outcome: Outcome, excessive: bool) {
        if self.startup.flat(outcome) || excessive {
            self.leave_startup(now);
        }
    }

    fn leave_startup(&mut self, now: Instant) {
        if let Some(rate) = self.startup.rate() {
            self.bandwidth.add(rate);
        }
        self.startup.trail.clear();
        self.epoch = self.new_epoch(now);
        self.enter(now, Phase::Drain);
    }

    /// The path has become faster, or its bandwidth is not known any more.
    pub(super) fn restart(&mut self, now: Instant) {
        self.growth = 0;
        self.rival = None;
        let window = RESTART * self.bdp().max(4.0 * self.mtu);
        self.startup = Startup::from(window, self.bandwidth.get());
        self.enter(now, Phase::Startup);
    }
}

/// Packets of the first flight, paced over a round trip; ten at once are the RFC's.
const FIRST_FLIGHT: f64 = 32.0;

/// Growth for every window that arrives: the most that leaves half a buffer of one round trip time for what
/// is sent before the queue is seen.
const GROWTH: f64 = 2.5;

/// Pacing over window and round trip. Growth of 2.5 takes 1.53. On short paths less makes it 2.2: with more the queue
/// would have overflown before it is seen.
const PACING: f64 = 1.15;
const PACING_LONG: f64 = 1.6;

/// Of the rate that arrives, while a queue may have begun: it drains, and shows whether it was one.
const HELD: f64 = 0.75;

/// Growth of a round below which the path is taken to be full, and so many rounds of it (BBR's).
const GROWTH_LEAST: f64 = 1.25;
const FLAT_ROUNDS: u32 = 3;

/// Of the known bandwidth, where a restart begins: what the last probe has shown to pass.
const RESTART: f64 = 1.25;

/// A quarter of a round trip with a queue ends the start, less this: on a short path a start that has ended too soon
/// costs little, for probes find the rest.
const SOON: Duration = Duration::from_millis(5);

/// Shortest time over which a rate is measured: acknowledgements come in bunches.
const TRAIL_LEAST: Duration = Duration::from_millis(2);
