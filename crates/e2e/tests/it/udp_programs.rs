//! Programs that people run over UDP, through `-L udp:`: `WireGuard` and mosh. Their sessions outlive the loss of the
//! tunnel's connection, another address of the client, and another carrier.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_e2e::load::carriers::native_tunnel::{NativeClient, NativeServer};
use quictun_e2e::load::carriers::udp_block::{UdpFate, block_udp};
use quictun_e2e::load::datagrams::wireguard::WireGuard;
use quictun_e2e::load::machines::{LinkKind, LinkedMachines};
use quictun_testbed::application::Application;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::program::{Program, installed, run};
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::Home;

const SOON: Duration = Duration::from_secs(40);

/// The bytes of a transfer that show that it goes on.
const SOME: u64 = 1 << 20;

/// A tunnel with a forward of datagrams to a port of 127.0.0.1 on the far machine, which is the same on the near one.
struct UdpTunnel<'a> {
    machines: &'a LinkedMachines,
    server: NativeServer<'a>,
    client: NativeClient<'a>,
}

impl<'a> UdpTunnel<'a> {
    fn to(machines: &'a LinkedMachines, port: u16) -> Result<Self> {
        let stream = machines.far.within(Application::echo)?;
        let allow = ["--allow".to_owned(), format!("udp:127.0.0.1:{port}")];
        let server = NativeServer::start(machines, None, 7500, &stream.target(), &allow)?;
        let forward = ["-L".to_owned(), format!("udp:{port}=127.0.0.1:{port}")];
        let client = server.client(&forward)?;
        Ok(Self {
            machines,
            server,
            client,
        })
    }

    /// Disturbs the tunnel in several ways, and lets the program show after each that it goes on.
    fn disturb(&mut self, mut goes_on: impl FnMut(&str) -> Result<()>) -> Result<()> {
        goes_on("before")?;
        let home = Home::new()?;
        let mut command = home.command(&self.machines.near, "quictun")?;
        run(command.args(["reconnect", "--http", &self.client.http.to_string()]))?;
        let program = &mut self.server.program;
        program.wait_for("flows continue on a new connection", SOON)?;
        goes_on("after a new connection")?;
        self.move_client()?;
        goes_on("after another address")?;
        block_udp(self.machines, UdpFate::Swallowed)?;
        deadline::until("TLS", SOON, || {
            self.client.is_carried_by("tls").unwrap_or(false)
        })?;
        goes_on("over TLS")
    }

    /// Cuts the link, gives the client's machine another address, and joins the link again.
    fn move_client(&mut self) -> Result<()> {
        let shown = self.machines.near.run("ip -o -4 addr show")?;
        let (device, address) = shown
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace().skip(1);
                Some((words.next()?, words.nth(1)?))
            })
            .find(|(device, _)| device.starts_with("lan"))
            .context("no link")?;
        let other = address.replace(".1/", ".77/");
        for line in [
            format!("ip link set {device} down"),
            format!("ip addr del {address} dev {device}"),
            format!("ip addr add {other} dev {device}"),
            format!("ip link set {device} up"),
        ] {
            self.machines.near.run(&line)?;
        }
        let moved = other.trim_end_matches("/24");
        self.server.program.wait_for(moved, SOON).map(drop)
    }
}

#[test]
fn wireguard_needs_no_new_handshake_when_the_tunnel_loses_its_connection() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let mut tunnel = UdpTunnel::to(&machines, 51820)?;
        let wireguard = installed("wireguard-go", "wireguard-go")?;
        let [near, _far] = WireGuard::pair(&machines, &wireguard, "127.0.0.1:51820".parse()?)?;
        let at = format!("{}:9000", WireGuard::FAR);
        let source = machines.far.within(|| EndlessSource::at(at.parse()?))?;
        let transfer = machines
            .near
            .within(|| Transfer::start(&Endpoint::parse(&at)?))?;
        transfer.advance(SOME, SOON)?;
        let first = near.handshake()?;
        ensure!(first > 0, "no handshake");
        tunnel.disturb(|when| {
            transfer.advance(SOME, SOON).context(when.to_owned())?;
            let last = near.handshake()?;
            ensure!(
                last == first,
                "{when}: a handshake at {last}, not at {first}"
            );
            Ok(())
        })?;
        transfer.finish(&source)
    })
}

#[test]
fn mosh_goes_on_when_the_tunnel_loses_its_connection() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let mut tunnel = UdpTunnel::to(&machines, 60001)?;
        let mut command = machines.far.command(installed("mosh-server", "mosh")?);
        command.args(["new", "-i", "127.0.0.1", "-p", "60001", "--", "/bin/sh"]);
        let said = run(command.env("LC_ALL", "C.UTF-8"))?;
        let key = said
            .split_once("MOSH CONNECT 60001 ")
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .context("no key")?;
        let home = Home::new()?;
        let screen = home.path().join("screen");
        let mut command = machines.near.command("script");
        command.args(["--quiet", "--flush", "--command"]);
        command.arg("stty rows 24 cols 80; exec mosh-client 127.0.0.1 60001");
        command.arg(&screen);
        command.env("LC_ALL", "C.UTF-8").env("TERM", "xterm");
        let (keyboard, mut typing) = std::io::pipe()?;
        command.env("MOSH_KEY", key);
        let client = Program::start_with("mosh", &mut command, Stdio::from(keyboard))?;
        let mut number = 0;
        tunnel.disturb(|when| {
            number += 1;
            // The answer differs from what is typed, which mosh shows at once.
            writeln!(typing, "echo $(({number} * 1111 + 5))")?;
            let answer = (number * 1111 + 5).to_string();
            deadline::until(when, SOON, || {
                fs::read_to_string(&screen).is_ok_and(|screen| screen.contains(&answer))
            })
        })?;
        drop(client);
        Ok(())
    })
}
