//! Minimum results for every link, and the links that miss them.

use crate::cell::{LinkResult, LossyLink};

/// Minimum shares of a link's capacity after its loss, in the second half of ten seconds and in all of them.
/// `filled_s` is the maximum number of seconds until nine tenths of the capacity arrive, for round-trip times up to
/// 100 ms.
#[derive(Clone, Copy, Debug)]
struct LinkFloors {
    steady: f64,
    whole: f64,
    filled_s: f64,
}

const ALONE: LinkFloors = LinkFloors {
    steady: 0.95,
    whole: 0.90,
    filled_s: 0.8,
};

/// Minimum results if packets are lost in bursts.
const BURSTS: LinkFloors = LinkFloors {
    steady: 0.88,
    whole: 0.88,
    filled_s: 0.9,
};

/// Links that miss the usual minimum, the minimum for them, and the reason.
struct LinkException {
    applies: fn(&LossyLink) -> bool,
    floors: LinkFloors,
    why: &'static str,
}

/// Exceptions, of which the first applicable one counts.
const EXCEPTIONS: [LinkException; 5] = [
    LinkException {
        applies: |case| case.mbit == 20 && case.rtt_ms == 1 && case.buffer < 1.0,
        floors: LinkFloors {
            steady: 0.72,
            whole: 0.65,
            filled_s: f64::INFINITY,
        },
        why: "the queue holds one packet",
    },
    LinkException {
        applies: |case| case.rtt_ms == 1 && case.buffer < 1.0,
        floors: LinkFloors {
            filled_s: 1.0,
            ..ALONE
        },
        why: "the queue holds five packets, and each start ends early",
    },
    LinkException {
        applies: |case| case.mbit == 20 && case.rtt_ms == 1 && case.loss > 0.01 && case.burst > 3.0,
        floors: LinkFloors {
            steady: 0.87,
            ..BURSTS
        },
        why: "a burst takes the packets of two round trips",
    },
    LinkException {
        applies: |case| case.rtt_ms == 200 && case.burst > 1.0,
        floors: LinkFloors {
            whole: 0.83,
            ..BURSTS
        },
        why: "the start takes up to eight round trips",
    },
    LinkException {
        applies: |case| case.rtt_ms == 200,
        floors: LinkFloors {
            whole: 0.84,
            ..ALONE
        },
        why: "the start takes up to eight round trips",
    },
];

/// Asserts that a link is filled without a queue.
pub(crate) fn check(case: &LossyLink, cell: &LinkResult) {
    let exception = EXCEPTIONS.iter().find(|one| (one.applies)(case));
    let (floors, why) = match exception {
        Some(exception) => (exception.floors, exception.why),
        None if case.burst > 1.0 => (BURSTS, "no exception"),
        None => (ALONE, "no exception"),
    };
    let filled = cell.steady >= floors.steady && cell.whole >= floors.whole;
    assert!(filled, "{case:?}: {cell:?}, not {floors:?} ({why})");
    let soon = case.rtt_ms > 100 || cell.filled_s <= floors.filled_s + 1e-9;
    assert!(soon, "{case:?}: {cell:?}, not {floors:?} ({why})");
    let wait_ms = (0.35 * f64::from(case.rtt_ms)).max(5.0);
    assert!(cell.wait_ms <= wait_ms, "{case:?}: {} ms", cell.wait_ms);
}
