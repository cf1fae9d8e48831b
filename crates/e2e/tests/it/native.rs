//! `quictun server` and `quictun client`: every target is denied by default, and the server prints the client's command
//! line.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_skip::skipped;
use quictun_testbed::application::{Application, RefusingAddress, through_echo};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::rest;
use quictun_testbed::tunnel::{Client, Home, START, listen_address};

const SOON: Duration = Duration::from_secs(10);
const SOME: Payload = Payload {
    seed: 81,
    bytes: 1 << 20,
};

/// `quictun server` on a free port.
pub(crate) struct NativeServer {
    pub(crate) program: Program,
    pub(crate) address: String,
    pub(crate) home: Home,
}

impl NativeServer {
    pub(crate) fn start(arguments: &[&str]) -> Result<Self> {
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command
            .args(["server", "--listen", "127.0.0.1:0", "--http", "off"])
            .args(arguments);
        let mut program = Program::start("server", &mut command)?;
        let line = program.wait_for("Server endpoint start up successful", START)?;
        let address = between(&line, "\"listen address\": \"", '"')?;
        Ok(Self {
            program,
            address,
            home,
        })
    }

    /// Returns the client's command line that the server prints, with its two placeholders.
    pub(crate) fn client_line(&mut self) -> Result<String> {
        let line = self.program.wait_for(": quictun client ", START)?;
        let (_, command) = line.split_once(": quictun client ").context("no command")?;
        Ok(format!("quictun client {command}"))
    }
}

/// Starts a client with the command line that the server printed.
fn client_of_line(server: &mut NativeServer, forward: &str) -> Result<Client> {
    let home = Home::new()?;
    let printed = server.client_line()?;
    std::fs::copy(
        server.home.path().join("state/client.psk"),
        home.path().join("client.psk"),
    )?;
    let line = printed
        .replace("THIS-HOST", "127.0.0.1")
        .replace("127.0.0.1:PORT=TARGET", forward);
    ensure!(
        line != printed && !line.contains("PORT"),
        "the line has unexpected placeholders: {printed}"
    );
    let mut command = with_path(&home, &format!("exec {line} --http off"))?;
    Client::from_command(home, &mut command)
}

fn with_path(home: &Home, line: &str) -> Result<Command> {
    let mut command = quictun_testbed::program::command("sh");
    home.settle(&mut command);
    let mut path = quictun_testbed::binaries::directory()?.into_os_string();
    path.push(":/usr/bin:/bin");
    command.args(["-c", line]).env("PATH", path);
    Ok(command)
}

pub(crate) fn between(text: &str, before: &str, after: char) -> Result<String> {
    let (_, rest) = text
        .split_once(before)
        .with_context(|| format!("no {before:?} in {text:?}"))?;
    Ok(rest.split(after).next().unwrap_or_default().to_owned())
}

pub(crate) fn bare(target: &str) -> String {
    target.trim_start_matches("tcp:").to_owned()
}

#[test]
fn the_command_that_the_first_run_prints_works() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application.target());
    let mut server = NativeServer::start(&["--allow", &target])?;
    let client = client_of_line(&mut server, &format!("127.0.0.1:0={target}"))?;
    through_echo(&client.forward, SOME)
}

// PROTOCOL QUIC-1.
#[test]
fn both_sides_encrypt_with_the_configured_library() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application.target());
    for (theirs, ours) in [("ring", "aws-lc"), ("aws-lc", "ring")] {
        let mut server = NativeServer::start(&["--allow", &target, "--aead", theirs])?;
        let forward = format!("127.0.0.1:0={target} --aead {ours}");
        let client = client_of_line(&mut server, &forward)?;
        through_echo(&client.forward, SOME)?;
    }
    Ok(())
}

// PROTOCOL AUTH-1.
#[test]
fn a_target_that_is_not_allowed_is_refused() -> Result<()> {
    let (allowed, other) = (RefusingAddress::new()?, Application::echo()?);
    let mut server = NativeServer::start(&["--allow", &bare(&allowed.target())])?;
    let client = client_of_line(
        &mut server,
        &format!("127.0.0.1:0={}", bare(&other.target())),
    )?;
    let ending = client.forward.ending()?;
    ensure!(ending.is_reset(), "a denied target ended as {ending:?}");
    server.program.wait_for("flow refused", SOON)?;
    ensure!(
        other.outcome(Duration::ZERO).is_err(),
        "the target was reached"
    );
    Ok(())
}

#[test]
fn a_server_that_allows_nothing_says_how_to_allow_something() -> Result<()> {
    let mut server = NativeServer::start(&[])?;
    server.program.wait_for("--allow", SOON).map(drop)
}

#[test]
fn another_pin_is_refused_by_an_error_that_names_it() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application.target());
    let mut server = NativeServer::start(&["--allow", &target])?;
    let line = server.client_line()?;
    let pin = between(&line, "--pin ", ' ')?;
    let wrong = format!("sha256:{}", "A".repeat(43));
    let home = Home::new()?;
    std::fs::copy(
        server.home.path().join("state/client.psk"),
        home.path().join("client.psk"),
    )?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args([
        "client",
        "--server",
        &server.address,
        "--pin",
        &wrong,
        "--psk-file",
        "client.psk",
    ]);
    command.args(["--http", "off", "-L", &format!("127.0.0.1:0={target}")]);
    let mut client = Client::from_command(home, &mut command)?;
    let said = client
        .program
        .wait_for(&pin, SOON)
        .context("waiting for a line with the server's pin")?;
    ensure!(said.contains("not pinned"), "{said}");
    Ok(())
}

// PROTOCOL AUTH-1, AUTH-4, PROOF-2.
#[test]
fn a_client_without_the_secret_is_refused() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application.target());
    let mut server = NativeServer::start(&["--allow", &target])?;
    let pin = between(&server.client_line()?, "--pin ", ' ')?;
    let home = Home::new()?;
    std::fs::write(
        home.path().join("client.psk"),
        "0123456789abcdef0123456789abcdef\n",
    )?;
    restrict(&home.path().join("client.psk"))?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args([
        "client",
        "--server",
        &server.address,
        "--pin",
        &pin,
        "--psk-file",
        "client.psk",
    ]);
    let forward = format!("127.0.0.1:0={target}");
    command.args(["--http", "127.0.0.1:0", "-L", &forward]);
    let mut client = Client::from_command(home, &mut command)?;
    let ending = client.forward.ending()?;
    ensure!(ending.is_reset(), "a wrong secret ended as {ending:?}");
    let why = "the server does not know this client: its secret (--psk-file)";
    client.program.wait_for(why, START)?;
    let line = client.program.wait_for("HTTP interface\t", START)?;
    let ready = rest::get(listen_address(&line)?.parse()?, "/readyz")?;
    ensure!(ready.status == 503, "ready with a wrong secret: {ready:?}");
    let times = client.program.count(why);
    ensure!(times == 1, "the error was logged {times} times");
    let refusal = "client endpoint refused";
    let line = server.program.wait_for(refusal, SOON)?;
    ensure!(
        line.contains("its secret is not in the configuration"),
        "{line}"
    );
    ensure!(
        application.outcome(Duration::ZERO).is_err(),
        "the target was reached"
    );
    Ok(())
}

#[test]
fn several_forwards_lead_to_tcp_and_unix_targets() -> Result<()> {
    let home = Home::new()?;
    let socket = home.path().join("echo.sock");
    let (tcp, unix) = (
        Application::echo()?,
        Application::unix(&socket, quictun_testbed::application::echo)?,
    );
    let (tcp, unix) = (bare(&tcp.target()), unix.target());
    let mut server = NativeServer::start(&["--allow", &tcp, "--allow", &unix])?;
    let local = home.path().join("local.sock");
    let forwards = format!(
        "127.0.0.1:0={tcp} -L 127.0.0.1:0={unix} -L unix:{}={tcp}",
        local.display()
    );
    let client = client_of_line(&mut server, &forwards)?;
    through_echo(&client.forward, SOME)?;
    through_echo(&Endpoint::Unix(local), SOME)?;
    let lines = client.program.lines();
    let second = lines
        .iter()
        .find(|line| line.contains("\"listen address\": \"") && line.contains(&unix));
    let second = Endpoint::parse(&between(
        second.context("no line about the second forward")?,
        "\"listen address\": \"",
        '"',
    )?)?;
    through_echo(&second, SOME)
}

#[test]
fn the_demonstration_prints_its_results_as_json() -> Result<()> {
    let home = Home::new()?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    let text = quictun_testbed::program::run(command.args(["demo", "--json"]))?;
    let facts: serde_json::Value = serde_json::from_str(&text).context("not a JSON object")?;
    for name in [
        "started_us",
        "first_byte_us",
        "round_trip_us",
        "round_trip_direct_us",
        "bytes_each_way",
        "to_server_bit_per_s",
        "to_client_bit_per_s",
        "killed_bytes_each_way",
        "killed_still_us",
    ] {
        ensure!(facts[name].as_u64() > Some(0), "{name}: {facts}");
    }
    // With a link there is a direct measurement to compare with, and every round trip contains the link's delay.
    if facts["link"].is_null() {
        skipped("the demonstration's link", "no namespaces here");
    } else {
        for name in ["to_server_direct_bit_per_s", "to_client_direct_bit_per_s"] {
            ensure!(facts[name].as_u64() > Some(0), "{name}: {facts}");
        }
        let delay = facts["link"]["delay_us"].as_u64().context("no delay")?;
        ensure!(
            facts["round_trip_direct_us"].as_u64() >= Some(2 * delay),
            "{facts}"
        );
    }
    for name in ["half_close_ok", "refusal_ok"] {
        ensure!(facts[name] == true, "{name}: {facts}");
    }
    let commands = facts["commands"].as_array().context("no commands")?;
    ensure!(
        commands.iter().all(|step| step["on"].is_string())
            && commands
                .iter()
                .any(|step| step["command"] == "quictun server --allow 127.0.0.1:22"),
        "{facts}"
    );
    let client = commands
        .iter()
        .filter_map(|step| step["command"].as_str())
        .find(|command| command.starts_with("quictun client"));
    let client = client.context("no command is a client")?;
    ensure!(
        client.contains(" --server SERVER --pin ") && client.ends_with(" -L 2222:127.0.0.1:22"),
        "the client's command must match the line that a server prints: {client}"
    );
    Ok(())
}

fn restrict(path: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(
        path,
        std::fs::Permissions::from_mode(0o600),
    )?)
}
