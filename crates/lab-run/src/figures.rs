//! The figures of a cell: the results of its programs, and their processor time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quictun_lab::{Amount, Cell, Judgement, Load, Metric, Mode};

use crate::client::ProgramResult;
use crate::generator::{Generator, GeneratorResult};
use crate::processors::{HIDDEN, Usage};

pub(crate) fn figures(
    name: &str,
    ended: &ProgramResult,
    generator: Generator,
    load: &Load,
) -> Result<GeneratorResult> {
    ensure!(
        ended.status.success(),
        "{name} ended with {}: {} {}",
        ended.status,
        ended.errors,
        refusal(&ended.output)
    );
    generator.outcome(&ended.output, load)
}

fn refusal(output: &str) -> &str {
    let line = output.lines().find(|line| line.contains("\"error\""));
    line.map_or("", str::trim)
}

/// Returns the interval in which processor time is counted for this load.
pub(crate) fn counted(load: &Load, begin: Instant, end: Instant) -> (Instant, Instant) {
    match load.amount {
        Amount::Time(time) => {
            let from = begin + load.warm_up;
            (from, end.min(from + time + Duration::from_millis(100)))
        }
        Amount::Bytes(_) | Amount::Count(_) => (begin, end),
    }
}

/// Returns the processor costs. Usage and figures are both rates over the same interval.
fn costs(usage: &Usage, metrics: &BTreeMap<Metric, f64>, load: &Load) -> Vec<(Metric, f64)> {
    let of = |role: &str| -> Option<f64> {
        let here = usage
            .processes
            .iter()
            .filter(|process| process.role == role);
        let shares: Vec<f64> = here
            .map(|process| process.cpu_s / process.seconds)
            .collect();
        (!shares.is_empty()).then(|| shares.iter().sum())
    };
    let roles = ["client", "server", "tunnel client", "tunnel server"].map(of);
    let all: f64 = roles.iter().flatten().sum();
    let percent = |share: Option<f64>| share.map(|share| share * 100.0);
    let received = metrics.get(&Metric::ReceiverMbitPerS);
    let gb_per_s = received
        .map(|mbit| mbit / 8000.0)
        .filter(|_| load.mode == Mode::Stream);
    let per_gb = |share: Option<f64>| {
        share
            .zip(gb_per_s.filter(|rate| *rate > 0.0))
            .map(|(share, rate)| share / rate)
    };
    let [client, server, tunnel_client, tunnel_server] = roles;
    let tunnel = tunnel_client
        .zip(tunnel_server)
        .map(|(client, server)| client + server);
    let per_transaction = metrics
        .get(&Metric::TransactionsPerS)
        .filter(|rate| **rate > 0.0);
    let costs = [
        (Metric::CpuKsoftirqdPercent, percent(usage.softirq)),
        (Metric::CpuClientPercent, percent(client)),
        (Metric::CpuServerPercent, percent(server)),
        (Metric::CpuTunnelClientPercent, percent(tunnel_client)),
        (Metric::CpuTunnelServerPercent, percent(tunnel_server)),
        (Metric::CpuSPerGb, per_gb(Some(all))),
        (Metric::TunnelCpuSPerGb, per_gb(tunnel)),
        (
            Metric::CpuUsPerTransaction,
            per_transaction.map(|rate| all * 1e6 / rate),
        ),
    ];
    costs
        .into_iter()
        .filter_map(|(id, value)| Some((id, value?)))
        .collect()
}

pub(crate) fn enter(cell: &mut Cell, outcome: GeneratorResult, usage: Option<Usage>, load: &Load) {
    cell.metrics = outcome.metrics;
    cell.series = outcome.series;
    if let Some(usage) = usage {
        cell.metrics.extend(costs(&usage, &cell.metrics, load));
        cell.flags.extend(usage.hidden.then(|| HIDDEN.to_owned()));
        (cell.idle, cell.steal) = (usage.idle, usage.steal);
        cell.processes = usage.processes;
    }
}

pub(crate) fn settle(cell: &mut Cell, judgement: Judgement) {
    cell.valid = judgement.against.is_empty();
    cell.noise = !cell.valid;
    cell.flags.extend(judgement.against);
    cell.flags.extend(judgement.remarks);
}
