//! Runs the commands in the example files of configuration as written, and a tunnel with these files.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use quictun_testbed::application::{
    Application, echo, served_within, there_and_back, through_echo,
};
use quictun_testbed::binaries;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, run};
use quictun_testbed::tunnel::{Home, START, server_pin};

use crate::identities::Authority;

const SERVER: &str = include_str!("../../../../docs/examples/server.toml");
const CLIENT: &str = include_str!("../../../../docs/examples/client.toml");

/// The only key in the examples that a reader must replace: the server's in one file, the client's in the other.
const KEY: &str = "sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";

/// The names in the examples.
const HOSTS: &str = "192.0.2.2 example.net\n127.0.0.1 db.internal\n";

const SOON: Duration = Duration::from_secs(20);
const SOME: Payload = Payload {
    seed: 514,
    bytes: 1 << 16,
};

/// The commands in the first comment of an example file.
struct ExampleCommands<'a> {
    start: &'a str,
    checks: Vec<&'a str>,
}

impl<'a> ExampleCommands<'a> {
    fn of(example: &'a str) -> Result<Self> {
        let head = example.lines().take_while(|line| line.starts_with('#'));
        let commands = head.map(|line| line.trim_start_matches(['#', ' ']));
        let commands = commands.filter(|line| line.starts_with("quictun "));
        let (checks, starts): (Vec<&str>, Vec<&str>) =
            commands.partition(|line| line.starts_with("quictun config "));
        let [start] = starts[..] else {
            bail!("an example must have one command that starts it: {starts:?}");
        };
        ensure!(checks.len() == 2, "{checks:?}");
        Ok(Self { start, checks })
    }
}

/// Replaces this test's `/etc` and `/run`, and writes the files that the examples name.
fn set_up_host(home: &Home) -> Result<()> {
    for directory in ["/etc", "/run"] {
        machine::run(&format!("mount -t tmpfs tmpfs {directory}"))?;
    }
    std::fs::create_dir_all("/run/quictun/laptop")?;
    std::fs::create_dir("/etc/quictun")?;
    std::fs::write("/etc/hosts", HOSTS)?;
    std::fs::write("/etc/nsswitch.conf", "hosts: files\n")?;
    for secret in ["sensor.psk", "client.psk"] {
        let path = Path::new("/etc/quictun").join(secret);
        std::fs::write(&path, "a secret of the examples\n")?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    }
    let authority = Authority::new(home, "clients-ca")?;
    std::fs::copy(authority.file, "/etc/quictun/clients-ca.crt")?;
    Ok(())
}

fn shell(machine: &Machine, home: &Home, line: &str) -> Result<Command> {
    let mut shell = machine.command("sh");
    shell.args(["-c", line]);
    home.settle(&mut shell);
    let programs = binaries::path("quictun")?;
    let programs = programs.parent().context("a directory")?;
    let others = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{others}", programs.display()));
    // An ordinary user cannot create the directory that the example names.
    shell.env("QUICTUN_STATE_DIR", home.path().join("state"));
    Ok(shell)
}

fn start(machine: &Machine, home: &Home, line: &str) -> Result<(Program, String)> {
    let mut program = Program::start(line, &mut shell(machine, home, &format!("exec {line}"))?)?;
    let up = program.wait_for("start up successful", START)?;
    Ok((program, up))
}

/// Reaches a target that the proxy at this address learns by its name.
fn through_proxy(proxy: &Endpoint) -> Result<()> {
    let mut connection = proxy.connect()?;
    let target = "db.internal:5432";
    write!(
        connection,
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte)?;
        answer.extend(byte);
    }
    let answer = String::from_utf8_lossy(&answer);
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    there_and_back(&mut connection, SOME, true)
}

#[test]
fn the_example_files_are_checked_and_carry_traffic_with_only_their_keys_replaced() -> Result<()> {
    isolated(|| {
        let (here, far) = (Machine::here(), Machine::new("server")?);
        here.join(&far, "lan0", "192.0.2.1/24", "192.0.2.2/24")?;
        let home = Home::new()?;
        set_up_host(&home)?;
        let made = run(&mut shell(
            &here,
            &home,
            "quictun keygen --out /etc/quictun",
        )?)?;
        let own = made.split_whitespace().find(|it| it.starts_with("sha256:"));
        let own = own.with_context(|| format!("no pin: {made}"))?;
        let (server, client) = (ExampleCommands::of(SERVER)?, ExampleCommands::of(CLIENT)?);
        for (name, text) in [("server.toml", SERVER), ("client.toml", CLIENT)] {
            std::fs::write(home.path().join(name), text)?;
        }
        for check in [&server.checks[..], &client.checks[..]].concat() {
            run(&mut shell(&here, &home, check)?)?;
        }
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let _targets = far.within(|| {
            Ok([
                Application::tcp_on(local(22), echo)?,
                Application::tcp_on(local(5432), echo)?,
                Application::unix(Path::new("/run/docker.sock"), echo)?,
            ])
        })?;
        let _published = Application::tcp_on(local(80), echo)?;
        std::fs::write(home.path().join("server.toml"), SERVER.replace(KEY, own))?;
        let (_server, up) = start(&far, &home, server.start)?;
        let pin = server_pin(&up)?;
        std::fs::write(home.path().join("client.toml"), CLIENT.replace(KEY, &pin))?;
        let (_client, _) = start(&here, &home, client.start)?;
        for forward in [
            "tcp:127.0.0.1:2222",
            "tcp:127.0.0.1:5432",
            "unix:/run/quictun/docker.sock",
        ] {
            let forward = Endpoint::parse(forward)?;
            through_echo(&forward, SOME).with_context(|| forward.to_string())?;
        }
        through_proxy(&Endpoint::Tcp(local(1080))).context("the proxy")?;
        far.within(|| served_within(&Endpoint::Tcp(local(8000)), SOME, SOON))
            .context("the reverse forward")?;
        Ok(())
    })
}
