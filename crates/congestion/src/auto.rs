//! The `auto` controller: a model of the path, and a sender that fills the path without keeping a queue.
//!
//! The model consists of the bandwidth, the round-trip time without a queue, and the loss that does not depend on the
//! sending rate.
//!
//! ```text
//!  startup ─► drain ─► cruise ─► up ─► down ─► cruise ─► …      every ten seconds: cruise ─► rest ─► cruise
//!     ▲                  │               │
//!     └──── three probes in a row found more     rival: beside cruise, while another flow keeps the queue full
//! ```
//!
//! On a path whose rate varies, `follow` replaces the probes by a short queue.
//!
//! `docs/CONGESTION.md` describes the purpose of each part.

mod bandwidth;
mod epoch;
mod follow;
mod limits;
mod loss;
mod phase;
mod plateau;
mod policer;
mod recent_extreme;
mod rest;
mod rival;
mod rtt;
mod siblings;
mod slowdown;
mod startup;

use std::time::{Duration, Instant};

use bandwidth::Bandwidth;
use epoch::Epoch;
use follow::Follow;
use loss::{LossFloor, Overflow};
use phase::{Cruising, Phase};
use policer::PolicerDetector;
use recent_extreme::RecentExtreme;
use rest::{DelayJump, RestReason};
use rival::{Pressure, Rival, TrialSchedule};
use rtt::RttModel;
use siblings::Siblings;
use slowdown::Slowdown;
use startup::Startup;

use crate::model::{ControllerView, Limits, Loss, Model};
use crate::sampler::DeliverySampler;
use crate::{Member, Resume, bytes};

/// A controller that fills a path without keeping a queue; see the module documentation.
#[derive(Clone, Debug)]
pub struct Auto {
    mtu: f64,
    /// True if this controller yields to all other flows and never competes for a share.
    background: bool,
    phase: Phase,
    /// Start time of the phase, and the number of bytes that had arrived by then.
    phase_start: Instant,
    phase_delivered: u64,
    /// True if a packet sent in this phase has arrived.
    phase_round: bool,
    /// Numbers of bytes sent in this phase that arrived and that were lost.
    phase_arrived: f64,
    phase_lost: f64,
    sampler: DeliverySampler,
    rtt: RttModel,
    bandwidth: Bandwidth,
    loss: LossFloor,
    overflow: Overflow,
    epoch: Epoch,
    slowdown: Slowdown,
    follow: Follow,
    startup: Startup,
    /// Knowledge of an earlier connection about the path, until it has been tried.
    resume: Option<Resume>,
    /// State of the path when it was last filled, which the next connection may start with.
    filled: Option<Resume>,
    /// Number of measurements from the end of a probe to the next probe.
    cruise: u32,
    /// Number of consecutive probes that found more bandwidth.
    growth: u32,
    /// Time at which the measurement of the latest probe's own packets began. Only a probe that lasts longer than a
    /// round trip has such a measurement.
    probed: Option<Instant>,
    /// The bandwidth before the latest probe.
    before_up: f64,
    /// Mean round-trip time in seconds, and the bytes in flight, at the end of the startup phase.
    before_drain: Option<(f64, f64)>,
    /// Bandwidth found by the latest startup phase that jitter may have ended too early.
    started: f64,
    cruising: Cruising,
    policer: PolicerDetector,
    rival: Option<Rival>,
    pressure: Pressure,
    trials: TrialSchedule,
    siblings: Siblings,
    /// The highest delivered rate of the last minutes, in bytes per second.
    most: RecentExtreme,
    /// Number of overflows in a row, and the times of the first and the latest of them.
    overflows: u32,
    overflowing: Option<Instant>,
    overflowed: Option<Instant>,
    /// Time of the latest acknowledgement, and of the latest that came after the path had stood still.
    heard: Option<Instant>,
    standstill: Option<Instant>,
    /// How many standstills have followed each other, and the longest recent one of them in seconds.
    stood_again: u32,
    stood_s: RecentExtreme,
    jump: Option<DelayJump>,
    /// Numbers of arrived and lost packets of settled batches, summed up until a batch with a known round-trip time
    /// shows how long they waited.
    judged: (f64, f64),
    in_flight: f64,
    /// Time for which the workers of both ends sleep between two turns: see [`Model::set_sleeps`].
    sleeps: Duration,
    /// True if the sender has more data than the limits allow.
    limited: bool,
    /// Send times of the latest batch that this acknowledgement names and of the latest that any acknowledgement has
    /// named, and the bytes that this acknowledgement settles.
    newest: Option<Instant>,
    arrived: Option<Instant>,
    batch: f64,
    /// Send time of the earliest batch that this acknowledgement names, and the round-trip time of the earliest batch
    /// that the latest acknowledgement named.
    oldest: Option<Instant>,
    late: Duration,
}

impl Auto {
    /// Creates a controller for a path of which nothing is known.
    pub fn new(now: Instant, mtu: u16) -> Self {
        let mtu = f64::from(mtu);
        Self {
            mtu,
            background: false,
            phase: Phase::Startup,
            phase_start: now,
            phase_delivered: 0,
            phase_round: false,
            phase_arrived: 0.0,
            phase_lost: 0.0,
            sampler: DeliverySampler::default(),
            rtt: RttModel::default(),
            bandwidth: Bandwidth::default(),
            loss: LossFloor::default(),
            overflow: Overflow::default(),
            epoch: Epoch::new(now, 0, None),
            slowdown: Slowdown::default(),
            follow: Follow::default(),
            startup: Startup::first(mtu),
            resume: None,
            filled: None,
            cruise: phase::CRUISE_EPOCHS,
            growth: 0,
            probed: None,
            before_up: 0.0,
            before_drain: None,
            started: 0.0,
            cruising: Cruising::default(),
            policer: PolicerDetector::default(),
            rival: None,
            pressure: Pressure::new(now),
            trials: TrialSchedule::new(now),
            siblings: Siblings::default(),
            most: RecentExtreme::default(),
            overflows: 0,
            overflowing: None,
            overflowed: None,
            heard: None,
            standstill: None,
            stood_again: 0,
            stood_s: RecentExtreme::default(),
            jump: None,
            judged: (0.0, 0.0),
            in_flight: 0.0,
            sleeps: Duration::ZERO,
            limited: false,
            newest: None,
            arrived: None,
            batch: 0.0,
            oldest: None,
            late: Duration::ZERO,
        }
    }

    /// Sets what an earlier connection has learned about the path.
    #[must_use]
    pub fn resuming(self, resume: Option<Resume>) -> Self {
        Self { resume, ..self }
    }

    /// Makes the controller a member of the ensemble of connections to its peer.
    #[must_use]
    pub fn with_member(self, member: Option<Member>) -> Self {
        let siblings = Siblings::of(member);
        Self { siblings, ..self }
    }

    /// Creates a controller that yields to all other flows.
    pub fn background(now: Instant, mtu: u16) -> Self {
        Self {
            background: true,
            ..Self::new(now, mtu)
        }
    }

    /// Starts to control sending. Packets that have waited before say nothing about rivals, because another
    /// controller decided what was sent.
    pub(crate) fn take_over(&mut self, now: Instant) {
        self.rival = None;
        self.pressure = Pressure::new(now);
        if !self.starting() {
            self.rest(now, RestReason::Routine);
        }
    }

    /// Returns whether the round-trip time is long enough for timers to space packets. If it is not, only the window
    /// limits sending, and the round-trip time is that of the threads at both ends.
    fn paced(&self) -> bool {
        self.rtt.floor().is_none_or(|floor| floor >= PACED)
    }

    fn floor_s(&self) -> f64 {
        self.rtt
            .floor()
            .map_or(FLOOR_UNKNOWN_S, |floor| floor.as_secs_f64())
    }

    /// Returns whether a round trip ends before threads have had their turns, and holds enough packets for rates to
    /// differ by a few percent. On such a path a queue drains between two observations of it, so capacity that a cut
    /// removes is wasted.
    fn outpaces_threads(&self) -> bool {
        self.floor_s() < ACK_LATE_S && self.bdp() > FAST_PACKETS * self.mtu
    }

    fn rtt_s(&self) -> f64 {
        self.floor_s() + self.rtt.excess().as_secs_f64()
    }

    fn bdp(&self) -> f64 {
        let turn = self.rtt.mean_floor();
        self.bandwidth.get() * turn.map_or(FLOOR_UNKNOWN_S, |turn| turn.as_secs_f64())
    }

    /// Returns the bytes in flight when nothing waits.
    fn target(&self) -> f64 {
        self.bdp() + ACK_LATE_S * self.bandwidth.get()
    }

    /// Returns the wait that packets cause one another without a significant queue.
    fn noise(&self) -> Duration {
        self.noise_at(self.together())
    }

    /// Returns the same wait for this connection's packets and their acknowledgements alone, regardless of siblings.
    fn own_noise(&self) -> Duration {
        self.noise_at(self.bandwidth.get())
    }

    fn noise_at(&self, bandwidth: f64) -> Duration {
        self.packet_noise(bandwidth).max(self.sleeps * 2)
    }

    /// Returns the same wait if no worker sleeps. The shortest of many round trips does not contain a sleep.
    fn packet_noise(&self, bandwidth: f64) -> Duration {
        let packets = 3.0 * self.mtu / bandwidth.max(self.mtu);
        Duration::from_secs_f64(packets.clamp(0.0004, 0.01))
    }

    /// Returns by how much single packets are later than others without a queue, if that exceeds the turns of
    /// threads.
    fn lateness(&self) -> Duration {
        let long = self.floor_s() > ACK_LATE_S && self.rtt.jitters();
        let lateness = self.rtt.lateness().saturating_sub(self.noise());
        if long { lateness } else { Duration::ZERO }
    }

    /// Returns whether a rest has shown recently that most of the queue is that of other flows.
    fn waits_behind_others(&self) -> bool {
        self.heard
            .is_some_and(|now| self.pressure.waits_behind_others(now))
    }

    fn queued(&self) -> bool {
        self.rtt.queued(1.0 / 16.0, self.noise())
    }

    /// Returns whether packets are still late although the queue of the startup phase has had time to drain.
    fn delays_unsteady(&self) -> bool {
        let (before, _) = self.before_drain.unwrap_or_default();
        let least = (self.noise().as_secs_f64() + ACK_LATE_S).max(self.floor_s() / 32.0);
        let quiet = self.rtt.quiet_s();
        let late = self.rtt.mean_recent_s() > quiet + least.max((before - quiet) / 2.0);
        self.rtt.assumes_jitter() || self.rtt.jitters() && late
    }

    /// Returns whether the sender is still starting, so that it cannot distinguish its own queue from
    /// those of other flows.
    fn starting(&self) -> bool {
        matches!(self.phase, Phase::Startup | Phase::Drain)
    }
}

impl Model for Auto {
    fn on_sent(&mut self, now: Instant, _bytes: u64, limited: bool) {
        self.limited = limited;
        let own = self.rival.is_none();
        let pushed = own && matches!(self.phase, Phase::Up | Phase::Startup);
        let easy = match self.phase {
            Phase::Down { .. } | Phase::Rest(_) => true,
            // With a bandwidth found from a policer's token bucket, 0.98 of it does not stay below the policer's rate
            // for long.
            Phase::Drain => !self.queue_may_be_gone(),
            _ => self.policer.holds(),
        };
        let easy = own && easy;
        self.sampler.on_sent(now, limited, easy, pushed);
    }

    fn on_acked(&mut self, _now: Instant, sent: Instant, bytes: u64) {
        let latest = self.newest <= Some(sent);
        self.newest = self.newest.max(Some(sent));
        self.oldest = Some(self.oldest.map_or(sent, |oldest| oldest.min(sent)));
        let Some(record) = self.sampler.on_acked(sent, bytes) else {
            return;
        };
        if latest {
            self.startup.pressing = record.limited;
        }
        let bytes = bytes::to_f64(bytes);
        self.epoch.on_acked(record.delivered, record.limited);
        if !record.limited {
            self.slowdown.on_pause();
        }
        if record.delivered >= self.phase_delivered && record.sent >= self.phase_start {
            self.phase_round = true;
            self.phase_arrived += bytes;
        }
        if self.phase == Phase::Startup && record.limited {
            self.startup.on_settled(bytes);
        }
        self.batch += bytes;
    }

    fn on_ack_end(&mut self, now: Instant, in_flight: u64) {
        self.in_flight = bytes::to_f64(in_flight);
        if in_flight == 0 {
            self.slowdown.on_pause();
        }
        let newest = self.newest.take();
        let oldest = self.oldest.take();
        self.late = oldest.map_or(Duration::ZERO, |sent| now.saturating_duration_since(sent));
        self.arrived = self.arrived.max(newest);
        if let Some(newest) = newest {
            let sample = now.saturating_duration_since(newest);
            self.watch_jump(now, sample);
            self.watch_standstill(now, sample);
            self.rtt.on_sample(now, sample);
            if matches!(self.phase, Phase::Cruise { .. }) && self.rival.is_none() {
                self.rtt.note_lateness(now, sample);
            }
            self.sampler.set_rtt(newest, sample);
            self.judge(now, newest);
            if let Some(old) = newest.checked_sub(REMEMBERED) {
                self.sampler.forget_before(old);
            }
        }
        if self.queued() {
            self.epoch.on_queue();
        }
        let bytes = std::mem::take(&mut self.batch);
        self.on_rival_ack(now, bytes);
        self.watch_queue(now);
        self.watch_slowdown(now);
        self.watch_siblings(now);
        self.step(now);
        let delivered = self.sampler.delivered();
        let strict = self.rtt.jitters() || self.rival.is_some_and(|rival| rival.holds());
        if let Some(outcome) = self
            .epoch
            .end(now, delivered, self.arrived, self.mtu, strict)
        {
            self.on_epoch(now, outcome);
        }
    }

    fn on_lost(&mut self, now: Instant, sent: Instant, loss: Loss) {
        if loss.bytes == 0 {
            self.loss.mark();
            return;
        }
        let bytes = bytes::to_f64(loss.bytes);
        let record = self.sampler.on_lost(sent, bytes / self.mtu);
        self.epoch.on_lost(loss.bytes);
        self.slowdown.on_lost(bytes);
        if record.is_some_and(|record| record.sent >= self.phase_start) {
            self.phase_lost += bytes;
        }
        if self.phase == Phase::Startup && record.is_some_and(|record| record.limited) {
            // Lost bytes have left the path just as arrived bytes have. Whether the loss is excessive is judged
            // elsewhere.
            self.startup.on_settled(bytes);
        }
        if loss.persistent {
            let rate = self.bandwidth.get() / 2.0;
            self.bandwidth.reset(rate);
            self.restart(now);
            // Losses of an outage say nothing about the startup phase that follows.
            self.epoch = self.new_epoch(now);
        }
    }

    fn set_sleeps(&mut self, sleeps: Duration) {
        self.sleeps = sleeps;
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.mtu = f64::from(mtu);
    }

    fn limits(&self) -> Limits {
        self.limits_now()
    }

    fn view(&self) -> ControllerView {
        let mode = if self.background {
            "background"
        } else {
            "auto"
        };
        let rival = self.rival.is_some();
        ControllerView {
            mode,
            phase: if rival { "rival" } else { self.phase.name() },
            starting: self.phase == Phase::Startup,
            even: rival || self.waits_behind_others(),
            bandwidth: self.bandwidth.get(),
            min_rtt: self.rtt.floor(),
            loss_floor: self.loss.floor(),
            trust: self.loss.trust(),
        }
    }

    fn resume_point(&self) -> Option<Resume> {
        self.filled
    }

    fn clone_box(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

/// Minimum round-trip time for pacing. On faster paths timers are too coarse.
const PACED: Duration = Duration::from_micros(500);

/// Assumed round-trip time of a path that has not answered yet: a third of what RFC 9002 section 6.2.2 assumes.
const FLOOR_UNKNOWN_S: f64 = 0.1;

/// Typical lateness of acknowledgements: the peer delays them, and threads take turns.
const ACK_LATE_S: f64 = 0.003;

/// Minimum number of packets per round trip for rates that differ by a few percent: a twentieth of it is nearly one.
const FAST_PACKETS: f64 = 16.0;

/// Packets sent longer than this before the newest acknowledged packet are settled (RFC 9002 section 6.1).
const REMEMBERED: Duration = Duration::from_secs(2);
