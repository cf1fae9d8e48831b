//! Packets per second and processor time per packet, beside hysteria and `WireGuard` in one run.
//!
//! All programs run during all measurements, and take turns. Each turn has sockets of its own. The application is on the
//! server's machine: tunnels reach it over its loopback device, `WireGuard` and the direct path at the machine's address.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use quictun_lab::stats::median;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::Home;
use quictun_testbed::work::Work;
use quictun_trust::identity;

use super::traffic::{connect, flood};
use super::wireguard::WireGuard;
use super::{APPLICATION, DatagramSite, FORWARD, SERVER};
use crate::load::machines::{LinkKind, LinkedMachines};
use crate::load::measured::pause;
use crate::load::report::{LoadReport, figure};
use crate::load::tunnel::{LoadOptions, allow_files};

/// The size of the measurement.
#[derive(Args, Clone, Debug)]
pub struct PacketsOptions {
    /// The program hysteria, version 2. Without it, hysteria is left out.
    #[arg(long, value_name = "PROGRAM")]
    pub hysteria: Option<PathBuf>,
    /// The program wireguard-go; `wg` must be installed. Without it, `WireGuard` is left out.
    #[arg(long, value_name = "PROGRAM")]
    pub wireguard: Option<PathBuf>,
    /// Numbers of concurrent flows, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,100")]
    pub flows: Vec<usize>,
    /// Datagrams that the sender offers per second, over all flows.
    #[arg(long, default_value_t = 200_000)]
    pub per_second: u64,
    /// Number of rounds. Each measures every program once.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds that each measurement takes.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Minimum ratio of the rate to that of hysteria.
    #[arg(long, default_value_t = 0.99)]
    pub least_rate: f64,
    /// Maximum ratio of the processor time per packet to that of hysteria.
    #[arg(long, default_value_t = 0.5)]
    pub most_cpu: f64,
}

const LENGTH: usize = 1200;

/// The place of hysteria's forward on the near machine, and the port of its server.
const HYSTERIA: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5401);
const HYSTERIA_SERVER: u16 = 7600;

/// The time in which the last datagrams of a flood arrive.
const ARRIVE: Duration = Duration::from_millis(300);

const OURS: &str = "quictun";

/// A way to the application.
struct PacketsArm<'a> {
    name: &'static str,
    entrance: SocketAddr,
    /// The work of its programs.
    work: Box<dyn Fn() -> Result<Work> + 'a>,
}

/// The figures of one measurement: datagrams received per second, those lost in percent, and microseconds per datagram.
type Figures = [f64; 3];

/// Measures each program in turn.
///
/// # Errors
///
/// Fails if a program does not work.
pub fn run(plan: &LoadOptions, load: &PacketsOptions) -> Result<LoadReport> {
    let most = load.flows.iter().max().copied().unwrap_or_default();
    allow_files(most as u64 + 256)?;
    let cable = match &plan.link {
        LinkKind::Loopback => LinkKind::Veth,
        link => link.clone(),
    };
    let machines = LinkedMachines::new(&cable)?;
    let site = DatagramSite::start(&machines, plan)?;
    let hysteria = load
        .hysteria
        .as_deref()
        .map(|it| Hysteria::start(&machines, it));
    let hysteria = hysteria.transpose()?;
    let endpoint = (machines.address, WireGuard::PORT).into();
    let wireguard = load.wireguard.as_deref();
    let wireguard = wireguard.map(|it| WireGuard::pair(&machines, it, endpoint));
    let wireguard = wireguard.transpose()?;

    let mut arms: Vec<PacketsArm<'_>> = Vec::new();
    let mut arm = |name, entrance, work| {
        arms.push(PacketsArm {
            name,
            entrance,
            work,
        });
    };
    arm("direct", site.direct(), Box::new(|| Ok(Work::default())));
    arm(OURS, FORWARD, Box::new(|| site.client.work(&site.server)));
    let mut left_out = String::new();
    match &hysteria {
        Some(it) => arm("hysteria", HYSTERIA, Box::new(|| it.work())),
        None => left_out += "; SKIPPED hysteria (no --hysteria)",
    }
    match &wireguard {
        Some([near, far]) => {
            let entrance = SocketAddr::new(WireGuard::FAR.parse()?, APPLICATION);
            let work = || Ok(near.work()? + far.work()?);
            arm("wireguard-go", entrance, Box::new(work));
        }
        None => left_out += "; SKIPPED wireguard-go (no --wireguard)",
    }
    let title = format!(
        "{LENGTH}-byte datagrams, {} offered per second, {} rounds{left_out}",
        load.per_second, load.rounds
    );
    let mut report = LoadReport::new(title);
    for flows in &load.flows {
        let mut found = vec![Vec::new(); arms.len()];
        for round in 0..load.rounds {
            for number in 0..arms.len() {
                // Each arm is first in some rounds.
                let at = (round + number) % arms.len();
                let figures = measure(&site, &arms[at], *flows, load);
                found[at].push(figures.with_context(|| arms[at].name)?);
            }
        }
        add(&mut report, &arms, *flows, &found, load);
    }
    drop(arms);
    site.end()?;
    machines.end()?;
    Ok(report)
}

fn measure(
    site: &DatagramSite<'_>,
    arm: &PacketsArm<'_>,
    flows: usize,
    load: &PacketsOptions,
) -> Result<Figures> {
    let time = Duration::try_from_secs_f64(load.seconds)?;
    let near = &site.machines.near;
    let to = arm.entrance;
    let sockets: Vec<_> = near.within(|| (0..flows).map(|_| connect(to)).collect::<Result<_>>())?;
    let (before, work) = (site.datagrams.counted(), (arm.work)()?);
    let sent = flood(&sockets, LENGTH, load.per_second, time)?;
    pause(ARRIVE);
    let received = figure(site.datagrams.counted() - before);
    let spent = (arm.work)()? - work;
    Ok([
        received / time.as_secs_f64(),
        (1.0 - received / figure(sent)) * 100.0,
        spent.time.as_secs_f64() * 1e6 / received,
    ])
}

fn add(
    report: &mut LoadReport,
    arms: &[PacketsArm<'_>],
    flows: usize,
    found: &[Vec<Figures>],
    load: &PacketsOptions,
) {
    let middle = |rounds: &[Figures], which: usize| {
        let values: Vec<f64> = rounds.iter().map(|figures| figures[which]).collect();
        median(&values).unwrap_or(f64::NAN)
    };
    let mut ours = [f64::NAN; 2];
    for (arm, rounds) in arms.iter().zip(found) {
        let row = format!("{flows} flows, {}", arm.name);
        let (rate, cpu) = (middle(rounds, 0), middle(rounds, 2));
        report.add(format!("{row}: received"), rate, "/s");
        report.add(format!("{row}: lost"), middle(rounds, 1), "%");
        report.add(format!("{row}: processor per packet"), cpu, "us");
        for (number, [rate, _, cpu]) in rounds.iter().enumerate() {
            report.add_detail(format!("{row}: received, round {number}"), *rate, "/s");
            report.add_detail(format!("{row}: processor, round {number}"), *cpu, "us");
        }
        let (to_rate, to_cpu) = (ours[0] / rate, ours[1] / cpu);
        match arm.name {
            OURS => ours = [rate, cpu],
            "hysteria" => {
                report.add_floor(format!("{row}: ratio of rates"), to_rate, load.least_rate);
                let row = format!("{row}: ratio of processor time");
                report.add_limited(row, to_cpu, "", Some(load.most_cpu));
            }
            "wireguard-go" => {
                report.add(format!("{row}: ratio of rates"), to_rate, "");
                report.add(format!("{row}: ratio of processor time"), to_cpu, "");
            }
            _ => {}
        }
    }
}

/// Hysteria's server and client, with a forward to the application.
struct Hysteria {
    server: Program,
    client: Program,
    _home: Home,
}

impl Hysteria {
    fn start(machines: &LinkedMachines, program: &Path) -> Result<Self> {
        let program = program.canonicalize().context("finding hysteria")?;
        let home = Home::new()?;
        identity::generate(home.path(), "rival")?;
        let address = SocketAddr::new(machines.address, HYSTERIA_SERVER);
        let server = format!(
            "listen: {address}\ntls:\n  cert: rival.crt\n  key: rival.key\n  sniGuard: disable\n\
             auth:\n  type: password\n  password: rival-of-{SERVER}\n"
        );
        let client = format!(
            "server: {address}\nauth: rival-of-{SERVER}\ntls:\n  insecure: true\n\
             udpForwarding:\n  - listen: {HYSTERIA}\n    remote: 127.0.0.1:{APPLICATION}\n"
        );
        let start = |role, machine: &quictun_testbed::machine::Machine, text| {
            let file = format!("{role}.yaml");
            fs::write(home.path().join(&file), text)?;
            let mut command = machine.command(&program);
            home.settle(&mut command);
            command.args([role, "-c", &file, "--log-level", "error"]);
            Program::start(role, command.env("HYSTERIA_DISABLE_UPDATE_CHECK", "1"))
        };
        let server = start("server", &machines.far, server)?;
        let client = start("client", &machines.near, client)?;
        Ok(Self {
            server,
            client,
            _home: home,
        })
    }

    fn work(&self) -> Result<Work> {
        Ok(self.server.work()? + self.client.work()?)
    }
}
