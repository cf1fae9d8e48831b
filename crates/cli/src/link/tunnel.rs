//! A server at the far side of a link and a client at the near one, to be measured.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use quictun_emu::World;
use quictun_sys::{NetNamespace, with_default_signals};

use crate::program::{Program, text};

/// Pairs are numbered, so that the keys of two do not meet.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Where the two ends are.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    /// The client's network.
    pub(crate) near: &'a NetNamespace,
    /// The server's.
    pub(crate) far: &'a NetNamespace,
    /// The server's address.
    pub(crate) far_address: IpAddr,
}

impl<'a> Ends<'a> {
    /// At the two sides of a world.
    pub(crate) fn across(world: &'a World) -> Self {
        Self {
            near: world.near(),
            far: world.far(),
            far_address: world.far_addresses()[0],
        }
    }
}

/// A running pair.
pub(crate) struct Tunnel {
    server: Program,
    client: Program,
    dir: PathBuf,
    entry: SocketAddr,
}

impl Tunnel {
    /// Starts both with keys made for the occasion; whoever connects to [`Tunnel::entry`] reaches `target`. Client and
    /// server get these further flags.
    pub(crate) fn start(ends: Ends<'_>, target: SocketAddr, flags: [&[String]; 2]) -> Result<Self> {
        let dir = std::env::temp_dir().join(unique_name());
        let state = dir.to_string_lossy().into_owned();
        let listen = SocketAddr::new(ends.far_address, 0).to_string();
        let allow = format!("{target}");
        let [client_flags, server_flags] = flags.map(|flags| flags.iter().map(String::as_str));
        let arguments = [
            "server",
            "--listen",
            &listen,
            "--state-dir",
            &state,
            "--allow",
            &allow,
        ];
        let arguments: Vec<&str> = arguments.into_iter().chain(server_flags).collect();
        let server = Program::start(|command| spawn(ends.far, command), &arguments)?;
        let ready = server.wait_for("Server endpoint start up successful")?;
        let forward = format!("127.0.0.1:0={target}");
        let psk = dir.join("client.psk").to_string_lossy().into_owned();
        let (address, pin) = (text(&ready, "listen address")?, text(&ready, "pin")?);
        let arguments = [
            "client",
            "--server",
            &address,
            "--pin",
            &pin,
            "--psk-file",
            &psk,
            "-L",
            &forward,
        ];
        let arguments: Vec<&str> = arguments.into_iter().chain(client_flags).collect();
        let client = Program::start(|command| spawn(ends.near, command), &arguments)?;
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

    /// Process groups of client and server.
    pub(crate) fn groups(&self) -> [u32; 2] {
        [self.client.pid(), self.server.pid()]
    }

    /// Where the near side connects to.
    pub(crate) fn entry(&self) -> SocketAddr {
        self.entry
    }

    /// Ends both as a service manager would.
    pub(crate) fn stop(mut self) -> Result<()> {
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

/// In a group of its own, so that Ctrl-C ends the one who started it, who ends it in order.
fn spawn(network: &NetNamespace, command: &mut Command) -> std::io::Result<Child> {
    with_default_signals(command).process_group(0);
    network.within(|| command.spawn())
}

/// Process ids do not tell apart what runs in different namespaces.
fn unique_name() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!(
        "quictun-check-{}-{}-{number}",
        std::process::id(),
        since.as_nanos()
    )
}
