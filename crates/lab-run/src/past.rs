//! Reports and comparisons of runs that were made before.

use std::path::{Path, PathBuf};

use anyhow::Result;
use quictun_args::terminal::print;
use quictun_lab::{Findings, Metric, compare_runs};

use crate::results;

pub(crate) fn report(dir: &Path) -> Result<()> {
    let (run, scenario) = results::read(dir)?;
    let findings = Findings::new(&run, &scenario);
    results::write_reports(dir, &findings)?;
    print(&quictun_lab::text(&findings))?;
    print(&format!("\n{}\n", results::report_path(dir).display()))?;
    Ok(())
}

const COMPARED: [Metric; 6] = [
    Metric::ReceiverMbitPerS,
    Metric::TransactionsPerS,
    Metric::TotalMs,
    Metric::LatencyP50Us,
    Metric::LatencyP99Us,
    Metric::CpuSPerGb,
];

pub(crate) fn compare(dirs: &[PathBuf; 2]) -> Result<()> {
    let [before, after] = dirs;
    let ((first, _), (second, _)) = (results::read(before)?, results::read(after)?);
    let rivals = compare_runs(&first, &second, &COMPARED);
    anyhow::ensure!(
        !rivals.is_empty(),
        "the two runs have no arm under the same case in common"
    );
    print(&format!("{} -> {}\n\n", before.display(), after.display()))?;
    for one in rivals {
        let [(a, before), (b, after)] = one.sides;
        print(&format!(
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
