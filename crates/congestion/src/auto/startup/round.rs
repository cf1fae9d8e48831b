//! Rounds of the start, and its end.

use std::time::{Duration, Instant};

use super::Startup;
use crate::auto::epoch::Outcome;
use crate::auto::phase::Phase;
use crate::auto::{ACK_LATE_S, Auto};

impl Auto {
    pub(in crate::auto) fn on_startup_ack(&mut self, now: Instant) {
        let span = Duration::from_secs_f64(self.floor_s() / 4.0).max(TRAIL_LEAST);
        self.startup.note(now, self.sampler.delivered(), span);
        if let Some((floor, latest)) = self.rtt.floor().zip(self.rtt.latest())
            && self.floor_s() > ACK_LATE_S
        {
            let fall = self.startup.watch_falls(now, latest, floor);
            self.rtt.suppose(fall);
        }
        // A queue that we did not fill is not the path's limit: where little is sent, the round-trip time shows
        // the queue of the other direction.
        let pressing = self.startup.pressing;
        // A first sign of a queue is enough to stop growing: what is known of now was sent a round trip
        // ago, and more than twice as much is sent by now. It may be noise, and then growth goes on.
        // The denser packets come, the later jitter that keeps the order makes them.
        let spread = self.rtt.spread();
        let begins = self
            .rtt
            .queue_begins(1.0 / 50.0, Duration::from_micros(500).max(spread));
        self.startup.held = pressing && begins;
        if !self.startup.held {
            self.before_drain = Some((self.rtt.mean_s(), self.in_flight));
        }
        self.resume_path();
        let queued = self
            .rtt
            .queued_now(1.0 / 8.0, Duration::from_millis(1).max(spread));
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

    pub(in crate::auto) fn on_startup_epoch(
        &mut self,
        now: Instant,
        outcome: Outcome,
        excessive: bool,
    ) {
        if self.startup.plateau.reached(outcome) || excessive {
            self.leave_startup(now);
        }
    }

    fn leave_startup(&mut self, now: Instant) {
        if let Some(rate) = self.startup.rate() {
            self.bandwidth.add(rate);
        }
        self.startup.trail.clear();
        self.rtt.forget_ebb();
        self.epoch = self.new_epoch(now);
        self.enter(now, Phase::Drain);
    }

    /// The path has become faster, or its bandwidth is not known any more.
    pub(in crate::auto) fn restart(&mut self, now: Instant) {
        self.growth = 0;
        self.rival = None;
        let window = RESTART * self.bdp().max(4.0 * self.mtu);
        self.startup = Startup::from(window, self.bandwidth.get());
        self.enter(now, Phase::Startup);
    }
}

/// Part of the known bandwidth with which a restart begins: the last probe has shown that so much passes.
const RESTART: f64 = 1.25;

/// A quarter of a round trip with a queue ends the start, less this: on a short path a start that has ended too soon
/// costs little, for probes find the rest.
const SOON: Duration = Duration::from_millis(5);

/// Shortest time over which a rate is measured: acknowledgements come in bunches.
const TRAIL_LEAST: Duration = Duration::from_millis(2);
