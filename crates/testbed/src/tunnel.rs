//! The pair under test: `quictun-server` and `quictun-client` as anyone would start them.

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

/// A program of ours is up within this, on a busy machine too.
pub const START: Duration = Duration::from_secs(20);

const SERVER_UP: &str = "Server endpoint start up successful";
const CLIENT_UP: &str = "Client endpoint start up successful";

/// A home of its own for a program: nothing of the user's configuration is read, nothing is left behind.
#[derive(Debug)]
pub struct Home {
    directory: TempDir,
    /// The directory of the programs; `None`: the ones under test.
    programs: Option<PathBuf>,
}

impl Home {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// The system's answer.
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

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// One of our programs, at home here, on that host.
    ///
    /// # Errors
    ///
    /// Where it does not build.
    pub fn command(&self, machine: &Machine, program: &str) -> Result<Command> {
        let path = match &self.programs {
            Some(directory) => directory.join(program),
            None => binaries::path(program)?,
        };
        let mut command = machine.command(path);
        self.settle(&mut command);
        Ok(command)
    }

    /// A server on that host that lets everyone reach everything, and the flags of its clients but for its address. It listens at
    /// port 7500 of all addresses.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub fn open_server(&self, machine: &Machine) -> Result<(Program, Vec<String>)> {
        let mut command = self.command(machine, "quictun")?;
        command.args(["server", "--listen", "[::]:7500", "--http", "off"]);
        command.args(["--allow", "*"]);
        let mut server = Program::start("server", &mut command)?;
        let pin = server_pin(&server.wait_for(SERVER_UP, START)?)?;
        let secret = self.path().join("state/client.psk").display().to_string();
        let flags = ["--http", "off", "--pin", &pin, "--psk-file", &secret];
        Ok((server, flags.map(str::to_owned).to_vec()))
    }

    /// Makes any command live here.
    pub fn settle(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("QUICTUN") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.path())
            .env("HOME", self.path())
            // Tests read fields, which stand as JSON in this format of both pairs of programs.
            .env("QUICTUN_LOG_FORMAT", "console")
            .env("STATE_DIRECTORY", self.path().join("state"));
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Its process.
    pub program: Program,
    /// The UDP address that it listens on.
    pub address: SocketAddr,
    /// Where it keeps its key.
    pub home: Home,
}

impl Server {
    /// `quictun-server` with these arguments, on a free port of 127.0.0.1 where they name none.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        Self::start_at(&Machine::here(), Home::new()?, arguments)
    }

    /// The same, on that host and in that home.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub fn start_at(machine: &Machine, home: Home, arguments: &[&str]) -> Result<Self> {
        let mut command = home.command(machine, "quictun-server")?;
        command
            .args(free_port("127.0.0.1:0", arguments))
            .args(arguments);
        Self::from_command(home, &mut command)
    }

    /// A server started by this command.
    ///
    /// # Errors
    ///
    /// Where it does not start.
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

/// A running client.
#[derive(Debug)]
pub struct Client {
    /// Its process.
    pub program: Program,
    /// Where applications connect: the first forward.
    pub forward: Endpoint,
    /// Its working directory.
    pub home: Home,
}

impl Client {
    /// `quictun-client` to that server with these arguments, on a free port of 127.0.0.1 where they name none.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub fn start(server: &str, arguments: &[&str]) -> Result<Self> {
        Self::start_at(&Machine::here(), Home::new()?, server, arguments)
    }

    /// The same, on that host and in that home.
    ///
    /// # Errors
    ///
    /// Where it does not start.
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

    /// A client started by this command.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub fn from_command(home: Home, command: &mut Command) -> Result<Self> {
        let mut program = Program::start("client", command)?;
        let forward = Endpoint::parse(&listen_address(&program.wait_for(CLIENT_UP, START)?)?)?;
        Ok(Self {
            program,
            forward,
            home,
        })
    }

    /// Addresses of its forwards, in the order of their flags, once there are `count` of them.
    ///
    /// # Errors
    ///
    /// Where they do not come up.
    pub fn forwards(&self, count: usize) -> Result<Vec<Endpoint>> {
        deadline::until(CLIENT_UP, START, || self.program.count(CLIENT_UP) == count)?;
        let lines = self.program.lines();
        let up = lines.iter().filter(|line| line.contains(CLIENT_UP));
        up.map(|line| Endpoint::parse(&listen_address(line)?))
            .collect()
    }
}

/// A server and its client.
#[derive(Debug)]
pub struct Tunnel {
    /// The client, which ends first.
    pub client: Client,
    /// The server.
    pub server: Server,
}

impl Tunnel {
    /// A tunnel on this host that leads to `target`.
    ///
    /// # Errors
    ///
    /// Where one of the two does not start.
    pub fn to(target: &str) -> Result<Self> {
        Self::with(target, &[], &[])
    }

    /// The same, with more arguments for the server and the client.
    ///
    /// # Errors
    ///
    /// Where one of the two does not start.
    pub fn with(target: &str, server: &[&str], client: &[&str]) -> Result<Self> {
        let server = Server::start(server)?;
        let client = [&["--token-source", target], client].concat();
        let client = Client::start(&server.address.to_string(), &client)?;
        Ok(Self { client, server })
    }
}

/// Tests run side by side: no port is fixed unless the test has a network of its own.
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

/// The value of `"listen address"` in a log line.
///
/// # Errors
///
/// Where there is none.
pub fn listen_address(line: &str) -> Result<String> {
    value(line, "listen address")
}

/// The value of `"pin"` in the line of a server that has started.
///
/// # Errors
///
/// Where there is none.
pub fn server_pin(line: &str) -> Result<String> {
    value(line, "pin")
}

fn value(line: &str, key: &str) -> Result<String> {
    let rest = line.split_once(&format!("\"{key}\": \""));
    let value = rest.and_then(|(_, rest)| rest.split_once('"'));
    let (value, _) = value.with_context(|| format!("no {key} in {line:?}"))?;
    Ok(value.to_owned())
}
