//! The targets on the server's own machine that a flow may or may not reach: its HTTP interface, metadata addresses,
//! names with internal addresses.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::connection::{Connection, Endpoint, is_reset};
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START, Server, listen_address, server_pin};

const SOON: Duration = Duration::from_secs(10);
const SOME: Payload = Payload {
    seed: 221,
    bytes: 10_000,
};
const HTTP: u16 = 8086;

/// Addresses of this machine, in addition to those of the loopback device.
const OWN: [&str; 2] = ["198.51.100.7/32", "2001:db8::7/128"];
/// Networks whose addresses belong to this machine only by a route.
const LOCAL: [&str; 2] = ["203.0.113.0/24", "2001:db8:a::/64"];
/// Addresses of metadata services, which this test assigns to this machine.
const METADATA: [&str; 4] = [
    "169.254.169.254/32",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "fd00:ec2::254/128",
];
/// Names in the hosts file, with their addresses.
const NAMES: &str = "127.0.0.1 localhost inside.example\n198.51.100.7 own.example\n\
                     169.254.169.254 metadata.example\n0.0.0.0 zero.example\n";

/// Spellings of the HTTP interface's host that a client may write.
const SPELLINGS: [&str; 18] = [
    "127.0.0.1",
    "127.9.8.7",
    "0.0.0.0",
    "[::]",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:0.0.0.0]",
    "[::ffff:198.51.100.7]",
    "198.51.100.7",
    "[2001:db8::7]",
    "203.0.113.9",
    "[::ffff:203.0.113.9]",
    "[2001:db8:a::9]",
    "[2001:db8:a:0:1:2:3:4]",
    "localhost",
    "localhost.",
    "own.example",
    "zero.example",
];

/// Adds the addresses and names to this test's namespaces.
fn set_up_host(home: &Home) -> Result<()> {
    for address in OWN.iter().chain(&METADATA) {
        machine::run(&format!("ip address add {address} dev lo nodad"))
            .or_else(|_| machine::run(&format!("ip address add {address} dev lo")))?;
    }
    for network in LOCAL {
        machine::run(&format!("ip route add local {network} dev lo"))?;
    }
    let hosts = home.path().join("hosts");
    std::fs::write(&hosts, NAMES)?;
    machine::run(&format!("mount --bind {} /etc/hosts", hosts.display())).map(drop)
}

/// Returns true if an HTTP request through this connection is answered.
fn is_answered(connection: Result<Connection>) -> Result<bool> {
    let mut connection = match connection {
        Ok(connection) => connection,
        // A refusal may arrive before the system reports the connection as established.
        Err(error) if is_reset(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    connection.set_timeout(SOON)?;
    let mut answer = Vec::new();
    // A reset may arrive before the request is written, or in place of an answer.
    if connection
        .write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .is_err()
        || connection.read_to_end(&mut answer).is_err()
    {
        return Ok(!answer.is_empty());
    }
    Ok(answer.starts_with(b"HTTP/1"))
}

/// A `quictun-client` that leads each application to another target, selected by its source address.
struct TargetFan {
    client: Client,
    targets: Vec<String>,
}

impl TargetFan {
    fn start(server: SocketAddr, home: &Home, targets: Vec<String>) -> Result<Self> {
        let tokens = home.path().join("tokens");
        let lines: Vec<_> = (0..)
            .zip(&targets)
            .map(|(number, target)| format!("{} {target}", source(number)))
            .collect();
        std::fs::write(&tokens, lines.join("\n"))?;
        let tokens = tokens.display().to_string();
        let plugin = ["--token-source-plugin", "File", "--token-source", &tokens];
        let client = Client::start(&server.to_string(), &plugin)?;
        Ok(Self { client, targets })
    }

    /// Returns the targets that answer an HTTP request.
    fn answering(&self) -> Result<Vec<&str>> {
        let mut answering = Vec::new();
        for (number, target) in (0..).zip(&self.targets) {
            if is_answered(self.client.forward.connect_from(source(number)))? {
                answering.push(target.as_str());
            }
        }
        Ok(answering)
    }
}

fn source(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, number)
}

// PROTOCOL AUTH-7.
#[test]
fn quictun_server_opens_no_flow_to_its_http_interface_or_to_metadata() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        set_up_host(&home)?;
        let mut targets: Vec<_> = SPELLINGS.map(|host| format!("tcp:{host}:{HTTP}")).into();
        // Another service on all addresses of this machine stands in for the metadata services.
        let other = Server::start(&["--httpd-listen-on", "[::]:80"])?;
        for (address, _) in METADATA.iter().filter_map(|text| text.split_once('/')) {
            targets.push(format!("tcp:{}", SocketAddr::new(address.parse()?, 80)));
        }
        targets.extend(
            ["tcp:metadata.example:80", "tcp:[::ffff:169.254.169.254]:80"].map(str::to_owned),
        );
        let control = "tcp:inside.example:80".to_owned();
        targets.push(control.clone());
        let http = format!("[::]:{HTTP}");
        let mut server = Server::start(&["--httpd-listen-on", &http])?;
        let fan = TargetFan::start(server.address, &home, targets)?;
        let answering = fan.answering()?;
        ensure!(answering == [control.as_str()], "reached: {answering:?}");
        for said in [
            "this server's own HTTP interface",
            "a cloud's metadata service",
        ] {
            server.program.wait_for(said, SOON)?;
        }
        drop(other);
        Ok(())
    })
}

/// Starts `quictun server` with these rules, and a client with a forward to each target.
fn native(rules: &[&str], targets: &[String]) -> Result<(Program, Client, Vec<Endpoint>)> {
    let home = Home::new()?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http"]);
    command.arg(format!("[::]:{HTTP}"));
    for rule in rules {
        command.args(["--allow", rule]);
    }
    let mut program = Program::start("server", &mut command)?;
    let line = program.wait_for("Server endpoint start up successful", START)?;
    let pin = server_pin(&line)?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["client", "--server", &listen_address(&line)?, "--pin", &pin]);
    command.args(["--psk-file", "state/client.psk", "--http", "off"]);
    for target in targets {
        command.args(["-L", &format!("127.0.0.1:0={target}")]);
    }
    let client = Client::from_command(home, &mut command)?;
    let forwards = client.forwards(targets.len())?;
    Ok((program, client, forwards))
}

// PROTOCOL AUTH-7, AUTH-8.
#[test]
fn wildcards_reach_neither_inside_addresses_nor_the_http_interface() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        set_up_host(&home)?;
        let application = Application::echo()?;
        let port = application.endpoint().port()?;
        let mut targets: Vec<_> = SPELLINGS.map(|host| format!("tcp:{host}:{HTTP}")).into();
        let all = targets.len();
        targets.push(format!("tcp:inside.example:{port}"));
        targets.push(format!("tcp:127.0.0.1:{port}"));
        let (mut server, client, forwards) = native(&["*:*", "0.0.0.0/0:*"], &targets[..all])?;
        ensure!(forwards.len() == all, "{} forwards", forwards.len());
        for (forward, target) in forwards.iter().zip(&targets) {
            ensure!(!is_answered(forward.connect())?, "{target} was reached");
        }
        server.wait_for("own HTTP interface", SOON)?;
        drop((server, client));
        let (mut server, client, forwards) = native(&["*:*"], &targets[all..])?;
        let ending = forwards[0].ending()?;
        ensure!(ending.is_reset(), "a name inside ended as {ending:?}");
        server.wait_for(
            "a wildcard opens no loopback or private address to names",
            SOON,
        )?;
        through_echo(&forwards[1], SOME).context("reaching the address itself by a wildcard")?;
        drop((server, client));
        let exact = format!("inside.example:{port}");
        let (_server, _client, forwards) = native(&[&exact], &targets[all..=all])?;
        through_echo(&forwards[0], SOME).context("reaching a name that a rule contains")
    })
}

// PROTOCOL AUTH-7, AUTH-9.
#[test]
fn a_rule_for_the_exact_address_reaches_the_http_interface() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        set_up_host(&home)?;
        let targets = [
            "127.0.0.1",
            "[::ffff:127.0.0.1]",
            "localhost",
            "0.0.0.0",
            "[::1]",
        ];
        let targets = targets.map(|host| format!("tcp:{host}:{HTTP}"));
        let rules = [format!("127.0.0.1:{HTTP}"), "localhost:*".to_owned()];
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let (_server, _client, forwards) = native(&rules, &targets)?;
        for ((forward, target), expected) in forwards
            .iter()
            .zip(&targets)
            .zip([true, true, true, false, false])
        {
            let answered = is_answered(forward.connect())?;
            ensure!(answered == expected, "{target}: {answered}");
        }
        Ok(())
    })
}
