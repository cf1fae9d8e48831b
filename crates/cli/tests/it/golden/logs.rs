//! Log lines that people and programs search for: level, message and keys, of both pairs of programs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::live::{RunningProgram, SilentAddress, echo, exchange, field};
use super::{golden, json};
use crate::programs::{CLIENT, QUICTUN, SERVER};

const SERVER_UP: &str = "Server endpoint start up successful";
const CLIENT_UP: &str = "Client endpoint start up successful";

/// Messages of lines that depend on the machine, on the moment or on a library.
const PASSING: [&str; 10] = [
    // On a busy machine, an attempt may be overtaken or time out, and a connection may count as dead.
    "flows continue on a new connection",
    "its flows wait for",
    "a client's handshake failed",
    "client endpoint lost",
    "congestion control",
    "UDP socket",
    "the network has changed",
    "confined",
    "not confined",
    "duplicate packet",
];

/// Returns each kind of line once as `LEVEL message {keys}`, sorted.
fn kinds(said: &str) -> String {
    let mut kinds = BTreeSet::new();
    for line in said.lines() {
        let parts: Vec<_> = line.split('\t').collect();
        let [_, level, place, message, ..] = parts[..] else {
            continue;
        };
        if PASSING.iter().any(|passing| message.contains(passing)) || place.contains("quinn") {
            continue;
        }
        // The rest of this message is a command with addresses and ports of this run.
        let message = message.split(": quictun client").next().unwrap_or_default();
        let message = message.split(", after copying").next().unwrap_or_default();
        let fields = parts.get(4).map_or(Value::Null, |fields| json(fields));
        let names: Vec<_> = fields.as_object().into_iter().flatten().collect();
        let names: Vec<_> = names.into_iter().map(|(name, _)| name.as_str()).collect();
        kinds.insert(format!("{level} {message} {{{}}}\n", names.join(", ")));
    }
    kinds.into_iter().collect()
}

#[test]
fn golden_logs_of_the_compatibility_programs() {
    let home = tempfile::tempdir().expect("a directory");
    let flags = ["--httpd-listen-on", "127.0.0.1:0", "--log-level", "debug"];
    let arguments = [&["--listen-on", "127.0.0.1:0"], &flags[..]].concat();
    let mut server = RunningProgram::start(SERVER, &arguments, home.path());
    let address = field(&server.line(SERVER_UP), "listen address").to_owned();
    let mut clients = String::new();
    let silent = SilentAddress::new();
    for token in [
        echo(),
        format!("tcp:{}", silent.address),
        "nonsense".to_owned(),
        "unix:/nonexistent".to_owned(),
    ] {
        for offer in ["native", "compat"] {
            let arguments = [
                &[
                    "--server-endpoint",
                    &address,
                    "--listen-on",
                    "tcp:127.0.0.1:0",
                ],
                &["--token-source", &token, "--offer", offer],
                &flags[..],
            ]
            .concat();
            let mut client = RunningProgram::start(CLIENT, &arguments, home.path());
            let forward = field(&client.line(CLIENT_UP), "listen address").to_owned();
            exchange(&forward);
            clients.push_str(&client.end());
        }
    }
    golden("logs-quictun-client", &kinds(&clients));
    golden("logs-quictun-server", &kinds(&server.end()));
    // The configuration at the start, printed as the original prints it.
    let asked = clients.lines().take_while(|line| !line.contains('\t'));
    let names = asked.map(|line| {
        let end = line.find(['=', ':']).map_or(line.len(), |end| end + 1);
        format!("{}\n", &line[..end])
    });
    golden("logs-configuration", &names.collect::<String>());
}

#[test]
fn golden_logs_of_the_native_programs() {
    let home = tempfile::tempdir().expect("a directory");
    let flags = ["--http", "127.0.0.1:0", "--log-level", "debug"];
    let echo = echo();
    let allow = echo.trim_start_matches("tcp:");
    let silent = SilentAddress::new();
    let silent = &silent.address;
    let listen = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--allow",
        allow,
        "--allow",
        silent,
    ];
    let mut server = RunningProgram::start(QUICTUN, &[&listen, &flags[..]].concat(), home.path());
    let line = server.line(SERVER_UP);
    let (address, pin) = (field(&line, "listen address"), field(&line, "pin"));
    let forwards = [&echo, &format!("tcp:{silent}"), "tcp:192.0.2.1:9"];
    let forwards = forwards.map(|target| format!("--forward=127.0.0.1:0={target}"));
    let mut arguments = vec!["client", "--server", address, "--pin", pin];
    arguments.extend(["--psk-file", "state/client.psk", "--connections", "1"]);
    arguments.extend(forwards.iter().map(String::as_str).chain(flags));
    let mut client = RunningProgram::start(QUICTUN, &arguments, home.path());
    for _ in &forwards {
        let forward = client.line(CLIENT_UP);
        exchange(field(&forward, "listen address"));
    }
    golden("logs-client", &kinds(&client.end()));
    golden("logs-server", &kinds(&server.end()));
}
