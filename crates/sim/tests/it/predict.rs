//! The prediction that the lab uses: the goodput of the tunnel on a given link.

use std::time::Duration;

use quictun_sim::{CrossTraffic, Experiment, PredictError, Tcp, predict};

use crate::tunnel_pair::{MS, SECOND, limited};

const MBIT: u64 = 1_000_000 / 8;

fn cell(mbit: u64, round_trip: Duration, loss: f64) -> Experiment {
    let mut link = limited(mbit * MBIT, round_trip);
    link.loss = loss;
    Experiment {
        warm_up: 2 * SECOND,
        duration: 3 * SECOND,
        ..Experiment::new(link.clone(), link)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few million")]
fn share(goodput: f64, mbit: u64) -> f64 {
    goodput / (mbit * MBIT) as f64
}

#[test]
fn a_tunnel_alone_is_measured_and_the_answer_is_always_the_same() {
    let cell = cell(50, 20 * MS, 0.0);
    let prediction = predict(&cell).expect("an answer");
    let used = share(prediction.goodput, 50);
    assert!((0.93..0.97).contains(&used), "{used}");
    assert_eq!(predict(&cell).expect("an answer"), prediction);
}

#[test]
fn a_transfer_arrives_whole() {
    let cell = Experiment {
        bytes: Some(5_000_000),
        warm_up: Duration::ZERO,
        ..cell(50, 20 * MS, 0.0)
    };
    let prediction = predict(&cell).expect("an answer");
    let received = prediction.goodput * 3.0;
    assert!((received - 5e6).abs() < 1.0, "{received}");
}

#[test]
fn cross_traffic_takes_its_part() {
    let mut cell = cell(50, 20 * MS, 0.0);
    cell.traffic = vec![
        CrossTraffic::Constant(10 * MBIT),
        CrossTraffic::Tcp(Tcp::default()),
        CrossTraffic::Tcp(Tcp::default()),
    ];
    let prediction = predict(&cell).expect("an answer");
    let rates = prediction.traffic.iter().map(|&rate| share(rate, 50));
    let rates: Vec<f64> = rates.collect();
    assert!((0.17..0.21).contains(&rates[0]), "{rates:?}");
    assert!(rates[1] > 0.02 && rates[2] > 0.02, "{rates:?}");
    let tunnel = share(prediction.goodput, 50);
    assert!(tunnel > 0.05, "{tunnel} {rates:?}");
    let sum = tunnel + rates.iter().sum::<f64>();
    assert!((0.85..1.0).contains(&sum), "{tunnel} {rates:?}");
}

#[test]
fn a_link_that_lets_nothing_pass_is_an_error_and_no_panic() {
    let dead = predict(&cell(50, 20 * MS, 1.0));
    assert_eq!(dead, Err(PredictError::Unreachable));
    let timeless = Experiment {
        duration: Duration::ZERO,
        ..cell(50, 20 * MS, 0.0)
    };
    assert_eq!(predict(&timeless), Err(PredictError::NoTime));
    let impossible = predict(&cell(50, 20 * MS, 1.5));
    assert!(matches!(impossible, Err(PredictError::Link(_))));
}
