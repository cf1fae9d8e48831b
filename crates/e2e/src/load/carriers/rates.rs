//! Rates and processor time of both carriers, of an earlier build, and of `ssh -L`, in turns on clean links.
//!
//! Each measurement has programs of its own. The order of the arms changes from round to round, and ratios are those of
//! one round: a disturbance of the machine that lasts minutes affects all arms.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use quictun_lab::stats::median;
use quictun_testbed::application::{Application, listen};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::deadline;
use quictun_testbed::openssh::SshKeys;
use quictun_testbed::program::Program;
use quictun_testbed::work::Work;

use super::CarriersPlan;
use super::flow_rate::{FlowLoad, FlowRate, measure};
use super::native_tunnel::{NativeServer, free_port};
use crate::load::machines::{LinkKind, LinkedMachines};
use crate::load::measured::{MeasuredApplication, Role};
use crate::load::report::LoadReport;

/// The measurements to make.
#[derive(Args, Clone, Debug)]
pub struct RatesOptions {
    /// Directory of an earlier build's quictun.
    #[arg(long, value_name = "DIR")]
    pub before: Option<PathBuf>,
    /// Number of rounds. Each measures every tunnel once.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds that each measurement takes.
    #[arg(long, default_value_t = 12.0)]
    pub seconds: f64,
    /// Seconds at its beginning that are left out.
    #[arg(long, default_value_t = 3.0)]
    pub skip: f64,
    /// Numbers of concurrent flows, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    pub flows: Vec<usize>,
}

/// The time limit for `ssh -L` to listen.
const LISTENS: Duration = Duration::from_secs(20);

/// The cipher of ssh: the fastest one on processors with AES instructions.
const CIPHER: &str = "aes128-gcm@openssh.com";

const PORT: u16 = 7500;

/// The tunnel that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelArm {
    Auto,
    Quic,
    Tls,
    Before,
    Ssh,
}

impl TunnelArm {
    const ALL: [Self; 5] = [Self::Auto, Self::Quic, Self::Tls, Self::Before, Self::Ssh];

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Quic => "quic",
            Self::Tls => "tls",
            Self::Before => "earlier build",
            Self::Ssh => "ssh -L",
        }
    }
}

/// The limits of `auto` on a kind of cable: its rate as a ratio to those of the earlier build and of ssh, and its
/// processor time for a byte as a ratio to that of the earlier build.
#[derive(Clone, Copy)]
struct RateLimits {
    to_before: f64,
    to_ssh: f64,
    work_to_before: f64,
}

fn limits(link: &LinkKind) -> (&'static str, Option<RateLimits>) {
    match link {
        LinkKind::Packets => (
            "single packets",
            Some(RateLimits {
                to_before: 1.8,
                to_ssh: 1.15,
                work_to_before: 0.6,
            }),
        ),
        LinkKind::Veth => (
            "offloads",
            Some(RateLimits {
                to_before: 1.3,
                to_ssh: 1.0,
                work_to_before: 0.75,
            }),
        ),
        LinkKind::Loopback => ("loopback", None),
        LinkKind::Emulated(_) => ("emulated", None),
    }
}

/// Measures all arms.
///
/// # Errors
///
/// Fails if a tunnel does not work.
pub fn run(plan: &CarriersPlan, load: &RatesOptions) -> Result<LoadReport> {
    ensure!(
        load.rounds > 0,
        "nothing to do: --rounds must be at least 1"
    );
    let before = load.before.as_ref().map(|before| before.canonicalize());
    let before = before.transpose()?;
    let (seconds, skip) = (
        Duration::try_from_secs_f64(load.seconds)?,
        Duration::try_from_secs_f64(load.skip)?,
    );
    let time = seconds.saturating_sub(skip);
    ensure!(
        !time.is_zero(),
        "nothing is left: --seconds must exceed --skip"
    );
    let arms = TunnelArm::ALL
        .into_iter()
        .filter(|arm| *arm != TunnelArm::Before || before.is_some());
    let arms: Vec<_> = arms.collect();
    let mut report = LoadReport::new(format!(
        "Rates and processor time, {} rounds, {} s without the first {} s",
        load.rounds, load.seconds, load.skip
    ));
    for link in &plan.cables {
        let machines = LinkedMachines::new(link)?;
        let site = RateSite::new(plan, &machines, before.as_deref())?;
        for (&flows, role) in load
            .flows
            .iter()
            .flat_map(|flows| [Role::Sink, Role::Source].map(|role| (flows, role)))
        {
            let of = FlowLoad {
                flows,
                role,
                skip,
                time,
            };
            let rounds = (0..load.rounds)
                .map(|round| site.round(round, &arms, of))
                .collect::<Result<Vec<_>>>()?;
            let direction = if role == Role::Sink { "up" } else { "down" };
            let (cable, limits) = limits(link);
            let name = format!("{cable}, {flows} flows {direction}");
            add_to(&mut report, &name, limits, &arms, &rounds);
        }
        machines.end()?;
    }
    Ok(report)
}

/// An application on the far machine, and what tunnels to it need.
struct RateSite<'a> {
    plan: &'a CarriersPlan,
    machines: &'a LinkedMachines,
    before: Option<&'a Path>,
    application: MeasuredApplication,
    target: SocketAddr,
    keys: SshKeys,
    sshd: SocketAddr,
    _sshd: Application,
}

/// One measurement of each arm, in the order of the arms.
type Round = Vec<FlowRate>;

impl<'a> RateSite<'a> {
    fn new(
        plan: &'a CarriersPlan,
        machines: &'a LinkedMachines,
        before: Option<&'a Path>,
    ) -> Result<Self> {
        let (application, target) = serve(machines)?;
        let keys = SshKeys::new()?;
        let any = SocketAddr::new(machines.address, 0);
        let sshd = machines.far.within(|| keys.sshd(any))?;
        let Endpoint::Tcp(address) = *sshd.endpoint() else {
            bail!("sshd listens on a Unix socket");
        };
        Ok(Self {
            plan,
            machines,
            before,
            application,
            target,
            keys,
            sshd: address,
            _sshd: sshd,
        })
    }

    /// Measures all arms once. Each round begins with another arm.
    fn round(&self, round: usize, arms: &[TunnelArm], load: FlowLoad) -> Result<Round> {
        let mut found: Vec<Option<FlowRate>> = vec![None; arms.len()];
        for step in 0..arms.len() {
            let place = (round + step) % arms.len();
            let rate = self.measure(arms[place], load);
            found[place] = Some(rate.with_context(|| arms[place].name())?);
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn measure(&self, arm: TunnelArm, load: FlowLoad) -> Result<FlowRate> {
        let carrier = |name: &str| {
            let mut flags = self.plan.client.clone();
            flags.extend(["--carrier".to_owned(), name.to_owned()]);
            flags
        };
        let (programs, flags) = match arm {
            TunnelArm::Auto => (None, carrier("auto")),
            TunnelArm::Quic => (None, carrier("quic")),
            TunnelArm::Tls => (None, carrier("tls")),
            TunnelArm::Before => (self.before, self.plan.client.clone()),
            TunnelArm::Ssh => return self.measure_ssh(load),
        };
        let site = (self.machines, &self.application, self.target);
        measure_native(self.plan, site, programs, &flags, load)
    }

    fn measure_ssh(&self, load: FlowLoad) -> Result<FlowRate> {
        let near = &self.machines.near;
        let port = free_port(near)?;
        let mut ssh = self.keys.client(near, "ssh");
        ssh.args(["-N", "-c", CIPHER, "-p", &self.sshd.port().to_string()]);
        ssh.args(["-L", &format!("127.0.0.1:{port}:{}", self.target)]);
        ssh.arg(self.keys.user_at(&self.machines.address.to_string()));
        let mut ssh = Program::start("ssh", &mut ssh)?;
        let forward = Endpoint::Tcp((Ipv4Addr::LOCALHOST, port).into());
        let listens = || near.within(|| forward.connect()).is_ok();
        deadline::until("ssh to listen", LISTENS, listens)?;
        let work = || Ok::<_, anyhow::Error>((work_of("sshd")? + ssh.work()?).time);
        let application = &self.application;
        let rate = near.within(|| measure(&forward, application, load, &work))?;
        ssh.silence();
        Ok(rate)
    }
}

/// Starts an application on the far machine.
pub(in crate::load) fn serve(
    machines: &LinkedMachines,
) -> Result<(MeasuredApplication, SocketAddr)> {
    let application = MeasuredApplication::default();
    let target = machines.far.within(|| {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let target = listener.local_addr()?;
        application.serve(listener);
        Ok(target)
    })?;
    Ok((application, target))
}

/// Measures a native tunnel that exists for this measurement only.
pub(super) fn measure_native(
    plan: &CarriersPlan,
    (machines, application, target): (&LinkedMachines, &MeasuredApplication, SocketAddr),
    programs: Option<&Path>,
    flags: &[String],
    load: FlowLoad,
) -> Result<FlowRate> {
    let target = format!("tcp:{target}");
    let server = NativeServer::start(machines, programs, PORT, &target, &plan.server)?;
    let client = server.client(flags)?;
    let work = || Ok::<_, anyhow::Error>(client.work(&server)?.time);
    let forward = &client.client.forward;
    let rate = machines
        .near
        .within(|| measure(forward, application, load, &work))?;
    client.end()?;
    server.end()?;
    Ok(rate)
}

/// Returns the work of all processes of this name. The load runs in a process namespace of its own.
fn work_of(name: &str) -> Result<Work> {
    let mut sum = Work::default();
    for process in Path::new("/proc").read_dir()? {
        let process = process?;
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|pid| pid.parse().ok())
        else {
            continue;
        };
        // A process may end in the meantime.
        let comm = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if comm.trim_end().starts_with(name)
            && let Ok(work) = Work::of(pid)
        {
            sum = sum + work;
        }
    }
    Ok(sum)
}

fn add_to(
    report: &mut LoadReport,
    name: &str,
    limits: Option<RateLimits>,
    arms: &[TunnelArm],
    rounds: &[Round],
) {
    for (round, rates) in rounds.iter().enumerate() {
        for (arm, rate) in arms.iter().zip(rates) {
            let what = format!("{name}: {}, round {round}", arm.name());
            report.add_detail(what.clone(), rate.mbit, "Mbit/s");
            report.add_detail(what, rate.work, "CPU-s/GB");
        }
    }
    let middle = |values: Vec<f64>| median(&values).unwrap_or(f64::NAN);
    for (place, arm) in arms.iter().enumerate() {
        let of = |value: fn(&FlowRate) -> f64| {
            middle(rounds.iter().map(|round| value(&round[place])).collect())
        };
        let what = format!("{name}: {}", arm.name());
        report.add(what.clone(), of(|rate| rate.mbit), "Mbit/s");
        report.add(what, of(|rate| rate.work), "CPU-s/GB");
    }
    // The first arm is `auto`.
    for (place, arm) in arms.iter().enumerate().skip(1) {
        let ratio = |value: fn(&FlowRate) -> f64| {
            let ratios = rounds
                .iter()
                .map(|round| value(&round[0]) / value(&round[place]));
            middle(ratios.collect())
        };
        let what = format!("{name}: auto to {}", arm.name());
        let (rate, work) = (ratio(|rate| rate.mbit), ratio(|rate| rate.work));
        let least = match arm {
            TunnelArm::Quic => Some(1.0),
            TunnelArm::Before => limits.map(|limits| limits.to_before),
            TunnelArm::Ssh => limits.map(|limits| limits.to_ssh),
            TunnelArm::Auto | TunnelArm::Tls => None,
        };
        match least {
            Some(least) => report.add_floor(format!("{what}, rate"), rate, least),
            None => report.add(format!("{what}, rate"), rate, ""),
        }
        let most = limits.filter(|_| *arm == TunnelArm::Before);
        let most = most.map(|limits| limits.work_to_before);
        report.add_limited(format!("{what}, processor time"), work, "", most);
    }
}
