//! The published figures of the original, measured under QEMU: cycles per call.

use crate::kind::Placement;

const CONCURRENCY: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const ONE_CORE: [u32; 8] = [1326, 793, 524, 387, 318, 283, 262, 251];
const TWO_CORES: [u32; 8] = [1248, 642, 434, 344, 315, 307, 298, 298];

/// Notifications per call on one core, the same in both directions.
const NOTIFICATIONS_ONE_CORE: [f64; 6] = [1.0, 0.5, 0.25, 0.126, 0.063, 0.032];

/// Notifications per call on two cores: to the server, and to the client.
const NOTIFICATIONS_TWO_CORES: [(f64, f64); 6] = [
    (1.0, 1.0),
    (0.502, 0.501),
    (0.497, 0.310),
    (0.442, 0.132),
    (0.426, 0.103),
    (0.422, 0.107),
];

fn at(concurrency: usize) -> Option<usize> {
    CONCURRENCY.iter().position(|known| *known == concurrency)
}

pub(crate) fn asynchronous(placement: Placement, concurrency: usize) -> Option<u32> {
    let at = at(concurrency)?;
    Some(match placement {
        Placement::OneCore => ONE_CORE[at],
        Placement::TwoCores => TWO_CORES[at],
    })
}

/// Returns the cycles per synchronous call, at any concurrency.
pub(crate) fn synchronous(placement: Placement) -> u32 {
    match placement {
        Placement::OneCore => 535,
        Placement::TwoCores => 1813,
    }
}

pub(crate) fn notifications(placement: Placement, concurrency: usize) -> Option<(f64, f64)> {
    let at = at(concurrency)?;
    match placement {
        Placement::OneCore => NOTIFICATIONS_ONE_CORE.get(at).map(|both| (*both, *both)),
        Placement::TwoCores => NOTIFICATIONS_TWO_CORES.get(at).copied(),
    }
}
