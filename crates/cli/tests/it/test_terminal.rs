//! A terminal with one program, for tests.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::programs::QUICTUN;

/// `quictun` as the only program of a terminal.
pub(crate) struct TestTerminal {
    child: Child,
    master: File,
    seen: String,
    before: LocalModes,
}

impl TestTerminal {
    /// Starts `quictun` with its state below `home`, on a terminal of 24 rows and so many columns.
    pub(crate) fn start(arguments: &[&str], home: &Path, columns: u16) -> Self {
        Self::start_program(Path::new(QUICTUN), arguments, home, columns)
    }

    /// Like `start`, with another program.
    pub(crate) fn start_program(
        program: &Path,
        arguments: &[&str],
        home: &Path,
        columns: u16,
    ) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("a terminal");
        unlockpt(&terminal).expect("a terminal");
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let inside = ioctl_tiocgptpeer(&terminal, flags).expect("the other end of the terminal");
        let inside = || inside.try_clone().expect("a descriptor");
        let before = tcgetattr(&terminal).expect("a terminal").local_modes;
        let master = File::from(terminal);
        resize(&master, columns, 24);
        // A session of its own makes Ctrl-C come from the terminal, as it does for users.
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(program)
            .args(arguments)
            .env_clear()
            .env("TERM", "xterm")
            .env("QUICTUN_STATE_DIR", home.join("state"))
            .stdin(inside())
            .stdout(inside())
            .stderr(inside())
            .spawn()
            .expect("setsid of util-linux");
        Self {
            child,
            master,
            seen: String::new(),
            before,
        }
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        resize(&self.master, columns, rows);
    }

    /// Reads until the output since the previous call contains `phrase`. Returns the output before the phrase.
    pub(crate) fn until(&mut self, phrase: &str) -> String {
        let mut bytes = [0; 4096];
        while !self.seen.contains(phrase) {
            let read = self.master.read(&mut bytes).unwrap_or(0);
            assert!(read > 0, "never showed {phrase:?}: {:?}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..read]);
        }
        let (passed, rest) = self.seen.split_once(phrase).expect("the phrase was found");
        let passed = passed.to_owned();
        self.seen = rest.to_owned();
        passed
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("a terminal");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the program runs");
    }

    /// Waits until the program is stopped: an earlier SIGCONT would have no effect.
    pub(crate) fn wait_stopped(&self) {
        let program = WaitId::Pid(Pid::from_child(&self.child));
        waitid(program, WaitIdOptions::STOPPED).expect("the program stops");
    }

    pub(crate) fn modes(&self) -> LocalModes {
        tcgetattr(&self.master).expect("a terminal").local_modes
    }

    /// Returns the modes that the terminal had before the program started.
    pub(crate) fn modes_before(&self) -> LocalModes {
        self.before
    }

    /// Waits for the end of the program, after which the terminal has its earlier modes.
    pub(crate) fn end(mut self) -> ExitStatus {
        let status = self.child.wait().expect("the program has ended");
        assert_eq!(self.modes(), self.before);
        status
    }
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.child.kill().expect("the program runs");
            self.child.wait().expect("the program has ended");
        }
    }
}

fn resize(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).expect("a terminal");
}
