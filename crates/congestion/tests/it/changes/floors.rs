//! Limits to the cost of changes, and the paths on which changes cost more.

use super::{ChangeCost, ChangeKind, PathChange};
use crate::grid::expect;

/// Limits for the values of a [`ChangeCost`]. A value that does not matter for a kind of change has the limit infinity
/// or 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostLimits {
    filled: f64,
    share: f64,
    drained_s: f64,
    wait: f64,
    costs: f64,
    silent_s: f64,
}

const UNLIMITED: CostLimits = CostLimits {
    filled: f64::INFINITY,
    share: 0.0,
    drained_s: f64::INFINITY,
    wait: f64::INFINITY,
    costs: f64::INFINITY,
    silent_s: f64::INFINITY,
};

/// Returns the limits of a kind of change. `wait` is in multiples of an insignificant wait, and `costs` is in round
/// trips.
fn limits_of(kind: ChangeKind) -> CostLimits {
    match kind {
        ChangeKind::StepUp => CostLimits {
            filled: 15.0,
            share: 0.9,
            ..UNLIMITED
        },
        ChangeKind::StepDown => CostLimits {
            share: 0.9,
            drained_s: 1.0,
            ..UNLIMITED
        },
        ChangeKind::RampUp | ChangeKind::RampDown | ChangeKind::Handover(_) => CostLimits {
            share: 0.9,
            wait: 1.0,
            ..UNLIMITED
        },
        ChangeKind::Outage => CostLimits {
            costs: 3.0,
            silent_s: 0.0,
            ..UNLIMITED
        },
        ChangeKind::Policer => CostLimits {
            share: 0.9,
            ..UNLIMITED
        },
    }
}

/// Paths on which changes cost more than they should, the limits for them, and the reason.
struct CostException {
    applies: fn(&PathChange) -> bool,
    floors: CostLimits,
    why: &'static str,
}

/// Asserts, at the end of the test, that a change costs no more than it may.
pub(super) fn check(case: &PathChange, cell: &ChangeCost) {
    let exception = EXCEPTIONS.iter().find(|one| (one.applies)(case));
    let (floors, why) = match exception {
        Some(exception) => (exception.floors, exception.why),
        None => (limits_of(case.kind), "no exception"),
    };
    let costs = (cell.costs_s - cell.silent_s) / case.rtt_s();
    let held = cell.filled <= floors.filled
        && cell.share >= floors.share
        && cell.drained_s <= floors.drained_s
        && cell.wait_ms <= floors.wait * case.least_ms()
        && costs <= floors.costs
        && cell.silent_s <= floors.silent_s;
    expect(held, format!("{case:?}: {cell:?}, not {floors:?} ({why})"));
}

const FEW: &str = "a round trip holds too few packets for a probe to show much more";
const SLOWLY: &str = "a probe finds a tenth more, and the next one comes six round trips later";

/// Exceptions, of which the first applicable one counts.
const EXCEPTIONS: [CostException; 9] = [
    CostException {
        applies: |case| case.kind == ChangeKind::StepUp && case.mbit == 10 && case.rtt_ms < 100,
        floors: CostLimits {
            filled: 120.0,
            share: 0.92,
            ..UNLIMITED
        },
        why: FEW,
    },
    CostException {
        applies: |case| case.kind == ChangeKind::StepUp && case.rtt_ms < 20,
        floors: CostLimits {
            filled: 24.0,
            share: 0.98,
            ..UNLIMITED
        },
        why: SLOWLY,
    },
    CostException {
        applies: |case| case.kind == ChangeKind::StepDown && case.mbit == 10 && case.rtt_ms == 20,
        floors: CostLimits {
            share: 0.97,
            ..UNLIMITED
        },
        why: "a packet takes 4 ms, and a probe queues two packets",
    },
    CostException {
        applies: |case| case.kind == ChangeKind::RampUp && case.mbit == 10 && case.rtt_ms < 100,
        floors: CostLimits {
            share: 0.95,
            wait: 1.25,
            ..UNLIMITED
        },
        why: "a packet takes up to 4 ms, and a probe queues two packets",
    },
    CostException {
        applies: |case| case.kind == ChangeKind::RampUp && case.rtt_ms == 100,
        floors: CostLimits {
            share: 0.85,
            wait: 1.1,
            ..UNLIMITED
        },
        why: SLOWLY,
    },
    CostException {
        applies: |case| case.kind == ChangeKind::RampDown,
        floors: CostLimits {
            share: 0.95,
            wait: 5.6,
            ..UNLIMITED
        },
        why: "the rate falls faster than the estimate follows",
    },
    CostException {
        applies: |case| case.kind == ChangeKind::Outage && case.rtt_ms == 100,
        floors: CostLimits {
            costs: 3.0,
            silent_s: 0.11,
            ..UNLIMITED
        },
        why: "the peer is asked once a round trip",
    },
    CostException {
        applies: |case| case.kind == ChangeKind::Outage,
        floors: CostLimits {
            costs: 16.0,
            silent_s: 0.08,
            ..UNLIMITED
        },
        why: "the peer is asked every 50 ms, and a start takes three round trips plus late acknowledgements",
    },
    CostException {
        applies: |case| case.kind == ChangeKind::Handover(60),
        floors: CostLimits {
            share: 0.95,
            wait: 1.4,
            ..UNLIMITED
        },
        why: "the queue was sized for the longer path",
    },
];
