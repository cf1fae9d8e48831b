//! `quictun drain`: a server ends with its last flow, as its user sees it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::golden::live::EchoTunnel;
use crate::programs::{QUICTUN, stderr};

/// Prepares `quictun drain` for the server in `home`.
fn drain(home: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(QUICTUN);
    command.arg("drain").args(flags);
    command.arg("--state-dir").arg(home.join("state"));
    command
}

fn output(mut command: Command) -> Output {
    command.output().expect("quictun")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn a_server_ends_with_its_last_flow() {
    let home = tempfile::tempdir().expect("a directory");
    let mut tunnel = EchoTunnel::start(home.path());
    let said = text(&output(drain(home.path(), &["--dry-run"])));
    assert!(said.starts_with("1 flow is open at the server\n"), "{said}");
    assert!(said.contains("would continue 1 and reset 0 "), "{said}");
    tunnel.exchange(*b"still");

    let waiting = drain(home.path(), &["--wait"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("quictun");
    tunnel.server.line("asked to drain");
    tunnel.exchange(*b"there");
    let again = text(&output(drain(home.path(), &["--json"])));
    let again: Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(again["draining"], true, "{again}");
    drop(tunnel.stream);
    let said = text(&waiting.wait_with_output().expect("quictun"));
    assert!(said.ends_with("the server has ended\n"), "{said}");
    tunnel.server.ended();
    let gone = output(drain(home.path(), &[]));
    let why = stderr(&gone);
    assert_eq!(gone.status.code(), Some(1), "{why}");
    assert!(why.contains("no server or client runs"), "{why}");
    tunnel.client.end();
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let home = tempfile::tempdir().expect("a directory");
    let refused = output(drain(home.path(), &["--dry-run", "--wait"]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}
