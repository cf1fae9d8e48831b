//! Transitions between the phases, and the reaction to measurements.

use std::time::{Duration, Instant};

use super::{CRUISE_EPOCHS, CRUISE_EPOCHS_MAX, Cruising, Phase, UP};
use crate::auto::epoch::{Epoch, RateSample};
use crate::auto::loss;
use crate::auto::rest::RestReason;
use crate::auto::{ACK_LATE_S, Auto};
use crate::{Resume, bytes};

impl Auto {
    pub(in crate::auto) fn enter(&mut self, now: Instant, phase: Phase) {
        if matches!(phase, Phase::Cruise { .. }) {
            self.cruising = Cruising::default();
        }
        self.phase = phase;
        self.phase_start = now;
        self.phase_delivered = self.sampler.delivered();
        self.phase_round = false;
        self.phase_arrived = 0.0;
        self.phase_lost = 0.0;
    }

    pub(in crate::auto) fn new_epoch(&self, now: Instant) -> Epoch {
        Epoch::new(now, self.sampler.delivered(), self.arrived)
    }

    pub(in crate::auto) fn phase_s(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.phase_start)
            .as_secs_f64()
    }

    pub(in crate::auto) fn step(&mut self, now: Instant) {
        if let Some(rival) = &mut self.rival
            && !matches!(self.phase, Phase::Rest(_))
        {
            if let Phase::Trial(trial) = self.phase {
                self.step_trial(now, trial);
            } else if rival.is_unchecked(now) {
                self.rest(now, RestReason::Check);
            } else if self.rtt.floor_age(now) > RIVAL_FLOOR_AGE {
                self.rest(now, RestReason::Routine);
            } else {
                self.watch_trial(now);
            }
            return;
        }
        let turn = self.rtt.mean_floor().unwrap_or_default().as_secs_f64();
        let waits = self.rtt.jitters() && self.rtt.mean_s() > turn + ACK_LATE_S;
        let drained = self.in_flight <= self.target() && !waits;
        let overdue = self.phase_s(now) > DRAIN_ROUNDS * self.floor_s() + 0.02;
        match self.phase {
            Phase::Startup => self.on_startup_ack(now),
            Phase::Drain if (drained && self.phase_round) || overdue => {
                self.end_drain(now);
                if self.delays_unsteady() && self.rival.is_none() {
                    self.rest(now, RestReason::Start);
                } else {
                    self.enter(now, Phase::Cruise { left: 2 });
                }
            }
            Phase::Up => self.step_up(now),
            Phase::Down { ended: true } if (drained && !self.queued()) || overdue => {
                self.enter(now, Phase::Cruise { left: self.cruise });
            }
            Phase::Rest(rest) => self.step_rest(now, rest),
            _ => {}
        }
    }

    fn step_up(&mut self, now: Instant) {
        let queued = self
            .rtt
            .queued_now(UP - 1.0, Duration::from_micros(700).max(self.noise() / 2));
        let excessive = self.excessive(self.phase_arrived, self.phase_lost, self.queued());
        let enough = PUSH_PACKETS * self.mtu / self.bandwidth.get().max(self.mtu);
        // With several connections on one path, the bytes in flight of each vary by more than a probe adds.
        // Ends that sleep have more in flight even without a probe.
        let asleep = self.sleeps.as_secs_f64() * self.bandwidth.get();
        let full = self.in_flight >= UP * self.bdp() + asleep && self.siblings.summary.is_none();
        let lasted = self.phase_s(now) > enough.clamp(0.005, 0.05);
        // The probe lasts longer than a round trip, so its own packets arrive from now on.
        if self.phase_round && self.probed.is_none() && self.is_calm(now) {
            self.probed = Some(now);
            self.epoch = self.new_epoch(now);
        }
        if queued || excessive || (lasted && (full || self.phase_round)) {
            if excessive {
                self.cruise = (self.cruise * 2).min(CRUISE_EPOCHS_MAX);
            }
            if self.probed.is_none() {
                self.epoch = self.new_epoch(now);
            }
            self.enter(now, Phase::Down { ended: false });
        }
    }

    /// Returns whether packets arrive as they were sent, and are held up neither by threads nor by a medium that
    /// stands still.
    fn is_calm(&self, now: Instant) -> bool {
        let recent = |at| now.saturating_duration_since(at) < STANDSTILL_AGE;
        self.long_enough() && !self.rtt.jitters() && !self.standstill.is_some_and(recent)
    }

    pub(in crate::auto) fn on_epoch(&mut self, now: Instant, outcome: RateSample) {
        // This connection's part has just changed, and the packets of this measurement were sent at the rate before.
        if std::mem::take(&mut self.siblings.settling) {
            return;
        }
        // The rival's share of the path changes during a trial.
        if matches!(self.phase, Phase::Trial(_)) {
            return;
        }
        let excessive = self.excessive(outcome.arrived, outcome.lost, outcome.queued);
        let together = outcome.rate + self.siblings.summary.rate;
        self.most.add(now, together, MOST_AGE, f64::max);
        if outcome.limited || outcome.rate > self.bandwidth.most() {
            self.bandwidth.add(outcome.rate);
        }
        self.measure_together(outcome);
        if outcome.limited && !self.starting() {
            let window = bytes::whole(self.bdp());
            self.filled = self.rtt.floor().map(|rtt| Resume { rtt, window });
        }
        if self.rival.is_some() {
            self.on_rival_epoch(now, outcome);
            return;
        }
        self.watch_policer(now, outcome);
        // A rest sends too little to overflow a queue, so losses during a rest are those of the medium.
        let resting = matches!(self.phase, Phase::Rest(_));
        if excessive && self.phase != Phase::Startup && !resting {
            // The queue that following keeps does not fit into the path's buffer.
            self.follow.stop(now);
            let mild = outcome.loss() <= LOSS_HIGH;
            let least = if mild {
                CUT * self.bandwidth.get()
            } else {
                0.0
            };
            self.bandwidth.set_bound(outcome.rate.max(least));
        }
        if self.outpaces_threads() && outcome.limited && !outcome.queued && !excessive {
            self.bandwidth.relax_bound(RELAX);
        }
        // Sending less has not helped for a while, so the delivered rate is the bandwidth, unless data ran out.
        let less = outcome.limited && outcome.rate < self.bandwidth.get();
        if !self.starting() && self.pressed() && less {
            self.bandwidth.reset(outcome.rate);
        }
        let soon = outcome.limited && !outcome.queued && self.was_faster(now);
        match &mut self.phase {
            Phase::Startup => self.on_startup_epoch(now, outcome, excessive),
            Phase::Cruise { left } => {
                *left = left.saturating_sub(u32::from(outcome.limited));
                if *left == 0 || soon {
                    self.next_after_cruise(now);
                }
            }
            Phase::Down { ended } if !*ended => {
                *ended = true;
                self.on_probed(now, outcome, excessive);
            }
            _ => {}
        }
    }

    fn on_probed(&mut self, now: Instant, outcome: RateSample, excessive: bool) {
        // No queue appears although all members have sent more, so they do not fill this path.
        if self.siblings.was_untried(outcome.limited) && !outcome.queued && !excessive {
            self.restart(now);
            self.startup.begin_with(self.mtu);
            return;
        }
        let grown = outcome.limited && outcome.rate > PROBE_GROWTH * self.before_up;
        if grown && !outcome.queued && !excessive {
            self.growth += 1;
            let probes = if self.was_faster(now) { 1 } else { PROBES };
            if self.growth >= probes && self.policer.rate().is_none() {
                self.restart(now);
            } else {
                self.go_up(now);
            }
            return;
        }
        self.growth = 0;
        if outcome.lost == 0.0 || !outcome.queued {
            self.cruise = (self.cruise / 2).max(CRUISE_EPOCHS);
        }
    }

    fn next_after_cruise(&mut self, now: Instant) {
        if self.rtt.stale(now) && self.paced() {
            self.rest(now, RestReason::Routine);
        } else if self.follows() {
            self.enter(now, Phase::Cruise { left: self.cruise });
        } else {
            self.probe(now);
        }
    }

    pub(in crate::auto) fn probe(&mut self, now: Instant) {
        self.growth = 0;
        self.bandwidth.end_cycle();
        self.siblings.total.end_cycle();
        self.go_up(now);
    }

    fn go_up(&mut self, now: Instant) {
        self.bandwidth.clear_bound();
        self.before_up = self.bandwidth.get();
        self.probed = None;
        self.siblings.probed = Some(now);
        self.enter(now, Phase::Up);
    }

    /// Returns whether significantly more is lost than the path loses anyway.
    pub(in crate::auto) fn excessive(&self, arrived: f64, lost: f64, queued: bool) -> bool {
        let packets = (arrived + lost) / self.mtu;
        if lost < 1.5 * self.mtu || packets < 4.0 {
            return false;
        }
        let share = lost / (arrived + lost);
        let known = self.loss.floor();
        let independent = packets / self.overflow.clump();
        // On a long path, a startup phase that chance ends too early costs seconds.
        let certainty = if self.starting() { 3.5 } else { 2.0 };
        let doubt = certainty * loss::deviation((known + LOSS_SLACK).max(share), independent);
        let sure = known + LOSS_SLACK + doubt;
        share > sure && (queued || share > LOSS_HIGH + known + doubt)
    }
}

/// Age after which the floor is looked for beside a rival. It is longer than usual, because BBR shows the floor every
/// ten seconds, and this sender must see it do so.
const RIVAL_FLOOR_AGE: Duration = Duration::from_secs(13);

/// The highest delivered rate is remembered for this span and for one more.
const MOST_AGE: Duration = Duration::from_mins(2);

/// A probe lasts a round trip and at least this number of packets, which are enough to measure a rate.
const PUSH_PACKETS: f64 = 24.0;

/// A path that has stood still is expected to do so again within this time.
const STANDSTILL_AGE: Duration = Duration::from_secs(1);

/// A new startup phase needs `PROBES` consecutive probes after each of which more than this factor arrives. The
/// factor is about half of the increase that a probe asks for.
const PROBE_GROWTH: f64 = 1.12;
const PROBES: u32 = 3;

/// A queue that has not drained after this number of round trips will not drain.
const DRAIN_ROUNDS: f64 = 5.0;

/// Loss above the floor that is tolerated, as in `BBRv3`.
const LOSS_SLACK: f64 = 0.02;

/// Loss above the floor that counts as congestion even without a queue: a policer's loss.
const LOSS_HIGH: f64 = 0.06;

/// Minimum factor by which one measurement with too much loss reduces the bandwidth. It is CUBIC's factor.
const CUT: f64 = 0.7;

/// Share of a cut that one measurement without a queue and with little loss takes back. It applies if hosts that
/// stand still make queues overflow all the time.
const RELAX: f64 = 1.0 / 8.0;
