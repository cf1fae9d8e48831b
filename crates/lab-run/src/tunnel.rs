//! A server at the far side of a link and a client at the near one, to be measured.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
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
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// The client's network.
    pub near: &'a NetNamespace,
    /// The server's.
    pub far: &'a NetNamespace,
    /// The server's address.
    pub far_address: IpAddr,
}

impl<'a> Ends<'a> {
    /// At the two sides of a world.
    pub fn across(world: &'a World) -> Self {
        Self {
            near: world.near(),
            far: world.far(),
            far_address: world.far_addresses()[0],
        }
    }
}

/// A running pair.
#[derive(Debug)]
pub struct Tunnel {
    server: Server,
    client: Client,
}

/// The server of a pair, with keys made for the occasion.
#[derive(Debug)]
pub struct Server {
    program: Program,
    dir: PathBuf,
    /// Where it listens.
    pub address: String,
    /// Its key.
    pub pin: String,
}

/// The client of a pair.
#[derive(Debug)]
pub struct Client {
    program: Program,
    entry: SocketAddr,
}

/// What a client needs to know of its server.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Where it listens.
    pub address: &'a str,
    /// Its key.
    pub pin: &'a str,
    /// The file of the secret that both know.
    pub psk: &'a Path,
}

impl Tunnel {
    /// Starts both; whoever connects to [`Tunnel::entry`] reaches `target`. Client and server get these further flags.
    pub fn start(ends: Ends<'_>, target: SocketAddr, flags: [&[String]; 2]) -> Result<Self> {
        let listen = SocketAddr::new(ends.far_address, 0);
        let server = Server::start(ends.far, listen, target, flags[1])?;
        let psk = server.psk_file();
        let known = Known {
            address: &server.address,
            pin: &server.pin,
            psk: &psk,
        };
        let client = Client::start(ends.near, known, &target.to_string(), flags[0])?;
        Ok(Self { server, client })
    }

    /// Process groups of client and server.
    pub fn groups(&self) -> [u32; 2] {
        [self.client.group(), self.server.group()]
    }

    /// Where the near side connects to.
    pub fn entry(&self) -> SocketAddr {
        self.client.entry()
    }

    /// Ends both as a service manager would.
    pub fn stop(self) -> Result<()> {
        self.client.stop()?;
        self.server.stop()
    }
}

impl Server {
    /// Starts it; it leads to `target` and nowhere else.
    pub fn start(
        network: &NetNamespace,
        listen: SocketAddr,
        target: SocketAddr,
        flags: &[String],
    ) -> Result<Self> {
        let dir = std::env::temp_dir().join(unique_name());
        let state = dir.to_string_lossy().into_owned();
        let (listen, allow) = (listen.to_string(), target.to_string());
        let arguments = [
            "server",
            "--listen",
            &listen,
            "--state-dir",
            &state,
            "--allow",
            &allow,
        ];
        let flags = flags.iter().map(String::as_str);
        let arguments: Vec<&str> = arguments.into_iter().chain(flags).collect();
        let program = Program::start(|command| spawn(network, command), &arguments)?;
        let ready = program.wait_for("Server endpoint start up successful")?;
        Ok(Self {
            program,
            dir,
            address: text(&ready, "listen address")?,
            pin: text(&ready, "pin")?,
        })
    }

    /// The secret that its client needs.
    pub fn psk_file(&self) -> PathBuf {
        self.dir.join("client.psk")
    }

    /// Its process group.
    pub fn group(&self) -> u32 {
        self.program.pid()
    }

    /// Ends it as a service manager would.
    pub fn stop(mut self) -> Result<()> {
        self.program.stop()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            crate::exit::say(&format!("could not remove {}: {error}", self.dir.display()));
        }
    }
}

impl Client {
    /// Starts it, and waits until it is connected.
    pub fn start(
        network: &NetNamespace,
        server: Known<'_>,
        target: &str,
        flags: &[String],
    ) -> Result<Self> {
        let forward = format!("127.0.0.1:0={target}");
        let psk = server.psk.to_string_lossy().into_owned();
        let arguments = [
            "client",
            "--server",
            server.address,
            "--pin",
            server.pin,
            "--psk-file",
            &psk,
            "-L",
            &forward,
        ];
        let flags = flags.iter().map(String::as_str);
        let arguments: Vec<&str> = arguments.into_iter().chain(flags).collect();
        let program = Program::start(|command| spawn(network, command), &arguments)?;
        let line = program.wait_for("Client endpoint start up successful")?;
        let entry = text(&line, "listen address")?
            .parse()
            .context("a listen address")?;
        program.wait_for("connected to server endpoint")?;
        Ok(Self { program, entry })
    }

    /// Where the near side connects to.
    pub fn entry(&self) -> SocketAddr {
        self.entry
    }

    /// Its process group.
    pub fn group(&self) -> u32 {
        self.program.pid()
    }

    /// Ends it as a service manager would.
    pub fn stop(mut self) -> Result<()> {
        self.program.stop()
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
