//! A server at the far side of a link and a client at the near one: this program, twice more.

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
pub use crate::program::PATIENCE;
use crate::program::{Program, field};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) near: &'a NetNamespace,
    pub(crate) far: &'a NetNamespace,
    pub(crate) far_address: IpAddr,
}

impl<'a> Ends<'a> {
    pub(crate) fn across(world: &'a World) -> Self {
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
    client: Client,
    others: Vec<Client>,
    server: Server,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) program: Program,
    pub(crate) dir: Keys,
    /// Where it listens.
    address: String,
    pub(crate) pin: String,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) program: Program,
    /// Where it listens for each target.
    pub(crate) entries: Vec<SocketAddr>,
}

/// A directory for keys that nobody else may enter; it is removed with all that is in it.
#[derive(Debug)]
pub struct Keys(PathBuf);

impl Keys {
    /// Makes one among the temporary files, under a name of its own.
    pub(crate) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Process ids do not tell apart what runs in different namespaces.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let (process, since) = (std::process::id(), since.unwrap_or_default().as_nanos());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("quictun-check-{process}-{since}-{number}");
        Self::at(std::env::temp_dir().join(name))
    }

    /// Makes this directory, which must not be there.
    ///
    /// # Errors
    ///
    /// The system's, with the path.
    pub fn at(path: PathBuf) -> Result<Self> {
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }

    /// The file of the secret that server and client know.
    pub(crate) fn psk_file(&self) -> PathBuf {
        self.0.join("client.psk")
    }

    /// Removes a directory that another process has made.
    pub fn remove(path: &Path) {
        if let Err(error) = fs::remove_dir_all(path) {
            say(&format!("could not remove {}: {error}", path.display()));
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        Self::remove(&self.0);
    }
}

impl Tunnel {
    /// Starts both across a link; a connection to its one entry reaches `target`. Client and server get these
    /// further flags.
    pub(crate) fn across(
        ends: Ends<'_>,
        target: SocketAddr,
        flags: [&[String]; 2],
    ) -> Result<Self> {
        let spawn: [Spawn<'_>; 2] = [&in_network(ends.near), &in_network(ends.far)];
        let listen = SocketAddr::new(ends.far_address, 0);
        let targets = [target.to_string()];
        Self::start(spawn, Keys::new()?, listen, &targets[0], &targets, flags)
    }

    /// Starts client and server, each by whatever its `spawn` does; the server leads to what `allow` names.
    ///
    /// # Errors
    ///
    /// What keeps one of them from being ready: its last lines, where it ends.
    pub fn start(
        [near, far]: [Spawn<'_>; 2],
        dir: Keys,
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

    /// Where the near side connects to, for each target.
    pub fn entries(&self) -> &[SocketAddr] {
        &self.client.entries
    }

    /// Where the server listens.
    pub fn server(&self) -> &str {
        &self.server.address
    }

    /// Starts another client, which reaches the server at `address`. Returns where it listens for each target.
    ///
    /// # Errors
    ///
    /// What keeps it from being ready: its last lines, where it ends.
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

    /// Ends all as a service manager would.
    ///
    /// # Errors
    ///
    /// The last lines of one that does not end in order.
    pub fn stop(self) -> Result<()> {
        for client in self.others {
            client.program.stop()?;
        }
        self.client.program.stop()?;
        self.server.program.stop()
    }
}

impl Server {
    /// Starts it with its keys in `dir`; it leads to what `allow` names and nowhere else.
    pub(crate) fn start(
        spawn: Spawn<'_>,
        dir: Keys,
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
            value.with_context(|| format!("no {key} in {ready:?}"))
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
    /// Starts it with an entry for each target, and waits until it is connected. Its secret and its socket are in `dir`.
    pub(crate) fn start(
        spawn: Spawn<'_>,
        dir: &Keys,
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
            address.parse().context("a listen address")
        };
        let entries = targets.iter().map(entry).collect::<Result<_>>()?;
        program.wait_for(CONNECTED)?;
        Ok(Self { program, entries })
    }
}
