//! Links drawn at random: combinations that no table has.
//!
//! The rate, the round trip, the buffer, the loss, the jitter and the sleeps of the ends are drawn independently.
//! `QUICTUN_SEED=0..2000 cargo test --release -p quictun-congestion --test it random -- --nocapture` runs other seeds,
//! and prints each link that is not filled.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use quictun_link::{LinkConfig, Queue, Stall};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

use crate::changes::seconds;
use crate::links::{auto, link, mean, sender};
use crate::simulation::{Jitter, Simulation};

const FROM_S: f64 = 5.0;
const TO_S: f64 = 20.0;

/// Share of its capacity from which on a link counts as filled.
const FILLED: f64 = 0.85;

/// Minimum share of the links that are filled, and minimum mean of all links.
const FILLED_LINKS: f64 = 0.985;
const MEAN: f64 = 0.975;

/// A random link with its losses and delays.
#[derive(Clone, Copy, Debug)]
struct RandomLink {
    seed: u64,
    mbit: u64,
    rtt_ms: f64,
    /// Length of the queue, without the longest jitter, in milliseconds.
    queue_ms: f64,
    loss: f64,
    burst: f64,
    before: bool,
    even_ms: f64,
    /// Length and period of standstills in milliseconds. The length is zero if there are none.
    stall_ms: (f64, f64),
    sleeps_ms: f64,
}

impl Display for RandomLink {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { seed, mbit, .. } = self;
        let place = if self.before { "before" } else { "after" };
        write!(
            f,
            "seed {seed}: {mbit} Mbit/s, {} ms, queue of {:.1} ms, {} % lost {place} it in bursts of {}, jitter up to {:.1} ms, \
             standstills of {:.1} ms every {:.1} ms, sleeps of {:.1} ms",
            self.rtt_ms,
            self.queue_ms,
            self.loss * 100.0,
            self.burst,
            self.even_ms,
            self.stall_ms.0,
            self.stall_ms.1,
            self.sleeps_ms,
        )
    }
}

/// Draws values of a link.
struct LinkDraws(ChaCha20Rng);

impl LinkDraws {
    /// Returns a number from 0 up to 1.
    fn part(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / (f64::from(u32::MAX) + 1.0)
    }

    fn chance(&mut self, share: f64) -> bool {
        self.part() < share
    }

    /// Returns a number whose logarithm is spread evenly.
    fn between(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.part())
    }

    fn pick(&mut self, values: &[f64]) -> f64 {
        let at = (self.part() * values.len() as f64) as usize;
        values[at.min(values.len() - 1)]
    }
}

impl RandomLink {
    fn new(seed: u64) -> Self {
        let mut draws = LinkDraws(ChaCha20Rng::seed_from_u64(seed));
        let mbit = draws.between(3.0, 300.0).round();
        let rtt_ms = draws.between(2.0, 200.0).round();
        let even_ms = if draws.chance(0.4) {
            rtt_ms * draws.between(0.02, 0.5)
        } else {
            0.0
        };
        let stall_ms = if draws.chance(0.4) {
            let lasts = (rtt_ms * draws.between(0.05, 0.5)).max(1.0);
            (lasts, lasts * draws.between(1.5, 10.0))
        } else {
            (0.0, 0.0)
        };
        // As the ends of a tunnel sleep: see `sleeps.rs`.
        let sleeps_ms = if draws.chance(0.6) {
            (rtt_ms * 0.15).min(6.0).min(256.0 / mbit)
        } else {
            0.0
        };
        Self {
            seed,
            mbit: mbit as u64,
            rtt_ms,
            queue_ms: (rtt_ms * draws.between(0.5, 4.0)).max(768.0 / mbit),
            loss: draws.pick(&[0.0, 0.0, 0.001, 0.005, 0.01, 0.02]),
            burst: draws.pick(&[1.0, 1.0, 3.0]),
            before: draws.chance(0.3),
            even_ms,
            stall_ms,
            sleeps_ms,
        }
    }

    /// Returns the share of the link's capacity that a sender alone fills.
    fn share(&self) -> f64 {
        let mut one = sender(auto, self.rtt_ms, 0.0);
        if self.before {
            one.loss_before = self.loss;
        } else {
            one.loss_after = self.loss;
        }
        one.loss_back = self.loss;
        one.burst = self.burst;
        let (lasts, every) = self.stall_ms;
        one.jitter = Jitter {
            even: seconds(self.even_ms / 1e3),
            stall: (lasts > 0.0).then_some(Stall {
                lasts: seconds(lasts / 1e3),
                every: seconds(every / 1e3),
            }),
            ..Jitter::default()
        };
        one.sleeps = seconds(self.sleeps_ms / 1e3);
        one.sleeps_from = Duration::from_secs_f64((self.rtt_ms / 100.0).max(0.5));
        let rate = self.mbit as f64 * 125_000.0;
        let longest_ms = self.queue_ms + self.even_ms + lasts;
        let config = LinkConfig {
            queue: Queue::Bytes((rate * longest_ms / 1e3) as usize),
            ..link(self.mbit, self.rtt_ms, 1.0)
        };
        let mut sim = Simulation::new(config, self.seed, vec![one]);
        sim.run_until(seconds(TO_S));
        let lost = if self.before { 0.0 } else { self.loss };
        sim.flows[0].rate(sim.slot, seconds(FROM_S), seconds(TO_S)) / (rate * (1.0 - lost))
    }
}

/// Returns the seeds to run: `usual`, unless `QUICTUN_SEED=0..2000` asks for others.
pub(crate) fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("QUICTUN_SEED") else {
        return usual;
    };
    let range = asked
        .split_once("..")
        .and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.expect("QUICTUN_SEED is a range such as 0..2000")
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "`--nocapture` shows the links that are not filled"
)]
fn nearly_all_random_links_are_filled() {
    let (mut shares, mut weak) = (Vec::new(), Vec::new());
    for seed in seeds(0..100) {
        let link = RandomLink::new(seed);
        let share = link.share();
        shares.push(share);
        if share < FILLED {
            weak.push(format!("{share:.3} {link}"));
        }
    }
    let (mean, count) = (mean(&shares), shares.len());
    let weak_links = weak.join("\n");
    println!(
        "{count} links, mean {mean:.4}, {} not filled:\n{weak_links}",
        weak.len()
    );
    let most = (count as f64 * (1.0 - FILLED_LINKS)).ceil();
    assert!(
        mean >= MEAN && weak.len() as f64 <= most,
        "mean {mean:.4}:\n{weak_links}"
    );
}
