//! `quictun bench`: each measurement really performs its work; its speed does not matter.

use std::collections::BTreeSet;
use std::fs::OpenOptions;

use anyhow::{Context as _, Result, ensure};
use quictun_skip::skipped;
use quictun_testbed::binaries;
use quictun_testbed::isolation::isolated;
use quictun_testbed::program;
use serde_json::Value;

/// The number of rows: three modes under the first polling policy and two under the second, because reads are not
/// repeated; three kinds of calls; on one core and on two; over memory and over a device.
const CELLS: usize = (3 + 2) * 3 * 2 * 2;

/// The rows of `bulk`. Both families: in, out, echoes alone and beside a flow. Four variants: the kernel, the stack
/// with and without offload, and behind calls.
const BULK_CELLS: usize = 2 * 4 * 4;

/// Returns the report of a short run; `None` if TUN devices are not available.
fn netstack(test: &str, arguments: &[&str]) -> Result<Option<Value>> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    if let Err(why) = device {
        skipped(test, format_args!("/dev/net/tun: {why}"));
        return Ok(None);
    }
    let mut command = program::command(binaries::path("quictun")?);
    command.args(["bench", "netstack", "--force", "--json", "--repeats", "1"]);
    let output = command.args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {said}");
    Ok(Some(serde_json::from_slice(&output.stdout)?))
}

fn is_positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|value| value > 0.0)
}

#[test]
fn bulk_and_a_crowd_are_served_on_every_side() -> Result<()> {
    isolated(|| {
        let test = "bench::bulk_and_a_crowd_are_served_on_every_side";
        let arguments = ["--only", "bulk,crowd", "--flows", "1", "--run-ms", "100"];
        let all = netstack(test, &[&arguments[..], &["--crowd", "200"]].concat())?;
        let Some(all) = all else {
            return Ok(());
        };
        let rows = all["rows"].as_array().context("rows")?;
        ensure!(rows.len() == BULK_CELLS, "{} rows", rows.len());
        for row in rows {
            let name = row["name"].as_str().context("`name` is not a string")?;
            let bulk = name.starts_with("in") || name.starts_with("out");
            let moved = is_positive(&row["gbit_per_s"]) && bulk;
            ensure!(
                moved || is_positive(&row["p50_us"]),
                "a row without any work: {row}"
            );
            let kernel = name.ends_with("kernel loopback") || !bulk;
            ensure!(
                kernel || is_positive(&row["cpu_s_per_gb"]),
                "a row without processor time: {row}"
            );
        }
        let crowds = all["crowds"].as_array().context("crowds")?;
        ensure!(crowds.len() == 2, "{} crowds", crowds.len());
        for crowd in crowds {
            for what in ["connections_per_s", "echo_us", "echo_of_all_us"] {
                ensure!(is_positive(&crowd[what]), "no {what}: {crowd}");
            }
        }
        Ok(())
    })
}

#[test]
fn an_application_is_served_by_calls_of_each_kind() -> Result<()> {
    isolated(|| {
        for bytes in ["1", "64"] {
            let test = "bench::an_application_is_served_by_calls_of_each_kind";
            let only = ["--only", "read,write,call", "--connections", "3"];
            let all = netstack(
                test,
                &[&only[..], &["--run-ms", "200", "--bytes", bytes]].concat(),
            )?;
            let Some(all) = all else {
                return Ok(());
            };
            let rows = all["calls"].as_array().context("`calls` is not a list")?;
            ensure!(rows.len() == CELLS, "{} rows", rows.len());
            let mut idle = BTreeSet::new();
            let mut busy = BTreeSet::new();
            for row in rows {
                let rate = row["per_second"]["median"].as_f64();
                let rate = rate.with_context(|| format!("no rate: {row}"))?;
                let kind = (row["mode"].to_string(), row["kind"].to_string());
                // On a loaded machine, a short run may end before it begins.
                let has_work = rate > 0.0;
                if has_work { &mut busy } else { &mut idle }.insert(kind);
                let took = row["latency"]["mean_us"].as_f64();
                let times = row["mode"] != "call" || took.is_some_and(|mean| mean > 0.0);
                ensure!(times || !has_work, "a call took no time: {row}");
            }
            let never: Vec<_> = idle.difference(&busy).collect();
            ensure!(never.is_empty(), "{never:?} never did any work");
        }
        Ok(())
    })
}
