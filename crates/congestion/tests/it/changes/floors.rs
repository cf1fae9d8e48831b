//! Limits to the cost of changes, and the paths on which changes cost more.

use super::{Case, Cell, Kind};
use crate::grid::expect;

/// Limits for the values of a [`Cell`]. A value that does not matter for a kind of change has the limit infinity or
/// 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floors {
    filled: f64,
    share: f64,
    drained_s: f64,
    wait: f64,
    costs: f64,
    silent_s: f64,
}

const NOTHING: Floors = Floors {
    filled: f64::INFINITY,
    share: 0.0,
    drained_s: f64::INFINITY,
    wait: f64::INFINITY,
    costs: f64::INFINITY,
    silent_s: f64::INFINITY,
};

/// Returns the limits of a kind of change. `wait` is in multiples of an insignificant wait, and `costs` is in round
/// trips.
fn asked(kind: Kind) -> Floors {
    match kind {
        Kind::StepUp => Floors {
            filled: 15.0,
            share: 0.9,
            ..NOTHING
        },
        Kind::StepDown => Floors {
            share: 0.9,
            drained_s: 1.0,
            ..NOTHING
        },
        Kind::RampUp | Kind::RampDown | Kind::Handover(_) => Floors {
            share: 0.9,
            wait: 1.0,
            ..NOTHING
        },
        Kind::Outage => Floors {
            costs: 3.0,
            silent_s: 0.0,
            ..NOTHING
        },
        Kind::Policer => Floors {
            share: 0.9,
            ..NOTHING
        },
    }
}

/// Paths on which changes cost more than they should, the limits for them, and the reason.
struct Exception {
    applies: fn(&Case) -> bool,
    floors: Floors,
    why: &'static str,
}

/// Asserts, at the end of the test, that a change costs no more than it may.
pub(super) fn hold(case: &Case, cell: &Cell) {
    let exception = EXCEPTIONS.iter().find(|one| (one.applies)(case));
    let (floors, why) = match exception {
        Some(exception) => (exception.floors, exception.why),
        None => (asked(case.kind), "no exception"),
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
const EXCEPTIONS: [Exception; 9] = [
    Exception {
        applies: |case| case.kind == Kind::StepUp && case.mbit == 10 && case.rtt_ms < 100,
        floors: Floors {
            filled: 120.0,
            share: 0.92,
            ..NOTHING
        },
        why: FEW,
    },
    Exception {
        applies: |case| case.kind == Kind::StepUp && case.rtt_ms < 20,
        floors: Floors {
            filled: 24.0,
            share: 0.98,
            ..NOTHING
        },
        why: SLOWLY,
    },
    Exception {
        applies: |case| case.kind == Kind::StepDown && case.mbit == 10 && case.rtt_ms == 20,
        floors: Floors {
            share: 0.97,
            ..NOTHING
        },
        why: "a packet takes 4 ms, and a probe queues two packets",
    },
    Exception {
        applies: |case| case.kind == Kind::RampUp && case.mbit == 10 && case.rtt_ms < 100,
        floors: Floors {
            share: 0.95,
            wait: 1.25,
            ..NOTHING
        },
        why: "a packet takes up to 4 ms, and a probe queues two packets",
    },
    Exception {
        applies: |case| case.kind == Kind::RampUp && case.rtt_ms == 100,
        floors: Floors {
            share: 0.85,
            wait: 1.1,
            ..NOTHING
        },
        why: SLOWLY,
    },
    Exception {
        applies: |case| case.kind == Kind::RampDown,
        floors: Floors {
            share: 0.95,
            wait: 5.6,
            ..NOTHING
        },
        why: "the rate falls faster than the estimate follows",
    },
    Exception {
        applies: |case| case.kind == Kind::Outage && case.rtt_ms == 100,
        floors: Floors {
            costs: 3.0,
            silent_s: 0.11,
            ..NOTHING
        },
        why: "the peer is asked once a round trip",
    },
    Exception {
        applies: |case| case.kind == Kind::Outage,
        floors: Floors {
            costs: 16.0,
            silent_s: 0.08,
            ..NOTHING
        },
        why: "the peer is asked every 50 ms, and a start takes three round trips plus late acknowledgements",
    },
    Exception {
        applies: |case| case.kind == Kind::Handover(60),
        floors: Floors {
            share: 0.95,
            wait: 1.4,
            ..NOTHING
        },
        why: "the queue was sized for the longer path",
    },
];
