//! ssh with a command that prints a number every 20 ms.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::openssh::SshKeys;

use super::program::{DONE, RunningProgram};
use super::progress::ProgressCounter;

/// The last line of the command.
const END: &str = "end";

pub(super) struct Ssh {
    child: Child,
    reader: JoinHandle<Result<()>>,
    lines: Arc<AtomicU64>,
    /// The command ends when this file exists.
    stop: PathBuf,
}

impl Ssh {
    pub(super) fn start(near: &Machine, keys: &SshKeys, port: u16) -> Result<Self> {
        let stop = keys.home().path().join("stop");
        if stop.exists() {
            std::fs::remove_file(&stop)?;
        }
        let mut ssh = keys.client(near, "ssh");
        ssh.args(["-p", &port.to_string(), &keys.user_at("127.0.0.1")]);
        ssh.arg(format!(
            "i=0; until [ -e {} ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo {END}",
            stop.display()
        ));
        let mut child = ssh.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("invariant: stdout is piped")?;
        let lines = Arc::<AtomicU64>::default();
        let count = lines.clone();
        let reader = std::thread::spawn(move || read(BufReader::new(output), &count));
        Ok(Self {
            child,
            reader,
            lines,
            stop,
        })
    }
}

/// Checks that the numbers follow each other, up to the last line.
fn read(output: impl BufRead, count: &AtomicU64) -> Result<()> {
    for (line, number) in output.lines().zip(1u64..) {
        let line = line?;
        if line == END {
            return Ok(());
        }
        ensure!(line == number.to_string(), "line {number} is {line:?}");
        count.store(number, Ordering::Relaxed);
    }
    bail!(
        "the output ended after {} lines",
        count.load(Ordering::Relaxed)
    )
}

impl RunningProgram for Ssh {
    fn counters(&self) -> Vec<ProgressCounter> {
        let lines = self.lines.clone();
        vec![Box::new(move || Ok(Some(lines.load(Ordering::Relaxed))))]
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        std::fs::write(&self.stop, "")?;
        deadline::until("ssh to end", DONE, || self.reader.is_finished())?;
        let read = self.reader.join();
        read.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "ssh: {status}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_altered_line_is_an_error() {
        let count = AtomicU64::new(0);
        let error = |text: &str| read(text.as_bytes(), &count).map_err(|it| it.to_string());
        assert_eq!(error("1\n2\nend\n"), Ok(()));
        assert_eq!(error("1\n3\nend\n"), Err("line 2 is \"3\"".to_owned()));
        assert_eq!(
            error("1\n2\n"),
            Err("the output ended after 2 lines".to_owned())
        );
    }
}
