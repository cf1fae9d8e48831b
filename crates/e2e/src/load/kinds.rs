//! Compares the throughput of another kind of forward with that of `-L`, in one build.
//!
//! Each pair has fresh processes, and one flow of each kind. The flows take turns of a tenth of a second, and the other
//! kind begins from pair to pair. On a shared machine, most noise lasts longer than a turn, so it affects both kinds alike.
//! On two busy cores, the ratios of pairs then deviated a half to a third as much as if one kind was measured after the
//! other, at the same length. Both programs have one worker and one connection: otherwise a pair may compare two workers.
//!
//! The programs run on two network namespaces with a cable between them. The application of both kinds takes the same path
//! to the client. `--redirect` is measured from a machine of a LAN, whose router is the client's machine, and `-L` from
//! there, too. An application on the client's own machine would reach `-L` over the loopback device, in segments of 64 KiB
//! and without NAT. The other kinds are measured over loopback devices, as `-L` is then.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use quictun_testbed::application::listen;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};

use super::measured::{MeasuredApplication, Transfer, take_turns};
use super::report::LoadReport;
use super::{pairs, proxy};

/// A kind of forward other than `-L`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A proxy (`-D`), by SOCKS5. Both sides upload.
    Proxy,
    /// A reverse forward (`-R`). Its bytes go from the server to the client, as those of a download through `-L` do.
    Reverse,
    /// `--redirect`. Both sides upload. Requires nftables.
    Redirect,
}

/// The size of the measurement.
#[derive(Args, Clone, Copy, Debug)]
pub struct Kinds {
    /// Kind of forward to measure.
    #[arg(long, value_enum)]
    pub kind: Kind,
    /// Number of pairs to measure.
    #[arg(long, default_value_t = 20)]
    pub pairs: usize,
    /// Seconds that each measurement takes, without its warm-up.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Minimum ratio of the kind to `-L` that the interval may reach.
    #[arg(long, default_value_t = 0.96)]
    pub least: f64,
}

/// The addresses of both machines, for measurements (RFC 2544): the rules of `doctor --redirect` leave local networks beside
/// the tunnel.
const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 250, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 250, 2);

/// The addresses of the client's machine and of the application's machine in the LAN of `--redirect`.
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 18, 251, 1);
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(198, 18, 251, 2);

/// The port of `--redirect`.
const REDIRECT: &str = "7501";

/// The log line of a client whose reverse forward is in place.
const LISTENS: &str = "the server listens for this client";

/// Compares one kind of forward with `-L`. Must run in [`quictun_testbed::isolation`].
///
/// # Errors
///
/// Fails if a tunnel does not work.
pub fn run(load: &Kinds) -> Result<LoadReport> {
    let time = Duration::try_from_secs_f64(load.seconds)?;
    let machines = Machines::new(load.kind)?;
    let mut pairs = Vec::new();
    for number in 0..load.pairs {
        let tunnel = machines.tunnel()?;
        let both = machines.transfers(&tunnel)?;
        let [kind, forward] = take_turns(both, number % 2, time)?;
        pairs.push((kind, forward));
        tunnel.end()?;
        machines.check_path()?;
    }
    let title = format!("{:?} against -L, {} pairs", load.kind, load.pairs);
    pairs::report(title, ["it", "-L"], "Mbit/s", &pairs, load.least)
}

/// The machines of both programs, and an application on each side.
struct Machines {
    kind: Kind,
    /// The machine of the client, and the router of the LAN.
    here: Machine,
    /// The machine of the server and of its application.
    far: Machine,
    /// A machine of the client's LAN.
    lan: Option<Machine>,
    /// The application beside the server, and the one beside the client, to which reverse forwards lead.
    far_application: MeasuredApplication,
    near_application: MeasuredApplication,
    far_target: SocketAddr,
    near_target: SocketAddr,
}

/// Both programs, and the address of the kind of forward that is compared.
struct Tunnel {
    server: Program,
    client: Client,
    other: Endpoint,
}

impl Machines {
    fn new(kind: Kind) -> Result<Self> {
        let (here, far) = (Machine::here(), Machine::new("far")?);
        here.join(&far, "far0", &format!("{HERE}/24"), &format!("{FAR}/24"))?;
        let [far_application, near_application] = [
            MeasuredApplication::default(),
            MeasuredApplication::default(),
        ];
        let start = |application: &MeasuredApplication, ip: IpAddr| {
            let listener = listen((ip, 0).into())?;
            let target = listener.local_addr()?;
            application.serve(listener);
            Ok::<_, anyhow::Error>(target)
        };
        let far_target = far.within(|| start(&far_application, FAR.into()))?;
        let near_target = start(&near_application, Ipv4Addr::LOCALHOST.into())?;
        let lan = (kind == Kind::Redirect).then(|| lan(&here)).transpose()?;
        Ok(Self {
            kind,
            here,
            far,
            lan,
            far_application,
            near_application,
            far_target,
            near_target,
        })
    }

    fn tunnel(&self) -> Result<Tunnel> {
        let home = Home::new()?;
        let mut command = home.command(&self.far, "quictun")?;
        command.args(["server", "--listen", &format!("{FAR}:0"), "--http", "off"]);
        command.args(["--allow", &self.far_target.to_string()]);
        command.args(["--listen-for", "127.0.0.1:*", "--workers", "1"]);
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        let (address, pin) = (listen_address(&line)?, server_pin(&line)?);
        let mut command = home.command(&self.here, "quictun")?;
        command.args(["client", "--server", &address, "--pin", &pin]);
        command.args(["--psk-file", "state/client.psk", "--http", "off"]);
        command.args(["--workers", "1", "--connections", "1"]);
        let near = self.lan.as_ref().map_or(Ipv4Addr::LOCALHOST, |_| ROUTER);
        command.args(["-L", &format!("{near}:0={}", self.far_target)]);
        match self.kind {
            Kind::Proxy => command.args(["-D", "127.0.0.1:0"]),
            Kind::Reverse => command.args(["-R", &format!("127.0.0.1:0={}", self.near_target)]),
            Kind::Redirect => command.args(["--redirect", REDIRECT]),
        };
        let mut client = Client::from_command(home, &mut command)?;
        let other = match self.kind {
            Kind::Proxy => client.forwards(2)?[1].clone(),
            Kind::Reverse => {
                let line = client.program.wait_for(LISTENS, START)?;
                let at = line.split_once("\"listen\": \"");
                let at = at.and_then(|(_, rest)| rest.split_once('"'));
                Endpoint::parse(at.with_context(|| format!("no address in {line:?}"))?.0)?
            }
            Kind::Redirect => Endpoint::Tcp(self.far_target),
        };
        client
            .program
            .wait_for("connected to server endpoint", START)?;
        Ok(Tunnel {
            server,
            client,
            other,
        })
    }

    /// Begins a transfer through the kind that is compared, and one through `-L` in the same direction.
    fn transfers(&self, tunnel: &Tunnel) -> Result<[Transfer; 2]> {
        let forward = &tunnel.client.forward;
        let near = self.lan.as_ref().unwrap_or(&self.here);
        let upload = |at: &Endpoint| near.within(|| at.connect());
        let upload = |at| Transfer::upload(upload(at)?, &self.far_application);
        let other = match self.kind {
            Kind::Reverse => {
                let connection = self.far.within(|| tunnel.other.connect())?;
                Transfer::upload(connection, &self.near_application)
            }
            Kind::Redirect => upload(&tunnel.other),
            Kind::Proxy => {
                let mut connection = tunnel.other.connect()?;
                proxy::ask(&mut connection, self.far_target)?;
                Transfer::upload(connection, &self.far_application)
            }
        };
        let forward = match self.kind {
            Kind::Reverse => forward.connect().and_then(Transfer::download),
            Kind::Proxy | Kind::Redirect => upload(forward),
        };
        Ok([
            other.context("opening a flow of the kind")?,
            forward.context("opening a flow of -L")?,
        ])
    }

    /// Checks that the far application was reached through the tunnel only: the server is on its machine.
    fn check_path(&self) -> Result<()> {
        let peers = self.far_application.peers();
        ensure!(
            peers.iter().all(|peer| *peer == FAR),
            "a connection to {} went beside the tunnel: {peers:?}",
            self.far_target
        );
        Ok(())
    }
}

impl Tunnel {
    /// Ends the tunnel; checks that both programs still run.
    fn end(mut self) -> Result<()> {
        for program in [&mut self.client.program, &mut self.server] {
            if let Some(status) = program.ended()? {
                bail!("a program ended: {status}");
            }
            program.silence();
        }
        Ok(())
    }
}

/// Makes a machine whose router is the client's machine, and leads its connections to the client, with the commands that
/// `quictun doctor` prints.
fn lan(here: &Machine) -> Result<Machine> {
    let lan = Machine::new("lan")?;
    here.join(
        &lan,
        "lan0",
        &format!("{ROUTER}/24"),
        &format!("{NEIGHBOUR}/24"),
    )?;
    lan.run(&format!("ip route add default via {ROUTER}"))?;
    let home = Home::new()?;
    let mut doctor = home.command(here, "quictun")?;
    let commands = doctor.args(["doctor", "--redirect", REDIRECT]).output()?;
    ensure!(commands.status.success(), "{commands:?}");
    let commands = String::from_utf8(commands.stdout)?;
    let mut shell = Command::new("sh");
    let done = shell.args(["-e", "-c", &commands]).stdin(Stdio::null());
    let done = done.output()?;
    ensure!(done.status.success(), "{commands}\n{done:?}");
    Ok(lan)
}
