//! A server at the far side of a link and a client at the near one, to be measured.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use quictun_emu::World;

use crate::program::{Program, text};

/// Pairs are numbered, so that the keys of two do not meet.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A running pair.
pub(super) struct Tunnel {
    server: Program,
    client: Program,
    dir: PathBuf,
    entry: SocketAddr,
}

impl Tunnel {
    /// Starts both with keys made for the occasion; whoever connects to [`Tunnel::entry`] reaches `target`.
    pub(super) fn start(world: &World, target: SocketAddr) -> Result<Self> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = format!("quictun-check-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let state = dir.to_string_lossy().into_owned();
        let listen = SocketAddr::new(world.far_addresses()[0], 0).to_string();
        let allow = format!("{target}");
        let server = Program::start(
            |command| world.far().within(|| command.spawn()),
            &[
                "server",
                "--listen",
                &listen,
                "--state-dir",
                &state,
                "--allow",
                &allow,
            ],
        )?;
        let ready = server.wait_for("Server endpoint start up successful")?;
        let forward = format!("127.0.0.1:0={target}");
        let psk = dir.join("client.psk").to_string_lossy().into_owned();
        let client = Program::start(
            |command: &mut Command| world.near().within(|| command.spawn()),
            &[
                "client",
                "--server",
                &text(&ready, "listen address")?,
                "--pin",
                &text(&ready, "pin")?,
                "--psk-file",
                &psk,
                "-L",
                &forward,
            ],
        )?;
        let line = client.wait_for("Client endpoint start up successful")?;
        let entry = text(&line, "listen address")?
            .parse()
            .context("a listen address")?;
        client.wait_for("connected to server endpoint")?;
        Ok(Self {
            server,
            client,
            dir,
            entry,
        })
    }

    /// Where the near side connects to.
    pub(super) fn entry(&self) -> SocketAddr {
        self.entry
    }

    /// Ends both as a service manager would.
    pub(super) fn stop(mut self) -> Result<()> {
        self.client.stop()?;
        self.server.stop()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            crate::exit::say(&format!("could not remove {}: {error}", self.dir.display()));
        }
    }
}
