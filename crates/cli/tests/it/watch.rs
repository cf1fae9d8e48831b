//! `quictun status --watch`, on a terminal and without one.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;
use rustix::termios::LocalModes;
use serde_json::Value;

use crate::golden::live::{RunningProgram, field};
use crate::programs::QUICTUN;
use crate::test_terminal::TestTerminal;

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// Starts a server whose HTTP interface is a socket in `home`. Returns it with that address.
fn server(home: &Path) -> (RunningProgram, String) {
    let http = format!("unix:{}/http.sock", home.display());
    let arguments = ["server", "--listen", "127.0.0.1:0", "--http", &http];
    let mut server = RunningProgram::start(QUICTUN, &arguments, home);
    let line = server.line("Server endpoint start up successful");
    assert!(!field(&line, "listen address").is_empty());
    (server, http)
}

/// Starts the live page on a terminal.
fn live_page(http: &str, home: &Path) -> TestTerminal {
    let arguments = ["status", "--watch", "--interval", "200ms", "--http", http];
    TestTerminal::start(&arguments, home, 80)
}

/// Waits until the page gives the terminal back and ends.
fn end(mut page: TestTerminal) -> ExitStatus {
    page.until(LEAVE);
    page.end()
}

#[test]
fn a_live_page_follows_keys_the_screen_and_the_server_and_gives_the_terminal_back() {
    let home = tempfile::tempdir().expect("a directory");
    let (first, http) = server(home.path());
    let mut page = live_page(&http, home.path());
    page.until(ENTER);
    page.until("quictun server ");
    page.until("s sort: rate");
    let typed = LocalModes::ICANON | LocalModes::ECHO;
    assert!((page.modes() & typed).is_empty(), "{:?}", page.modes());
    assert!(page.modes().contains(LocalModes::ISIG));
    page.press("s");
    page.until("s sort: RTT");
    page.resize(100, 30);
    page.until("\u{1b}[30;1H\u{1b}[2K");

    page.press("\u{1a}");
    page.until(LEAVE);
    assert_eq!(page.modes(), page.modes_before(), "a stopped page");
    page.wait_stopped();
    page.signal(Signal::CONT);
    page.until(ENTER);
    page.until("s sort: RTT");

    first.end();
    page.until("NOT REACHABLE for 0s, retrying: nothing answers at unix:");
    let (second, _) = server(home.path());
    page.until("quictun server ");
    page.press("\u{3}");
    assert_eq!(end(page).code(), Some(0));

    let mut page = live_page(&http, home.path());
    page.until("s sort: rate");
    page.press("q");
    assert_eq!(end(page).code(), Some(0));

    let mut page = live_page(&http, home.path());
    page.until("s sort: rate");
    page.signal(Signal::TERM);
    assert_eq!(end(page).code(), Some(130));
    second.end();
}

fn watch(http: &str, arguments: &[&str]) -> Child {
    Command::new(QUICTUN)
        .args(["status", "--watch", "--interval", "200ms", "--http", http])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("quictun")
}

#[test]
fn without_a_terminal_each_interval_prints_until_the_reader_is_gone() {
    let home = tempfile::tempdir().expect("a directory");
    let (server, http) = server(home.path());
    let mut objects = watch(&http, &["--json"]);
    let output = BufReader::new(objects.stdout.take().expect("piped"));
    let mut lines = output.lines().map(|line| line.expect("text"));
    let mut object =
        || -> Value { serde_json::from_str(&lines.next().expect("a line")).expect("JSON") };
    for _ in 0..2 {
        let object = object();
        assert_eq!(object["status"]["side"], "server", "{object}");
        assert!(object["connections"].is_array() && object["tunnels"].is_array());
        assert!(object["at"].as_str().is_some_and(|at| at.ends_with('Z')));
    }
    let mut pages = watch(&http, &[]);
    let mut output = BufReader::new(pages.stdout.take().expect("piped"));
    let mut text = String::new();
    while text.matches("CONNECTIONS 0").count() < 2 {
        output.read_line(&mut text).expect("text");
    }
    assert!(!text.contains('\u{1b}'), "{text}");

    server.end();
    let away = std::iter::repeat_with(object).find(|object| object.get("status").is_none());
    let error = away.expect("an object without a status comes")["error"].to_string();
    assert!(error.contains("nothing answers at unix:"), "{error}");
    drop(output);
    assert!(pages.wait().expect("the program has ended").success());
    drop(lines);
    assert!(objects.wait().expect("the program has ended").success());
}

#[test]
fn an_unwatchable_process_is_reported_at_once() {
    let home = tempfile::tempdir().expect("a directory");
    let nobody = format!("unix:{}/http.sock", home.path().display());
    for (arguments, code, why) in [
        (
            &["--watch", "--http", &nobody][..],
            1,
            "nothing answers at unix:",
        ),
        (
            &["--watch", "--json", "--http", &nobody],
            1,
            "nothing answers at unix:",
        ),
        (&["--interval", "2s"], 2, "--interval: needs --watch"),
        (
            &["--watch", "--interval", "199ms"],
            2,
            "must lie between 200ms and 1h",
        ),
    ] {
        let mut command = Command::new(QUICTUN);
        let output = command
            .arg("status")
            .args(arguments)
            .output()
            .expect("quictun");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}
