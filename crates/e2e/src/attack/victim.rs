//! A server under attack and its honest clients.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};

use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START, listen_address};

/// The data of the flow that warms up the server, so that its pools and windows reach their working size.
const WARM: Payload = Payload {
    seed: 7,
    bytes: 8 << 20,
};

/// The text in the server's output that says that it is up.
const UP: &str = "Server endpoint start up successful";

/// The clients that may use the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Any client may use it: `quictun-server`.
    Open,
    /// Only clients that prove knowledge of a secret may use it: `quictun server`.
    Secret,
}

/// A server with a memory budget, and an honest client that has been served once.
#[derive(Debug)]
pub struct Victim {
    /// The process of the server.
    pub server: Program,
    /// The server's UDP address.
    pub address: SocketAddr,
    /// The target of honest flows: an echo, which lives until this process ends.
    echo: String,
    client: Client,
    trust: Trust,
    home: Home,
    pin: Option<String>,
}

impl Victim {
    /// Starts the server with this budget in bytes and additional arguments, starts its honest client, and sends one
    /// flow through the client.
    ///
    /// # Errors
    ///
    /// Fails if a program does not start, or if the client is not served.
    pub fn new(trust: Trust, budget: Option<u64>, more: &[String]) -> Result<Self> {
        let home = Home::new()?;
        let echo = Application::echo()?.target();
        let mut command = match trust {
            Trust::Open => {
                let mut command = home.command(&Machine::here(), "quictun-server")?;
                command.args(["--listen-on", "127.0.0.1:0", "--httpd-listen-on", "off"]);
                command
            }
            Trust::Secret => {
                let mut command = home.command(&Machine::here(), "quictun")?;
                command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
                command.args(["--allow", "*"]);
                command
            }
        };
        if let Some(budget) = budget {
            command.args(["--memory-budget", &format!("{budget}B")]);
        }
        command.args(more);
        let mut server = Program::start("server", &mut command)?;
        let address = listen_address(&server.wait_for(UP, START)?)?.parse()?;
        let pin = match trust {
            Trust::Open => None,
            Trust::Secret => Some(pin(&server.wait_for("--pin ", START)?)?),
        };
        let client = start_client(trust, address, &home, pin.as_deref(), &echo)?;
        through_echo(&client.forward, WARM).context("serving the client before the attack")?;
        Ok(Self {
            server,
            address,
            echo,
            client,
            trust,
            home,
            pin,
        })
    }

    /// Returns the address at which applications reach the echo through the honest client.
    pub fn forward(&self) -> &Endpoint {
        &self.client.forward
    }

    /// Starts another honest client that leads to `target`, with the same credentials as the first. The process dies
    /// with the calling thread.
    ///
    /// # Errors
    ///
    /// Fails if the client does not start.
    pub fn client_to(&self, target: &str) -> Result<Client> {
        let pin = self.pin.as_deref();
        start_client(self.trust, self.address, &self.home, pin, target)
    }

    /// Returns the target of honest flows.
    pub fn echo(&self) -> &str {
        &self.echo
    }

    /// Returns the file with the secret that a server with [`Trust::Secret`] has created.
    pub fn secret_file(&self) -> PathBuf {
        secret_file(&self.home)
    }

    /// Suppresses the printing of the programs' lines at drop.
    pub fn silence(&mut self) {
        self.server.silence();
        self.client.program.silence();
    }
}

/// Returns the value after `--pin` in the line that the server prints for its clients.
fn pin(line: &str) -> Result<String> {
    let (_, rest) = line.split_once("--pin ").context("no pin")?;
    let pin = rest.split_whitespace().next().context("no pin")?;
    Ok(pin.to_owned())
}

fn secret_file(home: &Home) -> PathBuf {
    home.path().join("state/client.psk")
}

fn start_client(
    trust: Trust,
    server: SocketAddr,
    at: &Home,
    pin: Option<&str>,
    target: &str,
) -> Result<Client> {
    let server = server.to_string();
    let (Trust::Secret, Some(pin)) = (trust, pin) else {
        return Client::start(&server, &["--token-source", target]);
    };
    let home = Home::new()?;
    let forward = format!("127.0.0.1:0={}", target.trim_start_matches("tcp:"));
    let mut command = home.command(&Machine::here(), "quictun")?;
    command
        .args(["client", "--server", &server, "--pin", pin, "--http", "off"])
        .args(["--forward", &forward, "--psk-file"])
        .arg(secret_file(at));
    Client::from_command(home, &mut command)
}
