//! `quictun server` and `quictun client` on two machines: a tunnel to one target that has both carriers.
//!
//! Start a [`NativeServer`], then clients of it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{Program, run};
use quictun_testbed::rest;
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};
use quictun_testbed::work::Work;

use crate::faults::run::TAKEN;
use crate::load::machines::LinkedMachines;

const SERVER_UP: &str = "Server endpoint start up successful";

/// The port of a client's HTTP interface is above that of its server by this number. The system gives neither to others.
const ABOVE: u16 = 1000;

/// A server on the far machine, which lets its client reach one target.
#[derive(Debug)]
pub struct NativeServer<'a> {
    machines: &'a LinkedMachines,
    /// The directory of the programs; `None` for the programs under test.
    programs: Option<PathBuf>,
    home: Home,
    port: u16,
    /// The process of the server.
    pub program: Program,
    address: String,
    pin: String,
    target: String,
}

/// A client on the near machine.
#[derive(Debug)]
pub struct NativeClient<'a> {
    machine: &'a Machine,
    /// The process of the client, and its forward.
    pub client: Client,
    /// The address of its HTTP interface, on its machine.
    pub http: SocketAddr,
}

impl<'a> NativeServer<'a> {
    /// Starts a server that listens on `port` and leads to `target`.
    ///
    /// # Errors
    ///
    /// Fails if the server does not start.
    pub fn start(
        machines: &'a LinkedMachines,
        programs: Option<&Path>,
        port: u16,
        target: &str,
        flags: &[String],
    ) -> Result<Self> {
        let home = Home::new()?.with_programs(programs);
        let listen = SocketAddr::new(machines.address, port).to_string();
        let mut command = server_command(machines, &home, &listen, target)?;
        let mut program = Program::start("server", command.args(flags))?;
        let line = program.wait_for(SERVER_UP, START)?;
        Ok(Self {
            machines,
            programs: programs.map(Path::to_owned),
            home,
            port,
            program,
            address: listen_address(&line)?,
            pin: server_pin(&line)?,
            target: target.to_owned(),
        })
    }

    /// Lets the next process take over, and waits until the old one has ended.
    ///
    /// # Errors
    ///
    /// Fails if the old process goes on.
    pub fn take_over(&mut self, flags: &[String]) -> Result<()> {
        let mut command = server_command(self.machines, &self.home, &self.address, &self.target)?;
        command.arg("--take-over").args(flags);
        let mut next = Program::start("server", &mut command)?;
        next.wait_for(SERVER_UP, START)?;
        replace(&mut self.program, next)
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Starts a client. A server has one at a time: the port of the client's HTTP interface depends on the server's port.
    ///
    /// # Errors
    ///
    /// Fails if the client does not start.
    pub fn client(&self, flags: &[String]) -> Result<NativeClient<'a>> {
        let (machine, home) = (&self.machines.near, self.client_home()?);
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port + ABOVE));
        let mut command = self.client_command(&home, 0, flags)?;
        command.args(["--http", &http.to_string()]);
        Ok(NativeClient {
            machine,
            client: Client::from_command(home, &mut command)?,
            http,
        })
    }

    /// Creates a home for a client.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be created.
    pub fn client_home(&self) -> Result<Home> {
        Ok(Home::new()?.with_programs(self.programs.as_deref()))
    }

    /// Returns a command that runs a client with a forward on `port`. It lacks the flag of the HTTP interface.
    ///
    /// # Errors
    ///
    /// Fails if the programs do not build.
    pub fn client_command(&self, home: &Home, port: u16, flags: &[String]) -> Result<Command> {
        let secret = self.home.path().join("state/client.psk");
        let mut command = home.command(&self.machines.near, "quictun")?;
        command.args(["client", "--server", &self.address, "--pin", &self.pin]);
        command.arg("--psk-file").arg(secret);
        command.args(["-L", &format!("127.0.0.1:{port}={}", self.target)]);
        command.args(flags);
        Ok(command)
    }

    /// Invites a client named `laptop` by `quictun invite` with these flags. Returns the code.
    ///
    /// # Errors
    ///
    /// Fails if the command fails.
    pub fn invite(&self, flags: &[&str]) -> Result<String> {
        let mut command = self.home.command(&self.machines.far, "quictun")?;
        let allow = self.target.trim_start_matches("tcp:");
        command.args(["invite", "laptop", "--allow", allow]);
        run(command.args(["--address", &self.address]).args(flags))
    }

    /// Ends a server that served well.
    ///
    /// # Errors
    ///
    /// Fails if it has ended by itself.
    pub fn end(mut self) -> Result<()> {
        end(&mut self.program)
    }
}

impl NativeClient<'_> {
    /// Returns the port of the forward.
    ///
    /// # Errors
    ///
    /// Fails if the client listens on a Unix socket.
    pub fn port(&self) -> Result<u16> {
        self.client.forward.port()
    }

    /// Returns whether all flows are on connections with this carrier. Without flows, all connections must have it.
    ///
    /// # Errors
    ///
    /// Fails if the client does not answer.
    pub fn is_carried_by(&self, carrier: &str) -> Result<bool> {
        let found = self.get("/v1/connections")?;
        let all = found["connections"].as_array().context("no connections")?;
        let with_flows: Vec<_> = all.iter().filter(|it| it["flows"] != 0).collect();
        let carrying = if with_flows.is_empty() {
            all.iter().collect()
        } else {
            with_flows
        };
        let mut carriers = carrying.iter().map(|it| it["carrier"] == carrier);
        Ok(!carrying.is_empty() && carriers.all(|is_the_one| is_the_one))
    }

    /// Returns whether QUIC passes, by the client's own account: `works`, `blocked` or `unknown`.
    ///
    /// # Errors
    ///
    /// Fails if the client does not answer.
    pub fn quic_state(&self) -> Result<String> {
        let status = self.get("/v1/status")?;
        let state = status["servers"][0]["quic"].as_str();
        Ok(state.context("no state of QUIC")?.to_owned())
    }

    /// Returns the client's own account of its servers and connections.
    ///
    /// # Errors
    ///
    /// Fails if the client does not answer.
    pub fn account(&self) -> Result<String> {
        let servers = &self.get("/v1/status")?["servers"];
        let connections = &self.get("/v1/connections")?["connections"];
        Ok(format!("{servers:#}\n{connections:#}"))
    }

    fn get(&self, path: &str) -> Result<serde_json::Value> {
        self.machine.within(|| rest::get(self.http, path)?.json())
    }

    /// Returns the combined work of the client and its server.
    ///
    /// # Errors
    ///
    /// Fails if one of them has ended.
    pub fn work(&self, server: &NativeServer<'_>) -> Result<Work> {
        Ok(self.client.program.work()? + server.program.work()?)
    }

    /// Ends a client that served well.
    ///
    /// # Errors
    ///
    /// Fails if it has ended by itself.
    pub fn end(mut self) -> Result<()> {
        end(&mut self.client.program)
    }
}

fn server_command(
    machines: &LinkedMachines,
    home: &Home,
    listen: &str,
    target: &str,
) -> Result<Command> {
    let mut command = home.command(&machines.far, "quictun")?;
    command.args(["server", "--listen", listen, "--http", "off"]);
    command.args(["--allow", target]);
    Ok(command)
}

/// Puts the process that has taken over in the place of the one before, which must have ended.
pub(super) fn replace(program: &mut Program, next: Program) -> Result<()> {
    ensure!(next.has_printed(TAKEN), "{:?}", next.lines());
    let status = program.wait_end(START)?;
    ensure!(status.success(), "{status}: {:?}", program.lines());
    program.silence();
    *program = next;
    Ok(())
}

fn end(program: &mut Program) -> Result<()> {
    if let Some(status) = program.ended()? {
        bail!("a program ended: {status}");
    }
    program.silence();
    Ok(())
}

/// Returns a port of 127.0.0.1 that was free a moment ago.
pub(in crate::load) fn free_port(machine: &Machine) -> Result<u16> {
    machine.within(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(listener.local_addr()?.port())
    })
}
