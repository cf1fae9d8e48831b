//! iperf3, which transfers in both directions at once.
//!
//! iperf3 reports every 0.1 s at best. The measurement therefore takes the kernel's count of the bytes that each process
//! has read: `rchar` in `/proc/PID/io`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::program::{Program, installed};
use quictun_testbed::tunnel::START;
use serde_json::Value;

use super::program::{DONE, RunningProgram};
use super::progress::ProgressCounter;
use crate::load::machines::LinkedMachines;

/// The address of its server.
pub(super) const TARGET: &str = "tcp:127.0.0.1:5201";

/// The rate in each direction, and the length of a block. A small block spreads the data over time.
const RATE: &str = "20M";
const BLOCK: &str = "8K";

pub(super) struct Iperf3 {
    client: Program,
    server: Program,
}

impl Iperf3 {
    /// Starts its server, and a client that transfers for `time`.
    pub(super) fn start(machines: &LinkedMachines, port: u16, time: Duration) -> Result<Self> {
        let iperf3 = installed("iperf3", "iperf3")?;
        let mut serve = machines.far.command(&iperf3);
        serve.args(["-s", "--one-off", "--forceflush"]);
        let mut server = Program::start("iperf3 server", &mut serve)?;
        server.wait_for("Server listening", START)?;
        let mut transfer = machines.near.command(&iperf3);
        transfer.args(["-c", "127.0.0.1", "-p", &port.to_string(), "--bidir", "-J"]);
        transfer.args(["-b", RATE, "-l", BLOCK, "-t", &time.as_secs().to_string()]);
        let client = Program::start("iperf3", &mut transfer)?;
        server.wait_for("connected to", START)?;
        Ok(Self { client, server })
    }
}

/// Returns the number of bytes that a process has read, or `None` if it has ended.
fn read_by(pid: u32) -> Result<Option<u64>> {
    let file = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    // A process that has ended has no arguments any more.
    let (Ok(io), true) = (file("io"), file("cmdline").is_ok_and(|it| !it.is_empty())) else {
        return Ok(None);
    };
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    let read = read.context("no count of the bytes that iperf3 has read")?;
    Ok(Some(read.parse()?))
}

impl RunningProgram for Iperf3 {
    fn counters(&self) -> Vec<ProgressCounter> {
        let pids = [self.client.pid(), self.server.pid()];
        let counter = |pid| Box::new(move || read_by(pid)) as ProgressCounter;
        pids.map(counter).into()
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let status = self.client.wait_end(DONE)?;
        let text = self.client.lines().join("\n");
        ensure!(status.success(), "{status}: {text}");
        let report: Value = serde_json::from_str(&text)?;
        for way in ["", "_bidir_reverse"] {
            let bytes = |side: &str| {
                let bytes = report["end"][format!("sum_{side}{way}")]["bytes"].as_u64();
                bytes.with_context(|| format!("no bytes {side}: {text}"))
            };
            let (sent, received) = (bytes("sent")?, bytes("received")?);
            // iperf3 stops while its last bytes are under way, so the receiver may count fewer.
            ensure!(
                0 < received && received <= sent,
                "{sent} bytes sent, {received} received"
            );
        }
        let status = self.server.wait_end(DONE)?;
        ensure!(status.success(), "the iperf3 server ended: {status}");
        self.client.silence();
        self.server.silence();
        Ok(())
    }
}
