//! Reverse forwards of datagrams: the server takes them at a UDP port, and the client has the target (PROTOCOL REVERSE-16).

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{Program, run};
use quictun_testbed::tunnel::START;

use crate::reverse::{LISTENS, REFUSED, ReverseServer, end, field};

const SOON: Duration = Duration::from_secs(20);

/// Time after which a program sends a datagram again that was not answered.
const AGAIN: Duration = Duration::from_millis(200);

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

/// A program that sends datagrams to this address.
fn program(at: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(at)?;
    socket.set_read_timeout(Some(AGAIN))?;
    Ok(socket)
}

/// Sends a datagram until it is answered. Returns the port from which the target has received it.
fn ask(socket: &UdpSocket, payload: &[u8]) -> Result<u16> {
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
    bail!("{} bytes were not answered", payload.len())
}

/// Returns the address at which the server takes datagrams for a client.
fn bound(client: &mut Program) -> Result<SocketAddr> {
    let line = client.wait_for(LISTENS, START)?;
    let text = field(&line, "listen")?;
    let address = text.strip_prefix("udp:").context("not for datagrams")?;
    Ok(address.parse()?)
}

// PROTOCOL REVERSE-6, REVERSE-12, REVERSE-16, UDP-6.
#[test]
fn sources_at_a_servers_port_reach_the_clients_target_as_long_as_it_listens() -> Result<()> {
    let mut reverse = ReverseServer::new(&["udp:127.0.0.1:0"])?;
    let forward = format!("udp:127.0.0.1:0=127.0.0.1:{}", echo_with_port()?);
    let mut client = reverse.client_with(&[&forward], &["--http", "127.0.0.1:0"])?;
    let http = client.wait_for("HTTP interface", START)?;
    let at = bound(&mut client)?;
    let (one, other) = (program(at)?, program(at)?);
    let first = ask(&one, b"first")?;
    ensure!(ask(&other, b"other")? != first, "a socket for each source");
    for length in [0, 1, 1200, 1472, 9000, 60_000] {
        ensure!(ask(&one, &vec![7; length])? == first, "{length} bytes");
    }
    let http: Option<SocketAddr> = http.split('"').find_map(|part| part.parse().ok());
    let http = http
        .context("no address of the HTTP interface")?
        .to_string();
    let mut reconnect = reverse.home.command(&Machine::here(), "quictun")?;
    run(reconnect.args(["reconnect", "--http", &http]))?;
    let goes_on = "the listener continues on another connection of its client";
    reverse.server.wait_for(goes_on, SOON)?;
    ensure!(ask(&one, b"on another connection")? == first);
    for _ in 0..2 {
        ask(&program(at)?, b"another source")?;
    }
    end(&mut client)?;
    // Once the system refuses the first datagram, the next call reports it.
    deadline::until("a closed port", SOON, || {
        let sent = one.send(b"x").and_then(|_| one.recv(&mut [0; 64]));
        sent.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    })
}

// PROTOCOL REVERSE-3.
#[test]
fn a_rule_for_connections_opens_no_port_for_datagrams() -> Result<()> {
    let mut reverse = ReverseServer::new(&["127.0.0.1:*"])?;
    let mut client = reverse.client(&["udp:127.0.0.1:0=127.0.0.1:53"])?;
    client.wait_for(REFUSED, START)?;
    let line = reverse.server.wait_for("would allow it", SOON)?;
    ensure!(line.contains("udp:127.0.0.1:0"), "{line}");
    Ok(())
}

// PROTOCOL REVERSE-16: as resolvers ask a name server, each time from another port.
#[test]
fn sources_beyond_the_limit_are_served_as_earlier_ones_fall_silent() -> Result<()> {
    let reverse = ReverseServer::new(&["udp:127.0.0.1:0"])?;
    let forward = format!("udp:127.0.0.1:0=127.0.0.1:{}", echo_with_port()?);
    let mut client = reverse.client(&[&forward])?;
    let at = bound(&mut client)?;
    let lasting = program(at)?;
    let first = ask(&lasting, b"one")?;
    ask(&lasting, b"two")?;
    let begin = Instant::now();
    for number in 0..1500_u32 {
        ask(&program(at)?, &number.to_be_bytes())?;
        // Of more than a thousand in a second, too few would have fallen silent.
        let due = begin + Duration::from_millis(1) * number;
        std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
    }
    ensure!(
        ask(&lasting, b"three")? == first,
        "it has sent again, and stays"
    );
    ensure!(!reverse.server.has_printed("too many programs"));
    Ok(())
}

// PROTOCOL UDP-2: the target's program has ended. The next datagram finds its successor.
#[test]
fn a_target_that_refuses_ends_the_flow_and_not_the_listener() -> Result<()> {
    let reverse = ReverseServer::new(&["udp:127.0.0.1:0"])?;
    let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = target.local_addr()?;
    let mut client = reverse.client(&[&format!("udp:127.0.0.1:0={to}")])?;
    let source = program(bound(&mut client)?)?;
    target.set_read_timeout(Some(AGAIN))?;
    let receives =
        |target: &UdpSocket| source.send(b"x").is_ok() && target.recv(&mut [0; 64]).is_ok();
    deadline::until("a datagram", SOON, || receives(&target))?;
    drop(target);
    source.send(b"to no program")?;
    ensure!(source.recv(&mut [0; 64]).is_err());
    let target = UdpSocket::bind(to)?;
    target.set_read_timeout(Some(AGAIN))?;
    deadline::until("a datagram", SOON, || receives(&target))
}
