//! The rounds of the startup phase, and its end.

use std::time::{Duration, Instant};

use super::Startup;
use crate::auto::epoch::RateSample;
use crate::auto::phase::Phase;
use crate::auto::plateau::Plateau;
use crate::auto::{ACK_LATE_S, Auto};

impl Auto {
    pub(in crate::auto) fn on_startup_ack(&mut self, now: Instant) {
        let span = Duration::from_secs_f64(self.floor_s() / 4.0).max(TRAIL_LEAST);
        self.startup.note(now, self.sampler.delivered(), span);
        if let Some((floor, latest)) = self.rtt.floor().zip(self.rtt.latest())
            && self.floor_s() > ACK_LATE_S
        {
            let fall = self.startup.watch_falls(now, latest, floor);
            self.rtt.assume_jitter(fall);
        }
        // A queue that this sender did not fill is not the path's limit. If little is sent, the round-trip time shows
        // the queue of the other direction.
        let pressing = self.startup.pressing;
        // The first sign of a queue is enough to stop growing: it describes packets sent a round trip ago, and more
        // than twice as much is being sent by now. The sign may be noise, and then growth resumes. The denser packets
        // are, the more they are delayed by jitter that preserves their order.
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

    /// Resumes with the window of an earlier connection, once there is data for it and the first round trip has shown
    /// that the path may be the same. A queue or loss ends the startup phase as usual, with the delivered rate.
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
        outcome: RateSample,
        excessive: bool,
    ) {
        let flat = self.startup.plateau.reached(outcome);
        if flat && !excessive && self.held_by_jitter() {
            let late = self.rtt.mean_s() - self.floor_s();
            self.rtt
                .assume_jitter(Duration::from_secs_f64(late.max(0.0)));
            self.startup.doubted = true;
            self.startup.plateau = Plateau::above(self.startup.plateau.best());
            return;
        }
        if flat || excessive {
            self.leave_startup(now);
        }
    }

    /// Returns whether growth has been held for rounds by delays that only seem to be a queue: a queue would have drained
    /// meanwhile, or grown until it ended the phase.
    fn held_by_jitter(&self) -> bool {
        self.startup.held && !self.startup.doubted && self.long_enough()
    }

    fn leave_startup(&mut self, now: Instant) {
        if let Some(rate) = self.startup.rate() {
            self.bandwidth.add(rate);
        }
        self.startup.trail.clear();
        self.rtt.forget_lowest_mean();
        self.epoch = self.new_epoch(now);
        self.enter(now, Phase::Drain);
    }

    /// Starts again, because the path has become faster or its bandwidth is no longer known.
    pub(in crate::auto) fn restart(&mut self, now: Instant) {
        self.growth = 0;
        self.rival = None;
        let window = RESTART * self.bdp().max(4.0 * self.mtu);
        self.startup = Startup::from(window, self.bandwidth.get());
        self.enter(now, Phase::Startup);
    }
}

/// Rate of a restart over the known bandwidth. The last probe has shown that the path carries that much.
const RESTART: f64 = 1.25;

/// A queue for a quarter of a round trip, less this time, ends the startup phase. On a short path a phase that ends
/// too soon costs little, because probes find the rest.
const SOON: Duration = Duration::from_millis(5);

/// Minimum time over which a rate is measured, because acknowledgements arrive in bunches.
const TRAIL_LEAST: Duration = Duration::from_millis(2);
