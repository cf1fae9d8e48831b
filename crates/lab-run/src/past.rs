//! Reports and comparisons of runs that were made before.

use std::path::{Path, PathBuf};

use anyhow::Result;
use quictun_lab::{Findings, Metric, compare_runs};

use crate::{exit, results};

/// Makes the report of a run again, from its raw data.
pub fn report(dir: &Path) -> Result<()> {
    let (run, scenario) = results::read(dir)?;
    let findings = Findings::new(&run, &scenario);
    results::write_reports(dir, &findings)?;
    exit::print(&quictun_lab::text(&findings))?;
    exit::print(&format!("\n{}\n", results::report_path(dir).display()))
}

/// What a comparison of whole runs is about.
const COMPARED: [Metric; 6] = [
    Metric::ReceiverMbitPerS,
    Metric::TransactionsPerS,
    Metric::TotalMs,
    Metric::LatencyP50Us,
    Metric::LatencyP99Us,
    Metric::CpuSPerGb,
];

/// Compares what two runs have in common.
pub fn compare(dirs: &[PathBuf; 2]) -> Result<()> {
    let [before, after] = dirs;
    let ((first, _), (second, _)) = (results::read(before)?, results::read(after)?);
    let rivals = compare_runs(&first, &second, &COMPARED);
    anyhow::ensure!(
        !rivals.is_empty(),
        "the two runs have no arm under the same case in common"
    );
    exit::print(&format!("{} -> {}\n\n", before.display(), after.display()))?;
    for one in rivals {
        let [(a, before), (b, after)] = one.sides;
        exit::print(&format!(
            "{:<18} {:<12} {:<24} {a:>9.2} [{:.2}, {:.2}] -> {b:>9.2} [{:.2}, {:.2}]  x{:.3}  {}\n",
            one.case,
            one.arm,
            one.metric.title(),
            before.low,
            before.high,
            after.low,
            after.high,
            one.ratio,
            one.word(),
        ))?;
    }
    Ok(())
}
