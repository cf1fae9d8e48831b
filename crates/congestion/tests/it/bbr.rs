//! BBR version 1 as in Linux (`tcp_bbr.c`): a rival that does not yield to loss.
//!
//! The model omits long-term sampling, by which Linux detects a policer that drops a fifth of the packets or more.
//! `kernel.rs` compares the model with the kernel's BBR.

mod ack_aggregation;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quictun_congestion::{ControllerView, Limits, Loss, Model};

use crate::bbr::ack_aggregation::AckAggregation;
use crate::links::{link, sender, shares};
use crate::simulation::Simulation;

/// Gain of rate and window during startup: 2 / ln 2.
const HIGH: f64 = 2.885;
const WINDOW: f64 = 2.0;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const BANDWIDTH_ROUNDS: u64 = 10;
const RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_RTT: Duration = Duration::from_millis(200);
const WINDOW_LEAST: f64 = 4.0;
const MARGIN: f64 = 0.99;

/// Packets sent longer than this before the newest acknowledged one are settled.
const REMEMBERED: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq)]
enum BbrMode {
    Startup,
    Drain,
    ProbeBandwidth,
    /// The value is `None` until the window has drained. Then it holds the end of the phase, and whether a round trip
    /// has passed since.
    ProbeRtt(Option<(Instant, bool)>),
}

/// A batch that was sent.
#[derive(Clone, Copy, Debug)]
struct SentBatch {
    sent: Instant,
    delivered: f64,
    delivered_at: Instant,
    first_sent: Instant,
    /// True if less was sent than the path carries.
    limited: bool,
}

/// A recovery from losses.
#[derive(Clone, Copy, Debug)]
struct LossRecovery {
    /// Time at which the recovery began.
    began: Instant,
    /// Time at which the last loss was found among the packets sent before the recovery.
    repaired: Instant,
    /// True if a packet was lost that was sent after the recovery began.
    again: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    mtu: f64,
    mode: BbrMode,
    records: VecDeque<SentBatch>,
    delivered: f64,
    delivered_at: Instant,
    first_sent: Instant,
    /// Highest rates of rounds, the latest last.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_ends: f64,
    round_began: bool,
    full: f64,
    flat: u32,
    filled: bool,
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    cycle: usize,
    cycle_at: Instant,
    pacing: f64,
    window: f64,
    /// The window before a recovery or before a phase that measures the round-trip time.
    prior: f64,
    recovery: Option<LossRecovery>,
    /// True during the first round trip of a recovery, in which no more packets are sent than arrive.
    conserves: bool,
    /// Value of `delivered` when the last packet arrives that was sent while less was sent than the path carries.
    limited_until: f64,
    aggregation: AckAggregation,
    in_flight: f64,
    newest: Option<SentBatch>,
    acked: f64,
    lost: f64,
}

impl Bbr {
    pub(crate) fn new(now: Instant, mtu: f64) -> Self {
        Self {
            mtu,
            mode: BbrMode::Startup,
            records: VecDeque::new(),
            delivered: 0.0,
            delivered_at: now,
            first_sent: now,
            rates: VecDeque::new(),
            round: 0,
            round_ends: 0.0,
            round_began: false,
            full: 0.0,
            flat: 0,
            filled: false,
            min_rtt: None,
            min_rtt_at: now,
            cycle: 2,
            cycle_at: now,
            // Send the first window within a millisecond while nothing is known about the path.
            pacing: HIGH * 10.0 * mtu / 0.001,
            window: 10.0 * mtu,
            prior: 0.0,
            recovery: None,
            conserves: false,
            limited_until: 0.0,
            aggregation: AckAggregation::new(now),
            in_flight: 0.0,
            newest: None,
            acked: 0.0,
            lost: 0.0,
        }
    }

    fn bandwidth(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    fn bdp(&self, gain: f64) -> f64 {
        match self.min_rtt {
            Some(rtt) if self.bandwidth() > 0.0 => gain * self.bandwidth() * rtt.as_secs_f64(),
            _ => 10.0 * self.mtu,
        }
    }

    /// Adds room to `bytes` in flight for what hosts send and hand over at once.
    fn with_quanta(&self, bytes: f64) -> f64 {
        let packets = (bytes / self.mtu).floor() + 3.0 * (self.quantum() / self.mtu).floor();
        let even = (packets / 2.0).ceil() * 2.0;
        let probes = self.mode == BbrMode::ProbeBandwidth && self.cycle == 0;
        (even + if probes { 2.0 } else { 0.0 }) * self.mtu
    }

    fn inflight(&self, gain: f64) -> f64 {
        self.with_quanta(self.bdp(gain))
    }

    fn pace(&mut self) {
        let rate = MARGIN * self.gain() * self.bandwidth();
        if self.filled || rate > self.pacing {
            self.pacing = rate;
        }
    }

    /// Returns the bytes that may leave at once: those of a millisecond.
    fn quantum(&self) -> f64 {
        (self.pacing * 0.001).clamp(2.0 * self.mtu, 65_536.0)
    }

    fn gain(&self) -> f64 {
        match self.mode {
            BbrMode::Startup => HIGH,
            BbrMode::Drain => 1.0 / HIGH,
            BbrMode::ProbeBandwidth => CYCLE[self.cycle],
            BbrMode::ProbeRtt(_) => 1.0,
        }
    }

    fn probe_bandwidth(&mut self, now: Instant) {
        self.mode = BbrMode::ProbeBandwidth;
        // Linux draws any phase except the one after the probe.
        let drawn = (self.delivered as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        self.cycle = [0, 2, 3, 4, 5, 6, 7][(drawn % 7) as usize];
        self.cycle_at = now;
    }

    /// Updates the measurement, and returns whether there is one.
    fn measure(&mut self, now: Instant, newest: SentBatch) -> bool {
        self.round_began = newest.delivered >= self.round_ends;
        if self.round_began {
            self.round += 1;
            self.round_ends = self.delivered;
            self.conserves = false;
        }
        if self.delivered > self.limited_until {
            self.limited_until = 0.0;
        }
        let sending = newest.sent.saturating_duration_since(newest.first_sent);
        let arriving = now.saturating_duration_since(newest.delivered_at);
        let interval = sending.max(arriving);
        if interval.is_zero() || interval < self.min_rtt.unwrap_or_default() {
            return false;
        }
        let rate = (self.delivered - newest.delivered) / interval.as_secs_f64();
        if newest.limited && rate < self.bandwidth() {
            return true;
        }
        while self.rates.back().is_some_and(|(_, last)| *last <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self
            .rates
            .front()
            .is_some_and(|(round, _)| round + BANDWIDTH_ROUNDS < self.round)
        {
            self.rates.pop_front();
        }
        true
    }

    fn step(&mut self, now: Instant, limited: bool) {
        if self.mode == BbrMode::ProbeBandwidth {
            let elapsed =
                now.saturating_duration_since(self.cycle_at) > self.min_rtt.unwrap_or_default();
            let before = self.in_flight + self.acked;
            let over = match self.gain() {
                gain if gain > 1.0 => {
                    let reached = before + self.quantum() >= self.inflight(gain);
                    elapsed && (self.lost > 0.0 || reached)
                }
                gain if gain < 1.0 => elapsed || before <= self.inflight(1.0),
                _ => elapsed,
            };
            if over {
                self.cycle = (self.cycle + 1) % CYCLE.len();
                self.cycle_at = now;
            }
        }
        if self.round_began && !self.filled && !limited {
            if self.bandwidth() >= 1.25 * self.full {
                self.full = self.bandwidth();
                self.flat = 0;
            } else {
                self.flat += 1;
                self.filled = self.flat >= 3;
            }
        }
        if self.mode == BbrMode::Startup && self.filled {
            self.mode = BbrMode::Drain;
        }
        if self.mode == BbrMode::Drain && self.in_flight <= self.inflight(1.0) {
            self.probe_bandwidth(now);
        }
    }

    fn watch_rtt(&mut self, now: Instant, sample: Duration) {
        let expired = now.saturating_duration_since(self.min_rtt_at) > RTT_AGE;
        if self.min_rtt.is_none_or(|least| sample < least) || expired {
            self.min_rtt = Some(sample);
            self.min_rtt_at = now;
        }
        if expired && !matches!(self.mode, BbrMode::ProbeRtt(_)) {
            self.mode = BbrMode::ProbeRtt(None);
            self.save_window();
        }
        let BbrMode::ProbeRtt(until) = self.mode else {
            return;
        };
        self.limited_until = self.delivered + self.in_flight;
        match until {
            None if self.in_flight <= WINDOW_LEAST * self.mtu => {
                self.mode = BbrMode::ProbeRtt(Some((now + PROBE_RTT, false)));
                self.round_ends = self.delivered;
            }
            Some((until, passed)) => {
                let passed = passed || self.round_began;
                self.mode = BbrMode::ProbeRtt(Some((until, passed)));
                if passed && now > until {
                    self.min_rtt_at = now;
                    self.window = self.window.max(self.prior);
                    if self.filled {
                        self.probe_bandwidth(now);
                    } else {
                        self.mode = BbrMode::Startup;
                    }
                }
            }
            None => {}
        }
    }

    fn save_window(&mut self) {
        let whole = self.recovery.is_none() && !matches!(self.mode, BbrMode::ProbeRtt(_));
        self.prior = if whole {
            self.window
        } else {
            self.prior.max(self.window)
        };
    }

    fn recover(&mut self, now: Instant) {
        self.save_window();
        self.recovery = Some(LossRecovery {
            began: now,
            repaired: now,
            again: false,
        });
        self.conserves = true;
        self.round_ends = self.delivered;
        self.window = self.in_flight + self.acked.max(self.mtu);
    }

    fn set_window(&mut self, now: Instant, newest: SentBatch) {
        if let Some(recovery) = self.recovery.filter(|one| newest.sent > one.repaired) {
            self.recovery = None;
            self.conserves = false;
            self.window = self.window.max(self.prior);
            if recovery.again {
                self.recover(now);
            }
        }
        if self.conserves {
            self.window = self.window.max(self.in_flight + self.acked);
        } else {
            let gain = match self.mode {
                BbrMode::Startup | BbrMode::Drain => HIGH,
                BbrMode::ProbeBandwidth => WINDOW,
                BbrMode::ProbeRtt(_) => 1.0,
            };
            let bunch = if self.filled {
                self.aggregation.room(self.bandwidth())
            } else {
                0.0
            };
            let target = self.with_quanta(self.bdp(gain) + bunch);
            if self.filled {
                self.window = (self.window + self.acked).min(target);
            } else if self.window < target || self.delivered < 10.0 * self.mtu {
                self.window += self.acked;
            }
            self.window = self.window.max(WINDOW_LEAST * self.mtu);
        }
        if matches!(self.mode, BbrMode::ProbeRtt(_)) {
            self.window = self.window.min(WINDOW_LEAST * self.mtu);
        }
    }
}

impl Model for Bbr {
    fn on_sent(&mut self, now: Instant, bytes: u64, _limited: bool) {
        if self.in_flight <= 0.0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        self.in_flight += bytes as f64;
        self.records.push_back(SentBatch {
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            limited: self.limited_until > 0.0,
        });
    }

    fn on_acked(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered += bytes as f64;
        self.delivered_at = now;
        self.acked += bytes as f64;
        let Ok(at) = self
            .records
            .binary_search_by_key(&sent, |record| record.sent)
        else {
            return;
        };
        let record = self.records[at];
        if self.newest.is_none_or(|newest| newest.sent <= sent) {
            self.newest = Some(record);
            self.first_sent = sent;
        }
    }

    fn on_ack_end(&mut self, now: Instant, in_flight: u64) {
        self.in_flight = in_flight as f64;
        if let Some(newest) = self.newest.take() {
            if self.measure(now, newest) {
                if self.round_began {
                    self.aggregation.on_round();
                }
                let bandwidth = self.bandwidth();
                self.aggregation
                    .on_acked(now, self.acked, bandwidth, self.window);
            }
            self.step(now, newest.limited);
            self.watch_rtt(now, now.saturating_duration_since(newest.sent));
            self.pace();
            self.set_window(now, newest);
            if let Some(old) = newest.sent.checked_sub(REMEMBERED) {
                while self.records.front().is_some_and(|record| record.sent < old) {
                    self.records.pop_front();
                }
            }
        }
        self.acked = 0.0;
        self.lost = 0.0;
    }

    fn on_lost(&mut self, now: Instant, sent: Instant, loss: Loss) {
        let bytes = loss.bytes as f64;
        self.lost += bytes;
        self.in_flight = (self.in_flight - bytes).max(0.0);
        match &mut self.recovery {
            None => self.recover(now),
            Some(recovery) => {
                if sent <= recovery.began {
                    recovery.repaired = now;
                } else {
                    recovery.again = true;
                }
                self.window = (self.window - bytes).max(self.mtu);
                if self.conserves {
                    self.window = self.window.max(self.in_flight + self.mtu);
                }
            }
        }
    }

    fn set_sleeps(&mut self, _sleeps: Duration) {}

    fn on_mtu(&mut self, mtu: u16) {
        self.mtu = f64::from(mtu);
    }

    fn limits(&self) -> Limits {
        Limits {
            window: self.window as u64,
            rate: Some(self.pacing),
            quantum: self.quantum() as u64,
        }
    }

    fn view(&self) -> ControllerView {
        ControllerView {
            mode: "bbr",
            phase: match self.mode {
                BbrMode::Startup => "startup",
                BbrMode::Drain => "drain",
                BbrMode::ProbeBandwidth => "probe_bw",
                BbrMode::ProbeRtt(_) => "probe_rtt",
            },
            bandwidth: self.bandwidth(),
            min_rtt: self.min_rtt,
            ..ControllerView::default()
        }
    }

    fn clone_box(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

pub(crate) fn model(now: Instant) -> Box<dyn Model> {
    Box::new(Bbr::new(now, 1250.0))
}

#[test]
fn bbr_alone_fills_a_link_that_loses_packets() {
    for loss in [0.0, 0.01] {
        let mut one = sender(model, 30.0, 0.0);
        one.loss_after = loss;
        let mut sim = Simulation::new(link(100, 30.0, 1.0), 1, vec![one]);
        sim.run_until(Duration::from_secs(15));
        let share = shares(&sim, 5.0, 15.0)[0];
        assert!(share >= 0.93 * (1.0 - loss), "loss {loss}: share {share}");
    }
}

#[test]
fn two_bbr_flows_share_a_link() {
    let senders = vec![sender(model, 30.0, 0.0), sender(model, 30.0, 1.0)];
    let mut sim = Simulation::new(link(100, 30.0, 1.0), 1, senders);
    sim.run_until(Duration::from_mins(1));
    let shares = shares(&sim, 20.0, 60.0);
    assert!(shares[0].min(shares[1]) >= 0.3, "{shares:?}");
}
