//! Enrolment over TLS, and servers that listen for TLS on another port than for QUIC (PROTOCOL TCP-9).

use std::fs::{self, File};
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_e2e::load::carriers::native_tunnel::NativeServer;
use quictun_e2e::load::carriers::udp_block::{UdpFate, block_udp, pass_udp};
use quictun_e2e::load::machines::{LinkKind, LinkedMachines};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::payload::Payload;
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::{Client, Home};

const PORT: u16 = 7500;

/// The time limit for a change of the carrier, even on a busy machine.
const SOON: Duration = Duration::from_secs(40);

/// Bytes of a transfer that show that it runs.
const SOME: u64 = 10 << 20;

/// Joins the server with a new home on the near machine, by an invitation with these flags. Returns the home.
fn join(machines: &LinkedMachines, server: &NativeServer<'_>, flags: &[&str]) -> Result<Home> {
    let home = Home::new()?;
    let code = home.path().join("code");
    fs::write(&code, server.invite(flags)?)?;
    let mut command = home.command(&machines.near, "quictun")?;
    command.args(["join", "--out", "joined"]);
    let output = command.stdin(File::open(code)?).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(home)
}

#[test]
fn a_machine_joins_by_tls_where_udp_is_blocked() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        block_udp(&machines, UdpFate::Swallowed)?;
        let echo = machines.far.within(Application::echo)?;
        let target = echo.target();
        let server = NativeServer::start(&machines, None, PORT, &target, &[])?;
        let home = join(&machines, &server, &[])?;
        let mut command = home.command(&machines.near, "quictun")?;
        command.args(["client", "-c", "joined/client.toml", "--http", "off"]);
        command.args(["-L", &format!("127.0.0.1:0={target}")]);
        let client = Client::from_command(home, &mut command)?;
        through_echo(&client.forward, Payload::new(5, 1_000_000))
    })
}

#[test]
fn a_server_may_listen_for_tls_on_other_ports() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        block_udp(&machines, UdpFate::Swallowed)?;
        let source = machines.far.within(EndlessSource::new)?;
        let target = source.application.target();
        let listen = |port: u16| {
            [
                "--listen-tls".to_owned(),
                format!("{}:{port}", machines.address),
            ]
        };
        let flags = [listen(443), listen(8443)].concat();
        let server = NativeServer::start(&machines, None, PORT, &target, &flags)?;
        let one = ["--tls-port", "8443", "--connections", "1", "--workers", "1"];
        let client = server.client(&one.map(str::to_owned))?;
        let transfer = Transfer::start(&client.client.forward)?;
        transfer.advance(SOME, SOON)?;
        let address = format!("{}:8443", machines.address);
        ensure!(
            client.account()?.contains(&address),
            "{}",
            client.account()?
        );
        let home = join(&machines, &server, &["--tls-port", "443"])?;
        let file = fs::read_to_string(home.path().join("joined/client.toml"))?;
        ensure!(file.contains("\ntls_port = 443\n"), "{file}");
        // The climb leads to the UDP port of the server, and the flow follows it.
        pass_udp(&machines)?;
        let works = || client.quic_state().is_ok_and(|state| state == "works");
        deadline::until("QUIC", SOON, works)?;
        transfer.advance(SOME, SOON)?;
        transfer.finish(&source)
    })
}
