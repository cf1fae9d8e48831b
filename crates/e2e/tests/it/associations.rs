//! `quictun client -D` as used by programs that send datagrams: SOCKS5 UDP ASSOCIATE (RFC 1928 section 7).

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_testbed::deadline;
use quictun_testbed::foreign::Python;

use crate::proxy::ProxyServer;

const SOON: Duration = Duration::from_secs(20);

/// Time after which a program sends a datagram again that was not answered.
const AGAIN: Duration = Duration::from_millis(200);

/// The request for an association of a program that does not know its port.
const ANY: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// A target at all addresses of this machine, which answers each datagram with the port of its source, and the datagram.
fn echo_with_port() -> Result<u16> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
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

/// A program with an association.
struct UdpProgram {
    lifeline: TcpStream,
    relay: SocketAddr,
    socket: UdpSocket,
}

/// Connects to a proxy without a login. Returns the connection and the answer to UDP ASSOCIATE with this address.
fn associate(proxy: SocketAddr, address: &[u8]) -> Result<(TcpStream, u8, Option<SocketAddr>)> {
    let mut connection = TcpStream::connect(proxy)?;
    connection.set_read_timeout(Some(SOON))?;
    connection.write_all(&[5, 1, 0])?;
    connection.read_exact(&mut [0; 2])?;
    connection.write_all(&[&[5, 3, 0], address].concat())?;
    let mut head = [0; 4];
    connection.read_exact(&mut head)?;
    let ip = if head[3] == 1 {
        let mut octets = [0; 4];
        connection.read_exact(&mut octets)?;
        IpAddr::from(octets)
    } else {
        let mut octets = [0; 16];
        connection.read_exact(&mut octets)?;
        IpAddr::from(octets)
    };
    let mut port = [0; 2];
    connection.read_exact(&mut port)?;
    let relay = SocketAddr::new(ip, u16::from_be_bytes(port));
    Ok((connection, head[1], (head[1] == 0).then_some(relay)))
}

/// Returns the address of a target in a request or in the header of a datagram.
fn address(host: &str, port: u16) -> Vec<u8> {
    let mut bytes = match host.parse() {
        Ok(IpAddr::V4(ip)) => [&[1], &ip.octets()[..]].concat(),
        Ok(IpAddr::V6(ip)) => [&[4], &ip.octets()[..]].concat(),
        Err(_) => {
            let length = u8::try_from(host.len()).unwrap_or(u8::MAX);
            [&[3, length], host.as_bytes()].concat()
        }
    };
    bytes.extend(port.to_be_bytes());
    bytes
}

fn header(host: &str, port: u16) -> Vec<u8> {
    [vec![0, 0, 0], address(host, port)].concat()
}

impl UdpProgram {
    fn open(proxy: SocketAddr) -> Result<Self> {
        let (lifeline, code, relay) = associate(proxy, &ANY)?;
        let relay = relay.with_context(|| format!("it was refused with {code}"))?;
        ensure!(
            relay.ip() == proxy.ip(),
            "{relay} is not the host of the proxy"
        );
        let socket = UdpSocket::bind((proxy.ip(), 0))?;
        socket.set_read_timeout(Some(AGAIN))?;
        Ok(Self {
            lifeline,
            relay,
            socket,
        })
    }

    /// Sends a datagram until it is answered. Returns the port from which the target has received it.
    fn ask(&self, header: &[u8], payload: &[u8]) -> Result<u16> {
        let until = Instant::now() + SOON;
        while Instant::now() < until {
            let sent = [header, payload].concat();
            self.socket.send_to(&sent, self.relay)?;
            while let Some(answer) = self.next_answer()? {
                let rest = answer.strip_prefix(header);
                if let Some([high, low, rest @ ..]) = rest
                    && rest == payload
                {
                    return Ok(u16::from_be_bytes([*high, *low]));
                }
            }
        }
        bail!("{} bytes were not answered", payload.len())
    }

    fn next_answer(&self) -> Result<Option<Vec<u8>>> {
        let mut answer = vec![0; 65_535];
        match self.socket.recv_from(&mut answer) {
            Ok((length, from)) => {
                ensure!(from == self.relay, "an answer from {from}");
                answer.truncate(length);
                Ok(Some(answer))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Starts a tunnel with rules for datagrams to these hosts and a port. Returns the address of a proxy there.
fn tunnel(
    hosts: &[&str],
    port: u16,
    proxy: &str,
) -> Result<(ProxyServer, quictun_testbed::tunnel::Client, SocketAddr)> {
    let rules: Vec<_> = hosts
        .iter()
        .map(|host| format!("udp:{host}:{port}"))
        .collect();
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    let site = ProxyServer::new(&rules)?;
    let client = site.client(&["-D", proxy])?;
    let port = client.forward.port()?;
    Ok((site, client, (Ipv4Addr::LOCALHOST, port).into()))
}

#[test]
fn an_association_reaches_targets_of_every_kind_and_answers_name_them_as_asked() -> Result<()> {
    let port = echo_with_port()?;
    let hosts = ["127.0.0.1", "[::1]", "localhost"];
    let (_site, _client, proxy) =
        tunnel(&hosts, port, "[::]:0").or_else(|_| tunnel(&hosts, port, "127.0.0.1:0"))?;
    let (one, other) = (UdpProgram::open(proxy)?, UdpProgram::open(proxy)?);
    ensure!(one.relay != other.relay, "a socket for each association");
    let mut ports = Vec::new();
    for host in ["127.0.0.1", "::1", "localhost", "LOCALHOST"] {
        for length in [0, 1, 1200, 9000, 60_000] {
            let payload = vec![7; length];
            ports.push(one.ask(&header(host, port), &payload)?);
        }
        ports.dedup();
    }
    ports.push(other.ask(&header("127.0.0.1", port), b"x")?);
    ports.sort_unstable();
    ports.dedup();
    ensure!(ports.len() == 5, "a flow for each target: {ports:?}");
    Ok(())
}

#[test]
fn an_association_takes_datagrams_of_its_host_and_one_port_and_no_fragments() -> Result<()> {
    let port = echo_with_port()?;
    let (_site, _client, proxy) = tunnel(&["127.0.0.1"], port, "127.0.0.1:0")?;
    let header = header("127.0.0.1", port);
    let association = UdpProgram::open(proxy)?;
    let stranger = |host: [u8; 4]| -> Result<UdpSocket> {
        let socket = UdpSocket::bind((IpAddr::from(host), 0))?;
        socket.set_read_timeout(Some(AGAIN))?;
        socket.send_to(&[&header[..], b"by a stranger"].concat(), association.relay)?;
        Ok(socket)
    };
    // Another host does not bind the port. Its datagram arrives before the one of the application.
    let far = stranger([127, 0, 0, 2])?;
    let mut fragment = header.clone();
    fragment[2] = 1;
    association
        .socket
        .send_to(&[&fragment[..], b"fragment"].concat(), association.relay)?;
    association.ask(&header, b"whole")?;
    let near = stranger([127, 0, 0, 1])?;
    association.ask(&header, b"again")?;
    for socket in [&far, &near] {
        ensure!(socket.recv(&mut [0; 64]).is_err(), "a stranger was served");
    }
    while let Some(answer) = association.next_answer()? {
        ensure!(!answer.ends_with(b"fragment") && !answer.ends_with(b"stranger"));
    }
    // An application that has named its port is heard from there alone.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(AGAIN))?;
    let named = address("0.0.0.0", socket.local_addr()?.port());
    let (lifeline, _, relay) = associate(proxy, &named)?;
    let relay = relay.context("it was refused")?;
    let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    first.send_to(&[&header[..], b"first"].concat(), relay)?;
    UdpProgram {
        lifeline,
        relay,
        socket,
    }
    .ask(&header, b"named")?;
    Ok(())
}

#[test]
fn the_end_of_its_connection_ends_an_association_and_its_flows_and_no_other() -> Result<()> {
    let port = echo_with_port()?;
    let (mut site, client, proxy) = tunnel(&["127.0.0.1", "localhost"], port, "127.0.0.1:0")?;
    let (one, other) = (UdpProgram::open(proxy)?, UdpProgram::open(proxy)?);
    let hosts = ["127.0.0.1", "localhost"];
    for host in hosts {
        one.ask(&header(host, port), b"x")?;
    }
    let first = other.ask(&header("127.0.0.1", port), b"x")?;
    let before = client.program.descriptors()?;
    one.lifeline.shutdown(Shutdown::Write)?;
    for host in hosts {
        let line = format!("udp:{host}:{port}");
        let line = site.server.wait_for(&line, SOON)?;
        ensure!(line.contains("flow closed"), "{line}");
    }
    deadline::until("a closed socket", SOON, || {
        // Once the system refuses the first, the next reports it.
        let sent = one.socket.connect(one.relay).is_ok() && one.socket.send(b"x").is_ok();
        !sent
            || one
                .socket
                .recv(&mut [0; 64])
                .is_err_and(|it| it.kind() == ErrorKind::ConnectionRefused)
    })?;
    ensure!(other.ask(&header("127.0.0.1", port), b"y")? == first);
    deadline::until("closed descriptors", SOON, || {
        client
            .program
            .descriptors()
            .is_ok_and(|now| now + 2 == before)
    })
}

// PROTOCOL section 5.11: a rule of its own. The association goes on.
#[test]
fn a_target_that_is_refused_ends_no_association() -> Result<()> {
    let port = echo_with_port()?;
    let (mut site, _client, proxy) = tunnel(&["127.0.0.1"], port, "127.0.0.1:0")?;
    let association = UdpProgram::open(proxy)?;
    let sent = [&header("192.0.2.1", 53)[..], b"x"].concat();
    association.socket.send_to(&sent, association.relay)?;
    let line = site.server.wait_for("would allow it", SOON)?;
    ensure!(line.contains("udp:192.0.2.1:53"), "{line}");
    association.ask(&header("127.0.0.1", port), b"x")?;
    Ok(())
}

/// Each spelling of a name is a target of its own: an answer repeats it.
#[test]
fn a_program_with_many_peers_is_served_as_earlier_ones_fall_silent() -> Result<()> {
    let port = echo_with_port()?;
    let (_site, client, proxy) = tunnel(&["localhost"], port, "127.0.0.1:0")?;
    let association = UdpProgram::open(proxy)?;
    for number in 0..400_u32 {
        let letters = "localhost".chars().enumerate();
        let host = letters.map(|(at, letter)| match number >> at & 1 {
            0 => letter,
            _ => letter.to_ascii_uppercase(),
        });
        let host: String = host.collect();
        association.ask(&header(&host, port), &number.to_be_bytes())?;
    }
    ensure!(!client.program.has_printed("too many targets"));
    Ok(())
}

#[test]
fn associations_of_one_host_have_a_limit() -> Result<()> {
    let port = echo_with_port()?;
    let (_site, _client, proxy) = tunnel(&["127.0.0.1"], port, "127.0.0.1:0")?;
    let mut held = Vec::new();
    loop {
        let (lifeline, code, relay) = associate(proxy, &ANY)?;
        if relay.is_none() {
            ensure!(code == 1, "{code}");
            break;
        }
        held.push(lifeline);
    }
    // Four fifths of the places of each worker. A connection leads to any of the workers.
    ensure!(held.len() >= 204, "{}", held.len());
    held.clear();
    deadline::until("a free place", SOON, || {
        associate(proxy, &ANY).is_ok_and(|(_, _, relay)| relay.is_some())
    })
}

#[test]
fn a_foreign_program_sends_datagrams_through_a_proxy_with_users() -> Result<()> {
    let test = "a_foreign_program_sends_datagrams_through_a_proxy_with_users";
    let Some(python) = Python::find(test)? else {
        return Ok(());
    };
    let port = echo_with_port()?;
    let site = ProxyServer::new(&[
        &format!("udp:127.0.0.1:{port}"),
        &format!("udp:localhost:{port}"),
    ])?;
    std::fs::write(site.home.path().join("users"), "ann:wonder\n")?;
    let client = site.client(&["-D", "127.0.0.1:0", "--proxy-users", "users"])?;
    let proxy = (Ipv4Addr::LOCALHOST, client.forward.port()?).into();
    for host in ["127.0.0.1", "localhost"] {
        let target = format!("{host}:{port}");
        let arguments = ["--target", &target, "--login", "ann:wonder"];
        let told = python
            .start("associate", proxy, &arguments)?
            .next_line(SOON)?;
        ensure!(told["answered"] == 100, "{told}");
    }
    let target = format!("127.0.0.1:{port}");
    let arguments = ["--target", &target, "--login", "ann:wunder"];
    let told = python
        .start("associate", proxy, &arguments)?
        .next_line(SOON)?;
    ensure!(told["refused"] == true, "{told}");
    Ok(())
}
