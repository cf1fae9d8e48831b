//! Networks without UDP: flows continue over TLS on TCP, and return to QUIC when it passes again (PROTOCOL section 2.4).

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, run};
use quictun_testbed::rest;
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};

const SERVER: &str = "10.30.0.2:7500";

/// The client's HTTP interface.
const HTTP: &str = "127.0.0.1:8086";

/// The time limit for leaving a carrier, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The time limit for the return to QUIC: probes, and the return of those that come too early.
const RETURN: Duration = Duration::from_mins(1);

const OVER_TLS: &str = "QUIC does not pass to the server";
const BACK: &str = "QUIC passes to the server again";

/// Bytes of a transfer that show that it runs.
const SOME: u64 = 10 << 20;

/// Connections of strangers that send nothing, and the memory that the server may take for all of them.
const SILENT: usize = 500;
const SILENT_BYTES: u64 = 32 << 20;

/// Two machines on one cable, with a native tunnel to one target.
struct BlockableTunnel {
    here: Machine,
    far: Machine,
    home: Home,
    server: Program,
    client: Client,
    forward: Endpoint,
}

impl BlockableTunnel {
    /// Starts a tunnel. With `blocked`, UDP does not pass from the beginning.
    fn new(far: Machine, target: &str, blocked: bool, flags: &[&str]) -> Result<Self> {
        let here = Machine::here();
        here.join(&far, "lan0", "10.30.0.1/24", "10.30.0.2/24")?;
        let home = Home::new()?;
        if blocked {
            block(&home, [&here, &far])?;
        }
        let mut command = home.command(&far, "quictun")?;
        command.args(["server", "--listen", SERVER, "--http", "off"]);
        command.args(["--allow", target, "--workers", "4"]);
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        let (listen, pin) = (listen_address(&line)?, server_pin(&line)?);
        let mut command = home.command(&here, "quictun")?;
        command.args(["client", "--server", &listen, "--pin", &pin]);
        command.args(["--psk-file", "state/client.psk", "--http", HTTP]);
        command.args(["-L", &format!("127.0.0.1:0={target}")]);
        command
            .args(["--connections", "1", "--workers", "1"])
            .args(flags);
        let client = Client::from_command(Home::new()?, command.current_dir(home.path()))?;
        let forward = client.forward.clone();
        Ok(Self {
            here,
            far,
            home,
            server,
            client,
            forward,
        })
    }

    fn block(&self) -> Result<()> {
        block(&self.home, [&self.here, &self.far])
    }

    fn pass(&self) -> Result<()> {
        for machine in [&self.here, &self.far] {
            machine.run("nft delete table inet no_udp")?;
        }
        Ok(())
    }

    /// Asks the client by a command of `quictun`.
    fn quictun(&self, verb: &str) -> Result<String> {
        let mut command = self.home.command(&self.here, "quictun")?;
        run(command.args([verb, "--http", HTTP]))
    }

    /// Checks that the client's flows are on a connection with this carrier.
    fn carries(carrier: &str) -> Result<()> {
        let found = rest::get(HTTP.parse()?, "/v1/connections")?.json()?;
        let connections = found["connections"].as_array().context("a list")?;
        let mut carrying = connections.iter().filter(|it| it["flows"] != 0);
        let all = carrying.all(|it| it["carrier"] == carrier);
        ensure!(all && !connections.is_empty(), "{found:#}");
        Ok(())
    }
}

/// Drops all UDP packets that arrive.
fn block(home: &Home, machines: [&Machine; 2]) -> Result<()> {
    let file = home.path().join("no_udp");
    let rules = "table inet no_udp { chain arrivals { type filter hook prerouting priority 0; meta l4proto udp drop; }; }\n";
    std::fs::write(&file, rules)?;
    for machine in machines {
        machine.run(&format!("nft -f {}", file.display()))?;
    }
    Ok(())
}

#[test]
fn a_transfer_continues_over_tls_when_udp_is_blocked_and_returns_to_quic() -> Result<()> {
    isolated(|| {
        let far = Machine::new("far")?;
        let source = far.within(EndlessSource::new)?;
        let mut tunnel = BlockableTunnel::new(far, &source.application.target(), false, &[])?;
        let transfer = Transfer::start(&tunnel.forward)?;
        transfer.advance(SOME, SOON)?;
        BlockableTunnel::carries("quic")?;
        tunnel.block()?;
        tunnel.client.program.wait_for(OVER_TLS, SOON)?;
        transfer.advance(SOME, SOON)?;
        BlockableTunnel::carries("tls")?;
        let page = || tunnel.quictun("status");
        let tells = |page: String| page.contains("TLS over TCP carries the flows");
        deadline::until("status", SOON, || page().is_ok_and(tells))?;
        tunnel.pass()?;
        tunnel.client.program.wait_for(BACK, RETURN)?;
        transfer.advance(SOME, SOON)?;
        BlockableTunnel::carries("quic")?;
        transfer.finish(&source)
    })
}

// The kernel gives each TCP connection to any of four workers. The flow's bond is with one of them (PROTOCOL TCP-4).
#[test]
fn a_flow_finds_its_worker_on_each_new_tcp_connection() -> Result<()> {
    isolated(|| {
        let far = Machine::new("far")?;
        let source = far.within(EndlessSource::new)?;
        let mut tunnel = BlockableTunnel::new(
            far,
            &source.application.target(),
            true,
            &["--carrier", "tls"],
        )?;
        let transfer = Transfer::start(&tunnel.forward)?;
        for _ in 0..4 {
            transfer.advance(SOME, SOON)?;
            // A client replaces its connections once a second at most.
            deadline::until("reconnect", SOON, || tunnel.quictun("reconnect").is_ok())?;
            tunnel
                .server
                .wait_for("flows continue on a new connection", SOON)?;
        }
        transfer.advance(SOME, SOON)?;
        transfer.finish(&source)
    })
}

#[test]
fn strangers_on_tcp_are_bounded() -> Result<()> {
    isolated(|| {
        let far = Machine::new("far")?;
        let echo = far.within(Application::echo)?;
        let tunnel = BlockableTunnel::new(far, &echo.target(), true, &[])?;
        through_echo(&tunnel.forward, Payload::new(3, 1_000_000))?;
        let server: SocketAddr = SERVER.parse()?;
        let before = tunnel.server.resident_bytes()?;
        let silent: Vec<TcpStream> = (0..SILENT)
            .map(|_| TcpStream::connect_timeout(&server, SOON))
            .collect::<Result<_, _>>()?;
        // Each of these is no first message of our protocol. The server ends the connection at once.
        let http = b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec();
        let wrong_length = [22, 3, 1, 0xff, 0xff].repeat(4000);
        for bytes in [http, wrong_length, vec![22, 3, 1, 0, 1, 9]] {
            let mut stranger = TcpStream::connect_timeout(&server, SOON)?;
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
        through_echo(&tunnel.forward, Payload::new(4, 1_000_000))?;
        let most = tunnel.server.resident_bytes_at_most()?;
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
