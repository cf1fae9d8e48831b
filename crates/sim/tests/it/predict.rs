//! The question that the lab and the emulator ask: what does the tunnel get out of this link?

use std::time::Duration;

use quictun_sim::{Cell, Constant, Direction, PredictError, Tcp, Traffic, predict};

use crate::world::{MS, SECOND};

const MBIT: u64 = 1_000_000 / 8;

fn cell(mbit: u64, round_trip: Duration, loss: f64) -> Cell {
    Cell {
        warm_up: 2 * SECOND,
        duration: 3 * SECOND,
        ..Cell::symmetric(mbit * MBIT, round_trip, loss)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few million")]
fn share(goodput: f64, mbit: u64) -> f64 {
    goodput / (mbit * MBIT) as f64
}

#[test]
fn a_tunnel_alone_is_measured_both_ways() {
    for direction in [Direction::Up, Direction::Down] {
        let cell = Cell {
            direction,
            ..cell(50, 20 * MS, 0.0)
        };
        let prediction = predict(&cell).expect("an answer");
        let used = share(prediction.goodput, 50);
        assert!((0.93..0.97).contains(&used), "{used}");
        assert_eq!(prediction.series.len(), 50, "a point each 100 ms");
        let last = &prediction.series[49];
        assert_eq!(last.at, 5 * SECOND);
        assert!(share(last.goodputs[0], 50) > 0.9, "{last:?}");
        let (median, max) = (prediction.queue.quantile(0.5), prediction.queue.max());
        assert!(median > MS / 2 && max <= 20 * MS, "{}", prediction.queue);
        assert_eq!(prediction.finished, None);
        assert_eq!(predict(&cell).expect("an answer"), prediction);
    }
}

#[test]
fn a_transfer_says_when_it_has_finished() {
    let cell = Cell {
        bytes: Some(5_000_000),
        warm_up: Duration::ZERO,
        ..cell(50, 20 * MS, 0.0)
    };
    let prediction = predict(&cell).expect("an answer");
    let least = Duration::from_secs_f64(5.0 * 8.0 / 50.0);
    let finished = prediction.finished.expect("it fits into the time");
    assert!(finished > least && finished < least * 3 / 2, "{finished:?}");
    let received = prediction.goodput * 3.0;
    assert!((received - 5e6).abs() < 1.0, "{received}");
}

#[test]
fn cross_traffic_and_other_tunnels_take_their_part() {
    let mut cell = cell(50, 20 * MS, 0.0);
    cell.tunnels = 2;
    cell.traffic = vec![
        (Direction::Up, Traffic::Constant(Constant::new(10 * MBIT))),
        (Direction::Up, Traffic::Tcp(Tcp::default())),
        (Direction::Down, Traffic::Tcp(Tcp::default())),
    ];
    let prediction = predict(&cell).expect("an answer");
    let rates = prediction.traffic.iter().map(|(rate, _)| share(*rate, 50));
    let rates: Vec<f64> = rates.collect();
    assert!((0.17..0.21).contains(&rates[0]), "{rates:?}");
    assert!(rates[1] > 0.02 && rates[2] > 0.5, "{rates:?}");
    let tunnels: Vec<f64> = prediction
        .goodputs
        .iter()
        .map(|&rate| share(rate, 50))
        .collect();
    let sum = tunnels.iter().sum::<f64>() + rates[0] + rates[1];
    assert!((0.85..1.0).contains(&sum), "{tunnels:?} {rates:?}");
    assert!(tunnels.iter().all(|&used| used > 0.05), "{tunnels:?}");
}

#[test]
fn a_link_that_lets_nothing_pass_is_an_error_and_no_panic() {
    let dead = predict(&cell(50, 20 * MS, 1.0));
    assert_eq!(dead, Err(PredictError::Unreachable));
    let timeless = Cell {
        interval: Duration::ZERO,
        ..cell(50, 20 * MS, 0.0)
    };
    assert_eq!(predict(&timeless), Err(PredictError::NoTime));
    let impossible = predict(&cell(50, 20 * MS, 1.5));
    assert!(matches!(impossible, Err(PredictError::Link(_))));
}
