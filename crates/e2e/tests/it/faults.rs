//! Faults of programs and targets: killed, late, refused, stopped.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, RefusingAddress, served_within, through_echo};
use quictun_testbed::connection::TIMEOUT;
use quictun_testbed::deadline;
use quictun_testbed::isolation::{isolated, with_programs};
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, command, installed};
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::{Client, Home, Server, Tunnel};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(10);
const SOME: Payload = Payload {
    seed: 41,
    bytes: 1 << 20,
};

#[test]
fn a_restarted_server_is_used_again_before_the_idle_timeout_with_the_same_key() -> Result<()> {
    // Exact times are measured in tests with virtual time.
    const IDLE: Duration = Duration::from_mins(1);
    let application = Application::echo()?;
    let server = Server::start(&[])?;
    let address = server.address.to_string();
    let pin = pin_of(&server)?;
    let client = Client::start(
        &address,
        &["--token-source", &application.target(), "--pin", &pin],
    )?;
    through_echo(&client.forward, SOME)?;
    let Server {
        mut program, home, ..
    } = server;
    program.kill()?;
    let server = Server::start_at(&Machine::here(), home, &["--listen-on", &address])?;
    ensure!(pin_of(&server)? == pin, "the key changed");
    // Flows opened before the client notices the loss may be reset; applications try again.
    served_within(&client.forward, SOME, IDLE / 4).map(drop)
}

fn pin_of(server: &Server) -> Result<String> {
    let lines = server.program.lines().join("\n");
    let at = lines
        .find("sha256:")
        .with_context(|| format!("no pin in {lines}"))?;
    Ok(lines[at..].chars().take("sha256:".len() + 43).collect())
}

#[test]
fn a_client_started_before_its_server_serves_applications_that_connected_meanwhile() -> Result<()> {
    isolated(|| {
        let application = Application::echo()?;
        let arguments = [
            "--token-source",
            &application.target(),
            "--listen-on",
            "tcp:127.0.0.1:6500",
        ];
        let mut client = Client::start("127.0.0.1:7500", &arguments)?;
        let told = client
            .program
            .wait_for("the server does not answer", Duration::from_secs(20))?;
        ensure!(told.contains("nothing listens on that UDP port"), "{told}");
        let mut early = client.forward.connect()?;
        early.write_all(b"early")?;
        let _server = Server::start(&["--listen-on", "127.0.0.1:7500"])?;
        early
            .read_exact(&mut [0; 5])
            .context("the echo on a connection made before the server started")?;
        through_echo(&client.forward, SOME)
    })
}

#[test]
fn a_flow_that_never_had_a_connection_names_the_reason() -> Result<()> {
    isolated(|| {
        // Nothing listens on the port, and no name server is reachable.
        let unresolvable = "cannot resolve no-such-name.invalid";
        let cases = [
            ("127.0.0.1:7500", "the server did not answer"),
            ("no-such-name.invalid:7500", unresolvable),
        ];
        let mut clients = Vec::new();
        for (server, reason) in cases {
            let arguments = ["--token-source", "tcp:127.0.0.1:22"];
            let client = Client::start(server, &arguments)?;
            let application = client.forward.connect()?;
            clients.push((client, application, server, reason));
        }
        for (mut client, mut application, server, reason) in clients {
            let ending = application.ending();
            ensure!(ending.is_reset(), "{server}: {ending:?}");
            let line = client.program.wait_for("handshake error!", SOON)?;
            ensure!(line.contains(server) && line.contains(reason), "{line}");
            if reason != unresolvable {
                continue;
            }
            let failed = "cannot connect to server endpoint";
            let lines = client.program.lines();
            let told: Vec<_> = lines.iter().filter(|line| line.contains(failed)).collect();
            // Both workers dial again and again, but a cause is logged at once and then every 10 s or less often.
            ensure!(
                (1..=2).contains(&told.len()) && told[0].contains("is the name spelt right"),
                "{told:?}"
            );
        }
        Ok(())
    })
}

#[test]
fn refused_targets_affect_only_their_own_flows() -> Result<()> {
    const BAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    let (application, refusing) = (Application::echo()?, RefusingAddress::new()?);
    let home = Home::new()?;
    let tokens = home.path().join("tokens.txt");
    std::fs::write(
        &tokens,
        format!(
            "127.0.0.1 {}\n{BAD} {}\n",
            application.target(),
            refusing.target()
        ),
    )?;
    let plugin = [
        "--token-source-plugin",
        "File",
        "--token-source",
        &tokens.display().to_string(),
    ];
    let server = Server::start(&[])?;
    let client = Client::start(&server.address.to_string(), &plugin)?;
    let forward = &client.forward;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    // All refusals together are few enough to have a log line each (PROTOCOL LOG-1).
                    for turn in 0..6 {
                        let refused = forward.connect_from(BAD)?;
                        through_echo(forward, Payload::new(thread * 100 + turn, 20_000))
                            .with_context(|| format!("thread {thread}, turn {turn}"))?;
                        let ending = { refused }.ending();
                        ensure!(ending.is_reset(), "a refused target ended as {ending:?}");
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    // The last lines may not have arrived here yet.
    let refusals = || server.program.count("Failed to dial server app");
    deadline::until("every refusal to be logged", SOON, || refusals() >= 48)?;
    ensure!(refusals() == 48, "a refusal was not logged once");
    Ok(())
}

#[test]
fn a_stopped_application_delays_no_other_flow_and_holds_little_memory() -> Result<()> {
    with_programs(|| {
        /// Memory that one flow may hold at each end, in addition to the socket buffers.
        const GROWTH: u64 = 96 << 20;
        /// More than all windows and buffers hold: a blocked flow does not transfer this much.
        const PASSES: u64 = 256 << 20;
        const STOPPED: Duration = Duration::from_secs(5);
        let nc = installed("nc", "netcat-openbsd")?;
        let (stopped_source, source) = (EndlessSource::new()?, EndlessSource::new()?);
        let home = Home::new()?;
        let tokens = home.path().join("tokens.txt");
        let lines = format!(
            "127.0.0.1 {}\n127.0.0.2 {}\n",
            source.application.target(),
            stopped_source.application.target()
        );
        std::fs::write(&tokens, lines)?;
        let plugin = [
            "--token-source-plugin",
            "File",
            "--token-source",
            &tokens.display().to_string(),
        ];
        let server = Server::start(&[])?;
        let client = Client::start(&server.address.to_string(), &plugin)?;

        let transfer = Transfer::start(&client.forward)?;
        transfer.advance(64 << 20, TIMEOUT)?;
        let mut reader = command("sh");
        let port = client.forward.port()?;
        reader
            .args([
                "-c",
                "exec \"$0\" -s 127.0.0.2 127.0.0.1 \"$1\" </dev/null >/dev/null",
            ])
            .arg(nc)
            .arg(port.to_string());
        let mut reader = Program::start("nc", &mut reader)?;
        deadline::until("the flow of nc to open", SOON, || {
            client.program.count("Handshake successful") == 2
        })?;
        let memory = || -> Result<u64> {
            Ok(client
                .program
                .resident_bytes()?
                .max(server.program.resident_bytes()?))
        };
        let before = memory()?;
        reader.signal(Signal::STOP)?;
        let (since, from) = (Instant::now(), transfer.progress());
        let mut most = before;
        while since.elapsed() < STOPPED || transfer.progress() < from + PASSES {
            transfer.advance(16 << 20, TIMEOUT)?;
            most = most.max(memory()?);
        }
        ensure!(
            most < before + GROWTH,
            "memory grew from {before} to {most} bytes"
        );
        reader.signal(Signal::CONT)?;
        transfer.finish(&source)?;
        stopped_source.stop();
        stopped_source.application.outcome(TIMEOUT)?;
        let status = reader.wait_end(TIMEOUT)?;
        ensure!(status.success(), "{status}: {:?}", reader.lines());
        Ok(())
    })
}

#[test]
fn an_unresolvable_target_is_reported_and_the_tunnel_lives() -> Result<()> {
    let tunnel = Tunnel::to("tcp:no-such-name.invalid:80")?;
    let mut connection = tunnel.client.forward.connect()?;
    ensure!(
        connection.ending().is_reset(),
        "the flow did not end as a reset"
    );
    let Tunnel {
        mut client,
        mut server,
    } = tunnel;
    ensure!(
        client.program.ended()?.is_none() && server.program.ended()?.is_none(),
        "one of the two ended"
    );
    Ok(())
}
