//! `quictun status --watch`, on a terminal and without one.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use crate::golden::live::{RunningProgram, field};
use crate::programs::QUICTUN;

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

/// `quictun status --watch` as the only program of a terminal.
struct TestTerminal {
    child: Child,
    master: File,
    seen: String,
}

impl TestTerminal {
    fn start(http: &str) -> (Self, Termios) {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("a terminal");
        unlockpt(&terminal).expect("a terminal");
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let inside = ioctl_tiocgptpeer(&terminal, flags).expect("the other end of the terminal");
        let inside = || inside.try_clone().expect("a descriptor");
        let before = tcgetattr(&terminal).expect("a terminal");
        // A session of its own makes Ctrl-C come from the terminal, as it does for users.
        let child = Command::new("setsid")
            .args(["--ctty", QUICTUN, "status", "--watch"])
            .args(["--interval", "200ms", "--http", http])
            .env_clear()
            .env("TERM", "xterm")
            .stdin(inside())
            .stdout(inside())
            .stderr(inside())
            .spawn()
            .expect("setsid of util-linux");
        let this = Self {
            child,
            master: File::from(terminal),
            seen: String::new(),
        };
        this.resize(80, 24);
        (this, before)
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.master, size).expect("a terminal");
    }

    /// Reads until the output since the previous call contains `phrase`.
    fn until(&mut self, phrase: &str) {
        let mut bytes = [0; 4096];
        while !self.seen.contains(phrase) {
            let read = self.master.read(&mut bytes).unwrap_or(0);
            assert!(read > 0, "never showed {phrase:?}: {:?}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..read]);
        }
        let (_, rest) = self.seen.split_once(phrase).expect("the phrase was found");
        self.seen = rest.to_owned();
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("a terminal");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the page runs");
    }

    /// Waits until the page is stopped: an earlier SIGCONT would have no effect.
    fn wait_stopped(&self) {
        let page = WaitId::Pid(Pid::from_child(&self.child));
        waitid(page, WaitIdOptions::STOPPED).expect("the page stops");
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(&self.master).expect("a terminal").local_modes
    }

    /// Waits for the end, after which the terminal has its earlier modes.
    fn end(mut self, before: &Termios) -> ExitStatus {
        self.until(LEAVE);
        let status = self.child.wait().expect("the page has ended");
        assert_eq!(self.modes(), before.local_modes);
        status
    }
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.child.kill().expect("the page runs");
            self.child.wait().expect("the page has ended");
        }
    }
}

#[test]
fn a_live_page_follows_keys_the_screen_and_the_server_and_gives_the_terminal_back() {
    let home = tempfile::tempdir().expect("a directory");
    let (first, http) = server(home.path());
    let (mut page, before) = TestTerminal::start(&http);
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
    assert_eq!(page.modes(), before.local_modes, "modes of a stopped page");
    page.wait_stopped();
    page.signal(Signal::CONT);
    page.until(ENTER);
    page.until("s sort: RTT");

    first.end();
    page.until("NOT REACHABLE for 0s, retrying: nothing answers at unix:");
    let (second, _) = server(home.path());
    page.until("quictun server ");
    page.press("\u{3}");
    assert_eq!(page.end(&before).code(), Some(0));

    let (mut page, before) = TestTerminal::start(&http);
    page.until("s sort: rate");
    page.press("q");
    assert_eq!(page.end(&before).code(), Some(0));

    let (mut page, before) = TestTerminal::start(&http);
    page.until("s sort: rate");
    page.signal(Signal::TERM);
    assert_eq!(page.end(&before).code(), Some(130));
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
