//! This program once more, as a child whose log is read.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Nothing that it is waited for may take longer.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// How often one looks whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A child and its log lines.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: Receiver<Value>,
}

impl Program {
    /// Starts it with these arguments and structured logs, by whatever `spawn` does.
    pub fn start(
        spawn: impl FnOnce(&mut Command) -> std::io::Result<Child>,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command
            .args(arguments)
            .args([
                "--http",
                "off",
                "--log-format",
                "json",
                "--log-level",
                "info",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = spawn(&mut command).context("starting this program again")?;
        let output = child.stdout.take().context("its output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line with this message.
    pub fn wait_for(&self, message: &str) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                bail!(
                    "it did not say {message:?}; what it said:\n{}",
                    seen.join("\n")
                );
            };
            if line.get("msg").and_then(Value::as_str) == Some(message) {
                return Ok(line);
            }
            seen.push(line.to_string());
        }
    }

    /// Ends it as a service manager would.
    pub fn stop(&mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("its process id")?, Signal::TERM)?;
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(
                Instant::now() < deadline,
                "it did not end within {} s",
                PATIENCE.as_secs()
            );
            // What it says ends with it.
            drop(self.lines.recv_timeout(LOOK));
        };
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Only where something went wrong is it still running.
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// What a log line says under a key.
pub fn text(line: &Value, key: &str) -> Result<String> {
    let value = line.get(key).and_then(Value::as_str);
    Ok(value
        .with_context(|| format!("no {key:?} in {line}"))?
        .to_owned())
}
