//! Paths that change while they are full: steps and ramps of the rate, an outage, handovers, and a policer.
//!
//! The results are in `changes.txt`, written like `grid.txt`. Each change happens 5 s after the start, and slightly
//! later with each seed, so that it meets other phases. The worst result over all seeds counts. The buffer holds a
//! round trip at the higher rate.

mod floors;

use std::fmt::{Display, Formatter, Result, Write as _};
use std::time::Duration;

use quictun_link::{Change, LinkConfig, Outage, Policer, Setting};

use crate::grid::compare;
use crate::links::{auto, link, sender};
use crate::simulation::Simulation;

/// A kind of change of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ChangeKind {
    /// The rate rises from a quarter to all of it.
    StepUp,
    /// The rate falls to a quarter.
    StepDown,
    /// The rate rises in the same way, spread over [`RAMP_S`].
    RampUp,
    /// The rate falls to a quarter, spread over [`RAMP_S`].
    RampDown,
    /// Nothing passes in either direction for [`OUTAGE_S`].
    Outage,
    /// The round-trip time changes. The value is the time before the change, in milliseconds.
    Handover(u32),
    /// A policer limits the rate to half of it from then on.
    Policer,
}

const KINDS: [ChangeKind; 6] = [
    ChangeKind::StepUp,
    ChangeKind::StepDown,
    ChangeKind::RampUp,
    ChangeKind::RampDown,
    ChangeKind::Outage,
    ChangeKind::Policer,
];

/// One change on one path.
#[derive(Clone, Copy, Debug)]
struct PathChange {
    kind: ChangeKind,
    mbit: u64,
    /// The round-trip time in milliseconds, which is the one after a handover.
    rtt_ms: u32,
    loss: f64,
}

/// The cost of a change.
#[derive(Clone, Copy, Debug)]
struct ChangeCost {
    /// Round trips until nine tenths of the path's new capacity arrive.
    filled: f64,
    /// Share of that capacity that arrives from 15 round trips on, or while a ramp lasts.
    share: f64,
    /// Seconds until packets wait no more than they should.
    drained_s: f64,
    /// Wait in milliseconds that 95 of 100 packets do not exceed, from one second after the change on.
    wait_ms: f64,
    /// Seconds from the end of an outage until anything arrives, and the further cost of the outage, in seconds'
    /// worth of bytes.
    silent_s: f64,
    costs_s: f64,
}

const CHANGE_S: f64 = 5.0;
const RAMP_S: f64 = 5.0;
const OUTAGE_S: f64 = 2.0;

/// Number of seconds after the change that are measured.
const AFTER_S: f64 = 5.0;

/// Number of steps of a ramp.
const RAMP_STEPS: u32 = 50;

const SEEDS: u64 = 3;

impl Display for PathChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let name = match self.kind {
            ChangeKind::StepUp => "step up",
            ChangeKind::StepDown => "step down",
            ChangeKind::RampUp => "ramp up",
            ChangeKind::RampDown => "ramp down",
            ChangeKind::Outage => "outage",
            ChangeKind::Policer => "policer",
            ChangeKind::Handover(_) => "handover",
        };
        let rtt = match self.kind {
            ChangeKind::Handover(before_ms) => format!("{before_ms} to {}", self.rtt_ms),
            _ => self.rtt_ms.to_string(),
        };
        let (mbit, loss) = (self.mbit, self.loss * 100.0);
        write!(f, "{name:<13}  {mbit:>6}  {rtt:<9}  {loss:>6.0}")
    }
}

impl ChangeCost {
    /// Formats the columns that matter for this kind of change.
    fn text(&self, kind: ChangeKind) -> String {
        let filled = (kind == ChangeKind::StepUp).then_some(self.filled);
        let share = (kind != ChangeKind::Outage).then_some(self.share * 100.0);
        let drained = matches!(kind, ChangeKind::StepDown | ChangeKind::Handover(_))
            .then_some(self.drained_s);
        let outage = |seconds| (kind == ChangeKind::Outage).then_some(seconds);
        let (silent, costs) = (outage(self.silent_s), outage(self.costs_s));
        format!(
            "{}  {}  {}  {}  {}  {}",
            number(filled, 15, 0),
            number(share, 7, 1),
            number(drained, 12, 2),
            number(Some(self.wait_ms), 11, 1),
            number(silent, 8, 2),
            number(costs, 7, 2)
        )
    }
}

fn number(value: Option<f64>, width: usize, digits: usize) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{value:>width$.digits$}"),
        Some(_) => format!("{:>width$}", "never"),
        None => format!("{:>width$}", "-"),
    }
}

impl PathChange {
    /// Returns the parts of the rate before and after the change.
    fn parts(&self) -> (f64, f64) {
        match self.kind {
            ChangeKind::StepUp | ChangeKind::RampUp => (0.25, 1.0),
            ChangeKind::StepDown | ChangeKind::RampDown => (1.0, 0.25),
            ChangeKind::Policer => (1.0, 0.5),
            ChangeKind::Outage | ChangeKind::Handover(_) => (1.0, 1.0),
        }
    }

    /// Returns this part of the rate in bytes per second.
    fn rate(&self, part: f64) -> f64 {
        self.mbit as f64 * 125_000.0 * part
    }

    fn rtt_s(&self) -> f64 {
        f64::from(self.rtt_ms) / 1e3
    }

    fn before_ms(&self) -> u32 {
        match self.kind {
            ChangeKind::Handover(before_ms) => before_ms,
            _ => self.rtt_ms,
        }
    }

    fn config(&self, at_s: f64) -> LinkConfig {
        let (before, after) = self.parts();
        let longest_ms = self.rtt_ms.max(self.before_ms());
        let rate = |part: f64| Some(self.rate(part) as u64);
        let mut config = LinkConfig {
            rate: rate(before),
            ..link(self.mbit, f64::from(longest_ms), 1.0)
        };
        let mut change = |at_s, part| {
            config.changes.push(Change {
                at: seconds(at_s),
                to: Setting::Rate(rate(part)),
            });
        };
        match self.kind {
            ChangeKind::StepUp | ChangeKind::StepDown => change(at_s, after),
            ChangeKind::RampUp | ChangeKind::RampDown => {
                for step in 1..=RAMP_STEPS {
                    let part = f64::from(step) / f64::from(RAMP_STEPS);
                    change(at_s + RAMP_S * part, before + (after - before) * part);
                }
            }
            ChangeKind::Outage => config.outages.push(Outage {
                from: seconds(at_s),
                until: seconds(at_s + OUTAGE_S),
            }),
            ChangeKind::Handover(_) | ChangeKind::Policer => {}
        }
        config
    }

    fn worst(&self) -> ChangeCost {
        (2..=SEEDS).fold(self.measure(1), |worst, seed| {
            let cell = self.measure(seed);
            ChangeCost {
                filled: worst.filled.max(cell.filled),
                share: worst.share.min(cell.share),
                drained_s: worst.drained_s.max(cell.drained_s),
                wait_ms: worst.wait_ms.max(cell.wait_ms),
                silent_s: worst.silent_s.max(cell.silent_s),
                costs_s: worst.costs_s.max(cell.costs_s),
            }
        })
    }

    fn measure(&self, seed: u64) -> ChangeCost {
        let at_s = CHANGE_S + 0.35 * (seed - 1) as f64;
        let mut one = sender(auto, f64::from(self.before_ms()), 0.0);
        one.loss_after = self.loss;
        one.loss_back = self.loss;
        if matches!(self.kind, ChangeKind::Handover(_)) {
            one.handover = Some((seconds(at_s), seconds(self.rtt_s())));
        }
        let config = self.config(at_s);
        let mut sim = Simulation::new(config.clone(), seed, vec![one]);
        sim.outages = true;
        sim.slot = Duration::from_millis(5);
        sim.run_until(seconds(at_s));
        sim.trail = Some(Vec::new());
        if self.kind == ChangeKind::Policer {
            let rate = self.rate(0.5) as u64;
            sim.reconfigure(LinkConfig {
                policer: Some(Policer {
                    rate,
                    burst: rate / 20,
                }),
                ..config
            });
        }
        let end_s = at_s + AFTER_S;
        sim.run_until(seconds(end_s));
        self.cost(&sim, at_s, end_s)
    }

    fn cost(&self, sim: &Simulation, at_s: f64, end_s: f64) -> ChangeCost {
        let (flow, slot) = (&sim.flows[0], sim.slot);
        let rtt_s = self.rtt_s();
        let carried = |from_s, to_s| flow.rate(slot, seconds(from_s), seconds(to_s));
        let most = (1.0 - self.loss) * self.rate(self.parts().1);
        let round_s = rtt_s.max(0.05);
        let starts =
            |from_s| steps(from_s, slot.as_secs_f64()).take_while(|at_s| at_s + round_s <= end_s);
        let filled = starts(at_s).find(|&from_s| carried(from_s, from_s + round_s) >= 0.9 * most);
        let share = match self.kind {
            ChangeKind::RampUp | ChangeKind::RampDown => {
                let (before, after) = self.parts();
                carried(at_s, end_s) / ((1.0 - self.loss) * self.rate(f64::midpoint(before, after)))
            }
            _ => carried(at_s + 15.0 * rtt_s, end_s) / most,
        };
        let trail = sim.trail.as_deref().unwrap_or_default();
        let over_s = at_s + OUTAGE_S;
        let heard =
            starts(over_s).find(|&from_s| carried(from_s, from_s + slot.as_secs_f64()) > 0.0);
        ChangeCost {
            filled: filled.map_or(f64::INFINITY, |from_s| (from_s - at_s) / rtt_s),
            share,
            drained_s: drained_s(trail, at_s, self.least_ms()),
            wait_ms: wait_ms(later(trail, at_s + 1.0)),
            silent_s: heard.map_or(f64::INFINITY, |heard_s| heard_s - over_s),
            costs_s: (1.0 - carried(over_s, end_s) / carried(3.0, at_s)) * (end_s - over_s),
        }
    }

    /// Returns the wait in milliseconds that does not count as a queue.
    fn least_ms(&self) -> f64 {
        (300.0 * self.rtt_s()).max(5.0)
    }
}

pub(crate) fn seconds(time_s: f64) -> Duration {
    Duration::from_secs_f64(time_s)
}

/// Returns the wait in milliseconds that 95 of 100 packets did not exceed.
pub(crate) fn wait_ms(trail: &[(Duration, Duration)]) -> f64 {
    let mut waits: Vec<Duration> = trail.iter().map(|(_, wait)| *wait).collect();
    let place = (waits.len() * 95).div_ceil(100).saturating_sub(1);
    if waits.is_empty() {
        return 0.0;
    }
    let (_, wait, _) = waits.select_nth_unstable(place);
    wait.as_secs_f64() * 1e3
}

/// Returns the part of a trail from `from_s` on.
fn later(trail: &[(Duration, Duration)], from_s: f64) -> &[(Duration, Duration)] {
    &trail[trail.partition_point(|(at, _)| *at < seconds(from_s))..]
}

/// Iterates over times from `from_s` on, in steps of `step_s`.
fn steps(from_s: f64, step_s: f64) -> impl Iterator<Item = f64> {
    (0..).map(move |step| from_s + f64::from(step) * step_s)
}

/// Returns the seconds from `at_s` until 95 of 100 packets wait no longer than `least_ms`. That must hold both for
/// the packets of the next tenth of a second and for all later packets.
fn drained_s(trail: &[(Duration, Duration)], at_s: f64, least_ms: f64) -> f64 {
    for start_s in steps(at_s, 0.02) {
        let rest = later(trail, start_s);
        if rest.is_empty() {
            break;
        }
        let next = &rest[..rest.len() - later(rest, start_s + 0.1).len()];
        if !next.is_empty() && wait_ms(next).max(wait_ms(rest)) <= least_ms {
            return start_s - at_s;
        }
    }
    f64::INFINITY
}

#[test]
fn paths_that_change_are_filled_as_the_table_says() {
    let mut table = "change         Mbit/s  rtt ms     loss %  90 % after rtts  share %  queue gone s  wait p95 ms  silent s  costs s\n".to_owned();
    for kind in KINDS {
        for mbit in [10, 100] {
            for rtt_ms in [5, 20, 100] {
                add(&mut table, (kind, mbit, rtt_ms));
            }
        }
    }
    for (before_ms, rtt_ms) in [(20, 60), (60, 20), (100, 40)] {
        for mbit in [10, 100] {
            add(&mut table, (ChangeKind::Handover(before_ms), mbit, rtt_ms));
        }
    }
    compare("changes.txt", &table);
}

fn add(table: &mut String, (kind, mbit, rtt_ms): (ChangeKind, u64, u32)) {
    for loss in [0.0, 0.01] {
        let case = PathChange {
            kind,
            mbit,
            rtt_ms,
            loss,
        };
        let cell = case.worst();
        floors::check(&case, &cell);
        writeln!(table, "{case}  {}", cell.text(kind)).expect("writing to a string");
    }
}

/// The new path is longer, and carries so little that the sender might take its delay for the queue of other flows.
#[test]
fn after_a_handover_to_a_slow_and_longer_path_no_queue_remains() {
    for (mbit, part, before_ms, after_ms) in [
        (100, 0.08, 30, 60),
        (100, 0.08, 20, 100),
        (100, 0.05, 40, 60),
        (100, 0.1, 60, 200),
        (20, 0.08, 30, 60),
    ] {
        for seed in 1..=SEEDS {
            let at_s = CHANGE_S + 0.35 * (seed - 1) as f64;
            let rate = mbit as f64 * 125_000.0;
            let mut one = sender(auto, f64::from(before_ms), 0.0);
            one.handover = Some((seconds(at_s), seconds(f64::from(after_ms) / 1e3)));
            let mut config = link(mbit, f64::from(after_ms), 1.0);
            config.changes.push(Change {
                at: seconds(at_s),
                to: Setting::Rate(Some((rate * part) as u64)),
            });
            let mut sim = Simulation::new(config, seed, vec![one]);
            sim.slot = Duration::from_millis(5);
            sim.run_until(seconds(at_s));
            sim.trail = Some(Vec::new());
            sim.run_until(seconds(at_s + 20.0));
            let carried = sim.flows[0].rate(sim.slot, seconds(at_s + 8.0), seconds(at_s + 20.0));
            let share = carried / (rate * part);
            let trail = sim.trail.as_deref().unwrap_or_default();
            let wait = wait_ms(later(trail, at_s + 8.0));
            let which = format!("{mbit} Mbit/s times {part}, {before_ms} to {after_ms} ms, {seed}");
            assert!(share >= 0.95, "{which}: {share}");
            assert!(wait <= 50.0, "{which}: {wait} ms");
        }
    }
}
