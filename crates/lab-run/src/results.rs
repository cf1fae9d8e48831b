//! Reads and writes the directory of a run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use quictun_args::fault::Fault;
use quictun_lab::{Findings, Run, Scenario, charts, html, markdown};

const RAW: &str = "run.json";
const SUMMARY: &str = "summary.json";
const MARKDOWN: &str = "report.md";
const HTML: &str = "report.html";

/// Maximum size of a `run.json` that is read, in bytes: some hundred times the size for the longest scenario.
const MAX_BYTES: u64 = 1 << 30;

const RESULTS: &str = "lab-results";

/// Creates the directory. Fails if it already holds a run.
pub(crate) fn prepare(asked: Option<&Path>, name: &str, started: Timestamp) -> Result<PathBuf> {
    let time = started.strftime("%Y%m%d-%H%M%S");
    let dir = asked.map_or_else(
        || Path::new(RESULTS).join(format!("{name}-{time}")),
        Path::to_owned,
    );
    if dir.join(RAW).exists() {
        let why = format!("{} already holds a run", dir.display());
        return Err(Fault::usage("--out", why)
            .next("choose another directory, or remove this one")
            .into());
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

/// Writes raw data and reports. The file of raw data is never incomplete.
pub(crate) fn write(dir: &Path, run: &Run, scenario: &Scenario) -> Result<()> {
    put(dir, RAW, &run.to_json()?)?;
    write_reports(dir, &Findings::new(run, scenario))
}

pub(crate) fn write_reports(dir: &Path, findings: &Findings<'_>) -> Result<()> {
    put(dir, SUMMARY, &findings.to_json()?)?;
    put(dir, MARKDOWN, &markdown(findings))?;
    for (name, picture) in charts(findings) {
        put(dir, &name, &picture)?;
    }
    put(dir, HTML, &html(findings))
}

pub(crate) fn read(dir: &Path) -> Result<(Run, Scenario)> {
    let path = dir.join(RAW);
    let unreadable = |error: std::io::Error| {
        Fault::failure(path.display().to_string(), error)
            .next("a directory that `quictun lab run` wrote; see its --out")
    };
    let length = fs::metadata(&path).map_err(unreadable)?.len();
    if length > MAX_BYTES {
        let why = format!("{length} bytes are more than {MAX_BYTES}, the limit");
        return Err(Fault::failure(path.display().to_string(), why).into());
    }
    let text = fs::read_to_string(&path).map_err(unreadable)?;
    Run::from_json(&text).with_context(|| path.display().to_string())
}

pub(crate) fn report_path(dir: &Path) -> PathBuf {
    dir.join(HTML)
}

fn put(dir: &Path, name: &str, text: &str) -> Result<()> {
    let (path, part) = (dir.join(name), dir.join(format!("{name}.part")));
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}
