//! `quictun run`: unmodified programs whose connections all go through the tunnel.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use quictun_skip::skipped;
use quictun_testbed::application::Application;
use quictun_testbed::binaries;
use quictun_testbed::connection::Connection;
use quictun_testbed::isolation::isolated_with;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, installed, output};
use quictun_testbed::tunnel::{Home, START};

use crate::endings;

const SOON: Duration = Duration::from_secs(20);

/// The maximum wait after a command that has tried to connect without success: half of the time that a client has to
/// end.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// The file that [`serve`] sends.
pub(crate) const FILE: Payload = Payload {
    seed: 91,
    bytes: 20 << 20,
};

/// The data that a command sends before it ends.
const SENT: Payload = Payload {
    seed: 94,
    bytes: 3_000_000,
};

/// A group without other members.
const GROUP: u32 = 7500;

/// Addresses that exist only in the server's network.
pub(crate) const HOSTS: [&str; 2] = ["203.0.113.9", "2001:db8::9"];

/// A server that may reach [`HOSTS`], and the flags of its clients.
pub(crate) struct WrappedServer {
    _program: Program,
    /// The name of the test.
    pub(crate) test: String,
    pub(crate) home: Home,
    flags: String,
}

impl WrappedServer {
    /// Starts the server; returns `None` if TUN devices are not available.
    pub(crate) fn start(test: &str) -> Result<Option<Self>> {
        Self::start_with(test, &["203.0.113.9:*", "[2001:db8::9]:*"])
    }

    /// Like [`WrappedServer::start`], with these rules.
    pub(crate) fn start_with(test: &str, rules: &[&str]) -> Result<Option<Self>> {
        if let Err(why) = std::fs::File::open("/dev/net/tun") {
            skipped(test, format_args!("/dev/net/tun: {why}"));
            return Ok(None);
        }
        for host in HOSTS {
            machine::run(&format!("ip address add {host} dev lo"))?;
        }
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        command.args(rules.iter().flat_map(|rule| ["--allow", rule]));
        let mut program = Program::start("server", &mut command)?;
        let line = program.wait_for("Server endpoint start up successful", START)?;
        let address = after(&line, "\"listen address\": \"", '"')?;
        let line = program.wait_for(": quictun client ", START)?;
        let pin = after(&line, "--pin ", ' ')?;
        let secret = home.path().join("state/client.psk");
        let flags = format!(
            "--server {address} --pin {pin} --psk-file {}",
            secret.display()
        );
        Ok(Some(Self {
            _program: program,
            test: test.to_owned(),
            home,
            flags,
        }))
    }

    /// Runs a line in a shell behind the tunnel.
    pub(crate) fn run(&self, line: &str) -> Result<Output> {
        self.run_with(&[], line)
    }

    /// Like [`WrappedServer::run`], with additional flags.
    pub(crate) fn run_with(&self, flags: &[&str], line: &str) -> Result<Output> {
        let mut command: Command = self.home.command(&Machine::here(), "quictun")?;
        command.arg("run").args(self.flags.split(' ')).args(flags);
        command.args(["--", "sh", "-c", line]);
        output(&mut command)
    }
}

fn after(text: &str, before: &str, until: char) -> Result<String> {
    let (_, rest) = text
        .split_once(before)
        .with_context(|| format!("no {before:?} in {text:?}"))?;
    Ok(rest.split(until).next().unwrap_or_default().to_owned())
}

pub(crate) fn url(host: &str, application: &Application) -> Result<String> {
    let address = SocketAddr::new(host.parse()?, application.endpoint().port()?);
    Ok(format!("http://{address}/"))
}

/// Answers any request with the file, and ends.
pub(crate) fn serve(mut connection: Connection) -> Result<()> {
    let mut request = [0; 4096];
    ensure!(connection.read(&mut request)? > 0, "no request");
    connection.write_all(
        format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", FILE.bytes).as_bytes(),
    )?;
    FILE.write_to(&mut connection)
}

#[test]
fn curl_reaches_both_families_and_gets_every_byte() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        for host in HOSTS {
            let application = Application::tcp_on(SocketAddr::new(host.parse()?, 0), serve)?;
            let file = far.home.path().join("file");
            let url = url(host, &application)?;
            let fetched = far.run(&format!("curl -sS -g -o {} '{url}'", file.display()))?;
            ensure!(fetched.status.success(), "{fetched:?}");
            FILE.read_to_end_of(&mut std::fs::File::open(&file)?)?;
            application.outcome(SOON)?;
        }
        Ok(())
    })
}

// PROTOCOL AUTH-4.
#[test]
fn a_command_with_a_wrong_secret_fails_at_once() -> Result<()> {
    isolated_with(WrappedServer::start, |mut far| {
        let wrong = far.home.path().join("wrong.psk");
        std::fs::write(&wrong, "0123456789abcdef0123456789abcdef\n")?;
        std::fs::set_permissions(&wrong, Permissions::from_mode(0o600))?;
        far.flags = far.flags.replace("state/client.psk", "wrong.psk");
        let output = far.run("curl -sS http://203.0.113.9:1/")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "the command succeeded: {said}");
        let why = "the server does not know this client: its secret (--psk-file)";
        ensure!(said.matches(why).count() == 1, "not printed once: {said}");
        let why = "the server does not know this client: no accepted key";
        ensure!(
            said.matches(why).count() == 1 && !said.contains("was lost"),
            "the flow's line has another reason: {said}"
        );
        Ok(())
    })
}

#[test]
fn refusals_ends_and_exit_codes_pass() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        // The first target does not listen; the server may not reach the second.
        for target in ["203.0.113.9:9", "203.0.113.10:9"] {
            let refused = far.run(&format!("curl -sS -m 20 http://{target}/"))?;
            ensure!(refused.status.code() == Some(7), "{target}: {refused:?}");
        }
        // The application answers after it has received the end of the request.
        let answering = |mut connection: Connection| {
            let mut text = String::new();
            connection.read_to_string(&mut text)?;
            connection.write_all(text.to_uppercase().as_bytes())?;
            connection.finish()
        };
        let application = Application::tcp_on("203.0.113.9:0".parse()?, answering)?;
        let port = application.endpoint().port()?;
        let said = far.run(&format!("printf 'half closed' | nc -N 203.0.113.9 {port}"))?;
        ensure!(said.stdout == b"HALF CLOSED", "{said:?}");
        application.outcome(SOON)?;
        // A cut must not look like a clean end.
        let cutting = |mut connection: Connection| {
            let mut request = [0; 4096];
            ensure!(connection.read(&mut request)? > 0, "no request");
            connection.reset()
        };
        let application = Application::tcp_on("203.0.113.9:0".parse()?, cutting)?;
        let cut = far.run(&format!("curl -sS '{}'", url("203.0.113.9", &application)?))?;
        ensure!(cut.status.code() == Some(56), "{cut:?}");
        application.outcome(SOON)?;
        let code = far.run("exit 42")?;
        ensure!(code.status.code() == Some(42), "{code:?}");
        Ok(())
    })
}

/// A name server over TCP: `far.test` has the addresses of [`HOSTS`], `many.test` has 60 addresses, other names have
/// none.
pub(crate) fn name_server(mut connection: Connection) -> Result<()> {
    let mut length = [0; 2];
    while connection.read_exact(&mut length).is_ok() {
        let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
        connection.read_exact(&mut question)?;
        let end = question.len().min(
            12 + question[12..]
                .iter()
                .position(|byte| *byte == 0)
                .context("the query lacks a name")?
                + 5,
        );
        let name = question[12..end - 5].to_ascii_lowercase();
        let kind = question[end - 3];
        let addresses: Vec<Vec<u8>> = match (&name[..], kind) {
            (b"\x03far\x04test", 1) => vec![vec![203, 0, 113, 9]],
            (b"\x03far\x04test", 28) => vec![
                "2001:db8::9"
                    .parse::<std::net::Ipv6Addr>()?
                    .octets()
                    .to_vec(),
            ],
            (b"\x04many\x04test", 1) => (1..=60).map(|host| vec![198, 51, 100, host]).collect(),
            _ => Vec::new(),
        };
        let mut answer = question[..end].to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x80]);
        answer[6..12].copy_from_slice(&[0, u8::try_from(addresses.len())?, 0, 0, 0, 0]);
        for address in addresses {
            answer.extend([
                0xc0,
                12,
                0,
                kind,
                0,
                1,
                0,
                0,
                0,
                60,
                0,
                u8::try_from(address.len())?,
            ]);
            answer.extend(address);
        }
        connection.write_all(&u16::try_from(answer.len())?.to_be_bytes())?;
        connection.write_all(&answer)?;
    }
    Ok(())
}

#[test]
fn names_are_resolved_by_the_chosen_server_through_the_tunnel() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        let _server = Application::tcp_on("203.0.113.9:53".parse()?, name_server)?;
        let web = Application::tcp_on("203.0.113.9:0".parse()?, serve)?;
        let dns = ["--dns", "203.0.113.9"];
        let file = far.home.path().join("file");
        let port = web.endpoint().port()?;
        let fetch = format!("curl -sS -o {} http://far.test:{port}/", file.display());
        let fetched = far.run_with(&dns, &fetch)?;
        ensure!(fetched.status.success(), "{fetched:?}");
        FILE.read_to_end_of(&mut std::fs::File::open(&file)?)?;
        web.outcome(SOON)?;
        let both = far.run_with(&dns, "getent ahosts far.test")?;
        let both = String::from_utf8(both.stdout)?;
        ensure!(HOSTS.iter().all(|host| both.contains(host)), "{both}");
        // The answer is too long for a datagram, so the query is repeated over TCP to the same server.
        let many = far.run_with(&dns, "getent ahostsv4 many.test | grep -c STREAM")?;
        ensure!(many.stdout == b"60\n", "{many:?}");
        // The name does not exist; the name server does not answer; no name server is configured.
        for (flags, name) in [
            (&dns[..], "none.test"),
            (&["--dns", "203.0.113.10"][..], "far.test"),
            (&[][..], "far.test"),
        ] {
            let unknown = far.run_with(flags, &format!("getent hosts {name}"))?;
            ensure!(
                unknown.status.code() == Some(2),
                "{flags:?} {name}: {unknown:?}"
            );
        }
        let wrong = far.run_with(&["--dns", "far.test"], "true")?;
        let said = String::from_utf8_lossy(&wrong.stderr);
        ensure!(
            wrong.status.code() == Some(2)
                && said.contains("--dns: \"far.test\" is not an IP address"),
            "{wrong:?}"
        );
        // Outside the tunnel, the system's configuration is unchanged.
        let list = std::fs::read_to_string("/etc/resolv.conf")?;
        ensure!(!list.contains("quictun run"), "{list}");
        Ok(())
    })
}

/// The query for the IPv4 address of `far.test`, which [`name_server`] knows.
pub(crate) const QUESTION: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03far\x04test\0\0\x01\0\x01";

/// Returns true if the test runs as root of the whole machine, and can change to any other user.
pub(crate) fn is_root() -> Result<bool> {
    let map = std::fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.split_whitespace().nth(2) != Some("1"))
}

/// Environment variable for the inner run of the test behind the tunnel: the addresses of the applications to reach.
const BEHIND: &str = "QUICTUN_E2E_BEHIND";
#[test]
fn connections_end_as_at_the_other_side() -> Result<()> {
    if let Ok(addresses) = std::env::var(BEHIND) {
        return endings::end_all(&addresses);
    }
    isolated_with(WrappedServer::start, |far| {
        let applications = endings::applications(&HOSTS)?;
        let addresses: Vec<_> = applications.iter().map(Application::target).collect();
        let again = std::env::current_exe()?;
        let line = format!(
            "{BEHIND}='{}' exec {} --exact {} --nocapture",
            addresses.join(" "),
            again.display(),
            far.test
        );
        let ran = far.run(&line)?;
        let said = String::from_utf8_lossy(&ran.stdout);
        ensure!(ran.status.success() && said.contains("1 passed"), "{ran:?}");
        for application in applications {
            application.outcome(SOON)?;
        }
        Ok(())
    })
}

#[test]
fn bytes_of_an_ended_command_still_arrive() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        let path = far.home.path().join("sent");
        SENT.write_to(&mut std::fs::File::create(&path)?)?;
        for _ in 0..3 {
            let address = SocketAddr::new(HOSTS[0].parse()?, 0);
            let target = Application::tcp_on(address, |mut connection| {
                SENT.read_to_end_of(&mut connection)
            })?;
            let port = target.endpoint().port()?;
            // The command does not wait until its kernel has sent the data.
            let line = format!(
                "bash -c 'cat {} >/dev/tcp/{}/{port}'",
                path.display(),
                HOSTS[0]
            );
            let ran = far.run(&line)?;
            ensure!(ran.status.success(), "{ran:?}");
            target.outcome(SOON)?;
        }
        Ok(())
    })
}

#[test]
fn neither_root_nor_its_rights_are_needed() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        if !is_root()? {
            skipped(
                &far.test,
                "not root: all other tests already run without root's rights",
            );
            return Ok(());
        }
        let program = binaries::path("quictun")?;
        let nobody =
            format!("setpriv --reuid 65534 --regid 65534 --groups {GROUP} --bounding-set=-all");
        machine::run(&format!("chown -R 65534 {}", far.home.path().display()))?;
        // Some systems restrict the device to root. In this test's own mounts, any user may open a device like it.
        let node = far.home.path().join("tun");
        let node = node.display();
        let open = format!("mknod -m 666 {node} c 10 200 && mount --bind {node} /dev/net/tun");
        let shell = |line: &str| {
            let mut command = Command::new("unshare");
            let line = format!("rm -f {node}; {open}; {line}");
            command.args(["--mount", "sh", "-c", &line]);
            far.home.settle(&mut command);
            output(&mut command)
        };
        let program = program.display();
        let may = shell(&format!(
            "{nobody} unshare --user --net true && {nobody} test -x {program} && {nobody} test -w /dev/net/tun"
        ))?;
        if !may.status.success() {
            skipped(
                &far.test,
                "users other than root cannot make namespaces, execute this program, or open a TUN device",
            );
            return Ok(());
        }
        let _server = Application::tcp_on("203.0.113.9:53".parse()?, name_server)?;
        let web = Application::tcp_on("203.0.113.9:0".parse()?, serve)?;
        let port = web.endpoint().port()?;
        // The command keeps its caller's identity: its user id, its name, and the groups that let it read a file.
        let shared = far.home.path().join("shared");
        std::fs::write(&shared, "shared")?;
        machine::run(&format!("chgrp {GROUP} {0}", shared.display()))?;
        machine::run(&format!("chmod 0040 {0}", shared.display()))?;
        let line = format!(
            "{nobody} {program} run {} --dns 203.0.113.9 -- sh -c \"curl -sS http://far.test:{port}/ | wc -c; id -u; id -g; id -un; cat {}; echo; grep CapEff /proc/self/status\"",
            far.flags,
            shared.display()
        );
        let ran = shell(&line)?;
        let said = String::from_utf8_lossy(&ran.stdout);
        let words: Vec<_> = said.split_whitespace().collect();
        let bytes = FILE.bytes.to_string();
        let none = "0000000000000000";
        ensure!(
            words
                == [
                    &bytes, "65534", "65534", "nobody", "shared", "CapEff:", none
                ],
            "{ran:?}"
        );
        web.outcome(SOON)
    })
}

#[test]
fn ctrl_c_interrupts_the_command_and_not_its_tunnel() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        let script = installed("script", "bsdutils")?;
        let application = Application::tcp_on(SocketAddr::new(HOSTS[0].parse()?, 0), serve)?;
        let url = url(HOSTS[0], &application)?;
        // Like psql, this script handles the signal and continues.
        let obeys = far.home.path().join("obeys");
        let line = format!(
            "trap 'told=1' INT; echo ready; until [ $told ]; do sleep 0.1; done; curl -sS {url} | wc -c; echo over"
        );
        std::fs::write(&obeys, line)?;
        let quictun = binaries::path("quictun")?;
        // A shell in between would end with the signal; `script` takes its shell from $SHELL.
        let line = format!(
            "exec {} run {} -- sh {}",
            quictun.display(),
            far.flags,
            obeys.display()
        );
        let mut command = Machine::here().command(script);
        // `script` creates a terminal, and this test types into it.
        command.args(["-q", "-e", "-c", &line, "/dev/null"]);
        far.home.settle(&mut command);
        let (typed, mut keyboard) = std::io::pipe()?;
        let mut ran = Program::start_with("terminal", &mut command, typed.into())?;
        ran.wait_for("ready", START)?;
        keyboard.write_all(b"\x03")?;
        ran.wait_for("over", SOON)?;
        let status = ran.wait_end(SOON)?;
        ensure!(status.success(), "{status}");
        ensure!(
            ran.has_printed(&FILE.bytes.to_string()) && !ran.has_printed("quictun"),
            "{:?}",
            ran.lines()
        );
        application.outcome(SOON)
    })
}

/// Runs a command behind a tunnel to `server`; returns the output of the command and of `quictun run`.
fn run_behind(far: &WrappedServer, server: &str, line: &str) -> Result<Output> {
    let mut flags = far.flags.split(' ').map(str::to_owned).collect::<Vec<_>>();
    server.clone_into(&mut flags[1]);
    let mut command = far.home.command(&Machine::here(), "quictun")?;
    command
        .arg("run")
        .args(flags)
        .args(["--", "sh", "-c", line]);
    output(&mut command)
}

#[test]
fn a_command_that_ends_early_ends_the_run_at_once() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        let server = far.flags.split(' ').nth(1).context("no address")?;
        // The second server does not answer: its socket is never read.
        let silent = std::net::UdpSocket::bind("127.0.0.1:0")?;
        let silent = silent.local_addr()?.to_string();
        for server in [server, &silent] {
            for _ in 0..4 {
                let ran = run_behind(&far, server, "true")?;
                ensure!(
                    ran.status.success() && ran.stdout.is_empty() && ran.stderr.is_empty(),
                    "{server}: {ran:?}"
                );
            }
        }
        // A command that has tried to connect until its own timeout. A busy machine delays some runs; a client that
        // waits for its server delays all of them.
        let line = "curl -s -m 1 http://203.0.113.9:9/; code=$?; date +%s%N; exit $code";
        let mut waits = Vec::new();
        for _ in 0..4 {
            let ran = run_behind(&far, &silent, line)?;
            let ended = UNIX_EPOCH.elapsed()?;
            ensure!(
                ran.status.code() == Some(28) && ran.stderr.is_empty(),
                "{ran:?}"
            );
            let command_ended = String::from_utf8(ran.stdout)?.trim().parse()?;
            waits.push(ended.saturating_sub(Duration::from_nanos(command_ended)));
            if waits.last().is_some_and(|wait| *wait < LINGER) {
                return Ok(());
            }
        }
        bail!("the runs outlived their commands by {waits:?}")
    })
}

#[test]
fn a_silent_server_is_named_while_the_command_waits() -> Result<()> {
    isolated_with(WrappedServer::start, |mut far| {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0")?;
        let silent = silent.local_addr()?.to_string();
        let server = far.flags.split(' ').nth(1).context("no address")?;
        far.flags = far.flags.replace(server, &silent);
        let mut command = far.home.command(&Machine::here(), "quictun")?;
        command.arg("run").args(far.flags.split(' '));
        command.args(["--", "curl", "-s", "http://203.0.113.9:9/"]);
        let mut run = Program::start("quictun run", &mut command)?;
        let line = run.wait_for("the server does not answer", SOON)?;
        ensure!(line.contains(&silent), "{line}");
        run.kill()
    })
}

// NETSTACK.md, the command of `quictun run`.
#[test]
fn sockets_of_the_systems_daemons_are_unreachable_whatever_their_names() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        machine::run("mount -t tmpfs tmpfs /run")?;
        let hidden = [
            "/run/systemd/private",
            "/run/systemd/io.systemd.Machine",
            "/run/systemd/resolve/io.systemd.Resolve",
            "/run/systemd/resolve/io.systemd.OfTomorrow",
            "/run/varlink/registry/io.systemd.Resolve",
            "/run/io.systemd.OfTomorrow",
            "/run/dbus/system_bus_socket",
            "/run/nscd/socket",
            "/run/runtime/systemd/io.systemd.Manager",
            "/run/runtime/varlink/registry/of.another.vendor",
        ];
        let (kept, late) = ("/run/systemd/journal/stdout", "/run/systemd/late");
        let mut listeners = Vec::new();
        for socket in hidden.iter().chain([&kept]) {
            let directory = Path::new(socket).parent().context("a directory")?;
            std::fs::create_dir_all(directory)?;
            listeners.push(UnixListener::bind(socket)?);
        }
        let run = |line: &str| {
            let mut command = far.home.command(&Machine::here(), "quictun")?;
            command
                .arg("run")
                .args(far.flags.split(' '))
                .args(["--", "sh", "-c", line]);
            command.env("XDG_RUNTIME_DIR", "/run/runtime");
            output(&mut command)
        };
        for socket in hidden {
            let ran = run(&format!("curl -sS http://daemon/ --unix-socket {socket}"))?;
            ensure!(ran.status.code() == Some(7), "{socket}: {ran:?}");
        }
        let ran = run(&format!("test -S {kept}"))?;
        ensure!(ran.status.success(), "{kept}: {ran:?}");
        // A daemon that is started while the command runs.
        let (started, go) = (far.home.path().join("started"), far.home.path().join("go"));
        let line = format!(
            "touch {started}; while ! test -e {go}; do sleep 0.05; done; test ! -e {late}",
            started = started.display(),
            go = go.display()
        );
        std::thread::scope(|scope| {
            let ran = scope.spawn(|| run(&line));
            let end = std::time::Instant::now() + SOON;
            while !started.exists() && std::time::Instant::now() < end {
                std::thread::yield_now();
            }
            let _late = UnixListener::bind(late)?;
            std::fs::write(&go, "")?;
            let ran = ran.join().map_err(|_| anyhow!("a panic"))??;
            ensure!(ran.status.success(), "{late}: {ran:?}");
            Ok(())
        })
    })
}

#[test]
fn daemon_sockets_that_bypass_the_tunnel_are_unreachable() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        let path = |name: &str| far.home.path().join(name);
        std::fs::create_dir_all(path("runtime/systemd"))?;
        let hidden = [
            path("runtime/bus"),
            path("runtime/systemd/private"),
            path("bus"),
        ];
        let kept = path("agent");
        let sockets = hidden.iter().chain([&kept]);
        let listeners = sockets
            .map(UnixListener::bind)
            .collect::<std::io::Result<Vec<_>>>()?;
        let run = |socket: &Path| {
            let mut command = far.home.command(&Machine::here(), "quictun")?;
            command.arg("run").args(far.flags.split(' '));
            command.args(["--", "curl", "-sS", "http://daemon/", "--unix-socket"]);
            command.arg(socket);
            command.env("XDG_RUNTIME_DIR", path("runtime"));
            let address = format!("unix:path={},guid=1", path("bus").display());
            command.env("DBUS_SESSION_BUS_ADDRESS", address);
            output(&mut command)
        };
        for socket in &hidden {
            let ran = run(socket)?;
            ensure!(
                ran.status.code() == Some(7),
                "{}: {ran:?}",
                socket.display()
            );
        }
        // Other sockets stay reachable, because they are the user's choice.
        std::thread::scope(|scope| {
            let answering = scope.spawn(|| -> Result<()> {
                let (mut connection, _) = listeners[3].accept()?;
                ensure!(connection.read(&mut [0; 4096])? > 0, "no request");
                Ok(connection.write_all(b"HTTP/1.0 200 OK\r\n\r\nagent")?)
            });
            let ran = run(&kept)?;
            ensure!(ran.stdout == b"agent", "{ran:?}");
            answering.join().map_err(|_| anyhow!("a panic"))?
        })
    })
}

/// A script that prints the descriptors of the process with the network stack.
const LOOK: &str = r"
for it in /proc/[0-9]*; do
    if tr '\0' ' ' <$it/cmdline | grep -q '^quictun-netstackd '; then ls -l $it/fd; fi
done
";

#[test]
fn the_network_stack_process_inherits_no_descriptor() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        if !is_root()? {
            skipped(
                &far.test,
                "not root: only root can inspect the descriptors of a process without rights",
            );
            return Ok(());
        }
        // A successful transfer through the tunnel shows that the process is working.
        let application = Application::tcp_on("203.0.113.9:0".parse()?, serve)?;
        let url = url("203.0.113.9", &application)?;
        let quictun = binaries::path("quictun")?;
        let look = far.home.path().join("look");
        std::fs::write(&look, format!("curl -sS -o /dev/null {url}\n{LOOK}"))?;
        let secret = far.home.path().join("state/client.psk");
        let line = format!(
            "exec 9<{}; exec {} run {} -- sh {}",
            secret.display(),
            quictun.display(),
            far.flags,
            look.display()
        );
        let mut command = Machine::here().command("sh");
        command.args(["-c", &line]);
        far.home.settle(&mut command);
        let ran = output(&mut command)?;
        let said = String::from_utf8_lossy(&ran.stdout);
        let open: Vec<_> = said
            .lines()
            .filter_map(|line| line.split_once(" -> "))
            .collect();
        ensure!(ran.status.success() && open.len() > 3, "{ran:?}");
        for (name, target) in open {
            let number = name.rsplit(' ').next().unwrap_or_default();
            let standard = ["0", "1", "2"].contains(&number);
            let own = ["socket:", "/dev/net/tun", "/memfd:", "anon_inode:"];
            ensure!(
                if standard {
                    target == "/dev/null"
                } else {
                    own.iter().any(|it| target.starts_with(it))
                },
                "{number} -> {target}: {said}"
            );
        }
        application.outcome(SOON)
    })
}
