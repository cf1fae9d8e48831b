//! Networks without UDP: flows continue over TLS on TCP (PROTOCOL section 2.4). `scale.rs` has the return to QUIC.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_e2e::load::carriers::native_tunnel::{NativeClient, NativeServer};
use quictun_e2e::load::carriers::udp_block::{UdpFate, block_udp};
use quictun_e2e::load::machines::{LinkKind, LinkedMachines};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::run;
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::Home;

const PORT: u16 = 7500;

/// The time limit for leaving a carrier, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Bytes of a transfer that show that it runs.
const SOME: u64 = 10 << 20;

/// Connections of strangers that send nothing, and the memory that the server may take for all of them.
const SILENT: usize = 500;
const SILENT_BYTES: u64 = 32 << 20;

/// Joins two machines by a cable that does not carry UDP.
fn machines() -> Result<LinkedMachines> {
    let machines = LinkedMachines::new(&LinkKind::Veth)?;
    block_udp(&machines, UdpFate::Swallowed)?;
    Ok(machines)
}

/// Starts a tunnel to one target.
fn tunnel<'a>(
    machines: &'a LinkedMachines,
    target: &str,
    flags: &[&str],
) -> Result<(NativeServer<'a>, NativeClient<'a>)> {
    let owned =
        |flags: &[&str]| -> Vec<String> { flags.iter().copied().map(str::to_owned).collect() };
    let server = NativeServer::start(machines, None, PORT, target, &owned(&["--workers", "4"]))?;
    let one = ["--connections", "1", "--workers", "1"];
    let client = server.client(&owned(&[&one[..], flags].concat()))?;
    Ok((server, client))
}

/// Asks the client by a command of `quictun`.
fn quictun(machines: &LinkedMachines, client: &NativeClient<'_>, verb: &str) -> Result<String> {
    let home = Home::new()?;
    let mut command = home.command(&machines.near, "quictun")?;
    run(command.args([verb, "--http", &client.http.to_string()]))
}

#[test]
fn status_says_that_tls_carries() -> Result<()> {
    isolated(|| {
        let machines = machines()?;
        let echo = machines.far.within(Application::echo)?;
        let (_server, client) = tunnel(&machines, &echo.target(), &[])?;
        through_echo(&client.client.forward, Payload::new(3, 1_000_000))?;
        let page = || quictun(&machines, &client, "status");
        let tells = |page: String| page.contains("TLS over TCP carries the flows");
        deadline::until("status", SOON, || page().is_ok_and(tells))
    })
}

// The kernel gives each TCP connection to any of four workers. The flow's bond is with one of them (PROTOCOL TCP-4).
#[test]
fn a_flow_finds_its_worker_on_each_new_tcp_connection() -> Result<()> {
    isolated(|| {
        let machines = machines()?;
        let source = machines.far.within(EndlessSource::new)?;
        let target = source.application.target();
        let (mut server, client) = tunnel(&machines, &target, &["--carrier", "tls"])?;
        let transfer = Transfer::start(&client.client.forward)?;
        for _ in 0..4 {
            transfer.advance(SOME, SOON)?;
            // A client replaces its connections once a second at most.
            let reconnect = || quictun(&machines, &client, "reconnect").is_ok();
            deadline::until("reconnect", SOON, reconnect)?;
            let continues = "flows continue on a new connection";
            server.program.wait_for(continues, SOON)?;
        }
        transfer.advance(SOME, SOON)?;
        transfer.finish(&source)
    })
}

#[test]
fn strangers_on_tcp_are_bounded() -> Result<()> {
    isolated(|| {
        let machines = machines()?;
        let echo = machines.far.within(Application::echo)?;
        let (server, client) = tunnel(&machines, &echo.target(), &[])?;
        let forward = &client.client.forward;
        through_echo(forward, Payload::new(3, 1_000_000))?;
        let address = SocketAddr::new(machines.address, PORT);
        let before = server.program.resident_bytes()?;
        let silent: Vec<TcpStream> = (0..SILENT)
            .map(|_| TcpStream::connect_timeout(&address, SOON))
            .collect::<Result<_, _>>()?;
        // Each of these is no first message of our protocol. The server ends the connection at once.
        let http = b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec();
        let wrong_length = [22, 3, 1, 0xff, 0xff].repeat(4000);
        for bytes in [http, wrong_length, vec![22, 3, 1, 0, 1, 9]] {
            let mut stranger = TcpStream::connect_timeout(&address, SOON)?;
            stranger.set_read_timeout(Some(SOON))?;
            // The server may have ended the connection before all bytes have left.
            let _written = stranger.write_all(&bytes);
            let mut answer = Vec::new();
            let ended = stranger.read_to_end(&mut answer);
            ensure!(
                ended.as_ref().is_ok_and(|&count| count < 100)
                    || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
                "{answer:?}"
            );
        }
        through_echo(forward, Payload::new(4, 1_000_000))?;
        let most = server.program.resident_bytes_at_most()?;
        ensure!(most < before + SILENT_BYTES, "{before} bytes, then {most}");
        // Strangers that never begin lose their place (PROTOCOL TCP-5).
        for mut stranger in silent {
            stranger.set_read_timeout(Some(SOON))?;
            let ended = stranger.read(&mut [0]);
            ensure!(
                matches!(&ended, Ok(0))
                    || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
                "a stranger keeps its connection"
            );
        }
        Ok(())
    })
}
