//! Several connections of a process to one peer, which together act as one sender.
//!
//! `ensemble.txt`, written like `grid.txt`, compares what one sender takes, what four senders take that know of one
//! another, and what four take that do not.

use std::fmt::Write as _;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use quictun_congestion::{Auto, Ensemble, Model};

use crate::bbr;
use crate::gated::gated;
use crate::grid::compare;
use crate::links::{auto, cubic, link, mean, sender, shares};
use crate::rivals::NewModel;
use crate::simulation::{SenderConfig, Simulation};

const MEMBERS: usize = 4;

/// The number of `auto` connections, and whether they know of one another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrangement {
    One,
    Together,
    Apart,
}

/// The `auto` connections on a link, and at most one other flow.
#[derive(Clone, Copy, Debug)]
struct EnsembleCase {
    ours: Arrangement,
    mbit: u64,
    rtt_ms: f64,
    /// Size of the buffer in round trips.
    buffer: f64,
    rival: Option<NewModel>,
    /// Seconds by which the `auto` connections begin later than the rival; negative if they begin earlier.
    later_s: f64,
}

impl EnsembleCase {
    fn alone(ours: Arrangement, mbit: u64, rtt_ms: f64) -> Self {
        Self {
            ours,
            mbit,
            rtt_ms,
            buffer: 1.0,
            rival: None,
            later_s: 0.0,
        }
    }

    fn beside(ours: Arrangement, rival: NewModel, buffer: f64, later_s: f64) -> Self {
        Self {
            buffer,
            rival: Some(rival),
            later_s,
            ..Self::alone(ours, 100, 30.0)
        }
    }

    fn count(self) -> usize {
        if self.ours == Arrangement::One {
            1
        } else {
            MEMBERS
        }
    }

    /// Creates the simulation of the case. The `auto` connections begin a tenth of a second apart.
    fn sim(self) -> Simulation {
        let at_s = |number| self.later_s.max(0.0) + 0.1 * number as f64;
        let ours = (0..self.count()).map(|number| sender(auto, self.rtt_ms, at_s(number)));
        let mut senders: Vec<_> = ours.collect();
        let rival = |rival| sender(rival, self.rtt_ms, (-self.later_s).max(0.0));
        senders.extend(self.rival.map(rival));
        let link = link(self.mbit, self.rtt_ms, self.buffer);
        let mut sim = Simulation::new(link, 7, senders);
        if self.ours == Arrangement::Together {
            unite(&mut sim, MEMBERS);
        }
        sim
    }

    fn run(self, from_s: f64, to_s: f64) -> EnsembleResult {
        let mut sim = self.sim();
        run_to(&mut sim, from_s);
        sim.forget_waits();
        let (mut beside, mut looks) = (0_u32, 0_u32);
        while sim.now < sim.origin + Duration::from_secs_f64(to_s) {
            let at = sim.now - sim.origin + Duration::from_millis(50);
            sim.run_until(at);
            let ours = &sim.flows[..self.count()];
            let rival = ours.iter().any(|flow| flow.model.view().phase == "rival");
            beside += u32::from(rival);
            looks += 1;
        }
        let mut ours = shares(&sim, from_s, to_s);
        let other = ours
            .split_off(self.count())
            .iter()
            .fold(0.0, |sum, share| sum + share);
        EnsembleResult {
            ours,
            other,
            wait_ms: mean_wait_ms(&sim),
            beside: f64::from(beside) / f64::from(looks),
        }
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
struct EnsembleResult {
    /// Shares of the `auto` connections, and of the other flow.
    ours: Vec<f64>,
    other: f64,
    /// Mean wait at the bottleneck, in milliseconds.
    wait_ms: f64,
    /// Part of the time in which any of the `auto` connections was beside a rival.
    beside: f64,
}

impl EnsembleResult {
    fn sum(&self) -> f64 {
        self.ours.iter().sum()
    }

    fn least(&self) -> f64 {
        self.ours.iter().copied().fold(f64::MAX, f64::min)
    }

    fn most(&self) -> f64 {
        self.ours.iter().copied().fold(0.0, f64::max)
    }
}

fn run_to(sim: &mut Simulation, until_s: f64) {
    sim.run_until(Duration::from_secs_f64(until_s));
}

fn mean_wait_ms(sim: &Simulation) -> f64 {
    let count: u64 = sim.waits.iter().sum();
    let waits = (0_u64..).zip(&sim.waits);
    let sum: u64 = waits.map(|(bin, count)| bin * count).sum();
    0.02 * sum as f64 / count.max(1) as f64
}

/// Makes an ensemble of the first `count` flows.
fn unite(sim: &mut Simulation, count: usize) {
    let ensemble = Ensemble::new(sim.origin);
    for flow in &mut sim.flows[..count] {
        flow.model = Box::new(Auto::new(sim.origin, 1250).with_member(ensemble.join()));
    }
}

const ALL: [Arrangement; 3] = [Arrangement::One, Arrangement::Together, Arrangement::Apart];

/// Seconds by which the `auto` connections begin later than a rival; negative if they begin earlier.
const LATER_S: [f64; 8] = [-4.0, -2.0, -1.0, -0.5, 0.0, 0.3, 1.0, 2.0];

/// Calls `act` for each item, on a thread for each processor, and returns the results in the order of the items.
fn in_parallel<T: Copy + Sync, U: Send + Sync, const N: usize>(
    items: [T; N],
    act: impl Fn(T) -> U + Sync,
) -> [U; N] {
    let (next, results) = (AtomicUsize::new(0), [(); N].map(|()| OnceLock::new()));
    let threads = available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(index)
                {
                    results[index].get_or_init(|| act(*item));
                }
            });
        }
    });
    results.map(|result| result.into_inner().expect("every item has a result"))
}

/// Adds lines to the table beside one rival on 100 Mbit/s and 30 ms, from 20 to 60 s, over all starts. Returns the
/// mean sum of the `auto` connections' shares for each variant of [`Arrangement`].
fn beside(table: &mut String, name: &str, rival: NewModel, buffer: f64) -> [f64; 3] {
    ALL.map(|ours| {
        let all = in_parallel(LATER_S, |later_s| {
            let case = EnsembleCase::beside(ours, rival, buffer, later_s);
            let got = case.run(20.0, 60.0);
            assert!(got.sum() + got.other >= 0.94, "{case:?}: {got:?}");
            got
        });
        let sums = all.each_ref().map(EnsembleResult::sum);
        let outcome = EnsembleResult {
            ours: vec![mean(&sums)],
            other: mean(&all.each_ref().map(|got| got.other)),
            wait_ms: mean(&all.each_ref().map(|got| got.wait_ms)),
            beside: mean(&all.each_ref().map(|got| got.beside)),
        };
        let least = all
            .iter()
            .map(EnsembleResult::least)
            .fold(f64::MAX, f64::min);
        let most = all.iter().map(EnsembleResult::most).fold(0.0, f64::max);
        let (low, high) = (
            sums.iter().copied().fold(f64::MAX, f64::min),
            sums.iter().copied().fold(0.0, f64::max),
        );
        let case = EnsembleCase::beside(ours, rival, buffer, 0.0);
        line(table, &case, name, &outcome, [low, high, least, most]);
        mean(&sums)
    })
}

/// Adds a line with the sum of the `auto` connections' shares, its extremes, and the extremes of single connections.
fn line(
    table: &mut String,
    case: &EnsembleCase,
    name: &str,
    got: &EnsembleResult,
    extremes: [f64; 4],
) {
    let EnsembleCase {
        mbit,
        rtt_ms,
        buffer,
        ours,
        ..
    } = case;
    let [low, high, least, most] = extremes.map(|share| share * 100.0);
    let (sum, other, beside) = (got.sum() * 100.0, got.other * 100.0, got.beside * 100.0);
    let (ours, wait_ms) = (format!("{ours:?}"), got.wait_ms);
    writeln!(
        table,
        "{mbit:>6}  {rtt_ms:>6}  {buffer:>6}  {name:<5}  {ours:<8}  {sum:>6.1}  {low:>5.1}  {high:>5.1}  {least:>5.1}  \
         {most:>5.1}  {other:>6.1}  {wait_ms:>7.1}  {beside:>6.0}"
    )
    .expect("writing to a string");
}

#[test]
fn four_members_take_what_one_connection_takes() {
    let mut table = String::from(
        "Mbit/s  rtt ms  buffer  rival  ours      sum: %    low   high  least   most  others  wait ms  beside\n",
    );
    for (mbit, rtt_ms) in [(100, 30.0), (20, 20.0), (100, 5.0), (100, 100.0)] {
        let [one, together, _] = ALL.map(|ours| {
            let case = EnsembleCase::alone(ours, mbit, rtt_ms);
            let got = case.run(5.0, 25.0);
            let extremes = [got.sum(), got.sum(), got.least(), got.most()];
            line(&mut table, &case, "-", &got, extremes);
            got
        });
        let what = format!("{mbit} Mbit/s, {rtt_ms} ms: {together:?}");
        assert!(together.sum() >= 0.95, "{what}");
        assert!(together.least() >= 0.15, "{what}");
        assert!(together.most() <= 0.35, "{what}");
        assert!(together.beside <= 0.0, "{what}");
        // The same acknowledgements show each of four connections a queue a quarter as often. If a round trip holds
        // forty packets, they see the queue later.
        let wait_ms = 2.1 * one.wait_ms;
        assert!(together.wait_ms <= wait_ms, "{what}, one: {one:?}");
    }
    for buffer in [0.5, 1.0, 4.0] {
        let [one, together, apart] = beside(&mut table, "cubic", cubic, buffer);
        let what = format!("buffer {buffer}: {one}, {together}, {apart}");
        assert!((0.75..1.25).contains(&(together / one)), "{what}");
        assert!(apart >= 1.4 * one, "{what}");
    }
    for (buffer, least) in [(1.0, 0.9), (4.0, 0.75)] {
        let [one, together, apart] = beside(&mut table, "bbr", bbr::model, buffer);
        let what = format!("buffer {buffer}: {one}, {together}, {apart}");
        assert!((least * one..=0.6).contains(&together), "{what}");
        assert!(apart > 0.6, "{what}");
    }
    compare("ensemble.txt", &table);
}

/// Creates a simulation with three connections, and a fourth that begins after 5 s.
fn joined(mbit: u64, rtt_ms: f64) -> Simulation {
    let starts = [0.0, 0.1, 0.2, 5.0];
    let senders = starts.map(|at_s| sender(auto, rtt_ms, at_s));
    let mut sim = Simulation::new(link(mbit, rtt_ms, 1.0), 7, senders.to_vec());
    unite(&mut sim, 4);
    run_to(&mut sim, 5.0);
    sim
}

fn sent(sim: &Simulation) -> u64 {
    sim.flows.iter().map(|flow| flow.sent).sum()
}

#[test]
fn a_member_that_joins_gets_its_part_soon_and_overflows_no_queue() {
    for (mbit, rtt_ms) in [(100, 30.0), (20, 20.0), (100, 100.0)] {
        let mut sim = joined(mbit, rtt_ms);
        let before = (sim.bottleneck.counters().queue_full, sent(&sim));
        run_to(&mut sim, 10.0);
        let dropped = sim.bottleneck.counters().queue_full - before.0;
        let dropped = dropped as f64 / (sent(&sim) - before.1) as f64;
        let shares = shares(&sim, 6.0, 10.0);
        let what = format!("{mbit} Mbit/s, {rtt_ms} ms: {shares:?}, dropped {dropped}");
        assert!((0.2..0.3).contains(&shares[3]), "{what}");
        assert!(shares.iter().sum::<f64>() >= 0.95, "{what}");
        assert!(dropped <= 0.002, "{what}");
    }
}

#[test]
fn the_last_member_gets_the_whole_link_within_two_seconds() {
    for (mbit, rtt_ms) in [(100, 30.0), (20, 20.0), (100, 100.0)] {
        let mut sim = joined(mbit, rtt_ms);
        run_to(&mut sim, 10.0);
        (0..3).for_each(|flow| sim.stop(flow));
        run_to(&mut sim, 14.0);
        let share = shares(&sim, 12.0, 14.0)[3];
        assert!(share >= 0.95, "{mbit} Mbit/s, {rtt_ms} ms: share {share}");
    }
}

#[test]
fn the_only_member_acts_like_a_connection_without_an_ensemble() {
    for rival in [None, Some(cubic as NewModel), Some(bbr::model as NewModel)] {
        let case = EnsembleCase {
            rival,
            ..EnsembleCase::alone(Arrangement::One, 100, 30.0)
        };
        let mut sims = [case.sim(), case.sim()];
        unite(&mut sims[1], 1);
        let series = sims.map(|mut sim| {
            run_to(&mut sim, 40.0);
            sim.flows.swap_remove(0).series
        });
        assert!(
            series[0] == series[1],
            "the series differ; beside a rival: {}",
            rival.is_some()
        );
    }
}

/// Clients behind one address, with a fast and a slow path that share nothing.
#[test]
fn members_on_other_paths_cost_little() {
    for (slow_mbit, slow_ms) in [(5, 20.0), (5, 40.0), (50, 30.0)] {
        for later_s in [0.0, 5.0, -5.0] {
            let alone = |mbit, rtt_ms, at_s: f64| {
                let one: Vec<SenderConfig> = vec![sender(auto, rtt_ms, at_s.max(0.0))];
                Simulation::new(link(mbit, rtt_ms, 1.0), 7, one)
            };
            let mut sims = [
                alone(100, 20.0, -later_s),
                alone(slow_mbit, slow_ms, later_s),
            ];
            let ensemble = Ensemble::new(sims[0].origin);
            for sim in &mut sims {
                let model = Auto::new(sim.origin, 1250).with_member(ensemble.join());
                sim.flows[0].model = Box::new(model);
            }
            for ms in 0..25_000 {
                let at = Duration::from_millis(ms);
                for sim in &mut sims {
                    sim.run_until(at);
                }
            }
            let [first, later] = [(6.0, 10.0), (10.0, 25.0)].map(|(from_s, to_s)| {
                let shares = |sim: &Simulation| shares(sim, from_s, to_s)[0];
                sims.iter().map(shares).fold(1.0, f64::min)
            });
            let what = format!("{slow_mbit} Mbit/s, {slow_ms} ms, {later_s} s: {first}, {later}");
            assert!(first >= 0.9, "{what}");
            assert!(later >= 0.94, "{what}");
        }
    }
}

/// One connection sends all the time. The other three send something every second, when the model of QUIC's probe
/// timer wakes them.
#[test]
fn a_member_that_sends_now_and_then_leaves_the_rest_to_the_others() {
    for (mbit, rtt_ms) in [(100, 30.0), (20, 20.0)] {
        let mut sim = EnsembleCase::alone(Arrangement::Together, mbit, rtt_ms).sim();
        let origin = sim.origin;
        let idle: Box<dyn Model> = Box::new(Auto::new(origin, 1250));
        for flow in &mut sim.flows[1..] {
            let model = std::mem::replace(&mut flow.model, idle.clone_box());
            flow.model = gated(model, origin, |since_s| since_s % 1.0 <= 0.1);
        }
        run_to(&mut sim, 25.0);
        let shares = shares(&sim, 5.0, 25.0);
        let what = format!("{mbit} Mbit/s, {rtt_ms} ms: {shares:?}");
        assert!(shares.iter().sum::<f64>() >= 0.9, "{what}");
        assert!(shares[0] >= 0.6, "{what}");
    }
}
