//! The tunnel of one cell: on this host or, with a device, on two separate hosts.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
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

const HTTP_OFF: [&str; 2] = ["--http", "off"];

/// The near end of the cable between both hosts.
const CABLE: &str = "lan0";

/// Both programs, and the address to which the application connects.
#[derive(Debug)]
pub(crate) struct FaultTunnel {
    pub(crate) server: Program,
    pub(crate) client: Program,
    near: Endpoint,
    host: Machine,
    far: Option<Machine>,
    homes: Vec<Home>,
    /// The arguments of the server and of the client for a new process that takes over, if there may be one.
    arguments: [Vec<String>; 2],
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
            far: None,
            homes: vec![home, client_home, server_home],
            arguments: Default::default(),
        };
        Ok((site, listener))
    }

    fn with_device(home: Home, late: bool, common: &[&str]) -> Result<(Self, TargetListener)> {
        let far = FarServer::start(&home, late, common)?;
        let mut command = home.command(&far.host, "quictun")?;
        command.args(far.client_arguments(&home)).args(HTTP_OFF);
        command.arg("--tun").args(common);
        let mut client = Program::start("client", &mut command)?;
        client.wait_for("connected to server endpoint", START)?;
        let near = far.listener.endpoint().clone();
        Ok(far.with((client, Vec::new()), near, vec![home]))
    }

    fn over_tls(home: Home, late: bool, common: &[&str]) -> Result<(Self, TargetListener)> {
        let far = FarServer::start(&home, late, common)?;
        let target = far.listener.endpoint().to_string();
        let forward = format!("127.0.0.1:0={}", target.trim_start_matches("tcp:"));
        let own = ["--carrier", "tls", "-L", &forward, "--state-dir", "client"];
        let mut arguments = far.client_arguments(&home);
        arguments.extend(own.iter().chain(common).map(ToString::to_string));
        let mut command = home.command(&far.host, "quictun")?;
        command.args(&arguments).args(HTTP_OFF);
        let client = Client::from_command(Home::new()?, &mut command)?;
        let Client {
            mut program,
            forward,
            home: own,
        } = client;
        program.wait_for("connected to server endpoint", START)?;
        Ok(far.with((program, arguments), forward, vec![home, own]))
    }

    /// Cuts the cable between both hosts, or joins it again.
    pub(crate) fn cut(&self, cut: bool) -> Result<()> {
        let state = if cut { "down" } else { "up" };
        self.host.run(&format!("ip link set {CABLE} {state}"))?;
        Ok(())
    }

    /// Starts a process that takes over from this one. If it `fails`, that is after it has taken everything.
    pub(crate) fn successor(&self, process: Process, fails: bool) -> Result<Program> {
        let [server, client] = &self.arguments;
        let (machine, arguments) = match process {
            Process::Server => (self.far.as_ref(), server),
            _ => (Some(&self.host), client),
        };
        let machine = machine.context("invariant: both hosts are there")?;
        let home = self.homes.first().context("invariant: a home is there")?;
        let mut command = home.command(machine, "quictun")?;
        command.args(arguments).arg("--take-over");
        if fails {
            // The successor opens its HTTP socket after it has taken everything, and ends if it cannot.
            command.args(["--http", "unix:/nowhere/http.sock"]);
        } else {
            command.args(HTTP_OFF);
        }
        Program::start("successor", &mut command)
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
    arguments: Vec<String>,
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
        // The test reads the log to find the phase in which the fault occurs.
        let log = ["--log-level", "debug"];
        let rule = format!("{TARGET}:*");
        let own = [&["server", "--listen", SERVER, "--allow", &rule][..], &log].concat();
        let arguments: Vec<String> = own.iter().chain(common).map(ToString::to_string).collect();
        let mut command = home.command(&far, "quictun")?;
        command.args(&arguments).args(HTTP_OFF);
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for(": quictun client ", START)?;
        let (_, rest) = line.split_once("--pin ").context("no pin")?;
        let pin = rest.split(' ').next().unwrap_or_default().to_owned();
        Ok(Self {
            host,
            far,
            server,
            arguments,
            pin,
            listener,
        })
    }

    /// Returns the first arguments of the client on the near host.
    fn client_arguments(&self, home: &Home) -> Vec<String> {
        let secret = home.path().join("state/client.psk");
        let secret = secret.display().to_string();
        let trust = ["--pin", &self.pin, "--psk-file", &secret];
        let all = [&["client", "--server", SERVER][..], &trust].concat();
        all.into_iter().map(str::to_owned).collect()
    }

    fn with(
        self,
        (client, arguments): (Program, Vec<String>),
        near: Endpoint,
        homes: Vec<Home>,
    ) -> (FaultTunnel, TargetListener) {
        let tunnel = FaultTunnel {
            server: self.server,
            client,
            near,
            host: self.host,
            far: Some(self.far),
            homes,
            arguments: [self.arguments, arguments],
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
