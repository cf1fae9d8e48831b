//! A tunnel for measurements: the server at the far side of a link and the client at the near side, both child
//! processes of this program.

use std::fs::{self, DirBuilder};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use quictun_args::terminal::say;
use quictun_control::systemd::{CONNECTED, LISTEN, PIN};
use quictun_emu::World;
use quictun_sys::NetNamespace;

pub use crate::client::Spawn;
use crate::client::in_network;
pub use crate::program::START_TIMEOUT;
use crate::program::{Program, field};

#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnds<'a> {
    pub(crate) near: &'a NetNamespace,
    pub(crate) far: &'a NetNamespace,
    pub(crate) far_address: IpAddr,
}

impl<'a> LinkEnds<'a> {
    pub(crate) fn across(world: &'a World) -> Self {
        Self {
            near: world.near(),
            far: world.far(),
            far_address: world.far_addresses()[0],
        }
    }
}

/// A running tunnel: a server and one or more clients.
#[derive(Debug)]
pub struct Tunnel {
    client: Client,
    others: Vec<Client>,
    server: Server,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) program: Program,
    pub(crate) dir: KeyDirectory,
    /// The address that the server listens on.
    address: String,
    pub(crate) pin: String,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) program: Program,
    /// The address that the client listens on for each target.
    pub(crate) entries: Vec<SocketAddr>,
}

/// A directory for keys that only its owner may access. Dropping it removes the directory with its contents.
#[derive(Debug)]
pub struct KeyDirectory(PathBuf);

impl KeyDirectory {
    /// Creates a directory with a unique name among the temporary files.
    pub(crate) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Process ids are not unique across namespaces, so the name contains the time, too.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let (process, since) = (std::process::id(), since.unwrap_or_default().as_nanos());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("quictun-check-{process}-{since}-{number}");
        Self::at(std::env::temp_dir().join(name))
    }

    /// Creates this directory, which must not exist.
    ///
    /// # Errors
    ///
    /// Returns the system's error, with the path.
    pub fn at(path: PathBuf) -> Result<Self> {
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    /// Returns the path of the pre-shared secret of server and client.
    pub(crate) fn psk_file(&self) -> PathBuf {
        self.0.join("client.psk")
    }

    /// Removes a directory that another process has created.
    pub fn remove(path: &Path) {
        if let Err(error) = fs::remove_dir_all(path) {
            say(&format!("cannot remove {}: {error}", path.display()));
        }
    }
}

impl Drop for KeyDirectory {
    fn drop(&mut self) {
        Self::remove(&self.0);
    }
}

impl Tunnel {
    /// Starts server and client across a link. Connections to the client's only entry lead to `target`. `flags` are
    /// additional arguments of client and server.
    pub(crate) fn across(
        ends: LinkEnds<'_>,
        target: SocketAddr,
        flags: [&[String]; 2],
    ) -> Result<Self> {
        let spawn: [Spawn<'_>; 2] = [&in_network(ends.near), &in_network(ends.far)];
        let listen = SocketAddr::new(ends.far_address, 0);
        let targets = [target.to_string()];
        Self::start(
            spawn,
            KeyDirectory::new()?,
            listen,
            &targets[0],
            &targets,
            flags,
        )
    }

    /// Starts client and server, each with its `spawn` function. The server allows the targets in `allow`.
    ///
    /// # Errors
    ///
    /// Fails if one of them does not become ready. If a program has ended, the error contains its last lines.
    pub fn start(
        [near, far]: [Spawn<'_>; 2],
        dir: KeyDirectory,
        listen: SocketAddr,
        allow: &str,
        targets: &[String],
        [client, server]: [&[String]; 2],
    ) -> Result<Self> {
        let server = Server::start(far, dir, listen, allow, server)?;
        let (address, pin) = (&server.address, &server.pin);
        let client = Client::start(near, &server.dir, address, pin, targets, client)?;
        Ok(Self {
            client,
            others: Vec::new(),
            server,
        })
    }

    pub(crate) fn groups(&self) -> [u32; 2] {
        [self.client.program.group(), self.server.program.group()]
    }

    /// Returns the address to connect to at the near side, for each target.
    pub fn entries(&self) -> &[SocketAddr] {
        &self.client.entries
    }

    /// Returns the address that the server listens on.
    pub fn server(&self) -> &str {
        &self.server.address
    }

    /// Starts another client, which reaches the server at `address`. Returns the address that the client listens on for
    /// each target.
    ///
    /// # Errors
    ///
    /// Fails if the client does not become ready. If it has ended, the error contains its last lines.
    pub fn add_client(
        &mut self,
        near: Spawn<'_>,
        address: &str,
        targets: &[String],
        flags: &[String],
    ) -> Result<Vec<SocketAddr>> {
        let Server { dir, pin, .. } = &self.server;
        let client = Client::start(near, dir, address, pin, targets, flags)?;
        let entries = client.entries.clone();
        self.others.push(client);
        Ok(entries)
    }

    /// Ends all programs as a service manager does.
    ///
    /// # Errors
    ///
    /// Fails if a program does not end successfully. The error contains its last lines.
    pub fn stop(self) -> Result<()> {
        for client in self.others {
            client.program.stop()?;
        }
        self.client.program.stop()?;
        self.server.program.stop()
    }
}

impl Server {
    /// Starts the server, with its keys in `dir`. It allows only the targets in `allow`.
    pub(crate) fn start(
        spawn: Spawn<'_>,
        dir: KeyDirectory,
        listen: SocketAddr,
        allow: &str,
        flags: &[String],
    ) -> Result<Self> {
        let (state, listen) = (dir.0.to_string_lossy(), listen.to_string());
        let mut arguments = vec!["server", "--listen", &listen, "--state-dir", &state];
        arguments.extend(["--allow", allow]);
        arguments.extend(flags.iter().map(String::as_str));
        let mut program = Program::start("the tunnel's server", &dir.0, spawn, &arguments)?;
        let ready = program.wait_for(PIN)?;
        let value = |key| {
            let value = field(&ready, key).map(str::to_owned);
            value.with_context(|| format!("missing {key} in {ready:?}"))
        };
        Ok(Self {
            address: value(LISTEN)?,
            pin: value(PIN)?,
            program,
            dir,
        })
    }
}

impl Client {
    /// Starts a client with an entry for each target, and waits until it is connected. Its secret and its socket are in
    /// `dir`.
    pub(crate) fn start(
        spawn: Spawn<'_>,
        dir: &KeyDirectory,
        server: &str,
        pin: &str,
        targets: &[String],
        flags: &[String],
    ) -> Result<Self> {
        let forwards = targets.iter().map(|target| format!("127.0.0.1:0={target}"));
        let forwards: Vec<String> = forwards.collect();
        let psk = dir.psk_file();
        let psk = psk.to_string_lossy();
        let mut arguments = vec!["client", "--server", server, "--pin", pin];
        arguments.extend(["--psk-file", &psk]);
        arguments.extend(forwards.iter().flat_map(|forward| ["-L", forward]));
        arguments.extend(flags.iter().map(String::as_str));
        let mut program = Program::start("the tunnel's client", &dir.0, spawn, &arguments)?;
        let entry = |_| -> Result<SocketAddr> {
            let ready = program.wait_for(LISTEN)?;
            let address = field(&ready, LISTEN).unwrap_or_default();
            address.parse().context("bad listen address")
        };
        let entries = targets.iter().map(entry).collect::<Result<_>>()?;
        program.wait_for(CONNECTED)?;
        Ok(Self { program, entries })
    }
}
