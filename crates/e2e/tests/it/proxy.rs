//! `quictun client -D` as used by curl and by applications without a library, and `quictun connect`.

use std::io::{Read, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, RefusingAddress};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::isolation::with_programs;
use quictun_testbed::machine::Machine;
use quictun_testbed::openssh::SshKeys;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, command, installed, output};
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};
use rustix::process::{Pid, Signal, kill_process};

use crate::endings;
use crate::native::bare;

const SOON: Duration = Duration::from_secs(10);

/// curl's exit codes for a refusal by a SOCKS proxy and by an HTTP proxy.
const SOCKS_REFUSED: i32 = 97;
const CONNECT_REFUSED: i32 = 56;

/// A server, and the parameters that its clients need.
pub(crate) struct ProxyServer {
    pub(crate) server: Program,
    address: String,
    pin: String,
    pub(crate) home: Home,
}

impl ProxyServer {
    pub(crate) fn new(allowed: &[&str]) -> Result<Self> {
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        for rule in allowed {
            command.args(["--allow", rule.trim_start_matches("tcp:")]);
        }
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        Ok(Self {
            server,
            address: listen_address(&line)?,
            pin: server_pin(&line)?,
            home,
        })
    }

    /// Returns a `quictun client` or `quictun connect` command with these arguments.
    fn quictun(&self, name: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        command.args([name, "--server", &self.address, "--pin", &self.pin]);
        command.args(["--psk-file", "state/client.psk"]);
        command.args(arguments);
        Ok(command)
    }

    pub(crate) fn client(&self, arguments: &[&str]) -> Result<Client> {
        let mut command = self.quictun("client", arguments)?;
        Client::from_command(Home::new()?, command.args(["--http", "off"]))
    }
}

/// Reads a message of HTTP up to its empty line.
pub(crate) fn read_head(from: &mut impl Read) -> Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(String::from_utf8(head)?)
}

/// Answers an HTTP request with the request's first line as the body.
pub(crate) fn serve_http(mut connection: Connection) -> Result<()> {
    let head = read_head(&mut connection)?;
    let line = head.lines().next().unwrap_or_default();
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{line}",
        line.len()
    )?;
    Ok(())
}

/// Runs curl with these arguments; returns its exit code, output and errors.
pub(crate) fn curl(arguments: &[&str]) -> Result<(i32, String, String)> {
    let mut curl = command(installed("curl", "curl")?);
    // curl must not bypass the proxy.
    curl.args(["--silent", "--show-error", "--noproxy", ""]);
    let Output {
        status,
        stdout,
        stderr,
    } = output(curl.args(arguments))?;
    let code = status.code().context("curl was killed")?;
    Ok((code, String::from_utf8(stdout)?, String::from_utf8(stderr)?))
}

#[test]
fn curl_reaches_allowed_targets_by_each_proxy_protocol_and_learns_refusal_reasons() -> Result<()> {
    with_programs(|| {
        let web = Application::tcp(serve_http)?;
        let (closed, other) = (RefusingAddress::new()?, Application::echo()?);
        let port = web.endpoint().port()?;
        let named = format!("localhost:{port}");
        let mut site = ProxyServer::new(&[&web.target(), &closed.target(), &named])?;
        let socket = site.home.path().join("proxy.sock");
        let listen = format!("unix:{}", socket.display());
        let client = site.client(&["-D", "127.0.0.1:0", "-D", &listen])?;
        let forwards = client.forwards(2)?;
        let proxy = format!("127.0.0.1:{}", forwards[0].port()?);
        let (by_name, by_address) = (
            format!("http://{named}/"),
            format!("http://127.0.0.1:{port}/"),
        );
        for (scheme, url) in [
            ("socks5h", &by_name),
            ("socks5", &by_address),
            ("socks4a", &by_name),
            ("socks4", &by_address),
            ("http", &by_name),
        ] {
            let through = format!("{scheme}://{proxy}");
            let (code, said, why) = curl(&["--proxytunnel", "--proxy", &through, url])?;
            ensure!(
                code == 0 && said == "GET / HTTP/1.1",
                "{scheme}: {code} {said} {why}"
            );
        }
        let through = format!("socks5h://localhost{}", socket.display());
        let (code, said, why) = curl(&["--proxy", &through, &by_name])?;
        ensure!(code == 0 && said == "GET / HTTP/1.1", "{code} {said} {why}");

        let refused = bare(&closed.target());
        let denied = bare(&other.target());
        for (target, reply, status) in [(refused, "(5)", "502"), (denied, "(2)", "403")] {
            let url = format!("http://{target}/");
            let (code, _, why) = curl(&["--proxy", &format!("socks5h://{proxy}"), &url])?;
            ensure!(
                code == SOCKS_REFUSED && why.contains(reply),
                "{target}: {code} {why}"
            );
            let (code, _, why) = curl(&["--proxy", &format!("socks4a://{proxy}"), &url])?;
            ensure!(
                code == SOCKS_REFUSED && why.contains("91"),
                "{target}: {code} {why}"
            );
            let through = format!("http://{proxy}");
            let (code, _, why) = curl(&["--proxytunnel", "--proxy", &through, &url])?;
            ensure!(
                code == CONNECT_REFUSED && why.contains(status),
                "{target}: {code} {why}"
            );
        }
        site.server.wait_for("flow refused", SOON)?;
        ensure!(
            other.outcome(Duration::ZERO).is_err(),
            "a target that is not allowed was reached"
        );

        // Requests that a page in a browser can send, and those of a program that expects another kind of proxy.
        let page = format!("http://{proxy}/");
        for arguments in [
            vec![page.as_str()],
            vec!["--data", "x", &page],
            vec!["--header", "Upgrade: websocket", &page],
            vec!["--proxy", &page, &by_name],
        ] {
            let answered = ["--output", "/dev/null", "--write-out", "%{http_code}"];
            let (_, status, why) = curl(&[&answered[..], &arguments].concat())?;
            ensure!(status == "405", "{arguments:?}: {status} {why}");
        }
        Ok(())
    })
}

#[test]
fn a_proxy_with_users_requires_authentication() -> Result<()> {
    with_programs(|| {
        let web = Application::tcp(serve_http)?;
        let site = ProxyServer::new(&[&web.target()])?;
        std::fs::write(site.home.path().join("users"), "ann:wonder\n")?;
        let users = ["-D", "0.0.0.0:0", "--proxy-users", "users"];
        let mut client = site.client(&users)?;
        let proxy = format!("127.0.0.1:{}", client.forward.port()?);
        let url = format!("http://{}/", bare(&web.target()));
        for (login, socks, http) in [
            ("ann:wonder", 0, 0),
            ("ann:wunder", SOCKS_REFUSED, CONNECT_REFUSED),
            (":", SOCKS_REFUSED, CONNECT_REFUSED),
        ] {
            for (scheme, expected) in [("socks5", socks), ("http", http)] {
                let through = format!("{scheme}://{proxy}");
                let (code, _, why) = curl(&[
                    "--proxytunnel",
                    "--proxy",
                    &through,
                    "--proxy-user",
                    login,
                    &url,
                ])?;
                ensure!(code == expected, "{scheme} {login}: {code} {why}");
            }
        }
        client.program.wait_for("user or password", SOON).map(drop)
    })
}

/// Connects to a target through a proxy with SOCKS5.
fn through(proxy: &Endpoint, target: &str) -> Result<Connection> {
    let mut connection = proxy.connect()?;
    let Endpoint::Tcp(address) = Endpoint::parse(target)? else {
        anyhow::bail!("{target} has no address");
    };
    let std::net::IpAddr::V4(ip) = address.ip() else {
        anyhow::bail!("{target} is not an IPv4 address");
    };
    let mut request = vec![5, 1, 0, 5, 1, 0, 1];
    request.extend(ip.octets().into_iter().chain(address.port().to_be_bytes()));
    connection.write_all(&request)?;
    let mut answer = [0; 12];
    connection.read_exact(&mut answer)?;
    ensure!(answer[..4] == [5, 0, 5, 0], "{answer:?}");
    Ok(connection)
}

// PROTOCOL CLOSE-1, CLOSE-2, CLOSE-3, CLOSE-4.
#[test]
fn connections_through_a_proxy_end_as_all_others_do() -> Result<()> {
    let applications = endings::applications(&["127.0.0.1"])?;
    let targets: Vec<_> = applications.iter().map(Application::target).collect();
    let allowed: Vec<_> = targets.iter().map(String::as_str).collect();
    let site = ProxyServer::new(&allowed)?;
    let client = site.client(&["-D", "127.0.0.1:0"])?;
    endings::end_all_by(&targets.join(" "), |target| {
        through(&client.forward, target)
    })?;
    applications.iter().try_for_each(|it| it.outcome(SOON))
}

#[test]
fn ssh_uses_quictun_connect_and_one_line_states_a_failure() -> Result<()> {
    with_programs(|| {
        let keys = SshKeys::new()?;
        let sshd = keys.sshd("127.0.0.1:0".parse()?)?;
        let closed = RefusingAddress::new()?;
        let cut = Application::tcp(|mut connection| {
            connection.read_exact(&mut [0; 1])?;
            connection.write_all(b"half of it")?;
            connection.reset()
        })?;
        let site = ProxyServer::new(&[&sshd.target(), &closed.target(), &cut.target()])?;
        let line = |command: Command| {
            // Drop the wrapper that kills the process when its parent ends: ssh ends before its proxy command.
            let words = command.get_args().skip_while(|word| *word != "--").skip(1);
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let proxy = format!("ProxyCommand={} %h:%p", line(site.quictun("connect", &[])?));
        let mut ssh = keys.client(&Machine::here(), "ssh");
        site.home.settle(&mut ssh);
        ssh.args(["-o", &proxy, "-p", &sshd.endpoint().port()?.to_string()]);
        ssh.args([&keys.user_at("127.0.0.1"), "seq 100000 | md5sum; exit 7"]);
        let said = output(&mut ssh)?;
        ensure!(
            said.status.code() == Some(7)
                && said.stdout == b"dea9193b768319cbb4ff1a137ac03113  -\n",
            "{said:?}"
        );
        sshd.outcome(SOON)?;

        let input = site.home.path().join("input");
        std::fs::write(&input, "what is it?\n")?;
        let failing = |target: &str| -> Result<Output> {
            let target = bare(target);
            let (host, port) = target.rsplit_once(':').context("the target has no port")?;
            let mut connect = site.quictun("connect", &[host, port])?;
            connect.stdin(std::fs::File::open(&input)?);
            Ok(connect.output()?)
        };
        let said = failing(&closed.target())?;
        let why = String::from_utf8(said.stderr)?;
        ensure!(
            said.status.code() == Some(1) && why.lines().count() == 1 && why.contains("refused"),
            "{} {why}",
            said.status
        );
        let said = failing(&cut.target())?;
        ensure!(said.status.code() == Some(1), "{said:?}");
        cut.outcome(SOON)
    })
}

#[test]
fn quictun_connect_ends_one_direction_and_then_the_other() -> Result<()> {
    const BIG: Payload = Payload {
        seed: 311,
        bytes: 3_000_000,
    };
    let application = Application::tcp(|mut connection| {
        connection.write_all(b"hello")?;
        connection.finish()?;
        BIG.read_to_end_of(&mut connection)
    })?;
    let site = ProxyServer::new(&[&application.target()])?;
    let mut connect = site.quictun("connect", &[&bare(&application.target())])?;
    connect.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = connect.spawn()?;
    let mut hello = String::new();
    child
        .stdout
        .take()
        .context("invariant: stdout is piped")?
        .read_to_string(&mut hello)?;
    ensure!(hello == "hello", "{hello:?}");
    // The end of the output must not end the input.
    BIG.write_to(&mut child.stdin.take().context("invariant: stdin is piped")?)?;
    application.outcome(SOON)?;
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn quictun_connect_copies_non_blocking_streams() -> Result<()> {
    const BIG: Payload = Payload {
        seed: 312,
        bytes: 2_000_000,
    };
    let application = Application::tcp(|mut connection| {
        BIG.write_to(&mut connection)?;
        connection.finish()?;
        BIG.read_to_end_of(&mut connection)
    })?;
    let site = ProxyServer::new(&[&application.target()])?;
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    let mut connect = site.quictun("connect", &[&bare(&application.target())])?;
    connect
        .stdin(OwnedFd::from(theirs.try_clone()?))
        .stdout(OwnedFd::from(theirs));
    let mut child = connect.spawn()?;
    // The command holds duplicates of the other ends, and the stream does not end while they are open.
    drop(connect);
    let mut ours = &ours;
    BIG.read_from(&mut ours)?;
    BIG.write_to(&mut ours)?;
    ours.shutdown(Shutdown::Write)?;
    application.outcome(SOON)?;
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn quictun_connect_is_interruptible_while_its_output_is_unread() -> Result<()> {
    let application = Application::tcp(|mut connection| {
        let mut input = Vec::new();
        connection.read_to_end(&mut input)?;
        // More than a pipe and the copy buffer hold, but little enough to fit into the socket in front of them.
        connection.write_all(&vec![7; 200_000])?;
        Ok(())
    })?;
    let mut site = ProxyServer::new(&[&application.target()])?;
    let mut connect = site.quictun("connect", &[&bare(&application.target())])?;
    connect
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = connect.spawn()?;
    application.outcome(SOON)?;
    site.server.wait_for("flow closed", SOON)?;
    // A signal that arrives before the flow has ended only lets it finish, so the test repeats it.
    let deadline = Instant::now() + SOON;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        ensure!(Instant::now() < deadline, "it is still running");
        kill_process(Pid::from_child(&child), Signal::INT)?;
        thread::yield_now();
    };
    ensure!(!status.success(), "{status}");
    Ok(())
}
