//! A server under attack and its honest clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::run::AttackOptions;
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::binaries;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START, listen_address};
use quictun_trust::psk::{self, Secret};

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
    /// Some clients may use it, each with a name and a secret of its own: `quictun server` with a configuration file.
    Named,
}

/// The names of the hostile clients of a server with [`Trust::Named`]. The first may have [`FEW_FLOWS`] flows. The others
/// may have any number, and listeners.
pub const HOSTILE: [&str; 3] = ["few", "many", "more"];

/// The limit of flows of the first hostile client: a server that has little memory permits as many at once.
pub const FEW_FLOWS: u64 = 12;

/// The name of the honest client of such a server.
const HONEST: &str = "honest";

/// A server with a memory budget, and an honest client that has been served once.
#[derive(Debug)]
pub struct Victim {
    /// The process of the server.
    pub server: Program,
    /// The server's address, of UDP and TCP.
    pub address: SocketAddr,
    /// The target of honest flows: an echo, which lives until this process ends.
    echo: String,
    /// The honest clients: one for each carrier.
    clients: Vec<Client>,
    carriers: &'static [Carrier],
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
        let terms = AttackOptions {
            budget,
            server: more.to_vec(),
            ..AttackOptions::default()
        };
        Self::with(trust, &terms)
    }

    /// Starts a server with the budget, descriptors and arguments of `terms`, and its honest client, like
    /// [`Victim::new`].
    ///
    /// # Errors
    ///
    /// Fails as [`Victim::new`] does.
    pub fn with(trust: Trust, terms: &AttackOptions) -> Result<Self> {
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
            Trust::Named => named_server(&home, terms.descriptors)?,
        };
        if let Some(budget) = terms.budget {
            command.args(["--memory-budget", &format!("{budget}B")]);
        }
        command.args(&terms.server);
        let mut server = Program::start("server", &mut command)?;
        let address = listen_address(&server.wait_for(UP, START)?)?.parse()?;
        let pin = match trust {
            Trust::Open => None,
            Trust::Secret | Trust::Named => Some(pin(&server.wait_for("--pin ", START)?)?),
        };
        let carriers: &[Carrier] = if terms.tcp_sources > 0 {
            &[Carrier::Quic, Carrier::Tls]
        } else {
            &[Carrier::Quic]
        };
        let mut clients = Vec::new();
        for &carrier in carriers {
            let client = start_client(trust, carrier, address, &home, pin.as_deref(), &echo)?;
            through_echo(&client.forward, WARM).context("serving the client before the attack")?;
            clients.push(client);
        }
        Ok(Self {
            server,
            address,
            echo,
            clients,
            carriers,
            trust,
            home,
            pin,
        })
    }

    /// Returns the address at which applications reach the echo through one of the honest clients, in turn.
    pub fn forward(&self, turn: usize) -> &Endpoint {
        &self.clients[turn % self.clients.len()].forward
    }

    /// Starts another honest client that leads to `target`, with the same credentials as the first, and with one of its
    /// carriers, in turn. The process dies with the calling thread.
    ///
    /// # Errors
    ///
    /// Fails if the client does not start.
    pub fn client_to(&self, target: &str, turn: usize) -> Result<Client> {
        let pin = self.pin.as_deref();
        let carrier = self.carriers[turn % self.carriers.len()];
        start_client(self.trust, carrier, self.address, &self.home, pin, target)
    }

    /// Returns the target of honest flows.
    pub fn echo(&self) -> &str {
        &self.echo
    }

    /// Returns the file with the secret of the honest clients, if the server asks for one.
    pub fn secret_file(&self) -> PathBuf {
        secret_file(self.trust, &self.home)
    }

    /// Returns the secret of a client of a server with [`Trust::Named`].
    ///
    /// # Errors
    ///
    /// Fails if there is no client with this name.
    pub fn secret(&self, name: &str) -> Result<Secret> {
        let file = self.home.path().join(format!("{name}.psk"));
        Ok(psk::load_secret(&file)?)
    }

    /// Returns the secret of a client of a server with [`Trust::Named`], as its file has it.
    ///
    /// # Errors
    ///
    /// Fails if there is no client with this name.
    pub fn secret_text(&self, name: &str) -> Result<String> {
        let file = self.home.path().join(format!("{name}.psk"));
        Ok(std::fs::read_to_string(file)?)
    }

    /// Returns the path of the HTTP interface of a server with [`Trust::Named`].
    pub fn http(&self) -> PathBuf {
        self.home.path().join(HTTP)
    }

    /// Suppresses the printing of the programs' lines at drop.
    pub fn silence(&mut self) {
        self.server.silence();
        for client in &mut self.clients {
            client.program.silence();
        }
    }
}

/// Returns the value after `--pin` in the line that the server prints for its clients.
fn pin(line: &str) -> Result<String> {
    let (_, rest) = line.split_once("--pin ").context("no pin")?;
    let pin = rest.split_whitespace().next().context("no pin")?;
    Ok(pin.to_owned())
}

fn secret_file(trust: Trust, home: &Home) -> PathBuf {
    home.path().join(match trust {
        Trust::Open | Trust::Secret => "state/client.psk".to_owned(),
        Trust::Named => format!("{HONEST}.psk"),
    })
}

/// The socket of the HTTP interface.
const HTTP: &str = "http.sock";

/// Returns the command that starts a server with named clients and this many descriptors.
fn named_server(home: &Home, descriptors: Option<u64>) -> Result<Command> {
    let mut clients = Vec::new();
    for name in HOSTILE.into_iter().chain([HONEST]) {
        let secret = home.path().join(format!("{name}.psk"));
        std::fs::write(secret, format!("a secret of {name}, long enough\n"))?;
        let limits = if name == HOSTILE[0] {
            format!("max_flows = {FEW_FLOWS}")
        } else {
            "listen = ['127.0.0.1:*']".to_owned()
        };
        clients.push(format!(
            "[[client]]\nname = '{name}'\npsk_file = '{name}.psk'\nallow = ['*']\n{limits}\n"
        ));
    }
    std::fs::write(home.path().join("server.toml"), clients.concat())?;
    let mut command = match descriptors {
        None => home.command(&Machine::here(), "quictun")?,
        Some(most) => {
            let mut command = Machine::here().command("prlimit");
            command.args([&format!("--nofile={most}:{most}"), "--"]);
            command.arg(binaries::path("quictun")?);
            home.settle(&mut command);
            command
        }
    };
    command.args(["server", "--listen", "127.0.0.1:0", "-c", "server.toml"]);
    command.args([
        "--http",
        &format!("unix:{}", home.path().join(HTTP).display()),
    ]);
    Ok(command)
}

/// The carrier of an honest client.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    Quic,
    Tls,
}

fn start_client(
    trust: Trust,
    carrier: Carrier,
    server: SocketAddr,
    at: &Home,
    pin: Option<&str>,
    target: &str,
) -> Result<Client> {
    let server = server.to_string();
    let (Trust::Secret | Trust::Named, Some(pin)) = (trust, pin) else {
        return Client::start(&server, &["--token-source", target]);
    };
    let home = Home::new()?;
    let forward = format!("127.0.0.1:0={}", target.trim_start_matches("tcp:"));
    let mut command = home.command(&Machine::here(), "quictun")?;
    let carrier = match carrier {
        Carrier::Quic => "quic",
        Carrier::Tls => "tls",
    };
    command
        .args(["client", "--server", &server, "--pin", pin, "--http", "off"])
        .args(["--carrier", carrier, "--forward", &forward, "--psk-file"])
        .arg(secret_file(trust, at));
    Client::from_command(home, &mut command)
}
