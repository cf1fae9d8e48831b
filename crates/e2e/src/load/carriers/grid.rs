//! The rates of both carriers, and of the client's own choice, on links with delay, loss and jitter.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use quictun_lab::stats::median;
use quictun_link::units::{Delay, Share};

use super::CarriersPlan;
use super::flow_rate::FlowLoad;
use super::rates::{measure_native, serve};
use crate::load::machines::{EmulatedPath, LinkKind, LinkedMachines};
use crate::load::measured::Role;
use crate::load::report::LoadReport;

/// The cells of the grid.
#[derive(Args, Clone, Debug)]
pub struct GridOptions {
    /// Round-trip times, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1ms,20ms,100ms")]
    pub delays: Vec<Delay>,
    /// Shares of lost packets, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "0.01%,0.1%,1%,5%")]
    pub losses: Vec<Share>,
    /// Maxima of the jitter in each direction, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "0ms,5ms")]
    pub jitters: Vec<Delay>,
    /// Number of rounds in each cell.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seconds that each measurement takes.
    #[arg(long, default_value_t = 12.0)]
    pub seconds: f64,
    /// Seconds at its beginning that are left out.
    #[arg(long, default_value_t = 3.0)]
    pub skip: f64,
    /// Minimum ratio of the client's choice to the better carrier, in each cell.
    #[arg(long, default_value_t = 0.97)]
    pub least: f64,
}

/// The arms: both carriers, then the client's choice.
const CARRIERS: [&str; 3] = ["quic", "tls", "auto"];

/// Measures all cells: one download in each.
///
/// # Errors
///
/// Fails if a tunnel does not work.
pub(super) fn run(plan: &CarriersPlan, load: &GridOptions) -> Result<LoadReport> {
    ensure!(
        load.rounds > 0,
        "nothing to do: --rounds must be at least 1"
    );
    let skip = Duration::try_from_secs_f64(load.skip)?;
    let time = Duration::try_from_secs_f64(load.seconds)?.saturating_sub(skip);
    ensure!(
        !time.is_zero(),
        "nothing is left: --seconds must exceed --skip"
    );
    let of = FlowLoad {
        flows: 1,
        role: Role::Source,
        skip,
        time,
    };
    let mut report = LoadReport::new(format!(
        "Downloads at {} Mbit/s, {} rounds, {} s without the first {} s",
        plan.path.rate / 125_000,
        load.rounds,
        load.seconds,
        load.skip
    ));
    for delay in &load.delays {
        for jitter in &load.jitters {
            for loss in &load.losses {
                let path = EmulatedPath {
                    rate: plan.path.rate,
                    round_trip: delay.0,
                    jitter: jitter.0,
                    loss: loss.0,
                };
                let cell = format!(
                    "{:?}, jitter {:?}, loss {} %",
                    delay.0,
                    jitter.0,
                    loss.0 * 100.0
                );
                let rounds = (0..load.rounds)
                    .map(|round| one_round(plan, &path, round, of))
                    .collect::<Result<Vec<_>>>()?;
                add_to(&mut report, &cell, &rounds, load.least);
            }
        }
    }
    Ok(report)
}

/// Returns the rate of each arm in Mbit/s. Each round begins with another arm.
fn one_round(
    plan: &CarriersPlan,
    path: &EmulatedPath,
    round: usize,
    load: FlowLoad,
) -> Result<[f64; 3]> {
    let machines = LinkedMachines::new(&LinkKind::Emulated(path.clone()))?;
    let (application, target) = serve(&machines)?;
    let mut rates = [0.0; 3];
    for step in 0..CARRIERS.len() {
        let place = (round + step) % CARRIERS.len();
        let mut flags = plan.client.clone();
        flags.extend(["--carrier".to_owned(), CARRIERS[place].to_owned()]);
        let site = (&machines, &application, target);
        rates[place] = measure_native(plan, site, None, &flags, load)?.mbit;
    }
    machines.end()?;
    Ok(rates)
}

fn add_to(report: &mut LoadReport, cell: &str, rounds: &[[f64; 3]], least: f64) {
    let medians = [0, 1, 2].map(|place| {
        let rates: Vec<f64> = rounds.iter().map(|round| round[place]).collect();
        for (number, rate) in rates.iter().enumerate() {
            let what = format!("{cell}: {}, round {number}", CARRIERS[place]);
            report.add_detail(what, *rate, "Mbit/s");
        }
        median(&rates).unwrap_or(f64::NAN)
    });
    for (carrier, rate) in CARRIERS.iter().zip(medians) {
        report.add(format!("{cell}: {carrier}"), rate, "Mbit/s");
    }
    let [quic, tls, auto] = medians;
    report.add_floor(
        format!("{cell}: auto to the better one"),
        auto / quic.max(tls),
        least,
    );
}
