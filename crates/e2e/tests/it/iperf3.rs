//! iperf3 through a device: both families, both directions, several connections at once.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::START;

use crate::wrapped::HOSTS;

/// The number of bytes to transfer in each direction and family.
const BYTES: u64 = 20_000_000;

/// Starts the server, and passes argument lines for the client to `run`, which returns the client's report.
pub(crate) fn moves_its_bytes(
    mut server: Command,
    run: impl Fn(&str) -> Result<String>,
) -> Result<()> {
    let mut server = Program::start("iperf3", server.args(["-s", "--forceflush"]))?;
    let mut runs = 0;
    for host in HOSTS {
        for more in ["", "-R", "-P 4"] {
            runs += 1;
            // Between two tests the server closes its port for a moment.
            server.wait_for(&format!("Server listening on 5201 (test #{runs})"), START)?;
            let text = run(&format!("-c {host} -n {BYTES} -J {more}"))?;
            let report: serde_json::Value = serde_json::from_str(&text)?;
            let sent = report["end"]["sum_sent"]["bytes"].as_u64();
            ensure!(sent.context("no bytes")? >= BYTES, "{host} {more}: {text}");
        }
    }
    Ok(())
}
