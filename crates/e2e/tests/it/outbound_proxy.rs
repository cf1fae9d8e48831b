//! Networks without UDP, where TCP passes through a proxy only: flows continue over TLS through the proxy.

mod foreign;
mod test_proxy;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_e2e::load::carriers::native_tunnel::NativeServer;
use quictun_e2e::load::carriers::udp_block::{UdpFate, block_udp};
use quictun_e2e::load::machines::{LinkKind, LinkedMachines};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::rest;
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::{Client, Home, listen_address};

use test_proxy::{LOGIN, NAME, TestProxy};

/// The time limit for a change of the connection, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);

const PORT: u16 = 7500;

/// Bytes of a transfer that show that it runs.
const SOME: u64 = 10 << 20;

/// A server behind a network that does not carry UDP, for clients on the test's own host.
struct Behind {
    machines: LinkedMachines,
    _server: Program,
    /// The flags of clients, without the server and its proxy.
    flags: Vec<String>,
    home: Home,
}

impl Behind {
    fn new() -> Result<Self> {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        block_udp(&machines, UdpFate::Swallowed)?;
        let home = Home::new()?;
        let (server, flags) = home.open_server(&machines.far)?;
        Ok(Self {
            machines,
            _server: server,
            flags,
            home,
        })
    }

    fn server(&self) -> SocketAddr {
        SocketAddr::new(self.machines.address, PORT)
    }

    fn proxy(&self, protected: bool) -> Result<TestProxy> {
        TestProxy::start((Ipv4Addr::LOCALHOST, 0).into(), protected, self.server())
    }

    /// Writes a file with this login.
    fn credentials(&self, login: &str) -> Result<PathBuf> {
        let path = self.home.path().join("login");
        fs::write(&path, format!("{login}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(path)
    }

    /// Starts a client of `server` with a forward to `target`.
    fn client(&self, server: &str, target: &str, flags: &[&str]) -> Result<Client> {
        self.client_with(server, target, flags, &[])
    }

    fn client_with(
        &self,
        server: &str,
        target: &str,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Client> {
        let home = Home::new()?;
        let mut command = home.command(&self.machines.near, "quictun")?;
        command
            .args(["client", "--server", server])
            .args(&self.flags);
        command.args(["-L", &format!("127.0.0.1:0={target}")]);
        command.args(["--connections", "1"]).args(flags);
        command.envs(variables.iter().copied());
        Client::from_command(home, &mut command)
    }
}

fn url(scheme: &str, proxy: SocketAddr) -> String {
    format!("{scheme}://{proxy}")
}

#[test]
fn flows_pass_each_kind_of_proxy_to_a_server_that_only_the_proxy_resolves() -> Result<()> {
    isolated(|| {
        let behind = Behind::new()?;
        let echo = behind.machines.far.within(Application::echo)?;
        let file = behind.credentials(LOGIN)?.display().to_string();
        for (scheme, protected) in [
            ("http", false),
            ("http", true),
            ("socks5h", false),
            ("socks5", true),
        ] {
            let proxy = behind.proxy(protected)?;
            let via = url(scheme, proxy.address);
            let mut flags = vec!["--via", &via, "--http", "127.0.0.1:0"];
            if protected {
                flags.extend(["--via-credentials", &file]);
            }
            let server = format!("{NAME}:{PORT}");
            let mut client = behind.client(&server, &echo.target(), &flags)?;
            through_echo(&client.forward, Payload::new(3, 1_000_000))?;
            let at = listen_address(&client.program.wait_for("HTTP interface\t", SOON)?)?;
            let status = rest::get(at.parse()?, "/v1/status")?.json()?;
            let shown = status["outbound_proxy"].as_str().unwrap_or_default();
            ensure!(shown.ends_with(&proxy.address.to_string()), "{status}");
            ensure!(proxy.asked().contains(&server), "{:?}", proxy.asked());
            for line in [
                "TLS over TCP leads through a proxy",
                "connected to server endpoint",
            ] {
                let lines = client.program.lines();
                let line = lines.iter().find(|it| it.contains(line)).context(line)?;
                ensure!(line.contains(&proxy.address.to_string()), "{line}");
            }
            ensure!(
                !client.program.has_printed("wonder"),
                "the password is in the log"
            );
        }
        Ok(())
    })
}

#[test]
fn the_environment_names_the_proxy_and_its_exceptions() -> Result<()> {
    isolated(|| {
        let behind = Behind::new()?;
        let echo = behind.machines.far.within(Application::echo)?;
        let proxy = behind.proxy(true)?;
        let (with_login, address) = (format!("http://{LOGIN}@{}", proxy.address), behind.server());
        let network = format!("10.0.0.0/8,{}/32", address.ip());
        let server = address.to_string();
        for (flags, variables, asked) in [
            (&[][..], &[("https_proxy", &*with_login)][..], true),
            (
                &[],
                &[("ALL_PROXY", &with_login), ("no_proxy", "other.example")],
                true,
            ),
            (
                &[],
                &[("https_proxy", &with_login), ("NO_PROXY", &network)],
                false,
            ),
            (&["--via", "none"], &[("https_proxy", &with_login)], false),
        ] {
            let before = proxy.asked().len();
            let client = behind.client_with(&server, &echo.target(), flags, variables)?;
            through_echo(&client.forward, Payload::new(4, 100_000))?;
            ensure!(
                (proxy.asked().len() > before) == asked,
                "{flags:?} {variables:?}"
            );
            ensure!(
                !client.program.has_printed("wonder"),
                "the password is in the log"
            );
        }
        Ok(())
    })
}

#[test]
fn a_proxy_that_is_restarted_costs_a_transfer_time_only() -> Result<()> {
    isolated(|| {
        let behind = Behind::new()?;
        let source = behind.machines.far.within(EndlessSource::new)?;
        let target = source.application.target();
        let mut proxy = behind.proxy(false)?;
        let via = url("http", proxy.address);
        let client = behind.client(&format!("{NAME}:{PORT}"), &target, &["--via", &via])?;
        let transfer = Transfer::start(&client.forward)?;
        for _ in 0..3 {
            transfer.advance(SOME, SOON)?;
            let address = proxy.address;
            drop(proxy);
            let lost = || client.program.has_printed("its flows wait for another one");
            deadline::until("the loss of the connection", SOON, lost)?;
            proxy = TestProxy::start(address, false, behind.server())?;
        }
        transfer.advance(SOME, SOON)?;
        transfer.finish(&source)
    })
}

#[test]
fn quic_is_tried_directly_and_carries_where_udp_passes() -> Result<()> {
    isolated(|| {
        let machines = LinkedMachines::new(&LinkKind::Veth)?;
        let echo = machines.far.within(Application::echo)?;
        let server = NativeServer::start(&machines, None, PORT, &echo.target(), &[])?;
        let address = SocketAddr::new(machines.address, PORT);
        let proxy = TestProxy::start((Ipv4Addr::LOCALHOST, 0).into(), false, address)?;
        let flags = ["--via".to_owned(), url("http", proxy.address)];
        let client = server.client(&flags)?;
        through_echo(&client.client.forward, Payload::new(5, 1_000_000))?;
        let by_quic = || client.is_carried_by("quic").is_ok_and(|is| is);
        deadline::until("QUIC", SOON, by_quic)?;
        let refused =
            server.client(&[&flags[..], &["--carrier".to_owned(), "quic".to_owned()]].concat());
        let why = format!("{:#}", refused.err().context("a client")?);
        ensure!(why.contains("QUIC does not pass through a proxy"), "{why}");
        Ok(())
    })
}

#[test]
fn a_refused_login_is_the_reason_in_log_status_and_join() -> Result<()> {
    isolated(|| {
        let behind = Behind::new()?;
        let proxy = behind.proxy(true)?;
        let file = behind.credentials("ann:wrong")?.display().to_string();
        let via = url("http", proxy.address);
        let flags = [
            "--carrier",
            "tls",
            "--via",
            &via,
            "--via-credentials",
            &file,
        ];
        let mut client = behind.client(&behind.server().to_string(), "tcp:127.0.0.1:9", &flags)?;
        let why = "refuses this user and password: correct them in the file of --via-credentials";
        let line = client.program.wait_for(why, SOON)?;
        ensure!(line.contains("cannot connect to server endpoint"), "{line}");
        ensure!(
            !client.program.has_printed("wrong"),
            "the password is in the log"
        );
        let machines = &behind.machines;
        let invited = NativeServer::start(machines, None, PORT + 1, "tcp:127.0.0.1:9", &[])?;
        let code = invited.invite(&[])?;
        let output = join(&code, &flags[..4])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            said.contains("wants a user and a password: give --via-credentials FILE"),
            "{said}"
        );
        let right = behind.credentials(LOGIN)?.display().to_string();
        let output = join(&code, &["--via", &via, "--via-credentials", &right])?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    })
}

fn join(code: &str, flags: &[&str]) -> Result<Output> {
    let home = Home::new()?;
    let file = home.path().join("code");
    fs::write(&file, code)?;
    let mut command = home.command(&quictun_testbed::machine::Machine::here(), "quictun")?;
    command.args(["join", "--out", "here"]).args(flags);
    command.stdin(Stdio::from(fs::File::open(file)?));
    Ok(command.output()?)
}

/// Runs `quictun doctor SERVER`. Returns its output.
fn doctor(server: &str, via: &str) -> Result<(bool, String)> {
    let home = Home::new()?;
    let mut command = home.command(&quictun_testbed::machine::Machine::here(), "quictun")?;
    let output = command.args(["doctor", server, "--via", via]).output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

#[test]
fn the_doctor_tests_the_way_through_the_proxy() -> Result<()> {
    isolated(|| {
        let behind = Behind::new()?;
        let proxy = behind.proxy(false)?;
        let (passes, said) = doctor(NAME, &url("socks5h", proxy.address))?;
        let through = "port 7500 passes through the proxy: the server answers in";
        ensure!(passes && said.contains(through), "{said}");
        ensure!(
            said.contains("this machine does not resolve server.example"),
            "{said}"
        );
        ensure!(
            said.contains(&format!("socks5h://{} (from --via)", proxy.address)),
            "{said}"
        );
        Ok(())
    })
}

// What a network answers in place of a proxy, and the sentence about it.
#[test]
fn each_wrong_answer_of_a_proxy_has_its_sentence() -> Result<()> {
    isolated(|| {
        let behind = Behind::new()?;
        let server = behind.server().to_string();
        for (answer, expected) in [
            (
                &b"HTTP/1.1 403 Forbidden\r\n\r\n"[..],
                "forbids connections to the server",
            ),
            (
                b"HTTP/1.1 504 Gateway Timeout\r\n\r\n",
                "cannot reach the server (504",
            ),
            (
                b"HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\n\r\n",
                "redirects to https://login.example/",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>",
                "sends a page instead of connecting",
            ),
            (b"SSH-2.0-OpenSSH_9.2p1\r\n", "answers in SSH"),
            (b"HTTP/1.1 200", "in the middle of its answer"),
            (b"", "closes the connection without an answer"),
        ] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let via = url("http", listener.local_addr()?);
            let serving = std::thread::spawn(move || -> Result<()> {
                let (mut client, _) = listener.accept()?;
                let mut request = [0; 1024];
                // A proxy reads the request before it closes, or the answer would be lost.
                let read = client.read(&mut request)?;
                ensure!(read > 0, "no request");
                Ok(client.write_all(answer)?)
            });
            let (passes, said) = doctor(&server, &via)?;
            ensure!(!passes && said.contains(expected), "{expected}: {said}");
            serving.join().map_err(|_| anyhow::anyhow!("a panic"))??;
        }
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let (_, said) = doctor(&server, &url("http", gone))?;
        ensure!(
            said.contains("cannot be reached (Connection refused"),
            "{said}"
        );
        // A port that accepts and says nothing.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (_, said) = doctor(&server, &url("http", silent.local_addr()?))?;
        ensure!(
            said.contains("says nothing about the server for 8 s"),
            "{said}"
        );
        Ok(())
    })
}
