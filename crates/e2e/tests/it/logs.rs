//! The programs' log lines about flows and about unknown peers.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, RefusingAddress, through_echo};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START, Server, listen_address, server_pin};
use rustix::process::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);
const BYTES: u64 = 10_000;
const SOME: Payload = Payload {
    seed: 222,
    bytes: BYTES,
};

/// `quictun server` and a client for it, both of which log JSON.
struct LoggingPair {
    server: Program,
    client: Client,
    forwards: Vec<Endpoint>,
}

impl LoggingPair {
    fn start(rules: &[&str], targets: &[&str]) -> Result<Self> {
        let home = Home::new()?;
        let json = ["--log-format", "json", "--http", "off"];
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--workers", "2"]);
        command.args(json);
        for rule in rules {
            command.args(["--allow", rule]);
        }
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        let up: Value = serde_json::from_str(&line)?;
        let text = |name: &str| up[name].as_str().context(format!("no {name}: {up}"));
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["client", "--server", text("listen address")?]);
        command.args(["--pin", text("pin")?, "--psk-file", "state/client.psk"]);
        command
            .args(["--connections", "4", "--workers", "2"])
            .args(json);
        for target in targets {
            command.args(["-L", &format!("127.0.0.1:0={target}")]);
        }
        let mut program = Program::start("client", &mut command)?;
        let up = "Client endpoint start up successful";
        deadline::until(up, START, || program.count(up) == targets.len())?;
        let lines = json_lines(&program)?;
        let forwards = lines
            .iter()
            .filter_map(|line| Endpoint::parse(line["listen address"].as_str()?).ok())
            .collect::<Vec<_>>();
        let forward = forwards.first().context("no forward")?.clone();
        program.wait_for("connected to server endpoint", START)?;
        Ok(Self {
            server,
            client: Client {
                program,
                forward,
                home,
            },
            forwards,
        })
    }
}

/// Returns everything that a program has written, line by line.
fn json_lines(program: &Program) -> Result<Vec<Value>> {
    let lines = program.lines();
    let parsed = lines
        .iter()
        .map(|line| serde_json::from_str(line).with_context(|| format!("{line} is not JSON")));
    parsed.collect()
}

/// Returns the lines about ended flows, once there are `flows` of them.
fn audit(program: &Program, flows: usize) -> Result<Vec<Value>> {
    deadline::until("a line for each ended flow", SOON, || {
        program.count("\"verdict\":") >= flows
    })?;
    let lines = json_lines(program)?;
    let ends: Vec<_> = lines
        .into_iter()
        .filter(|line| line.get("verdict").is_some())
        .collect();
    ensure!(ends.len() == flows, "{} lines, {flows} flows", ends.len());
    Ok(ends)
}

#[test]
fn each_flow_of_the_native_protocol_leaves_one_line_on_each_side() -> Result<()> {
    const CARRIED: usize = 6;
    let (application, refusing) = (Application::echo()?, RefusingAddress::new()?);
    let (good, deaf) = (application.target(), refusing.target());
    let bare = |target: &str| target.trim_start_matches("tcp:").to_owned();
    let rules = [bare(&good), bare(&deaf)];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let denied = "tcp:192.0.2.1:9";
    let native = LoggingPair::start(&rules, &[&good, denied, &deaf])?;
    for _ in 0..CARRIED {
        through_echo(&native.forwards[0], SOME)?;
    }
    for refused in &native.forwards[1..] {
        let ending = refused.ending()?;
        ensure!(ending.is_reset(), "{refused} ended as {ending:?}");
    }
    let flows = CARRIED + 2;
    for (program, side) in [
        (&native.server, "server"),
        (&native.client.program, "client"),
    ] {
        let ends = audit(program, flows)?;
        let ids: BTreeSet<_> = ends
            .iter()
            .filter_map(|line| line["flow"].as_str())
            .collect();
        ensure!(ids.len() == flows, "{side}: flows share an id: {ends:?}");
        // Stream ids restart on each connection, and connection numbers in each worker.
        let places: BTreeSet<_> = ends
            .iter()
            .map(|line| ["worker", "connection", "Stream-ID"].map(|name| line[name].as_u64()))
            .collect();
        ensure!(
            places.len() == flows,
            "{side}: flows share a stream: {ends:?}"
        );
        for line in &ends {
            is_complete(line, side, [&good, denied, &deaf])?;
        }
        let carried = ends.iter().filter(|line| line["verdict"] == "allowed");
        ensure!(carried.count() == CARRIED, "{side}: {ends:?}");
        // Everything else about a flow is logged at debug level.
        for line in json_lines(program)? {
            let single = line.get("Stream-ID").is_some() || line.get("Client-App-Addr").is_some();
            ensure!(
                !single || line.get("verdict").is_some(),
                "{side}: a second line for a flow: {line}"
            );
        }
    }
    let server = audit(&native.server, flows)?;
    let why = |target: &str| server.iter().find(|line| line["target"] == target).cloned();
    let line = why(denied).context("no line about the denied flow")?;
    ensure!(
        line["verdict"] == "refused"
            && line["denied"]
                .as_str()
                .is_some_and(|why| why.contains("192.0.2.1:9")),
        "{line}"
    );
    let line = why(&deaf).context("no line about the flow to a target that refuses connections")?;
    ensure!(
        line["verdict"] == "failed" && line["reason"].is_string(),
        "{line}"
    );
    Ok(())
}

/// Checks that a flow's line names the peers, the target, and the bytes carried.
fn is_complete(line: &Value, side: &str, [good, denied, deaf]: [&str; 3]) -> Result<()> {
    let address = |name: &str| line[name].as_str().is_some_and(|text| text.contains(':'));
    let target = line["target"].as_str().unwrap_or_default();
    ensure!([good, denied, deaf].contains(&target), "no target: {line}");
    ensure!(
        line["reason"].is_string() && line["elapsed_ms"].is_u64(),
        "the line lacks the reason or the duration: {line}"
    );
    let carried = line["verdict"] == "allowed";
    let bytes = |name: &str| line[name].as_u64();
    let expected = if carried { BYTES } else { 0 };
    ensure!(
        bytes("bytes_to_app") == Some(expected) && bytes("bytes_to_tunnel") == Some(expected),
        "the byte counts are not {expected}: {line}"
    );
    ensure!(carried == (target == good), "{line}");
    for name in ["worker", "connection", "Stream-ID"] {
        ensure!(line[name].is_u64(), "the line lacks {name}: {line}");
    }
    if side == "server" {
        ensure!(
            line["client"] == "default" && address("Client-Endpoint-Addr"),
            "{line}"
        );
        ensure!(!carried || address("Server-App-Addr"), "{line}");
    } else {
        ensure!(address("Client-App-Addr"), "{line}");
        ensure!(address("Server-Endpoint-Addr"), "{line}");
    }
    Ok(())
}

/// Starts a server and a client that forwards to `target`, each with further arguments.
fn native_pair(target: &str, server: &[&str], client: &[&str]) -> Result<(Program, Client)> {
    let home = Home::new()?;
    let rule = target.trim_start_matches("tcp:");
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
    command.args(["--allow", rule]).args(server);
    let mut server = Program::start("server", &mut command)?;
    let line = server.wait_for("Server endpoint start up successful", START)?;
    let pin = server_pin(&line)?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["client", "--server", &listen_address(&line)?, "--pin", &pin]);
    command.args(["--psk-file", "state/client.psk", "--http", "off"]);
    command.args(["-L", &format!("127.0.0.1:0={target}")]);
    let client = Client::from_command(home, command.args(client))?;
    Ok((server, client))
}

#[test]
fn native_programs_log_the_start_of_a_flow_at_debug_level() -> Result<()> {
    let application = Application::echo()?;
    let debug = ["--log-level", "debug"];
    let (mut server, mut client) = native_pair(&application.target(), &debug, &debug)?;
    through_echo(&client.forward, SOME)?;
    // Each program logs this line last for a flow.
    server.wait_for("flow closed", SOON)?;
    client.program.wait_for("flow closed", SOON)?;
    let beginnings = [
        (&server, "the client asks for a flow"),
        (&server, "dialling the target"),
        (&server, "the target has been reached"),
        (&server, "flow established"),
        (&client.program, "an application has connected"),
        (&client.program, "asking the server for a flow"),
        (&client.program, "flow established"),
    ];
    for (program, phrase) in beginnings {
        let lines = program.lines();
        let line = lines.iter().find(|line| line.contains(phrase));
        let line = line.with_context(|| format!("no line contains {phrase:?}"))?;
        ensure!(line.contains("\tDEBUG\t"), "{line}");
    }
    for phrase in ["endpint", "Handshake", "handshake", "Tunnel", "successful"] {
        let mut lines = [server.lines(), client.program.lines()].concat();
        // Lines of the QUIC library may contain these words.
        lines.retain(|line| !line.contains("\tquinn_proto::"));
        let said = lines.iter().find(|line| line.contains(phrase));
        let start = said.is_some_and(|line| line.contains(" endpoint start up successful"));
        ensure!(said.is_none() || start, "the original's words: {said:?}");
    }
    Ok(())
}

/// A token that would move the cursor, reverse the line's direction, and end the line.
const HOSTILE: &str = "tcp:\u{1b}[2J\u{9b}31m\u{7f}\u{202e}evil\u{2028}\u{85}\u{feff}:22";

#[test]
fn a_flood_of_hostile_tokens_is_escaped_and_costs_few_lines() -> Result<()> {
    const FLOWS: usize = 400;
    // One line per flow of the initial burst, one per second on a slow machine, and the server's own lines.
    const LINES: usize = 3 * (100 + 60) + 30;
    for format in ["console", "json"] {
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun-server")?;
        command.args(["--listen-on", "127.0.0.1:0", "--httpd-listen-on", "off"]);
        command.args(["--log-format", format, "--workers", "1"]);
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        let (_, address) = line.split_once("127.0.0.1:").context("no address")?;
        let port = address.split('"').next().unwrap_or_default();
        let hostile = Client::start(&format!("127.0.0.1:{port}"), &["--token-source", HOSTILE])?;
        for _ in 0..FLOWS {
            let ending = hostile.forward.ending()?;
            ensure!(ending.is_reset(), "not a reset: {ending:?}");
        }
        deadline::until(
            "the count of omitted lines",
            Duration::from_secs(20),
            || server.has_printed("left_out"),
        )?;
        let lines = server.lines();
        ensure!(lines.len() < LINES, "{format}: {} lines", lines.len());
        let all = lines.join("\n");
        ensure!(all.contains("Failed to parse token"), "{format}: {all}");
        let raw = |c: &char| {
            (c.is_control() && !matches!(c, '\n' | '\t')) || "\u{202e}\u{2028}\u{feff}".contains(*c)
        };
        let found: Vec<char> = all.chars().filter(raw).collect();
        ensure!(found.is_empty(), "{format}: unescaped {found:?}");
    }
    Ok(())
}

#[test]
fn long_text_from_strangers_is_truncated() -> Result<()> {
    let server = Server::start(&[])?;
    let long = format!("tcp:{}:22", "x".repeat(500));
    let client = Client::start(&server.address.to_string(), &["--token-source", &long])?;
    let ending = client.forward.ending()?;
    ensure!(ending.is_reset(), "not a reset: {ending:?}");
    deadline::until("the line about the flow's end", SOON, || {
        server.program.has_printed("handshake error!")
    })?;
    let shown = server.program.lines().iter().map(String::len).max();
    ensure!(shown < Some(1000), "a log line has {shown:?} bytes");
    Ok(())
}

#[test]
fn urls_are_logged_without_credentials() -> Result<()> {
    let server = Server::start(&[])?;
    let url = "http://admin:hunter2@127.0.0.1:1/token?key=hunter3";
    let arguments = [
        "--token-source-plugin",
        "Http",
        "--token-source",
        url,
        "--log-level",
        "debug",
    ];
    let mut client = Client::start(&server.address.to_string(), &arguments)?;
    let ending = client.forward.ending()?;
    ensure!(ending.is_reset(), "not a reset: {ending:?}");
    let said = client.program.wait_for("no token", SOON)?;
    ensure!(said.contains("http://127.0.0.1:1/token"), "{said}");
    for line in client.program.lines() {
        let secret = line.contains("hunter2") || line.contains("admin");
        ensure!(!secret, "{line}");
        // At its start the program prints its configuration as the original does, including the query.
        let echoed = line.contains("token-source");
        ensure!(echoed || !line.contains("hunter3"), "{line}");
    }
    Ok(())
}

#[test]
fn a_flow_that_ends_with_the_server_names_its_shutdown() -> Result<()> {
    let application = Application::echo()?;
    let (server, mut client) = native_pair(&application.target(), &["--drain", "0s"], &[])?;
    let mut open = client.forward.connect()?;
    SOME.write_to(&mut open)?;
    SOME.read_from(&mut open)?;
    server.signal(Signal::TERM)?;
    let line = client.program.wait_for("flow closed", SOON)?;
    ensure!(line.contains("the other side is shutting down"), "{line}");
    Ok(())
}
