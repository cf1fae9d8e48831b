//! BBR version 1 as Linux has it (`tcp_bbr.c`): a rival that does not yield to loss.
//!
//! Left out: the policer's long-term sampling, and the room for acknowledgements that come in bunches. Beside the kernel's
//! on an emulated link of 100 Mbit/s and 30 ms with a queue of one round trip, CUBIC has 11 % of the link and another BBR
//! 52 %; beside this one 11 and 43 to 50 %.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quictun_congestion::{Limits, Loss, Model, View};

use crate::links::{link, sender, shares};
use crate::world::World;

/// 2 / ln 2, for the start's rate and window.
const HIGH: f64 = 2.885;
const WINDOW: f64 = 2.0;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const BANDWIDTH_ROUNDS: u64 = 10;
const RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_RTT: Duration = Duration::from_millis(200);
const WINDOW_LEAST: f64 = 4.0;
const MARGIN: f64 = 0.99;

/// Packets that left longer before the newest acknowledged one are settled.
const REMEMBERED: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    /// Until when, once the window is drained; and the mode before.
    ProbeRtt(Option<Instant>),
}

/// A batch that left.
#[derive(Clone, Copy, Debug)]
struct Record {
    sent: Instant,
    delivered: f64,
    delivered_at: Instant,
    first_sent: Instant,
}

#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    mtu: f64,
    mode: Mode,
    records: VecDeque<Record>,
    delivered: f64,
    delivered_at: Instant,
    first_sent: Instant,
    /// Greatest rates of rounds, latest last.
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
    lost_in_round: f64,
    window: f64,
    /// The window before a recovery or a look for the round-trip time.
    prior: f64,
    recovery: Option<u64>,
    in_flight: f64,
    newest: Option<Record>,
    acked: f64,
}

impl Bbr {
    pub(crate) fn new(now: Instant, mtu: f64) -> Self {
        Self {
            mtu,
            mode: Mode::Startup,
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
            lost_in_round: 0.0,
            window: 10.0 * mtu,
            prior: 0.0,
            recovery: None,
            in_flight: 0.0,
            newest: None,
            acked: 0.0,
        }
    }

    fn bandwidth(&self) -> f64 {
        self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    fn bdp(&self, gain: f64) -> f64 {
        match self.min_rtt {
            Some(rtt) if self.bandwidth() > 0.0 => gain * self.bandwidth() * rtt.as_secs_f64(),
            _ => 10.0 * self.mtu,
        }
    }

    fn rate(&self) -> f64 {
        match self.min_rtt {
            Some(_) if self.bandwidth() > 0.0 => MARGIN * self.gain() * self.bandwidth(),
            Some(rtt) => HIGH * self.window / rtt.as_secs_f64(),
            None => HIGH * self.window / 0.001,
        }
    }

    /// Bytes that leave at once: a millisecond's worth.
    fn quantum(&self) -> f64 {
        (self.rate() * 0.001).clamp(2.0 * self.mtu, 65_536.0)
    }

    fn gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH,
            Mode::Drain => 1.0 / HIGH,
            Mode::ProbeBandwidth => CYCLE[self.cycle],
            Mode::ProbeRtt(_) => 1.0,
        }
    }

    fn probe_bandwidth(&mut self, now: Instant) {
        self.mode = Mode::ProbeBandwidth;
        // Linux draws any but the one after the probe.
        self.cycle = 2;
        self.cycle_at = now;
    }

    fn measure(&mut self, now: Instant, newest: Record) {
        self.round_began = newest.delivered >= self.round_ends;
        if self.round_began {
            self.round += 1;
            self.round_ends = self.delivered;
        }
        let sending = newest.sent.saturating_duration_since(newest.first_sent);
        let arriving = now.saturating_duration_since(newest.delivered_at);
        let interval = sending.max(arriving);
        if interval < self.min_rtt.unwrap_or_default() {
            return;
        }
        let rate = (self.delivered - newest.delivered) / interval.as_secs_f64();
        while self.rates.back().is_some_and(|(_, last)| *last <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self
            .rates
            .front()
            .is_some_and(|(round, _)| round + BANDWIDTH_ROUNDS <= self.round)
        {
            self.rates.pop_front();
        }
    }

    fn step(&mut self, now: Instant) {
        if self.round_began && !self.filled {
            if self.bandwidth() >= 1.25 * self.full {
                self.full = self.bandwidth();
                self.flat = 0;
            } else {
                self.flat += 1;
                self.filled = self.flat >= 3;
            }
        }
        if self.mode == Mode::Startup && self.filled {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && self.in_flight <= self.bdp(1.0) {
            self.probe_bandwidth(now);
        }
        if self.mode == Mode::ProbeBandwidth {
            let elapsed =
                now.saturating_duration_since(self.cycle_at) > self.min_rtt.unwrap_or_default();
            let over = match self.gain() {
                gain if gain > 1.0 => {
                    elapsed && (self.lost_in_round > 0.0 || self.in_flight >= self.bdp(gain))
                }
                gain if gain < 1.0 => elapsed || self.in_flight <= self.bdp(1.0),
                _ => elapsed,
            };
            if over {
                self.cycle = (self.cycle + 1) % CYCLE.len();
                self.cycle_at = now;
                self.lost_in_round = 0.0;
            }
        }
    }

    fn watch_rtt(&mut self, now: Instant, sample: Duration) {
        let expired = now.saturating_duration_since(self.min_rtt_at) > RTT_AGE;
        if self.min_rtt.is_none_or(|least| sample <= least) || expired {
            self.min_rtt = Some(sample);
            self.min_rtt_at = now;
        }
        if expired && !matches!(self.mode, Mode::ProbeRtt(_)) {
            self.mode = Mode::ProbeRtt(None);
            self.prior = self.prior.max(self.window);
        }
        if let Mode::ProbeRtt(until) = self.mode {
            match until {
                None if self.in_flight <= WINDOW_LEAST * self.mtu => {
                    self.mode = Mode::ProbeRtt(Some(now + PROBE_RTT));
                }
                Some(until) if now >= until => {
                    self.min_rtt_at = now;
                    self.window = self.window.max(self.prior);
                    self.prior = 0.0;
                    if self.filled {
                        self.probe_bandwidth(now);
                    } else {
                        self.mode = Mode::Startup;
                    }
                }
                _ => {}
            }
        }
    }

    fn set_window(&mut self) {
        let gain = if self.filled || self.mode == Mode::Drain {
            WINDOW
        } else {
            HIGH
        };
        let target = self.bdp(gain) + 3.0 * self.quantum() + 2.0 * self.mtu;
        if self.recovery.is_some_and(|round| round < self.round) {
            self.recovery = None;
            self.window = self.window.max(self.prior);
            self.prior = 0.0;
        }
        if self.recovery.is_some() {
            self.window = self.window.max(self.in_flight + self.acked);
        } else if self.filled {
            self.window = (self.window + self.acked).min(target);
        } else if self.window < target || self.delivered < 10.0 * self.mtu {
            self.window += self.acked;
        }
        self.window = self.window.max(WINDOW_LEAST * self.mtu);
        if matches!(self.mode, Mode::ProbeRtt(_)) {
            self.window = WINDOW_LEAST * self.mtu;
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
        self.records.push_back(Record {
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
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
            self.measure(now, newest);
            self.step(now);
            self.watch_rtt(now, now.saturating_duration_since(newest.sent));
            if let Some(old) = newest.sent.checked_sub(REMEMBERED) {
                while self.records.front().is_some_and(|record| record.sent < old) {
                    self.records.pop_front();
                }
            }
        }
        self.set_window();
        self.acked = 0.0;
    }

    fn on_lost(&mut self, _now: Instant, _sent: Instant, loss: Loss) {
        self.lost_in_round += loss.bytes as f64;
        self.in_flight = (self.in_flight - loss.bytes as f64).max(0.0);
        if self.recovery.is_none() {
            self.recovery = Some(self.round);
            self.prior = self.prior.max(self.window);
            self.window = self.in_flight + self.mtu;
        }
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.mtu = f64::from(mtu);
    }

    fn limits(&self) -> Limits {
        let rate = self.rate();
        Limits {
            window: self.window as u64,
            rate: Some(rate),
            quantum: self.quantum() as u64,
        }
    }

    fn view(&self) -> View {
        View {
            mode: "bbr",
            phase: match self.mode {
                Mode::Startup => "startup",
                Mode::Drain => "drain",
                Mode::ProbeBandwidth => "probe_bw",
                Mode::ProbeRtt(_) => "probe_rtt",
            },
            bandwidth: self.bandwidth(),
            min_rtt: self.min_rtt,
            ..View::default()
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
fn alone_it_fills_a_link_that_loses_packets() {
    for loss in [0.0, 0.01] {
        let mut one = sender(model, 30.0, 0.0);
        one.loss_after = loss;
        let mut world = World::new(link(100, 30.0, 1.0), 1, vec![one]);
        world.run_until(Duration::from_secs(15));
        let share = shares(&world, 5.0, 15.0)[0];
        assert!(share >= 0.93 * (1.0 - loss), "{loss}: {share}");
    }
}

#[test]
fn two_of_them_share() {
    let senders = vec![sender(model, 30.0, 0.0), sender(model, 30.0, 1.0)];
    let mut world = World::new(link(100, 30.0, 1.0), 1, senders);
    world.run_until(Duration::from_mins(1));
    let shares = shares(&world, 20.0, 60.0);
    assert!(shares[0].min(shares[1]) >= 0.3, "{shares:?}");
}
