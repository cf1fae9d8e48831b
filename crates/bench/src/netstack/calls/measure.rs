//! The measurement of one combination: the process with the stack, the clients, and the application in this process.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_sys::NetNamespace;
use rustix::net::{RecvFlags, SendFlags};
use serde_json::Value;

use super::application::{Application, PartSample, RunResult, RunTimes};
use super::clients::ClientThreads;
use super::row::{ConnectionRow, Latency};
use super::setup::{Setup, WireKind};
use crate::ipc::peer::ServerProcess;
use crate::kind::Placement;
use crate::machine::{Machine, clock_ns, float};
use crate::spread;

pub(crate) fn measure(
    setup: &Setup,
    repeats: usize,
    run: Duration,
    machine: &Machine,
    network: &NetNamespace,
) -> Result<ConnectionRow> {
    let [first, second] = machine.cores;
    let core = match setup.placement {
        Placement::OneCore => first,
        Placement::TwoCores => second,
    };
    let (control, there) = quictun_ipc::sockets().context("creating a socket pair")?;
    let program = std::env::current_exe().context("finding this program")?;
    let words = setup.words();
    let child = network.within(move || {
        Command::new(program)
            .args(["bench", "netstack", "--serve", &core.to_string()])
            .args(words)
            .stdin(Stdio::from(there))
            .spawn()
    });
    let peer = ServerProcess::of(child.context("starting this program again")?);
    let mut said = [0; 1024];
    let (length, _) = rustix::net::recv(&control, &mut said, RecvFlags::empty())?;
    ensure!(length > 0, "the process with the stack did not start");
    let application = Application::new(setup, &control)?;
    let counting = Arc::default();
    let clients = (setup.wire == WireKind::Tun)
        .then(|| ClientThreads::start(network, setup, &counting))
        .transpose()?;
    let plan = RunTimes {
        warm_up: run / 2,
        part: run,
        parts: repeats,
    };
    // This consumes the application and closes its channels.
    let done = application.run(setup, plan, &counting);
    let times = clients.map(ClientThreads::stop).unwrap_or_default();
    let done = done?;
    let counted = u64::try_from(done.counted.elapsed().as_nanos()).unwrap_or(u64::MAX);
    // The message holds a point in time rather than a duration, because the other process may read it much later.
    let since = clock_ns().saturating_sub(counted);
    rustix::net::send(&control, &since.to_le_bytes(), SendFlags::NOSIGNAL)?;
    let (length, _) = rustix::net::recv(&control, &mut said, RecvFlags::empty())?;
    let said: Value = serde_json::from_slice(&said[..length])
        .context("parsing the report of the stack's process")?;
    peer.end()?;
    let latency = Latency::of(times).or_else(|| Latency::from_json(&said["latency"]));
    Ok(row(setup, &done, latency, &said))
}

fn row(setup: &Setup, done: &RunResult, latency: Option<Latency>, said: &Value) -> ConnectionRow {
    let rate = |sample: &PartSample| float(sample.done) / sample.elapsed.as_secs_f64();
    let number = |name: &str| said[name].as_f64().unwrap_or_default();
    let application = done.cpu.as_secs_f64() / done.elapsed.as_secs_f64().max(1e-9);
    let stack = number("cpu_ns") / number("elapsed_ns").max(1.0);
    ConnectionRow {
        setup: *setup,
        rate: spread::of(&done.samples.iter().map(rate).collect::<Vec<_>>()),
        latency,
        cpu: [100.0 * stack, 100.0 * application],
    }
}
