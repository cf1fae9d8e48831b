//! The tunnel of a stress test: native programs with HTTP interfaces, a client with a quota, and logs in files.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::cell::Process;
use super::stress::TunnelEntry;
use super::tunnel::{KEEPER, child, named_child};
use quictun_testbed::application::{Application, echo};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Home, START, listen_address, server_pin};

/// The name of the client, whose usage the server stores.
const CLIENT: &str = "load";

/// The line of a server that has started.
const SERVER_UP: &str = "Server endpoint start up successful";

const LOCAL: &str = "127.0.0.1";

/// An address that only the far host has.
const TARGET: &str = "203.0.113.9";
const NEAR: &str = "10.40.0.1";
const FAR: &str = "10.40.0.2";

/// Both programs and the echo behind them.
#[derive(Debug)]
pub(crate) struct StressTunnel {
    client: Program,
    server: Program,
    echo: Endpoint,
    healths: [SocketAddr; 2],
    /// The network of the command, if there is one.
    near: Option<Machine>,
    host: Machine,
    far: Machine,
    entry: TunnelEntry,
    state: PathBuf,
    _home: Home,
}

impl StressTunnel {
    /// Starts both programs. State and logs are in `files`, or in a directory of this tunnel.
    pub(crate) fn start(entry: TunnelEntry, files: Option<&Path>) -> Result<Self> {
        let home = Home::new()?;
        let files = files.unwrap_or_else(|| home.path());
        let state = files.join("state");
        fs::create_dir_all(&state)?;
        let (host, far, listen, target) = if entry == TunnelEntry::Forward {
            (Machine::here(), Machine::here(), LOCAL, LOCAL)
        } else {
            let (near, far) = (Machine::new("near")?, Machine::new("far")?);
            near.join(&far, "lan0", &format!("{NEAR}/24"), &format!("{FAR}/24"))?;
            far.run(&format!("ip address add {TARGET} dev lo"))?;
            (near, far, FAR, TARGET)
        };
        let target = SocketAddr::new(target.parse()?, 0);
        // The listener lives until this process ends.
        let target = far.within(|| Ok(Application::tcp_on(target, echo)?.endpoint().clone()))?;
        let address = target.to_string();
        let address = address.trim_start_matches("tcp:");
        let secret = "a secret, which is long enough\n";
        fs::write(home.path().join("load.psk"), secret)?;
        let configuration = format!(
            "[[client]]\nname = '{CLIENT}'\npsk_file = 'load.psk'\nallow = ['{address}']\nquota = '1 TB'\n"
        );
        fs::write(home.path().join("server.toml"), configuration)?;
        let logs = |name: &str| format!("stderr,{}", files.join(name).display());
        let mut command = home.command(&far, "quictun")?;
        command
            .args(["server", "-c", "server.toml", "--http", "127.0.0.1:0"])
            .args(["--listen", &format!("{listen}:0"), "--log-output"])
            .args([&logs("server.log"), "--state-dir"])
            .arg(&state);
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for(SERVER_UP, START)?;
        let mut command = home.command(&host, "quictun")?;
        let word = if entry == TunnelEntry::Command {
            "run"
        } else {
            "client"
        };
        command
            .args([word, "--server", &listen_address(&line)?, "--pin"])
            .args([&server_pin(&line)?, "--psk-file", "load.psk"])
            .args(["--http", "127.0.0.1:0", "--log-output", &logs("client.log")]);
        match entry {
            TunnelEntry::Forward => command.args(["-L", &format!("127.0.0.1:0={address}")]),
            TunnelEntry::Device => command.arg("--tun"),
            TunnelEntry::Command => command.args(["--log-level", "info", "--", "sleep", "1d"]),
        };
        let mut client = Program::start("client", &mut command)?;
        client.wait_for("connected to server endpoint", START)?;
        let echo = if entry == TunnelEntry::Forward {
            let up = client.wait_for("Client endpoint start up successful", START)?;
            Endpoint::parse(&listen_address(&up)?)?
        } else {
            target
        };
        let healths = [health(&mut server)?, health(&mut client)?];
        let near = (entry == TunnelEntry::Command).then(|| machine_of_command(client.pid()));
        Ok(Self {
            client,
            server,
            echo,
            healths,
            near: near.transpose()?,
            host,
            far,
            entry,
            state,
            _home: home,
        })
    }

    /// Returns the host of the applications that connect.
    pub(crate) fn near(&self) -> &Machine {
        self.near.as_ref().unwrap_or(&self.host)
    }

    /// Returns the address at which applications reach the echo.
    pub(crate) fn echo(&self) -> &Endpoint {
        &self.echo
    }

    /// Returns the HTTP interfaces, each with its host.
    pub(crate) fn healths(&self) -> [(&Machine, SocketAddr); 2] {
        [(&self.far, self.healths[0]), (&self.host, self.healths[1])]
    }

    /// Returns the id of a process.
    pub(crate) fn process(&self, process: Process) -> Result<Pid> {
        let (server, program) = (self.server.pid(), self.client.pid());
        let supervisor = match self.entry {
            TunnelEntry::Command => inside(program)?,
            TunnelEntry::Forward | TunnelEntry::Device => program,
        };
        let client = match self.entry {
            TunnelEntry::Forward => program,
            TunnelEntry::Device | TunnelEntry::Command => child(supervisor, "--netstack-fd")?,
        };
        let pid = match process {
            Process::Server => server,
            Process::ServerKeeper => named_child(server, KEEPER)?,
            Process::Client => client,
            Process::ClientKeeper => named_child(client, KEEPER)?,
            Process::Netstackd => child(supervisor, "quictun-netstackd")?,
            Process::Supervisor => supervisor,
        };
        Pid::from_raw(pid.cast_signed()).context("invariant: the id of a process is not 0")
    }

    /// Ends both programs in good order: by SIGTERM, followed by SIGHUP. A command ends by the signal.
    pub(crate) fn end(&mut self, within: Duration) -> Result<()> {
        let (last, code) = match self.entry {
            TunnelEntry::Command => (Signal::TERM, 128 + Signal::TERM.as_raw()),
            TunnelEntry::Forward | TunnelEntry::Device => (Signal::HUP, 0),
        };
        let client = (&mut self.client, last, code);
        for (program, last, code) in [client, (&mut self.server, Signal::HUP, 0)] {
            program.signal(Signal::TERM)?;
            program.signal(last)?;
            let status = program.wait_end(within)?;
            ensure!(
                status.code() == Some(code),
                "{status}: {:?}",
                program.lines()
            );
        }
        Ok(())
    }

    /// Returns the usage of the client that the server has stored, in bytes.
    pub(crate) fn stored_usage(&self) -> Result<u64> {
        let path = self.state.join("usage.json");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let usage: Value = serde_json::from_str(&text)?;
        usage["used_bytes"][CLIENT].as_u64().context(text)
    }

    /// Suppresses the printing of the programs' lines.
    pub(crate) fn silence(&mut self) {
        self.client.silence();
        self.server.silence();
    }
}

/// Returns the address of the HTTP interface of a program.
fn health(program: &mut Program) -> Result<SocketAddr> {
    let line = program.wait_for("HTTP interface", START)?;
    Ok(listen_address(&line)?.parse()?)
}

/// Returns the first process inside the namespaces of `quictun run`.
fn inside(program: u32) -> Result<u32> {
    child(program, "run")
}

/// Returns the network of the command of `quictun run`.
fn machine_of_command(program: u32) -> Result<Machine> {
    let command = deadline::wait("the command to start", START, || {
        Ok(named_child(inside(program)?, "sleep").ok())
    })?;
    let network = fs::File::open(format!("/proc/{command}/ns/net"))?;
    Ok(Machine::of(network.into()))
}
