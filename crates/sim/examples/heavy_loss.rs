//! The goodput of one flow on a link of 50 Mbit/s and 40 ms that loses 10 to 30 % of its packets towards the receiver, in
//! virtual time. The table in `docs/CONGESTION.md` has its figures.
//!
//! ```sh
//! cargo run --release -p quictun-sim --example heavy_loss
//! ```

#![expect(clippy::print_stdout, reason = "the example prints a table")]

use std::time::Duration;

use quictun_link::{LinkConfig, Queue};
use quictun_sim::{Experiment, PredictError, predict};

fn main() -> Result<(), PredictError> {
    for percent in (10..=30).step_by(2) {
        let down = LinkConfig {
            rate: Some(50_000_000 / 8),
            delay: Duration::from_millis(20),
            queue: Queue::Bytes(250_000),
            ..LinkConfig::default()
        };
        let up = LinkConfig {
            loss: f64::from(percent) / 100.0,
            ..down.clone()
        };
        print!("{percent} % lost:");
        for seed in 1..=3 {
            let experiment = Experiment {
                seed,
                warm_up: Duration::from_secs(1),
                duration: Duration::from_secs(20),
                ..Experiment::new(up.clone(), down.clone())
            };
            let mbit = predict(&experiment)?.goodput * 8.0 / 1e6;
            print!(" {mbit:.1}");
        }
        println!(" Mbit/s");
    }
    Ok(())
}
