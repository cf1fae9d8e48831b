//! The answers of a running server and client: key paths of JSON, and metrics with type, unit and labels.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use super::live::{RunningProgram, echo, field};
use super::{golden, json, shape};
use crate::programs::QUICTUN;

const RESOURCES: [&str; 10] = [
    "/tunnels",
    "/v1",
    "/v1/status",
    "/v1/tunnels",
    "/v1/connections",
    "/v1/bonds",
    "/v1/reload",
    "/v1/reconnect",
    "/healthz",
    "/readyz",
];

/// Returns status, content type and body of `path`.
fn get(http: &str, path: &str) -> (String, String, String) {
    let mut stream = TcpStream::connect(http).expect("the interface");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.lines().next().unwrap_or_default().to_owned();
    let kind = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-type").then_some(value)
    });
    (status, kind.unwrap_or_default().to_owned(), body.to_owned())
}

/// Values of a connection that become known late or never.
const UNKNOWN_AT_FIRST: [&str; 8] = [
    "alone_seconds: ",
    "bandwidth_bytes_per_second: ",
    "detached_seconds: ",
    "limited_by: ",
    "min_rtt_seconds: ",
    "move_seconds_p50: ",
    "move_seconds_p99: ",
    "pacing_bytes_per_second: ",
];

/// Returns the key paths of an answer.
fn keys(body: &str) -> String {
    let mut text = String::new();
    for line in shape(&json(body)).lines() {
        let late = UNKNOWN_AT_FIRST.iter().any(|name| line.contains(name));
        let (path, _) = line.split_once(": ").expect("a path and its types");
        let line = if late {
            format!("{path}: may be null")
        } else {
            line.to_owned()
        };
        writeln!(text, "{line}").expect("a line");
    }
    text
}

/// Returns the families of metrics, and the labels of their samples.
fn families(text: &str) -> String {
    let mut lines = BTreeSet::new();
    for line in text.lines() {
        if line == "# EOF" {
            continue;
        }
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name) = (
                words.next().unwrap_or_default(),
                words.next().unwrap_or_default(),
            );
            lines.insert(format!(
                "{name} {what} {}\n",
                words.next().unwrap_or_default()
            ));
            continue;
        }
        let (sample, _) = line.rsplit_once(' ').unwrap_or((line, ""));
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let labels = labels.trim_end_matches('}').split(',');
        let names: Vec<_> = labels
            .filter_map(|label| Some(label.split_once('=')?.0))
            .collect();
        lines.insert(format!("{name}{{{}}}\n", names.join(",")));
    }
    lines.into_iter().collect()
}

#[test]
fn golden_rest() {
    let home = tempfile::tempdir().expect("a directory");
    let target = echo();
    let allow = target.trim_start_matches("tcp:");
    let listen = ["server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let arguments = [&listen[..], &["--allow", allow]].concat();
    let mut server = RunningProgram::start(QUICTUN, &arguments, home.path());
    let server_http = field(&server.line("HTTP interface"), "listen address").to_owned();
    let line = server.line("Server endpoint start up successful");
    let forward = format!("127.0.0.1:0={target}");
    let arguments = [
        &[
            "client",
            "--server",
            field(&line, "listen address"),
            "--pin",
            field(&line, "pin"),
        ],
        &[
            "--psk-file",
            "state/client.psk",
            "--http",
            "127.0.0.1:0",
            "--connections",
            "1",
            "-L",
            &forward,
        ][..],
    ]
    .concat();
    let mut client = RunningProgram::start(QUICTUN, &arguments, home.path());
    let client_http = field(&client.line("HTTP interface"), "listen address").to_owned();
    let line = client.line("Client endpoint start up successful");
    let mut stream = TcpStream::connect(field(&line, "listen address")).expect("the client");
    stream.write_all(b"hello").expect("a question");
    stream.read_exact(&mut [0; 5]).expect("an answer");
    for (side, http) in [("server", &server_http), ("client", &client_http)] {
        let mut text = String::new();
        for path in RESOURCES {
            let (status, kind, body) = get(http, path);
            writeln!(text, "GET {path}\n{status}\n{kind}\n{}", keys(&body)).expect("a line");
        }
        for path in ["/v1/nothing", "/v1nothing", "/nothing"] {
            let (status, kind, _) = get(http, path);
            writeln!(text, "GET {path}\n{status}\n{kind}\n").expect("a line");
        }
        let (status, kind, metrics) = get(http, "/metrics");
        writeln!(text, "GET /metrics\n{status}\n{kind}").expect("a line");
        golden(&format!("rest-{side}"), &text);
        golden(&format!("metrics-{side}"), &families(&metrics));
        let arguments = ["status", "--json", "--http", http];
        let status = Command::new(QUICTUN)
            .args(arguments)
            .output()
            .expect("quictun");
        let said = String::from_utf8(status.stdout).expect("text");
        golden(&format!("status-{side}"), &keys(&said));
    }
    drop(stream);
    client.end();
    server.end();
}
