//! A client of a service: SRV records name its servers, in a world with a name server of its own.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, echo, served_within, through_echo};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::rest;
use quictun_testbed::tunnel::{Client, Home, listen_address};

use crate::identities::Authority;
use crate::native::{NativeServer, bare};

const SOON: Duration = Duration::from_secs(10);

/// The client looks records up again when their TTL of 30 s has expired.
const NEXT_LOOK_UP: Duration = Duration::from_mins(1);

const SOME: Payload = Payload {
    seed: 83,
    bytes: 100_000,
};

/// The domain that a person writes, and that certificates must contain.
const DOMAIN: &str = "tunnel.test";

/// A record of the domain: priority, weight, port and target.
type Record = (u16, u16, u16, &'static str);

/// The records of the domain over UDP, and those over TCP. Any other name has the address of this machine.
type Zone = Arc<Mutex<[Vec<Record>; 2]>>;

/// Starts the only name server of this world. Its thread ends with the process.
fn name_server(home: &Home) -> Result<Zone> {
    let list = home.path().join("resolv.conf");
    std::fs::write(&list, "nameserver 127.0.0.1\n")?;
    machine::run(&format!("mount --bind {} /etc/resolv.conf", list.display()))?;
    let zone = Zone::default();
    let (socket, records) = (UdpSocket::bind("127.0.0.1:53")?, zone.clone());
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let records = records.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(answer) = answer(&buffer[..length], &records) {
                // An error means that the resolver has gone, and needs no answer.
                socket.send_to(&answer, from).ok();
            }
        }
    });
    Ok(zone)
}

/// Builds the answer to a question for one name, or returns `None` if the question is malformed.
pub(crate) fn answer(question: &[u8], records: &[Vec<Record>; 2]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    const A: [u8; 2] = [0, 1];
    const SRV: [u8; 2] = [0, 33];
    let name_end = HEADER + question.get(HEADER..)?.iter().position(|byte| *byte == 0)? + 1;
    let kind = question.get(name_end..name_end + 2)?;
    let asked = &question[HEADER..name_end];
    let is_of = |service: &str| {
        let owner = wire_name(&format!("{service}.{DOMAIN}"));
        kind == SRV && asked.eq_ignore_ascii_case(&owner)
    };
    let mut services = ["_quictun._udp", "_quictun._tcp"].into_iter().zip(records);
    let found = services.find(|(service, _)| is_of(service));
    let mut data: Vec<Vec<u8>> = Vec::new();
    let mut rcode = 0;
    if let Some((_, records)) = found {
        data.extend(records.iter().map(|(priority, weight, port, target)| {
            let numbers = [priority, weight, port].into_iter();
            let mut data: Vec<u8> = numbers.flat_map(|it| it.to_be_bytes()).collect();
            data.extend(wire_name(target));
            data
        }));
    } else if kind == SRV {
        rcode = 3;
    } else if kind == A {
        data.push(Ipv4Addr::LOCALHOST.octets().to_vec());
    }
    let mut message = question.get(..name_end + 4)?.to_vec();
    let count = u8::try_from(data.len()).ok()?;
    message[2..HEADER].copy_from_slice(&[0x85, 0x80 | rcode, 0, 1, 0, count, 0, 0, 0, 0]);
    for data in data {
        // The question's name and type, class IN, 30 s.
        message.extend([0xc0, 12, kind[0], kind[1], 0, 1, 0, 0, 0, 30]);
        message.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
        message.extend(data);
    }
    Some(message)
}

fn wire_name(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for part in name.split('.').filter(|part| !part.is_empty()) {
        wire.extend(u8::try_from(part.len()));
        wire.extend(part.as_bytes());
    }
    wire.push(0);
    wire
}

/// A world with an authority, a name server, and an application that echoes.
struct ServiceHosts {
    home: Home,
    authority: Authority,
    zone: Zone,
    application: Application,
}

impl ServiceHosts {
    fn new() -> Result<Self> {
        let home = Home::new()?;
        Ok(Self {
            authority: Authority::new(&home, "authority")?,
            zone: name_server(&home)?,
            application: Application::tcp(|connection| {
                // A flow may be idle until the records are looked up again.
                connection.set_timeout(2 * NEXT_LOOK_UP)?;
                echo(connection)
            })?,
            home,
        })
    }

    fn target(&self) -> String {
        bare(&self.application.target())
    }

    /// Starts a server whose certificate contains `name`, and returns its port too. All servers have one secret.
    fn server(&self, name: &str) -> Result<(NativeServer, u16)> {
        self.server_with(name, &[])
    }

    /// Starts a server that has these flags, too.
    fn server_with(&self, name: &str, flags: &[&str]) -> Result<(NativeServer, u16)> {
        let [certificate, key] = self.authority.issue(&self.home, name, name)?;
        let state = self.home.path().join("state");
        let state = state.to_str().context("a path that is no text")?;
        let target = self.target();
        let identity = ["--cert", &certificate, "--key", &key, "--state-dir", state];
        let server = NativeServer::start(&[&identity[..], &["--allow", &target], flags].concat())?;
        let (_, port) = server.address.rsplit_once(':').context("no port")?;
        let port = port.parse()?;
        Ok((server, port))
    }

    fn set(&self, records: &[Record]) {
        let mut zone = self.zone.lock().unwrap_or_else(PoisonError::into_inner);
        zone[0] = records.to_vec();
    }

    fn set_over_tcp(&self, records: &[Record]) {
        let mut zone = self.zone.lock().unwrap_or_else(PoisonError::into_inner);
        zone[1] = records.to_vec();
    }

    fn client(&self, server: &str) -> Result<Client> {
        self.client_with(server, &[])
    }

    fn client_with(&self, server: &str, flags: &[&str]) -> Result<Client> {
        let home = Home::new()?;
        let secret = self.home.path().join("state/client.psk");
        let forward = format!("127.0.0.1:0={}", self.target());
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["client", "--server", server, "-L", &forward]);
        command.args(["--ca", &self.authority.file]);
        command.arg("--psk-file").arg(secret);
        command.args(["--http", "127.0.0.1:0", "--connections", "1"]);
        command.args(flags);
        Client::from_command(home, &mut command)
    }
}

/// Returns the entries of `/v1/status` for each server: its name, priority, and state.
fn states(program: &mut Program) -> Result<Vec<(String, u64, String)>> {
    let line = program.wait_for("HTTP interface\t", SOON)?;
    let at = listen_address(&line)?.parse()?;
    let status = rest::get(at, "/v1/status")?.json()?;
    let servers = status["servers"].as_array().context("servers")?;
    let state = |server: &serde_json::Value| {
        let text = |key: &str| Some(server[key].as_str()?.to_owned());
        Some((text("name")?, server["priority"].as_u64()?, text("why")?))
    };
    let states: Option<Vec<_>> = servers.iter().map(state).collect();
    let mut states = states.context("a name, a priority and a state of each")?;
    states.sort();
    Ok(states)
}

#[test]
fn the_next_priority_serves_when_the_first_server_is_killed() -> Result<()> {
    isolated(|| {
        let hosts = ServiceHosts::new()?;
        let (backup, backup_port) = hosts.server(DOMAIN)?;
        let (mut first, first_port) = hosts.server(DOMAIN)?;
        hosts.set(&[
            (20, 0, backup_port, "backup.hosts.test"),
            (10, 1, first_port, "First.hosts.test"),
        ]);
        let mut client = hosts.client("srv:tunnel.test")?;
        through_echo(&client.forward, SOME)?;
        let line = client
            .program
            .wait_for("new flows go to this server", SOON)?;
        let named = |name: &str, port: u16| format!("{name}.hosts.test:{port}");
        let (one, two) = (named("first", first_port), named("backup", backup_port));
        ensure!(line.contains(&one), "{line}");
        ensure!(line.contains("first by priority and weight"), "{line}");
        let connected = || client.program.count("connected to server endpoint") == 2;
        deadline::until("both are connected to", SOON, connected)?;
        let expected = [
            (
                two.clone(),
                20,
                "stands by: one with a lower priority number answers".to_owned(),
            ),
            (
                one.clone(),
                10,
                "in use: first by priority and weight".to_owned(),
            ),
        ];
        let told = states(&mut client.program)?;
        ensure!(told == expected, "{told:?}");

        first.program.kill()?;
        let took = served_within(&client.forward, SOME, SOON)?;
        ensure!(took < Duration::from_secs(5), "{took:?}");
        let switched = format!("\"server\": \"{two}\", \"before\": \"{one}\"");
        let line = client.program.wait_for(&switched, SOON)?;
        ensure!(line.contains("the other does not answer"), "{line}");
        drop(backup);
        client.program.silence();
        Ok(())
    })
}

#[test]
fn a_record_over_tcp_names_the_tcp_port_of_a_server() -> Result<()> {
    isolated(|| {
        let hosts = ServiceHosts::new()?;
        let (_server, port) = hosts.server_with(DOMAIN, &["--listen-tls", "127.0.0.1:443"])?;
        hosts.set(&[(10, 0, port, "one.hosts.test")]);
        hosts.set_over_tcp(&[(10, 0, 443, "one.hosts.test")]);
        let client = hosts.client_with("srv:tunnel.test", &["--carrier", "tls"])?;
        through_echo(&client.forward, SOME)
    })
}

#[test]
fn a_server_that_is_withdrawn_from_the_records_keeps_its_flows_and_gets_no_new_ones() -> Result<()>
{
    isolated(|| {
        let hosts = ServiceHosts::new()?;
        let (mut first, first_port) = hosts.server(DOMAIN)?;
        let (mut second, second_port) = hosts.server(DOMAIN)?;
        let stays = (20, 1, second_port, "second.hosts.test");
        hosts.set(&[(10, 1, first_port, "first.hosts.test"), stays]);
        let mut client = hosts.client("srv:tunnel.test")?;
        let mut old = client.forward.connect()?;
        old.write_all(b"x")?;
        old.read_exact(&mut [0; 1])?;
        let line = client
            .program
            .wait_for("new flows go to this server", SOON)?;
        ensure!(line.contains("first.hosts.test"), "{line}");

        hosts.set(&[stays]);
        let line = client.program.wait_for("HTTP interface\t", SOON)?;
        let at = listen_address(&line)?.parse()?;
        deadline::until("the next look-up", NEXT_LOOK_UP, || {
            let status = rest::get(at, "/v1/status").and_then(|answer| answer.json());
            status.is_ok_and(|status| {
                status
                    .to_string()
                    .contains("withdrawn from the records: keeps its flows")
            })
        })?;
        for _ in 0..10 {
            through_echo(&client.forward, SOME)?;
        }
        second.program.wait_for("flow closed", SOON)?;
        ensure!(first.program.count("flow closed") == 0, "a new flow");
        SOME.write_to(&mut old)?;
        SOME.read_from(&mut old)?;
        old.finish()?;
        ensure!(old.read(&mut [0; 1])? == 0, "no clean end");
        first.program.wait_for("flow closed", SOON)?;
        Ok(())
    })
}

#[test]
fn a_certificate_for_the_record_target_is_refused_and_missing_records_are_reported() -> Result<()> {
    isolated(|| {
        let hosts = ServiceHosts::new()?;
        let (_other, port) = hosts.server("one.hosts.test")?;
        hosts.set(&[(10, 1, port, "one.hosts.test")]);
        let refuses = "cannot connect to server endpoint";
        for (server, reason) in [
            ("srv:tunnel.test", "tunnel.test"),
            (
                "srv:other.test",
                "_quictun._udp.other.test does not exist in the DNS",
            ),
        ] {
            let mut client = hosts.client(server)?;
            let line = client.program.wait_for(refuses, SOON)?;
            ensure!(line.contains(reason), "{line}");
            client.program.silence();
        }
        // A host's name that is trusted as written needs no service.
        let client = hosts.client(&format!("one.hosts.test:{port}"))?;
        through_echo(&client.forward, SOME)?;
        hosts.set(&[(0, 0, 0, ".")]);
        let mut client = hosts.client("srv:_quictun._udp.tunnel.test")?;
        let line = client.program.wait_for(refuses, SOON)?;
        ensure!(line.contains("there is no such service"), "{line}");
        client.program.silence();
        Ok(())
    })
}
