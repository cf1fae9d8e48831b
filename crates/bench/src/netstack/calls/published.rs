//! The published figures of the original, measured in an emulator, with 1, 2, 4, 8, 16 and 32 connections.

use super::setup::Mode;
use crate::kind::{Kind, Placement};

const CONNECTIONS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Messages per second: synchronous on one core and on two, asynchronous on one core and on two.
const READ: [[f64; 6]; 4] = [
    [3320.0, 3959.0, 4564.0, 3641.0, 2880.0, 2968.0],
    [3842.0, 4695.0, 4789.0, 3715.0, 3009.0, 2930.0],
    [6340.0, 7901.0, 12235.0, 7266.0, 5109.0, 5327.0],
    [6889.0, 10404.0, 15780.0, 8149.0, 5934.0, 5203.0],
];
const WRITE: [[f64; 6]; 4] = [
    [392.0, 814.0, 726.0, 757.0, 713.0, 637.0],
    [865.0, 827.0, 889.0, 884.0, 798.0, 744.0],
    [863.0, 920.0, 949.0, 802.0, 783.0, 751.0],
    [953.0, 1068.0, 1082.0, 1057.0, 973.0, 834.0],
];
const CALL: [[f64; 6]; 4] = [
    [233.0, 394.0, 371.0, 362.0, 350.0, 329.0],
    [463.0, 404.0, 406.0, 397.0, 390.0, 362.0],
    [478.0, 428.0, 414.0, 373.0, 372.0, 349.0],
    [485.0, 449.0, 461.0, 463.0, 449.0, 419.0],
];

/// Mean milliseconds of a call, and their variance, in the same order.
const MEAN_MS: [[f64; 6]; 4] = [
    [4.17, 5.06, 10.76, 22.07, 45.64, 97.15],
    [2.15, 4.94, 9.83, 20.11, 41.02, 88.22],
    [2.08, 4.66, 9.64, 21.37, 42.87, 91.55],
    [2.05, 4.45, 8.66, 17.24, 35.59, 76.06],
];
const VARIANCE: [[f64; 6]; 4] = [
    [23.2, 2.39, 10.58, 22.14, 48.37, 126.99],
    [0.059, 4.32, 8.86, 19.41, 49.35, 104.28],
    [0.04, 2.4, 18.11, 543.13, 1270.47, 5444.34],
    [0.09, 0.48, 1.13, 2.78, 2.78, 11.22],
];

fn find(
    table: &[[f64; 6]; 4],
    kind: Kind,
    placement: Placement,
    connections: usize,
) -> Option<f64> {
    let column = CONNECTIONS.iter().position(|known| *known == connections)?;
    let row = match (kind, placement) {
        (Kind::Asynchronous, Placement::OneCore) => 2,
        (Kind::Asynchronous, Placement::TwoCores) => 3,
        (_, Placement::OneCore) => 0,
        (_, Placement::TwoCores) => 1,
    };
    Some(table[row][column])
}

pub(crate) fn rate(
    mode: Mode,
    kind: Kind,
    placement: Placement,
    connections: usize,
) -> Option<f64> {
    let table = match mode {
        Mode::Read => &READ,
        Mode::Write => &WRITE,
        Mode::Call => &CALL,
    };
    find(table, kind, placement, connections)
}

/// Returns the mean milliseconds of a call, and their variance.
pub(crate) fn latency(kind: Kind, placement: Placement, connections: usize) -> Option<[f64; 2]> {
    let mean = find(&MEAN_MS, kind, placement, connections)?;
    Some([mean, find(&VARIANCE, kind, placement, connections)?])
}
