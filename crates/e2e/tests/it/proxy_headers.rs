//! PROXY headers, version 2, as targets read them (PROTOCOL section 5.10).

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quictun_skip::knows_localhost;
use quictun_testbed::application::Application;
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::program::{Program, run};
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};

use crate::greedy::keygen;
use crate::native::between;

const SOON: Duration = Duration::from_secs(20);

const CONNECTED: &str = "client connected";

/// Part of the log line about ignored addresses, which the server writes once for each client.
const UNBELIEVED: &str = "PROXY headers contain the client's own";

/// Starts a target that listens on all addresses. It answers each line with the two addresses of the header that came
/// first, followed by the line.
fn target() -> Result<(Application, u16)> {
    let target = Application::tcp_on((Ipv6Addr::UNSPECIFIED, 0).into(), tell)?;
    let port = target.endpoint().port()?;
    Ok((target, port))
}

fn tell(connection: Connection) -> Result<()> {
    let mut answers = connection.try_clone()?;
    let mut connection = BufReader::new(connection);
    let (source, destination) = header(&mut connection)?;
    for line in connection.lines() {
        writeln!(answers, "{source} {destination} {}", line?)?;
    }
    answers.finish()
}

/// Reads a header as section 2.2 of haproxy's specification requires of receivers.
fn header(from: &mut impl Read) -> Result<(SocketAddr, SocketAddr)> {
    let mut fixed = [0; 16];
    from.read_exact(&mut fixed)?;
    ensure!(
        fixed[..13] == *b"\x0D\x0A\x0D\x0A\x00\x0D\x0A\x51\x55\x49\x54\x0A\x21",
        "no header of version 2 for a connection that is relayed: {fixed:02x?}"
    );
    let mut block = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
    from.read_exact(&mut block)?;
    let width = match (fixed[13], block.len()) {
        (0x11, 12) => 4,
        (0x21, 36) => 16,
        (family, length) => bail!("family {family:#04x} with {length} bytes"),
    };
    let ip = |bytes: &[u8]| match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => Ok(IpAddr::from(v4)),
        Err(_) => <[u8; 16]>::try_from(bytes).map(IpAddr::from),
    };
    let ports = &block[2 * width..];
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Ok((
        SocketAddr::new(ip(&block[..width])?, port(0)),
        SocketAddr::new(ip(&block[width..2 * width])?, port(2)),
    ))
}

/// A server with two clients: it accepts the application addresses that `trusted` reports, and ignores those of
/// `plain`.
struct HeaderServer {
    server: Program,
    address: String,
    pin: String,
    home: Home,
}

impl HeaderServer {
    /// Starts the server. Its targets on `port`, and the socket in its directory, get the header.
    fn new(port: u16) -> Result<Self> {
        let home = Home::new()?;
        let at = |name: &str| home.path().join(name).display().to_string();
        let socket = at("target.sock");
        let mut configuration =
            format!("proxy_protocol = [\"127.0.0.1:{port}\", \"unix:{socket}\"]\n");
        for (name, more) in [("plain", ""), ("trusted", "proxy_protocol = true\n")] {
            let secret = at(name);
            fs::write(&secret, format!("a secret that {name} knows\n"))?;
            fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
            write!(
                configuration,
                "[[client]]\nname = \"{name}\"\npsk_file = \"{secret}\"\nallow = [\"*\", \"localhost:{port}\"]\n{more}"
            )?;
        }
        let (configuration, file) = (configuration, at("server.toml"));
        fs::write(&file, configuration)?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        let mut server = Program::start("server", command.args(["--config", &file]))?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        Ok(Self {
            server,
            address: listen_address(&line)?,
            pin: server_pin(&line)?,
            home,
        })
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        command.args(["client", "--server", &self.address, "--pin", &self.pin]);
        // A single connection, so that the server sees one address of the client.
        command.args(["--psk-file", name, "--connections", "1"]);
        command.args(arguments);
        Ok(command)
    }

    /// Starts a client, and returns its address as the server sees it.
    fn client(&self, name: &str, arguments: &[&str]) -> Result<(Client, SocketAddr)> {
        let mut command = self.command(name, arguments)?;
        let before = self.server.count(CONNECTED);
        let client = Client::from_command(Home::new()?, command.args(["--http", "off"]))?;
        deadline::until(CONNECTED, SOON, || self.server.count(CONNECTED) > before)?;
        let mut lines = self.server.lines().into_iter();
        let line = lines.rfind(|line| line.contains(CONNECTED));
        let line = line.context("it has connected")?;
        let address = between(&line, "\"Client-Endpoint-Addr\": \"", '"')?;
        Ok((client, address.parse()?))
    }
}

/// Sends a target a line, and returns its answer.
fn ask(connection: &mut BufReader<TcpStream>, line: &str) -> Result<String> {
    writeln!(connection.get_mut(), "{line}")?;
    let mut answer = String::new();
    connection.read_line(&mut answer)?;
    Ok(answer.trim_end().to_owned())
}

fn connect(forward: &Endpoint) -> Result<(BufReader<TcpStream>, SocketAddr)> {
    let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, forward.port()?))?;
    connection.set_read_timeout(Some(SOON))?;
    let source = connection.local_addr()?;
    Ok((BufReader::new(connection), source))
}

/// Connects to a target through a proxy.
fn connect_by(proxy: &Endpoint, target: &str) -> Result<(BufReader<TcpStream>, SocketAddr)> {
    let (mut connection, source) = connect(proxy)?;
    write!(
        connection.get_mut(),
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
    )?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    ensure!(line.contains(" 200 "), "{line}");
    while !line.trim_end().is_empty() {
        line.clear();
        connection.read_line(&mut line)?;
    }
    Ok((connection, source))
}

// PROTOCOL HEADER-2, SOURCE-2, SOURCE-3.
#[test]
fn a_target_receives_the_clients_address_or_the_applications_if_permitted() -> Result<()> {
    let (_target, port) = target()?;
    let site = HeaderServer::new(port)?;
    let to = format!("127.0.0.1:{port}");
    let forward = format!("127.0.0.1:0={to}");
    for (name, flags, named) in [
        ("plain", &[][..], false),
        ("plain", &["--send-app-addresses"], false),
        ("trusted", &[], false),
        ("trusted", &["--send-app-addresses"], true),
    ] {
        let arguments = [&["-L", &forward, "-D", "127.0.0.1:0"], flags].concat();
        let (client, peer) = site.client(name, &arguments)?;
        let forwards = client.forwards(2)?;
        for (mut connection, application) in
            [connect(&forwards[0])?, connect_by(&forwards[1], &to)?]
        {
            let source = if named { application } else { peer };
            let answer = ask(&mut connection, "a line")?;
            let expected = format!("{source} {to} a line");
            ensure!(
                answer == expected,
                "{name} {flags:?}: {answer}, not {expected}"
            );
        }
    }
    let told = site.server.count(UNBELIEVED);
    ensure!(
        told == 1,
        "it was told {told} times that plain is not believed"
    );
    Ok(())
}

/// Writes an address of the client as the header has it.
type AddressText = fn(SocketAddr) -> String;

// PROTOCOL HEADER-1, HEADER-2.
#[test]
fn a_target_gets_the_header_in_every_spelling_of_its_name() -> Result<()> {
    if !knows_localhost("proxy_headers::a_target_gets_the_header_in_every_spelling_of_its_name") {
        return Ok(());
    }
    let (_target, port) = target()?;
    let site = HeaderServer::new(port)?;
    let socket = site.home.path().join("target.sock");
    let _over_unix = Application::unix(&socket, tell)?;
    let link = site.home.path().join("link.sock");
    std::os::unix::fs::symlink(&socket, &link)?;
    let v6 = |peer: SocketAddr| format!("[::ffff:{}]:{}", peer.ip(), peer.port());
    let v4 = |peer: SocketAddr| peer.to_string();
    let ways: [(String, AddressText, String); 7] = [
        (format!("127.0.0.1:{port}"), v4, format!("127.0.0.1:{port}")),
        (
            format!("tcp4:localhost:{port}"),
            v4,
            format!("127.0.0.1:{port}"),
        ),
        (format!("0.0.0.0:{port}"), v4, format!("0.0.0.0:{port}")),
        (format!("127.9.9.9:{port}"), v4, format!("127.9.9.9:{port}")),
        (format!("[::1]:{port}"), v6, format!("[::1]:{port}")),
        (
            format!("unix:{}", socket.display()),
            v4,
            "0.0.0.0:0".to_owned(),
        ),
        (
            format!("unix:{}", link.display()),
            v4,
            "0.0.0.0:0".to_owned(),
        ),
    ];
    let forwards: Vec<_> = ways
        .iter()
        .map(|(to, ..)| format!("127.0.0.1:0={to}"))
        .collect();
    let arguments: Vec<_> = forwards.iter().flat_map(|it| ["-L", it.as_str()]).collect();
    let (client, peer) = site.client("plain", &arguments)?;
    for (endpoint, (to, source, destination)) in client.forwards(ways.len())?.iter().zip(&ways) {
        let (mut connection, _) = connect(endpoint)?;
        let answer = ask(&mut connection, "a line")?;
        let expected = format!("{} {destination} a line", source(peer));
        ensure!(answer == expected, "{to}: {answer}, not {expected}");
    }
    Ok(())
}

// PROTOCOL HEADER-1.
#[test]
fn a_target_gets_the_header_at_addresses_that_only_a_route_makes_local() -> Result<()> {
    isolated(|| {
        machine::run("ip route add local 203.0.113.0/24 dev lo")?;
        machine::run("ip route add local 2001:db8:a::/64 dev lo")?;
        let (_target, port) = target()?;
        let site = HeaderServer::new(port)?;
        let hosts = ["203.0.113.9", "[2001:db8:a::9]"];
        let forwards = hosts.map(|host| format!("127.0.0.1:0={host}:{port}"));
        let arguments: Vec<_> = forwards.iter().flat_map(|it| ["-L", it.as_str()]).collect();
        let (client, _) = site.client("plain", &arguments)?;
        for (endpoint, host) in client.forwards(hosts.len())?.iter().zip(hosts) {
            let (mut connection, _) = connect(endpoint)?;
            let answer = ask(&mut connection, "a line")?;
            ensure!(
                answer.ends_with(&format!(" {host}:{port} a line")),
                "{answer}"
            );
        }
        Ok(())
    })
}

#[test]
fn a_target_without_a_rule_gets_no_header() -> Result<()> {
    let (_target, port) = target()?;
    let site = HeaderServer::new(port)?;
    let plain = Application::echo()?;
    let forward = format!("127.0.0.1:0={}", plain.target().trim_start_matches("tcp:"));
    let (client, _) = site.client("trusted", &["-L", &forward, "--send-app-addresses"])?;
    let (mut connection, _) = connect(&client.forward)?;
    let answer = ask(&mut connection, "a line")?;
    ensure!(answer == "a line", "{answer}");
    Ok(())
}

// PROTOCOL HEADER-3.
#[test]
fn a_flow_that_moves_to_another_connection_has_one_header() -> Result<()> {
    let (_target, port) = target()?;
    let mut site = HeaderServer::new(port)?;
    let http = format!("unix:{}", site.home.path().join("http.sock").display());
    let to = format!("127.0.0.1:{port}");
    let forward = format!("127.0.0.1:0={to}");
    let arguments = ["-L", &forward, "--send-app-addresses", "--http", &http];
    let mut command = site.command("trusted", &arguments)?;
    let mut client = Client::from_command(Home::new()?, &mut command)?;
    let (mut connection, application) = connect(&client.forward)?;
    for line in ["before", "after"] {
        let answer = ask(&mut connection, line)?;
        let expected = format!("{application} {to} {line}");
        ensure!(answer == expected, "{answer}, not {expected}");
        if line == "before" {
            let mut command = site.home.command(&Machine::here(), "quictun")?;
            run(command.args(["reconnect", "--http", &http]))?;
            let moved = "flows continue on a new connection";
            client.program.wait_for(moved, SOON)?;
            site.server.wait_for(moved, SOON)?;
        }
    }
    Ok(())
}

// PROTOCOL HEADER-2: a client of quic-tun's protocol cannot report its application's address.
#[test]
fn a_client_of_quic_tuns_protocol_reaches_a_target_with_the_header() -> Result<()> {
    let (_target, port) = target()?;
    let home = Home::new()?;
    let (pin, [certificate, key]) = keygen(&home, "old")?;
    let configuration = format!(
        "proxy_protocol = [\"127.0.0.1:{port}\"]\n[[client]]\nname = \"old\"\nkey = \"{pin}\"\nallow = [\"*\"]\n"
    );
    fs::write(home.path().join("server.toml"), configuration)?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
    let mut server = Program::start("server", command.args(["--config", "server.toml"]))?;
    let line = server.wait_for("Server endpoint start up successful", START)?;
    let to = format!("127.0.0.1:{port}");
    let mut command = home.command(&Machine::here(), "quictun-client")?;
    command.args(["--server-endpoint", &listen_address(&line)?]);
    command.args(["--pin", &server_pin(&line)?, "--offer", "compat"]);
    command.args(["--cert-file", &certificate, "--key-file", &key]);
    command.args(["--listen-on", "tcp:127.0.0.1:0", "--httpd-listen-on", "off"]);
    command.args(["--token-source", &format!("tcp:{to}")]);
    let client = Client::from_command(Home::new()?, &mut command)?;
    server.wait_for(CONNECTED, SOON)?;
    let (mut connection, _) = connect(&client.forward)?;
    let answer = ask(&mut connection, "a line")?;
    // The client has several connections, and each worker of it has a port.
    let lines = server.lines();
    let connected = lines.iter().filter(|line| line.contains(CONNECTED));
    let peers = connected.map(|line| between(line, "\"Client-Endpoint-Addr\": \"", '"'));
    let peers = peers.collect::<Result<Vec<_>>>()?;
    let mut expected = peers.iter().map(|peer| format!("{peer} {to} a line"));
    ensure!(expected.any(|it| it == answer), "{answer}, peers {peers:?}");
    Ok(())
}

// PROTOCOL HEADER-4.
#[test]
fn the_target_of_a_reverse_forward_receives_the_connecting_address() -> Result<()> {
    let (_target, port) = target()?;
    let home = Home::new()?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
    command.args(["--listen-for", "127.0.0.1:0", "--listen-for", "unix:/*"]);
    let mut server = Program::start("server", &mut command)?;
    let line = server.wait_for("Server endpoint start up successful", START)?;
    let address = listen_address(&line)?;
    let to = format!("127.0.0.1:{port}");
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["client", "--server", &address, "--pin", &server_pin(&line)?]);
    command.args(["--psk-file", "state/client.psk", "--http", "off"]);
    command.args(["-R", &format!("127.0.0.1:0={to}"), "--proxy-protocol", &to]);
    let mut client = Program::start("client", &mut command)?;
    let line = client.wait_for("the server listens for this client", START)?;
    let listener = Endpoint::parse(&between(&line, "\"listen\": \"", '"')?)?;
    let (mut connection, application) = connect(&listener)?;
    let answer = ask(&mut connection, "a line")?;
    ensure!(answer == format!("{application} {to} a line"), "{answer}");
    Ok(())
}
