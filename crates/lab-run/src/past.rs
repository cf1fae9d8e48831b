//! Reports and comparisons of earlier runs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use quictun_args::fault::Fault;
use quictun_args::terminal::{print, say};
use quictun_lab::{Comparison, Findings, Metric};

use crate::progress::report_width;
use crate::{PROGRAM, results};

pub(crate) fn report(dir: &Path) -> Result<()> {
    let (run, scenario) = results::read(dir)?;
    let findings = Findings::new(&run, &scenario);
    results::write_reports(dir, &findings)?;
    print(&quictun_lab::text(&findings, report_width()))?;
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
    let (first, second) = (results::read(before)?, results::read(after)?);
    let comparison = Comparison::new((&first.0, &first.1), (&second.0, &second.1), &COMPARED);
    anyhow::ensure!(
        !comparison.is_empty(),
        "the two runs have no arm under the same case in common"
    );
    if let Some(why) = comparison.refused() {
        let fault = Fault::failure("the two runs", format!("cannot be compared: {why}"));
        return Err(fault
            .next("two runs of one scenario, both with --quick or both without")
            .into());
    }
    for note in comparison.notes() {
        say(&format!("{PROGRAM}: warning: the machines differ: {note}"));
    }
    print(&format!("{} -> {}\n", before.display(), after.display()))?;
    print(&comparison.text(report_width()))?;
    Ok(())
}
