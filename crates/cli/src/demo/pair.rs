//! A server and a client of the demonstration: this program, twice more.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::PATIENCE;
use super::apps::Apps;
use super::stage::Stage;

/// A running pair and where its forwards listen.
pub(super) struct Pair {
    server: Program,
    client: Program,
    dir: PathBuf,
    pub(super) echo: SocketAddr,
    pub(super) sink: SocketAddr,
    pub(super) source: SocketAddr,
    pub(super) meter: SocketAddr,
    pub(super) refused: SocketAddr,
}

/// A child and its log lines.
struct Program {
    child: Child,
    lines: Receiver<Value>,
}

impl Pair {
    /// Starts both with fresh keys in `dir`: the server at the far side, the client here.
    pub(super) fn start(stage: &Stage, apps: &Apps, dir: &Path) -> Result<Self> {
        let state = dir.to_string_lossy().into_owned();
        let listen = SocketAddr::from((stage.far_address(), 0)).to_string();
        let server = Program::start(
            |command| stage.far(|| command.spawn()),
            &[
                "server",
                "--listen",
                &listen,
                "--state-dir",
                &state,
                "--allow",
                "127.0.0.1:*",
            ],
        )?;
        let ready = server.wait_for("Server endpoint start up successful")?;
        let address = text(&ready, "listen address")?;
        let pin = text(&ready, "pin")?;
        let psk = dir.join("client.psk").to_string_lossy().into_owned();
        let targets = [apps.echo, apps.sink, apps.source, apps.meter, apps.nobody];
        let mut arguments = vec![
            "client".to_owned(),
            "--server".to_owned(),
            address,
            "--pin".to_owned(),
            pin,
            "--psk-file".to_owned(),
            psk,
        ];
        for target in targets {
            arguments.push("-L".to_owned());
            arguments.push(format!("127.0.0.1:0={target}"));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let client = Program::start(Command::spawn, &arguments)?;
        let mut listeners = Vec::new();
        for _ in targets {
            let line = client.wait_for("Client endpoint start up successful")?;
            listeners.push(
                text(&line, "listen address")?
                    .parse()
                    .context("a listen address")?,
            );
        }
        client.wait_for("connected to server endpoint")?;
        let [echo, sink, source, meter, refused] = listeners[..] else {
            bail!("the client does not listen everywhere");
        };
        Ok(Self {
            server,
            client,
            dir: dir.to_owned(),
            echo,
            sink,
            source,
            meter,
            refused,
        })
    }

    /// Ends both as a service manager would, and removes their keys.
    pub(super) fn stop(mut self) -> Result<()> {
        self.client.stop()?;
        self.server.stop()?;
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// Removes the keys.
pub(super) fn remove(dir: &Path) {
    if let Err(error) = std::fs::remove_dir_all(dir) {
        crate::exit::say(&format!("could not remove {}: {error}", dir.display()));
    }
}

impl Program {
    fn start(
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

    /// The next line with this message.
    fn wait_for(&self, message: &str) -> Result<Value> {
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

    fn stop(&mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        if told.is_err() {
            self.child.kill()?;
        }
        let status = self.child.wait()?;
        ensure!(status.success() || told.is_err(), "it ended with {status}");
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

fn text(line: &Value, key: &str) -> Result<String> {
    let value = line.get(key).and_then(Value::as_str);
    Ok(value
        .with_context(|| format!("no {key:?} in {line}"))?
        .to_owned())
}
