//! The tunnel of one cell: on this host or, with a device, on two separate hosts.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Pid;

use super::cell::{Process, Sockets};
use super::target_listener::{RECEIVE_BUFFER, TargetListener};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START, Server, Tunnel};

/// Settings that all cells share.
#[derive(Clone, Copy, Debug)]
pub struct FaultOptions {
    /// `--idle-timeout` of both programs: a peer that is silent for this long is considered dead.
    pub idle_timeout: Duration,
    /// `--drain` of both programs.
    pub drain: Duration,
    /// The duration of [`ProcessFault::Stop`](super::cell::ProcessFault::Stop).
    pub stop: Duration,
}

impl FaultOptions {
    /// Returns the time for which flows over TLS outlive their connection: longer than a process is stopped or the cable
    /// is cut.
    pub fn bond_ttl(&self) -> Duration {
        self.stop + Duration::from_secs(5)
    }
}

/// The name of the process that opens files for another one.
pub(crate) const KEEPER: &str = "quictun-keeper";

/// An address that only the far host has.
const TARGET: &str = "203.0.113.9";
const NEAR: &str = "10.40.0.1";
const FAR: &str = "10.40.0.2";
const SERVER: &str = "10.40.0.2:7500";

/// The near end of the cable between both hosts.
const CABLE: &str = "lan0";

/// Both programs, and the address to which the application connects.
#[derive(Debug)]
pub(crate) struct FaultTunnel {
    pub(crate) server: Program,
    pub(crate) client: Program,
    near: Endpoint,
    host: Machine,
    _far: Option<Machine>,
    _homes: Vec<Home>,
}

impl FaultTunnel {
    /// Starts both programs and the target's listener.
    pub(crate) fn start(
        sockets: Sockets,
        late: bool,
        plan: &FaultOptions,
    ) -> Result<(Self, TargetListener)> {
        let home = Home::new()?;
        let common = [
            format!("--idle-timeout={}ms", plan.idle_timeout.as_millis()),
            format!("--drain={}ms", plan.drain.as_millis()),
            "--workers=1".to_owned(),
            // A killed process does not come back, so flows must not wait for it. Flows over TLS have to wait.
            match sockets {
                Sockets::Tls => format!("--bond-ttl={}s", plan.bond_ttl().as_secs()),
                _ => "--bond-ttl=0s".to_owned(),
            },
        ];
        let common = common.each_ref().map(String::as_str);
        match sockets {
            Sockets::Tun => Self::with_device(home, late, &common),
            Sockets::Tls => Self::over_tls(home, late, &common),
            Sockets::Tcp => {
                let listener = TargetListener::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), late)?;
                Self::on_this_host(home, listener, &common, &[], &[])
            }
            Sockets::Unix => {
                let listener = TargetListener::unix(&home.path().join("far"), late)?;
                let near = format!("--listen-on=unix:{}", home.path().join("near").display());
                Self::on_this_host(home, listener, &common, &["--allow-unix"], &[&near])
            }
        }
    }

    fn on_this_host(
        home: Home,
        listener: TargetListener,
        common: &[&str],
        server: &[&str],
        client: &[&str],
    ) -> Result<(Self, TargetListener)> {
        let tunnel = Tunnel::with(
            &listener.endpoint().to_string(),
            &[common, server].concat(),
            &[common, client].concat(),
        )?;
        let Tunnel { client, server } = tunnel;
        let Client {
            program: client,
            forward: near,
            home: client_home,
        } = client;
        let Server {
            program: server,
            home: server_home,
            ..
        } = server;
        let site = Self {
            server,
            client,
            near,
            host: Machine::here(),
            _far: None,
            _homes: vec![home, client_home, server_home],
        };
        Ok((site, listener))
    }

    fn with_device(home: Home, late: bool, common: &[&str]) -> Result<(Self, TargetListener)> {
        let far = FarServer::start(&home, late, common)?;
        let mut command = far.client_command(&home)?;
        command.arg("--tun").args(common);
        let mut client = Program::start("client", &mut command)?;
        client.wait_for("connected to server endpoint", START)?;
        let near = far.listener.endpoint().clone();
        Ok(far.with(client, near, vec![home]))
    }

    fn over_tls(home: Home, late: bool, common: &[&str]) -> Result<(Self, TargetListener)> {
        let far = FarServer::start(&home, late, common)?;
        let mut command = far.client_command(&home)?;
        let target = far.listener.endpoint().to_string();
        let forward = format!("127.0.0.1:0={}", target.trim_start_matches("tcp:"));
        command
            .args(["--carrier", "tls", "-L", &forward])
            .args(common);
        let client = Client::from_command(Home::new()?, &mut command)?;
        let Client {
            mut program,
            forward,
            home: own,
        } = client;
        program.wait_for("connected to server endpoint", START)?;
        Ok(far.with(program, forward, vec![home, own]))
    }

    /// Cuts the cable between both hosts, or joins it again.
    pub(crate) fn cut(&self, cut: bool) -> Result<()> {
        let state = if cut { "down" } else { "up" };
        self.host.run(&format!("ip link set {CABLE} {state}"))?;
        Ok(())
    }

    /// Connects the application to the near end of the tunnel.
    pub(crate) fn connect(&self) -> Result<Connection> {
        self.host.within(|| self.near.connect_with(RECEIVE_BUFFER))
    }

    /// Returns the process that the fault hits.
    pub(crate) fn victim(&self, process: Process, sockets: Sockets) -> Result<Pid> {
        let pid = match (process, sockets) {
            (Process::Server, _) => self.server.pid(),
            (Process::ServerKeeper, _) => named_child(self.server.pid(), KEEPER)?,
            (Process::ClientKeeper, _) => named_child(self.client.pid(), KEEPER)?,
            (Process::Supervisor, _) | (_, Sockets::Tcp | Sockets::Unix | Sockets::Tls) => {
                self.client.pid()
            }
            (Process::Client, Sockets::Tun) => child(self.client.pid(), "--netstack-fd")?,
            (Process::Netstackd, Sockets::Tun) => child(self.client.pid(), "quictun-netstackd")?,
        };
        Pid::from_raw(pid.cast_signed()).context("invariant: the id of a process is not 0")
    }
}

/// A server and its target on a host of their own.
struct FarServer {
    host: Machine,
    far: Machine,
    server: Program,
    pin: String,
    listener: TargetListener,
}

impl FarServer {
    fn start(home: &Home, late: bool, common: &[&str]) -> Result<Self> {
        let (host, far) = (Machine::new("near")?, Machine::new("far")?);
        host.join(&far, CABLE, &format!("{NEAR}/24"), &format!("{FAR}/24"))?;
        far.run(&format!("ip address add {TARGET} dev lo"))?;
        let listener =
            far.within(|| TargetListener::tcp(SocketAddr::new(TARGET.parse()?, 0), late))?;
        let mut command = home.command(&far, "quictun")?;
        command.args(["server", "--listen", SERVER, "--http", "off"]);
        // The test reads the log to find the phase in which the fault occurs.
        command.args(["--log-level", "debug"]);
        command
            .args(["--allow", &format!("{TARGET}:*")])
            .args(common);
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for(": quictun client ", START)?;
        let (_, rest) = line.split_once("--pin ").context("no pin")?;
        let pin = rest.split(' ').next().unwrap_or_default().to_owned();
        Ok(Self {
            host,
            far,
            server,
            pin,
            listener,
        })
    }

    /// Returns the beginning of the command of the client on the near host.
    fn client_command(&self, home: &Home) -> Result<Command> {
        let secret = home.path().join("state/client.psk");
        let mut command = home.command(&self.host, "quictun")?;
        command.args(["client", "--server", SERVER, "--http", "off"]);
        command.args(["--pin", &self.pin, "--psk-file"]).arg(secret);
        Ok(command)
    }

    fn with(
        self,
        client: Program,
        near: Endpoint,
        homes: Vec<Home>,
    ) -> (FaultTunnel, TargetListener) {
        let tunnel = FaultTunnel {
            server: self.server,
            client,
            near,
            host: self.host,
            _far: Some(self.far),
            _homes: homes,
        };
        (tunnel, self.listener)
    }
}

/// Finds the child of a process that has this word in its command line.
pub(crate) fn child(of: u32, word: &str) -> Result<u32> {
    let found = find_child(of, |process| {
        // The process may have ended just now.
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|it| it == word.as_bytes())
    });
    found?.with_context(|| format!("process {of} has no child with {word} in its command line"))
}

/// Finds the child of a process that has this name.
pub(crate) fn named_child(of: u32, name: &str) -> Result<u32> {
    let found = find_child(of, |process| {
        fs::read_to_string(process.join("comm")).is_ok_and(|it| it.trim() == name)
    });
    found?.with_context(|| format!("process {of} has no child with the name {name}"))
}

fn find_child(of: u32, is_it: impl Fn(&Path) -> bool) -> Result<Option<u32>> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        if parent(pid) == Some(of) && is_it(&entry.path()) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// Waits until the process is gone or is a zombie.
pub(crate) fn wait_gone(pid: Pid, within: Duration) -> Result<()> {
    let status = format!("/proc/{}/status", pid.as_raw_nonzero());
    deadline::until("the process to die", within, || {
        let status = fs::read_to_string(Path::new(&status)).unwrap_or_default();
        !status.contains("State:") || status.contains("State:\tZ")
    })
}
