//! Tests how connections end when a process of the tunnel dies (PROTOCOL CLOSE-11), or an application's machine, and a few
//! cells of the fault matrix.

use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_e2e::faults::cell::{FaultCell, Phase, Process, ProcessFault, Sockets};
use quictun_e2e::faults::observation::DataEnd;
use quictun_e2e::faults::run::{FaultOptions, run};
use quictun_skip::skipped;
use quictun_testbed::application::Application;
use quictun_testbed::binaries;
use quictun_testbed::isolation::{isolated, isolated_with};
use quictun_testbed::machine::Machine;
use quictun_testbed::tunnel::Tunnel;
use serde_json::Value;

const PLAN: FaultOptions = FaultOptions {
    idle_timeout: Duration::from_secs(3),
    drain: Duration::from_secs(10),
    stop: Duration::from_secs(1),
};

/// Kills `process` in that phase of a connection. The application next to it must see a reset. The application at the
/// other end must see a reset too, unless everything had already reached it.
fn killed(process: Process, phase: Phase, sockets: Sockets) -> Result<()> {
    let cell = FaultCell {
        process,
        fault: ProcessFault::Kill,
        phase,
        sockets,
    };
    let [app, target] = run(cell, &PLAN).with_context(|| cell.to_string())?;
    let cut = |seen: &DataEnd| matches!(seen, DataEnd::Reset { .. });
    let (beside, beyond) = match process {
        Process::Server => (&target, &app),
        _ => (&app, &target),
    };
    ensure!(
        cut(&beside.seen) && (cut(&beyond.seen) || beyond.is_whole()),
        "{cell}: the application saw: {app}; the target saw: {target}"
    );
    Ok(())
}

#[test]
fn close_11_a_killed_client_is_a_reset_to_an_upload() -> Result<()> {
    killed(Process::Client, Phase::Up, Sockets::Tcp)
}

#[test]
fn close_11_a_killed_client_is_a_reset_to_a_download() -> Result<()> {
    killed(Process::Client, Phase::Down, Sockets::Tcp)
}

#[test]
fn close_11_a_killed_server_is_a_reset_to_an_upload() -> Result<()> {
    killed(Process::Server, Phase::Up, Sockets::Tcp)
}

#[test]
fn close_11_a_killed_server_is_a_reset_to_a_download() -> Result<()> {
    killed(Process::Server, Phase::Down, Sockets::Tcp)
}

#[test]
fn close_11_a_silent_connection_is_reset_as_well() -> Result<()> {
    killed(Process::Client, Phase::Idle, Sockets::Tcp)?;
    killed(Process::Server, Phase::Idle, Sockets::Tcp)
}

pub(crate) fn has_devices(test: &str) -> Option<()> {
    let opened = std::fs::File::open("/dev/net/tun");
    if let Err(why) = &opened {
        skipped(test, format_args!("/dev/net/tun: {why}"));
    }
    opened.ok().map(drop)
}

#[test]
fn close_11_killing_any_process_of_a_device_is_a_reset() -> Result<()> {
    isolated_with(
        |test| Ok(has_devices(test)),
        |()| {
            for process in [Process::Client, Process::Netstackd] {
                for phase in [Phase::Idle, Phase::Up, Phase::Down] {
                    killed(process, phase, Sockets::Tun)?;
                }
            }
            Ok(())
        },
    )
}

// PROTOCOL CLOSE-12: a client that drains waits for targets that are being connected, because the host's programs
// continue.
#[test]
fn close_12_a_client_with_a_device_that_drains_waits_for_a_target_that_answers_late() -> Result<()>
{
    isolated_with(
        |test| Ok(has_devices(test)),
        |()| {
            for process in [Process::Client, Process::Supervisor] {
                let cell = FaultCell {
                    process,
                    fault: ProcessFault::Term,
                    phase: Phase::Opening,
                    sockets: Sockets::Tun,
                };
                let [app, target] = run(cell, &PLAN).with_context(|| cell.to_string())?;
                ensure!(
                    app.is_whole() && target.is_whole(),
                    "{cell}: the application saw: {app}; the target saw: {target}"
                );
            }
            Ok(())
        },
    )
}

// An orderly end must deliver the data that the kernel holds when the socket is closed, without a reset.
#[test]
fn close_2_a_slow_reader_gets_everything_after_both_ends_have_finished() -> Result<()> {
    for phase in [Phase::HalfClosed, Phase::TargetHalfClosed] {
        let cell = FaultCell {
            process: Process::Client,
            fault: ProcessFault::None,
            phase,
            sockets: Sockets::Tcp,
        };
        let [app, target] = run(cell, &PLAN)?;
        ensure!(
            app.is_whole() && target.is_whole(),
            "{cell}: the application saw: {app}; the target saw: {target}"
        );
    }
    Ok(())
}

#[test]
fn a_small_fault_matrix_has_no_forbidden_cell() -> Result<()> {
    let mut faults = Command::new(env!("CARGO_BIN_EXE_quictun-faults"));
    faults
        .args(["--quick", "--json", "--parallel", "24"])
        .env(binaries::DIRECTORY, binaries::directory()?);
    let output = faults.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}\n{errors}", output.status);
    let matrix: Value = serde_json::from_slice(&output.stdout)?;
    let cells = matrix["cells"].as_array().context("no cells")?;
    // Two processes, three faults, two phases, two kinds of sockets.
    ensure!(cells.len() == 24, "{} cells", cells.len());
    Ok(())
}

/// A machine that loses its power sends neither FIN nor RST, and its application need not have sent anything for hours.
#[test]
fn the_flow_of_a_machine_that_vanishes_ends() -> Result<()> {
    const SOON: Duration = Duration::from_secs(20);
    isolated(|| {
        let lan = Machine::new("lan")?;
        Machine::here().join(&lan, "lan0", "10.1.0.1/24", "10.1.0.2/24")?;
        for (name, value) in [("time", "1"), ("intvl", "1"), ("probes", "2")] {
            let path = format!("/proc/sys/net/ipv4/tcp_keepalive_{name}");
            std::fs::write(&path, value).context(path)?;
        }
        let application = Application::tcp(|mut connection| {
            connection.write_all(b"!")?;
            let ending = connection.ending();
            ensure!(ending.is_reset(), "the target saw {ending:?}");
            Ok(())
        })?;
        let listen = ["--listen-on", "tcp:10.1.0.1:0"];
        let tunnel = Tunnel::with(&application.target(), &[], &listen)?;
        let mut connection = lan.within(|| tunnel.client.forward.connect())?;
        connection.read_exact(&mut [0])?;
        lan.run("ip link set lan0 down")?;
        application.outcome(SOON)
    })
}
