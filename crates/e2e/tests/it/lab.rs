//! `quictun lab`: a small scenario from end to end. The test checks counts, not speeds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::isolation::isolated;
use quictun_testbed::program::{self, Program};
use quictun_testbed::{binaries, deadline};
use rustix::process::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_mins(1);

const SMALL: &str = r#"
name = "small"
title = "Small"
[link]
rate = "20mbit"
delay = "2ms"
loss = "1%"
[workload]
duration = "1s"
warm_up = "100ms"
[design]
reps = 2
[[arm]]
id = "direct"
kind = "tcp"
[[arm]]
id = "tunnel"
kind = "tunnel"
[[table]]
title = "Bandwidth"
columns = ["receiver_mbit_per_s", "cpu_s_per_gb"]
[[compare]]
a = "tunnel"
b = "direct"
metric = "receiver_mbit_per_s"
"#;

const RIVAL: &str = r#"
name = "rival"
title = "A named link, and a rival on it"
[link]
like = "wifi"
loss = "0%"
[workload]
mode = "rr"
background = "down"
duration = "1s"
rival = "reno"
[design]
reps = 1
[[arm]]
id = "direct"
kind = "tcp"
[[arm]]
id = "tunnel"
kind = "tunnel"
[[arm]]
id = "datagrams"
kind = "udp"
through_tunnel = true
"#;

fn lab(dir: &Path, arguments: &[&str]) -> Result<std::process::Command> {
    let mut command = program::command(binaries::path("quictun")?);
    command.arg("lab").args(arguments).current_dir(dir);
    Ok(command)
}

fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

/// Returns true if the machine was so busy that a whole run carried nothing; the run reports this itself.
pub(crate) fn nothing_arrived(cell: &Value) -> bool {
    let flags = cell["flags"].as_array();
    flags.is_some_and(|flags| flags.iter().any(|flag| flag == "nothing arrived"))
}

/// Runs a scenario in `dir` with its results in `out`; returns the command's output and the recorded run.
fn run(dir: &Path, scenario: &str) -> Result<(std::process::Output, Value)> {
    fs::write(dir.join("own.toml"), scenario)?;
    let output = lab(dir, &["run", "own.toml", "--out", "out"])?.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let run = json(&dir.join("out/run.json")).context(said.into_owned())?;
    Ok((output, run))
}

#[test]
fn a_run_has_valid_cells_and_its_report_follows_from_them() -> Result<()> {
    isolated(|| {
        let dir = tempfile::tempdir()?;
        let (output, run) = run(dir.path(), SMALL)?;
        let out = dir.path().join("out");
        ensure!(
            run["schema"] == "lab/1" && run["ended_early"].is_null(),
            "{run}"
        );
        let cells = run["cells"].as_array().context("cells")?;
        let of = |arm: &str| cells.iter().filter(|cell| cell["arm"] == arm).count();
        ensure!(of("direct") >= 2 && of("tunnel") >= 2, "{run}");
        // Other load on the machine may spoil every cell, and then nothing was measured.
        let counts = cells.iter().any(|cell| cell["valid"] == true);
        let code = i32::from(!counts);
        ensure!(output.status.code() == Some(code), "{output:?}");
        for cell in cells {
            if nothing_arrived(cell) {
                ensure!(cell["valid"] == false, "{cell}");
                continue;
            }
            ensure!(cell["valid"] != cell["noise"], "{cell}");
            ensure!(
                cell["metrics"]["receiver_mbit_per_s"].as_f64() > Some(0.0),
                "{cell}"
            );
            ensure!(cell["link"]["up"]["packets"].as_u64() > Some(50), "{cell}");
            let roles = cell["processes"].as_array().context("processes")?;
            let has = |role: &str| roles.iter().any(|process| process["role"] == role);
            ensure!(has("client") && has("server"), "{cell}");
            ensure!(has("tunnel client") == (cell["arm"] == "tunnel"), "{cell}");
        }
        for arm in ["direct", "tunnel"] {
            let mut own = cells.iter().filter(|cell| cell["arm"] == arm);
            ensure!(own.any(|cell| !nothing_arrived(cell)), "{arm}: {run}");
        }
        let reports = ["report.html", "report.md", "summary.json"];
        let before = reports.map(|name| fs::read_to_string(out.join(name)).ok());
        for name in reports {
            fs::remove_file(out.join(name))?;
        }
        program::run(&mut lab(dir.path(), &["report", "out"])?)?;
        ensure!(before == reports.map(|name| fs::read_to_string(out.join(name)).ok()));
        // If no cell counts, the two runs cannot be compared.
        let compared = lab(dir.path(), &["compare", "out", "out"])?.output()?;
        ensure!(compared.status.code() == Some(code), "{compared:?}");
        // A second run must not destroy the results of the first.
        let again = lab(dir.path(), &["run", "own.toml", "--out", "out"])?.output()?;
        ensure!(again.status.code() == Some(2), "{again:?}");
        Ok(())
    })
}

#[test]
fn a_rival_shares_a_named_link_with_the_measured_stream() -> Result<()> {
    isolated(|| {
        let once = || {
            let dir = tempfile::tempdir()?;
            run(dir.path(), RIVAL).map(|(_, run)| run)
        };
        // Other load on the machine may spoil a cell, which then has no figures.
        let told = |cell: &Value| cell["metrics"]["share_percent"].is_f64();
        let whole = |run: &Value| {
            let cells = run["cells"].as_array();
            cells.is_some_and(|cells| cells.iter().all(told))
        };
        let mut run = once()?;
        for _ in 0..2 {
            if !whole(&run) {
                run = once()?;
            }
        }
        let cells = run["cells"].as_array().context("cells")?;
        for arm in ["direct", "tunnel", "datagrams"] {
            let mut own = cells.iter().filter(|cell| cell["arm"] == arm);
            let cell = own.find(|cell| cell["metrics"]["share_percent"].is_f64());
            let metrics = &cell.with_context(|| format!("{arm}: {run}"))?["metrics"];
            let metric = |id: &str| metrics[id].as_f64().context("the cell lacks a metric");
            let (own, rival) = (
                metric("background_down_mbit_per_s")?,
                metric("rival_mbit_per_s")?,
            );
            let share = own / (own + rival) * 100.0;
            ensure!((metric("share_percent")? - share).abs() < 1e-6, "{metrics}");
            // Such a link has at most 140 Mbit/s, and a little more data is in its queue.
            ensure!(rival > 0.0 && own + rival < 200.0, "{metrics}");
            // The delay is at least 5 ms in each direction.
            ensure!(metric("latency_min_us")? > 10_000.0, "{metrics}");
        }
        Ok(())
    })
}

#[test]
fn an_interrupted_run_writes_its_results_so_far() -> Result<()> {
    isolated(|| {
        let dir = tempfile::tempdir()?;
        fs::write(dir.path().join("small.toml"), SMALL)?;
        let arguments = ["run", "small.toml", "--reps", "500", "--out", "out"];
        let mut session = Program::start("lab", &mut lab(dir.path(), &arguments)?)?;
        let raw = dir.path().join("out/run.json");
        deadline::until("the first block to be recorded", SOON, || raw.exists())?;
        session.signal(Signal::INT)?;
        let status = session.wait_end(SOON)?;
        let run = json(&raw)?;
        let why = run["ended_early"].as_str().context("not ended early")?;
        // If other load leaves it no processor time, the run may have given up by itself.
        let code = if why == "interrupted" { 130 } else { 1 };
        ensure!(status.code() == Some(code), "{status}: {why}");
        let cells = run["cells"].as_array().context("cells")?;
        ensure!((2..1000).contains(&cells.len()), "{}", cells.len());
        let page = fs::read_to_string(dir.path().join("out/report.html"))?;
        ensure!(page.contains("partial: "), "{page}");
        Ok(())
    })
}
