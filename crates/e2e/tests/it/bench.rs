//! `quictun bench`: that what it measures happens, however fast.

use std::fs::OpenOptions;

use anyhow::{Context as _, Result, ensure};
use quictun_e2e::binaries;
use quictun_e2e::isolation::{isolated, skip};
use quictun_e2e::program;
use serde_json::Value;

/// What each of them does by calls of each kind, on one core and on two, over memory and a device; who
/// writes in both policies.
const CELLS: usize = (3 + 2) * 3 * 2 * 2;

#[test]
fn an_application_is_served_by_calls_of_each_kind() -> Result<()> {
    isolated(|| {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun");
        if let Err(why) = device {
            let test = "bench::an_application_is_served_by_calls_of_each_kind";
            skip(test, &format!("/dev/net/tun: {why}"));
            return Ok(());
        }
        for bytes in ["1", "64"] {
            let mut command = program::command(binaries::path("quictun")?);
            command.args(["bench", "netstack", "--force", "--json"]);
            command.args(["--only", "read,write,call", "--connections", "3"]);
            command.args(["--repeats", "1", "--run-ms", "200", "--bytes", bytes]);
            let output = command.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{bytes} B: {said}");
            let all: Value = serde_json::from_slice(&output.stdout)?;
            let rows = all["calls"].as_array().context("rows")?;
            ensure!(rows.len() == CELLS, "{} rows", rows.len());
            for row in rows {
                let rate = row["per_second"]["median"].as_f64();
                ensure!(
                    rate.is_some_and(|rate| rate > 0.0),
                    "nothing happened: {row}"
                );
                let took = row["latency"]["mean_us"].as_f64();
                let times = row["mode"] != "call" || took.is_some_and(|mean| mean > 0.0);
                ensure!(times, "a call took no time: {row}");
            }
        }
        Ok(())
    })
}
