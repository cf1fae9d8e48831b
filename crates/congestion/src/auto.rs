//! `auto`: a model of the path, its bandwidth, its round-trip time without queue and the loss it has
//! whatever is sent, and a sender that fills it without keeping a queue.
//!
//! ```text
//!  startup ─► drain ─► cruise ─► up ─► down ─► cruise ─► …      every ten seconds: cruise ─► rest ─► cruise
//!     ▲                  │               │
//!     └──── three probes in a row found more     rival: beside cruise, while another flow keeps the queue full
//! ```
//!
//! `docs/CONGESTION.md` tells what each part is for.

mod bandwidth;
mod epoch;
mod fall;
mod lately;
mod limits;
mod loss;
mod phase;
mod plateau;
mod policer;
mod rest;
mod rival;
mod rtt;
mod siblings;
mod startup;

use std::time::{Duration, Instant};

use bandwidth::Bandwidth;
use epoch::Epoch;
use fall::Fall;
use lately::Lately;
use loss::{LossFloor, Overflow};
use phase::{Cruising, Phase};
use policer::Policer;
use rest::{Jump, Reason};
use rival::{Pressure, Rival};
use rtt::Rtt;
use siblings::Siblings;
use startup::Startup;

use crate::model::{Limits, Loss, Model, View};
use crate::sampler::Sampler;
use crate::{Member, Resume, bytes};

/// Fills a path without keeping a queue; see the module documentation.
#[derive(Clone, Debug)]
pub struct Auto {
    mtu: f64,
    /// It gives way to all other flows, and never fights for a share.
    background: bool,
    phase: Phase,
    /// When the phase began, and what had arrived by then.
    phase_start: Instant,
    phase_delivered: u64,
    /// A packet sent in this phase has arrived.
    phase_round: bool,
    /// Bytes sent in this phase that arrived, and that were lost.
    phase_arrived: f64,
    phase_lost: f64,
    sampler: Sampler,
    rtt: Rtt,
    bandwidth: Bandwidth,
    loss: LossFloor,
    overflow: Overflow,
    epoch: Epoch,
    fall: Fall,
    startup: Startup,
    /// What an earlier connection knew, until it has been tried.
    resume: Option<Resume>,
    /// What the next may know: how the path was when it was last filled.
    filled: Option<Resume>,
    /// Measurements until the next probe.
    cruise: u32,
    /// Probes in a row that found more, and the bandwidth before the latest.
    growth: u32,
    /// When arrivals began to be measured as those of the latest probe, which lasts longer than a round trip.
    probed: Option<Instant>,
    before_up: f64,
    /// Mean round-trip time in seconds and bytes in flight at the end of the start.
    before_drain: Option<(f64, f64)>,
    /// The bandwidth that the latest start has found that jitter may have ended.
    started: f64,
    cruising: Cruising,
    policer: Policer,
    rival: Option<Rival>,
    pressure: Pressure,
    siblings: Siblings,
    /// The most that has arrived, in bytes per second, in the last minutes.
    most: Lately,
    /// Overflows that followed one another, the first of them and the latest.
    overflows: u32,
    overflowing: Option<Instant>,
    overflowed: Option<Instant>,
    /// The latest acknowledgement, and the latest that came after the path had stood still.
    heard: Option<Instant>,
    stood: Option<Instant>,
    jump: Option<Jump>,
    /// Packets of settled batches that arrived and were lost, until one tells how long they waited.
    judged: (f64, f64),
    in_flight: f64,
    /// How long both ends sleep between two turns.
    sleeps: Duration,
    /// More would be sent if it were allowed.
    limited: bool,
    /// The latest batch this acknowledgement names, the latest that any has, and the bytes it settles.
    newest: Option<Instant>,
    arrived: Option<Instant>,
    batch: f64,
    /// The earliest batch this acknowledgement names, and how long that of the latest one took.
    oldest: Option<Instant>,
    late: Duration,
}

impl Auto {
    /// A controller for a path of which nothing is known.
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
            sampler: Sampler::default(),
            rtt: Rtt::default(),
            bandwidth: Bandwidth::default(),
            loss: LossFloor::default(),
            overflow: Overflow::default(),
            epoch: Epoch::new(now, 0, None),
            fall: Fall::default(),
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
            policer: Policer::default(),
            rival: None,
            pressure: Pressure::new(now),
            siblings: Siblings::default(),
            most: Lately::default(),
            overflows: 0,
            overflowing: None,
            overflowed: None,
            heard: None,
            stood: None,
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

    /// The same controller, for a path that an earlier connection has filled.
    #[must_use]
    pub fn resuming(self, resume: Option<Resume>) -> Self {
        Self { resume, ..self }
    }

    /// The same controller, for one of several connections to a peer.
    #[must_use]
    pub fn among(self, member: Option<Member>) -> Self {
        let siblings = Siblings::of(member);
        Self { siblings, ..self }
    }

    /// The same as [`Auto::new`], giving way to all other flows.
    pub fn background(now: Instant, mtu: u16) -> Self {
        Self {
            background: true,
            ..Self::new(now, mtu)
        }
    }

    /// Begins to be obeyed: what has waited so far tells nothing of rivals.
    pub(crate) fn take_over(&mut self, now: Instant) {
        self.rival = None;
        self.pressure = Pressure::new(now);
        if !self.starting() {
            self.rest(now, Reason::Routine);
        }
    }

    /// Whether packets return late enough for timers to space them. Where they do not, a window is all
    /// there is, and the time packets take is that of the threads at both ends.
    fn paced(&self) -> bool {
        self.rtt.floor().is_none_or(|floor| floor >= PACED)
    }

    fn floor_s(&self) -> f64 {
        self.rtt
            .floor()
            .map_or(FLOOR_UNKNOWN_S, |floor| floor.as_secs_f64())
    }

    /// Whether a round trip is over before threads have had their turns, and holds enough packets for rates to differ
    /// by some percent. A queue drains between two looks at it then, and what a cut takes is lost.
    fn hurried(&self) -> bool {
        self.floor_s() < ACK_LATE_S && self.bdp() > HURRIED_PACKETS * self.mtu
    }

    fn rtt_s(&self) -> f64 {
        self.floor_s() + self.rtt.excess().as_secs_f64()
    }

    fn bdp(&self) -> f64 {
        let turn = self.rtt.turn();
        self.bandwidth.get() * turn.map_or(FLOOR_UNKNOWN_S, |turn| turn.as_secs_f64())
    }

    /// Bytes in flight when nothing waits.
    fn target(&self) -> f64 {
        self.bdp() + ACK_LATE_S * self.bandwidth.get()
    }

    /// Waiting that packets do to one another without any queue to speak of.
    fn noise(&self) -> Duration {
        self.noise_at(self.together())
    }

    /// The same for what our packets and their acknowledgements do to one another, whatever siblings send.
    fn own_noise(&self) -> Duration {
        self.noise_at(self.bandwidth.get())
    }

    fn noise_at(&self, bandwidth: f64) -> Duration {
        let packets = 3.0 * self.mtu / bandwidth.max(self.mtu);
        Duration::from_secs_f64(packets.clamp(0.0004, 0.01)).max(self.sleeps * 2)
    }

    /// How much later than others packets come by themselves, where that is more than threads' turns.
    fn reach(&self) -> Duration {
        let long = self.floor_s() > ACK_LATE_S && self.rtt.jitters();
        let reach = self.rtt.reach().saturating_sub(self.noise());
        if long { reach } else { Duration::ZERO }
    }

    fn queued(&self) -> bool {
        self.rtt.queued(1.0 / 16.0, self.noise())
    }

    /// Whether packets are still late though the queue of the start had time to drain.
    fn unsteady(&self) -> bool {
        let (before, _) = self.before_drain.unwrap_or_default();
        let least = (self.noise().as_secs_f64() + ACK_LATE_S).max(self.floor_s() / 32.0);
        let quiet = self.rtt.quiet_s();
        let late = self.rtt.mean_recent_s() > quiet + least.max((before - quiet) / 2.0);
        self.rtt.supposes() || self.rtt.jitters() && late
    }

    /// Nothing is known yet of what is ours and what is others'.
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
            // Where a policer's bucket has shown the bandwidth, 0.98 of it is not easy for long.
            Phase::Drain => !self.gone(),
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
            self.fall.forget();
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
                self.rtt.note_reach(now, sample);
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
        self.watch_fall(now);
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
        self.fall.on_lost(bytes);
        if record.is_some_and(|record| record.sent >= self.phase_start) {
            self.phase_lost += bytes;
        }
        if self.phase == Phase::Startup && record.is_some_and(|record| record.limited) {
            // It has left the path as much as what arrived: whether it is too much is judged elsewhere.
            self.startup.on_settled(bytes);
        }
        if loss.persistent {
            let rate = self.bandwidth.get() / 2.0;
            self.bandwidth.reset(rate);
            self.restart(now);
            // Losses of an outage tell nothing of the start that follows.
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

    fn view(&self) -> View {
        let mode = if self.background {
            "background"
        } else {
            "auto"
        };
        let rival = self.rival.is_some();
        View {
            mode,
            phase: if rival { "rival" } else { self.phase.name() },
            starting: self.phase == Phase::Startup,
            even: rival,
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

/// Where packets return faster than this, timers are too coarse for pacing.
const PACED: Duration = Duration::from_micros(500);

/// Round-trip time of a path that has not answered yet: a third of what RFC 9002 section 6.2.2 assumes.
const FLOOR_UNKNOWN_S: f64 = 0.1;

/// Acknowledgements come about this much later than they could: they are collected, and threads take turns.
const ACK_LATE_S: f64 = 0.003;

/// Packets of which a twentieth is nearly one.
const HURRIED_PACKETS: f64 = 16.0;

/// What left longer before the newest acknowledged packet is settled (RFC 9002 section 6.1).
const REMEMBERED: Duration = Duration::from_secs(2);
