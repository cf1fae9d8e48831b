//! Applications that exchange datagrams (PROTOCOL section 5.11): forwards by `-L udp:`.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quictun_e2e::load::carriers::native_tunnel::{NativeClient, NativeServer};
use quictun_e2e::load::carriers::udp_block::{UdpFate, block_udp};
use quictun_e2e::load::machines::{LinkKind, LinkedMachines};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, run};
use quictun_testbed::rest::get;
use quictun_testbed::tunnel::{Home, START};

const PORT: u16 = 7500;

/// The time limit for what needs a new connection, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Time after which a program sends a datagram again that was not answered.
const AGAIN: Duration = Duration::from_millis(200);

/// The address of a forward, on the client's machine.
const FORWARD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5353);

/// A target that answers each datagram with the port of its source, and the datagram.
fn echo_with_port() -> Result<u16> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = socket.local_addr()?.port();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_535];
        while let Ok((length, source)) = socket.recv_from(&mut buffer) {
            let answer = [&source.port().to_be_bytes()[..], &buffer[..length]].concat();
            // A source that has ended refuses the answer.
            let _sent = socket.send_to(&answer, source);
        }
    });
    Ok(port)
}

/// Sends a datagram until it is answered. Returns the port from which the target has received it.
fn ask(socket: &UdpSocket, payload: &[u8]) -> Result<u16> {
    socket.set_read_timeout(Some(AGAIN))?;
    let mut answer = vec![0; 65_535];
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        socket.send(payload)?;
        loop {
            match socket.recv(&mut answer) {
                Ok(length) if answer[2..length] == *payload => {
                    return Ok(u16::from_be_bytes([answer[0], answer[1]]));
                }
                // The answer to an earlier datagram.
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    anyhow::bail!("{} bytes were not answered", payload.len())
}

/// Connects a program to the forward.
fn program(machines: &LinkedMachines) -> Result<UdpSocket> {
    machines.near.within(|| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(FORWARD)?;
        Ok(socket)
    })
}

fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().copied().map(str::to_owned).collect()
}

/// Starts a tunnel with a forward of connections to `stream`, and one of datagrams to a port of the server's machine.
fn tunnel<'a>(
    machines: &'a LinkedMachines,
    stream: &str,
    port: u16,
    rule: &str,
) -> Result<(NativeServer<'a>, NativeClient<'a>)> {
    let server = NativeServer::start(machines, None, PORT, stream, &owned(&["--allow", rule]))?;
    let forward = format!("udp:{FORWARD}=127.0.0.1:{port}");
    let client = server.client(&owned(&["--connections", "1", "-L", &forward]))?;
    Ok((server, client))
}

#[test]
fn a_flow_keeps_its_port_when_its_connection_and_its_carrier_change() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let stream = machines.far.within(Application::echo)?;
        let port = machines.far.within(echo_with_port)?;
        let rule = format!("udp:127.0.0.1:{port}");
        let (mut server, client) = tunnel(&machines, &stream.target(), port, &rule)?;
        let (one, other) = (program(&machines)?, program(&machines)?);
        let first = ask(&one, b"first")?;
        ensure!(ask(&other, b"other")? != first, "a socket for each source");
        for length in [0, 1, 1200, 1472, 9000, 60_000] {
            ensure!(ask(&one, &vec![7; length])? == first, "{length} bytes");
        }
        let home = Home::new()?;
        let mut command = home.command(&machines.near, "quictun")?;
        run(command.args(["reconnect", "--http", &client.http.to_string()]))?;
        server
            .program
            .wait_for("flows continue on a new connection", SOON)?;
        ensure!(ask(&one, b"on another connection")? == first);
        block_udp(&machines, UdpFate::Swallowed)?;
        deadline::until("TLS", SOON, || client.is_carried_by("tls").unwrap_or(false))?;
        ensure!(ask(&one, b"on another carrier")? == first);
        ensure!(ask(&one, &[8; 9000])? == first);
        through_echo(&client.client.forward, Payload::new(3, 1_000_000))
    })
}

/// A resolver takes a new port for each query.
#[test]
fn programs_beyond_the_limit_are_served_as_earlier_ones_fall_silent() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let stream = machines.far.within(Application::echo)?;
        let port = machines.far.within(echo_with_port)?;
        let rule = format!("udp:127.0.0.1:{port}");
        let (_server, client) = tunnel(&machines, &stream.target(), port, &rule)?;
        for number in 0..2500_u32 {
            ask(&program(&machines)?, &number.to_be_bytes())?;
        }
        ensure!(!client.client.program.has_printed("too many programs"));
        Ok(())
    })
}

/// A program recognizes an answer by the address that it has asked.
#[test]
fn a_forward_at_all_addresses_answers_from_the_one_that_was_asked() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let stream = machines.far.within(Application::echo)?;
        let port = machines.far.within(echo_with_port)?;
        let rule = format!("udp:127.0.0.1:{port}");
        let allowed = owned(&["--allow", &rule]);
        let server = NativeServer::start(&machines, None, PORT, &stream.target(), &allowed)?;
        let to = format!("127.0.0.1:{port}");
        let forwards = ["0.0.0.0:5353", "[::]:5454"].map(|at| format!("udp:{at}={to}"));
        let _client = server.client(&owned(&["-L", &forwards[0], "-L", &forwards[1]]))?;
        for (listens, source) in [
            ("127.0.0.1:5353", "127.0.0.1"),
            ("127.0.0.7:5353", "127.0.0.1"),
            ("127.0.0.7:5454", "127.0.0.1"),
            ("[::1]:5454", "::1"),
        ] {
            let (at, source): (SocketAddr, std::net::IpAddr) = (listens.parse()?, source.parse()?);
            // A connected socket takes datagrams of that address alone.
            let program = machines.near.within(|| {
                let socket = UdpSocket::bind((source, 0))?;
                socket.connect(at)?;
                Ok(socket)
            })?;
            ask(&program, b"x").context(listens)?;
        }
        Ok(())
    })
}

// PROTOCOL UDP-2: the program that the datagrams lead to has ended, and another takes its port.
#[test]
fn a_target_that_refuses_ends_the_flow_and_the_next_datagram_begins_another() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let stream = machines.far.within(Application::echo)?;
        let (mut server, _client) = tunnel(&machines, &stream.target(), 9000, "udp:127.0.0.1:*")?;
        let program = program(&machines)?;
        program.send(b"to no program")?;
        let line = server.program.wait_for("udp:127.0.0.1:9000", SOON)?;
        ensure!(!line.contains("refused by"), "{line}");
        let target = machines
            .far
            .within(|| Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 9000))?))?;
        target.set_read_timeout(Some(AGAIN))?;
        let mut buffer = [0; 64];
        deadline::until("a flow", SOON, || {
            program.send(b"to a program").is_ok() && target.recv(&mut buffer).is_ok()
        })
    })
}

// PROTOCOL UDP-2.
#[test]
fn a_program_that_starts_again_is_reached_at_once() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let stream = machines.far.within(Application::echo)?;
        let bind = |port| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
            socket.set_read_timeout(Some(AGAIN))?;
            Ok(socket)
        };
        let target = machines.far.within(|| bind(0))?;
        let port = target.local_addr()?.port();
        let rule = format!("udp:127.0.0.1:{port}");
        let (_server, _client) = tunnel(&machines, &stream.target(), port, &rule)?;
        let program = program(&machines)?;
        program.set_read_timeout(Some(AGAIN))?;
        // Returns whether the program is answered.
        let exchange = |target: &UdpSocket| {
            let mut buffer = [0; 64];
            let _sent = program.send(b"x");
            let source = target.recv_from(&mut buffer);
            source.is_ok_and(|(_, source)| {
                target.send_to(b"y", source).is_ok() && program.recv(&mut buffer).is_ok()
            })
        };
        deadline::until("an answer", SOON, || exchange(&target))?;
        drop(target);
        program.send(b"to no program")?;
        let answer = program.recv(&mut [0; 64]);
        ensure!(answer.is_err(), "the target has ended");
        let target = machines.far.within(|| bind(port))?;
        deadline::until("an answer", Duration::from_secs(5), || exchange(&target))
    })
}

#[test]
fn datagrams_need_a_rule_of_their_own() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let stream = machines.far.within(Application::echo)?;
        let port = machines.far.within(echo_with_port)?;
        // The rule opens the port to connections.
        let rule = format!("127.0.0.1:{port}");
        let (mut server, client) = tunnel(&machines, &stream.target(), port, &rule)?;
        let program = program(&machines)?;
        program.send(b"x")?;
        let line = server.program.wait_for("would allow it", SOON)?;
        ensure!(line.contains(&format!("udp:127.0.0.1:{port}")), "{line}");
        // Datagrams that come before the next flow may be opened are counted.
        let dropped = || -> Result<u64> {
            let metrics = machines.near.within(|| get(client.http, "/metrics"))?;
            let name = "quictun_flow_datagrams_dropped_total ";
            let mut lines = metrics.body.lines();
            let value = lines.find_map(|line| line.strip_prefix(name));
            Ok(value.context("no metric")?.parse()?)
        };
        let until = Instant::now() + SOON;
        while dropped()? < 100 {
            ensure!(Instant::now() < until, "{} were counted", dropped()?);
            for _ in 0..10 {
                program.send(b"x")?;
            }
        }
        Ok(())
    })
}

#[test]
fn iperf3_sends_datagrams_and_receives_them() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let mut command = machines.far.command("iperf3");
        let mut iperf3 = Program::start("iperf3", command.args(["-s", "--forceflush"]))?;
        iperf3.wait_for("Server listening on 5201", START)?;
        let rule = "udp:127.0.0.1:5201";
        let server = NativeServer::start(
            &machines,
            None,
            PORT,
            "tcp:127.0.0.1:5201",
            &owned(&["--allow", rule]),
        )?;
        let forwards = ["-L", "5201=127.0.0.1:5201", "-L", "udp:5201=127.0.0.1:5201"];
        let _client = server.client(&owned(&forwards))?;
        for more in [&[][..], &["-R"]] {
            let mut command = machines.near.command("iperf3");
            command.args([
                "-c",
                "127.0.0.1",
                "-u",
                "-b",
                "20M",
                "-l",
                "1200",
                "-t",
                "2",
                "-J",
            ]);
            let text = run(command.args(more))?;
            let report: serde_json::Value = serde_json::from_str(&text)?;
            let sum = &report["end"]["sum"];
            let lost = sum["lost_percent"].as_f64().context("no loss")?;
            let packets = sum["packets"].as_u64().context("no packets")?;
            // 20 Mbit/s for two seconds are 4 166 of them. A busy machine may lose some.
            ensure!(
                packets > 3000 && lost < 10.0,
                "{more:?}: {lost} % of {packets}"
            );
        }
        Ok(())
    })
}
