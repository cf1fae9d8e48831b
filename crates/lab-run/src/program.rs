//! Runs this program again as a child process that reports its readiness.
//!
//! The child reports as to a service manager: it sends messages to the socket in `NOTIFY_SOCKET`.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::client::{ChildProgram, Spawn};

/// Maximum wait for any step of a program.
pub const START_TIMEOUT: Duration = Duration::from_secs(40);

/// Interval at which the program's end is checked.
const LOOK: Duration = Duration::from_millis(5);

/// Maximum length of a message, in bytes. A few addresses and a key fit.
const MESSAGE_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Program {
    started: ChildProgram,
    notices: UnixDatagram,
}

/// Returns the value of a field in a message of `KEY=value` lines.
pub(crate) fn field<'a>(message: &'a str, key: &str) -> Option<&'a str> {
    let mut fields = message.lines().filter_map(|line| line.split_once('='));
    fields.find_map(|(known, value)| (known == key).then_some(value))
}

impl Program {
    /// Starts the program with these arguments and structured logs. Its socket is created in `dir`.
    pub(crate) fn start(
        name: &str,
        dir: &Path,
        spawn: Spawn<'_>,
        arguments: &[&str],
    ) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(["--http", "off", "--log-format", "json"])
            .args(["--log-level", "info"]);
        Self::command(name, dir, spawn, &mut command)
    }

    fn command(name: &str, dir: &Path, spawn: Spawn<'_>, command: &mut Command) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let path = dir.join(format!("notify-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let notices =
            UnixDatagram::bind(&path).with_context(|| format!("cannot bind {}", path.display()))?;
        notices.set_read_timeout(Some(LOOK))?;
        let started = ChildProgram::spawned(name, spawn, command.env("NOTIFY_SOCKET", &path))?;
        Ok(Self { started, notices })
    }

    /// Returns the program's process group, if `spawn` has created one.
    pub(crate) fn group(&self) -> u32 {
        self.started.group()
    }

    /// Returns the next message that has this field. If the program ends first, the error contains its last lines.
    pub(crate) fn wait_for(&mut self, key: &str) -> Result<String> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut message = [0; MESSAGE_MAX];
        while Instant::now() < deadline {
            match self.notices.recv(&mut message) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&message[..length]);
                    if field(&text, key).is_some() {
                        return Ok(text.into_owned());
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error).context("cannot receive messages"),
            }
            self.started.check()?;
        }
        bail!("no message with {key} within {} s", START_TIMEOUT.as_secs())
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        self.started.stop(START_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(dir: &Path, line: &str) -> Program {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]);
        Program::command("the shell", dir, &Command::spawn, &mut command).expect("a shell")
    }

    #[test]
    fn a_program_that_ends_before_it_is_ready_gives_its_last_lines_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        for (line, said) in [
            ("echo no room >&2; exit 3", "exit status: 3: no room"),
            (
                "echo a; echo b; echo c; echo d; exit 1",
                "exit status: 1: b / c / d",
            ),
        ] {
            let begin = Instant::now();
            let error = shell(dir.path(), line)
                .wait_for("READY")
                .expect_err("ended");
            assert_eq!(error.to_string(), format!("the shell ended with {said}"));
            assert!(begin.elapsed() < START_TIMEOUT / 4);
        }
    }

    #[test]
    fn fields_are_found_in_the_message_that_has_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut program = shell(dir.path(), "exec sleep 60");
        let socket = UnixDatagram::unbound().expect("a socket");
        let path = program.notices.local_addr().expect("an address");
        for message in ["READY=1\nX=1", "X_AT=a=b\nX_KEY=d"] {
            socket
                .send_to_addr(message.as_bytes(), &path)
                .expect("sent");
        }
        let message = program.wait_for("X_AT").expect("a message");
        let found = ["X_AT", "X_KEY", "X"].map(|key| field(&message, key));
        assert_eq!(found, [Some("a=b"), Some("d"), None]);
        let error = program.stop().expect_err("a signal ends it");
        assert!(error.to_string().contains("signal"), "{error}");
    }
}
