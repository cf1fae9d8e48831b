//! The client and server under test: `quictun-server` and `quictun-client`, started as a user would start them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::binaries;
use crate::connection::Endpoint;
use crate::deadline;
use crate::machine::Machine;
use crate::program::Program;

/// The time limit for a program of this workspace to start, even on a busy machine.
pub const START: Duration = Duration::from_secs(20);

const SERVER_UP: &str = "Server endpoint start up successful";
const CLIENT_UP: &str = "Client endpoint start up successful";

/// A separate home directory for a program: the program reads none of the user's configuration and leaves nothing
/// behind.
#[derive(Debug)]
pub struct Home {
    directory: TempDir,
    /// The directory of the programs; `None` for the programs under test.
    programs: Option<PathBuf>,
}

impl Home {
    /// Creates an empty home.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be created.
    pub fn new() -> Result<Self> {
        Ok(Self {
            directory: tempfile::Builder::new().prefix("quictun-e2e-").tempdir()?,
            programs: None,
        })
    }

    /// Takes `quictun`, `quictun-server` and `quictun-client` from this directory instead of the ones under test.
    #[must_use]
    pub fn with_programs(mut self, directory: Option<&Path>) -> Self {
        self.programs = directory.map(Path::to_owned);
        self
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a command that runs a program of this workspace on `machine` with this home.
    ///
    /// # Errors
    ///
    /// Fails if the programs do not build.
    pub fn command(&self, machine: &Machine, program: &str) -> Result<Command> {
        let path = match &self.programs {
            Some(directory) => directory.join(program),
            None => binaries::path(program)?,
        };
        let mut command = machine.command(path);
        self.settle(&mut command);
        Ok(command)
    }

    /// Starts a server on `machine` that allows every client to reach every target. Returns it with its clients' flags,
    /// without the server's address. The server listens on port 7500 of all addresses.
    ///
    /// # Errors
    ///
    /// Fails if the server does not start.
    pub fn open_server(&self, machine: &Machine) -> Result<(Program, Vec<String>)> {
        let mut command = self.command(machine, "quictun")?;
        command.args(["server", "--listen", "[::]:7500", "--http", "off"]);
        // No rule for connections opens a UDP port.
        command.args(["--allow", "*", "--allow", "udp:*:*"]);
        let mut server = Program::start("server", &mut command)?;
        let pin = server_pin(&server.wait_for(SERVER_UP, START)?)?;
        let secret = self.path().join("state/client.psk").display().to_string();
        let flags = ["--http", "off", "--pin", &pin, "--psk-file", &secret];
        Ok((server, flags.map(str::to_owned).to_vec()))
    }

    /// Sets the working directory and environment of any command to this home.
    pub fn settle(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("QUICTUN") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.path())
            .env("HOME", self.path())
            .env_remove("XDG_RUNTIME_DIR")
            // The tests read log fields, which both pairs of programs write as JSON in this format.
            .env("QUICTUN_LOG_FORMAT", "console")
            .env("STATE_DIRECTORY", self.path().join("state"));
    }
}

/// A running `quictun-server` process.
#[derive(Debug)]
pub struct Server {
    /// The process of the server.
    pub program: Program,
    /// The UDP address on which the server listens.
    pub address: SocketAddr,
    /// The home that holds the server's key.
    pub home: Home,
}

impl Server {
    /// Starts `quictun-server` with these arguments, on a free port of 127.0.0.1 unless they name a port.
    ///
    /// # Errors
    ///
    /// Fails if the server does not start.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        Self::start_at(&Machine::here(), Home::new()?, arguments)
    }

    /// Like [`Server::start`], on the given host and with the given home.
    ///
    /// # Errors
    ///
    /// Fails if the server does not start.
    pub fn start_at(machine: &Machine, home: Home, arguments: &[&str]) -> Result<Self> {
        let mut command = home.command(machine, "quictun-server")?;
        command
            .args(free_port("127.0.0.1:0", arguments))
            .args(arguments);
        Self::from_command(home, &mut command)
    }

    /// Starts a server with this command.
    ///
    /// # Errors
    ///
    /// Fails if the server does not start.
    pub fn from_command(home: Home, command: &mut Command) -> Result<Self> {
        let mut program = Program::start("server", command)?;
        let address = listen_address(&program.wait_for(SERVER_UP, START)?)?.parse()?;
        Ok(Self {
            program,
            address,
            home,
        })
    }
}

/// A running `quictun-client` process.
#[derive(Debug)]
pub struct Client {
    /// The process of the client.
    pub program: Program,
    /// The address at which applications connect: the first forward.
    pub forward: Endpoint,
    /// The home, which is the client's working directory.
    pub home: Home,
}

impl Client {
    /// Starts `quictun-client` for that server with these arguments, on a free port of 127.0.0.1 unless they name a
    /// port.
    ///
    /// # Errors
    ///
    /// Fails if the client does not start.
    pub fn start(server: &str, arguments: &[&str]) -> Result<Self> {
        Self::start_at(&Machine::here(), Home::new()?, server, arguments)
    }

    /// Like [`Client::start`], on the given host and with the given home.
    ///
    /// # Errors
    ///
    /// Fails if the client does not start.
    pub fn start_at(
        machine: &Machine,
        home: Home,
        server: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut command = home.command(machine, "quictun-client")?;
        command.args(["--server-endpoint", server]);
        command
            .args(free_port("tcp:127.0.0.1:0", arguments))
            .args(arguments);
        Self::from_command(home, &mut command)
    }

    /// Starts a client with this command.
    ///
    /// # Errors
    ///
    /// Fails if the client does not start.
    pub fn from_command(home: Home, command: &mut Command) -> Result<Self> {
        let mut program = Program::start("client", command)?;
        let forward = Endpoint::parse(&listen_address(&program.wait_for(CLIENT_UP, START)?)?)?;
        Ok(Self {
            program,
            forward,
            home,
        })
    }

    /// Waits until `count` forwards are up, and returns their addresses in the order of their flags.
    ///
    /// # Errors
    ///
    /// Fails if they do not come up in time.
    pub fn forwards(&self, count: usize) -> Result<Vec<Endpoint>> {
        forwards_of(&self.program, count)
    }
}

/// Waits until `count` forwards of a client's process are up, and returns their addresses in the order of their flags.
///
/// # Errors
///
/// Fails if they do not come up in time.
pub fn forwards_of(client: &Program, count: usize) -> Result<Vec<Endpoint>> {
    deadline::until(CLIENT_UP, START, || client.count(CLIENT_UP) == count)?;
    let lines = client.lines();
    let up = lines.iter().filter(|line| line.contains(CLIENT_UP));
    up.map(|line| Endpoint::parse(&listen_address(line)?))
        .collect()
}

/// A server and its client.
#[derive(Debug)]
pub struct Tunnel {
    /// The client, which is dropped first.
    pub client: Client,
    /// The server, which is dropped last.
    pub server: Server,
}

impl Tunnel {
    /// Starts a tunnel on this host that leads to `target`.
    ///
    /// # Errors
    ///
    /// Fails if the client or the server does not start.
    pub fn to(target: &str) -> Result<Self> {
        Self::with(target, &[], &[])
    }

    /// Like [`Tunnel::to`], with additional arguments for the server and the client.
    ///
    /// # Errors
    ///
    /// Fails if the client or the server does not start.
    pub fn with(target: &str, server: &[&str], client: &[&str]) -> Result<Self> {
        let server = Server::start(server)?;
        let client = [&["--token-source", target], client].concat();
        let client = Client::start(&server.address.to_string(), &client)?;
        Ok(Self { client, server })
    }
}

/// Returns the flags that choose free ports. Tests run in parallel, so no port is fixed unless the test has its own
/// network.
fn free_port(address: &'static str, arguments: &[&str]) -> Vec<&'static str> {
    let mut defaults = Vec::new();
    for (flag, value) in [("--listen-on", address), ("--httpd-listen-on", "off")] {
        let given = |argument: &&str| argument.split('=').next() == Some(flag);
        if !arguments.iter().any(given) {
            defaults.extend([flag, value]);
        }
    }
    defaults
}

/// Returns the value of `"listen address"` in a log line.
///
/// # Errors
///
/// Fails if the line has no such value.
pub fn listen_address(line: &str) -> Result<String> {
    value(line, "listen address")
}

/// Returns the value of `"pin"` in the log line of a server that has started.
///
/// # Errors
///
/// Fails if the line has no such value.
pub fn server_pin(line: &str) -> Result<String> {
    value(line, "pin")
}

fn value(line: &str, key: &str) -> Result<String> {
    let rest = line.split_once(&format!("\"{key}\": \""));
    let value = rest.and_then(|(_, rest)| rest.split_once('"'));
    let (value, _) = value.with_context(|| format!("no {key} in {line:?}"))?;
    Ok(value.to_owned())
}
