//! The first run at a terminal: the lines for the user.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use crate::programs::QUICTUN;

/// Runs a command at a terminal of its own until it has written `last`, then presses Ctrl-C. Returns its output.
fn at_a_terminal(command: &str, last: &str) -> String {
    let home = tempfile::tempdir().expect("a directory");
    let mut child = Command::new("script")
        .args([
            "--quiet",
            "--flush",
            "--return",
            "--command",
            command,
            "/dev/null",
        ])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "xterm")
        .env("HOME", home.path())
        .env("STATE_DIRECTORY", home.path().join("state"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script, of Debian's bsdutils");
    let mut keys = child.stdin.take().expect("a pipe");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut said = String::new();
    while !said.contains(last) {
        let read = output.read_line(&mut said).expect("text");
        assert!(read > 0, "the program ended early:\n{said}");
    }
    keys.write_all(b"\x03").expect("the terminal takes the key");
    let status = child.wait().expect("the program has ended");
    assert_eq!(status.code(), Some(0), "{said}");
    said.replace('\r', "")
}

#[test]
fn a_server_at_a_terminal_says_what_to_do_next_and_nothing_else() {
    let flags =
        "server --listen 127.0.0.1:0 --http off --allow 127.0.0.1:22 --allow 10.0.0.0/8:5432";
    let said = at_a_terminal(&format!("exec {QUICTUN} {flags}"), "Ctrl-C ends it");
    assert!(
        said.starts_with("quictun server listens on UDP 127.0.0.1:"),
        "{said}"
    );
    for part in [
        "\n  key      sha256:",
        "\n  client   default: 127.0.0.1:22, 10.0.0.0/8:5432\n",
        "/state/client.psk:\n",
        "\n  quictun client --server 127.0.0.1:",
        "\n    --psk-file client.psk \\\n    -L 2222:127.0.0.1:22\n",
    ] {
        assert!(said.contains(part), "{part:?} in\n{said}");
    }
    let wide = said
        .lines()
        .find(|line| line.len() > 80 && !line.contains("client.psk"));
    assert_eq!(wide, None, "{said}");
    assert!(!said.contains("INFO"), "{said}");
}
