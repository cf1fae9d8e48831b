//! A server and a client of the demonstration: this program, twice more.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::apps::Apps;
use super::stage::Stage;
use quictun_lab_run::program::{Program, text};

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
