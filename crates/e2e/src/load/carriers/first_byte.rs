//! The time until the first byte of an answer, while a client chooses its carrier.
//!
//! An application connects as soon as a new client listens, which is when the client dials its server. A client that
//! knows the network loses its TCP connections to the system instead, and dials again. The difference between `--carrier
//! auto` and `--carrier tls` is the price of the choice. The order of each pair alternates.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use quictun_lab::stats;
use quictun_testbed::application::listen;
use quictun_testbed::deadline;
use quictun_testbed::program::Program;

use super::CarriersPlan;
use super::native_tunnel::{NativeClient, NativeServer, free_port};
use super::udp_block::{UdpFate, block_udp, pass_udp};
use crate::load::machines::{LinkKind, LinkedMachines};
use crate::load::measured::{MeasuredApplication, Role, open, pause};
use crate::load::report::LoadReport;

/// The pairs to measure, and their limits.
#[derive(Args, Clone, Debug)]
pub struct FirstByteOptions {
    /// Directory of an earlier build's quictun, to compare with where UDP passes.
    #[arg(long, value_name = "DIR")]
    pub before: Option<PathBuf>,
    /// Number of pairs to measure in each network.
    #[arg(long, default_value_t = 20)]
    pub pairs: usize,
    /// Maximum ratio of this build to the earlier one that the interval may reach.
    #[arg(long, default_value_t = 1.02)]
    pub max_ratio: f64,
    /// Milliseconds that the choice may add where UDP disappears.
    #[arg(long, default_value_t = 250.0)]
    pub max_swallowed: f64,
    /// Milliseconds that the choice may add where UDP is rejected, or known to disappear.
    #[arg(long, default_value_t = 50.0)]
    pub max_known: f64,
}

/// The ports of the servers: one for each arm that runs at the same time.
const PORTS: [u16; 2] = [7500, 7501];

/// The time limit for the first byte.
const LIMIT: Duration = Duration::from_secs(30);

/// The interval between two attempts to reach a client that starts.
const ATTEMPT: Duration = Duration::from_millis(1);

/// The time for which a client keeps a connection before it loses it. A client that loses connections sooner pauses
/// before it dials again.
const KEPT: Duration = Duration::from_secs(6);

/// The time in which a host may again send as many ICMP errors as a new client causes. Linux sends one in a second to
/// each host, and up to six at once after a pause.
const ICMP_PAUSE: Duration = Duration::from_secs(7);

/// Measures all networks.
///
/// # Errors
///
/// Fails if a tunnel does not work.
pub fn run(plan: &CarriersPlan, load: &FirstByteOptions) -> Result<LoadReport> {
    ensure!(load.pairs > 0, "nothing to do: --pairs must be at least 1");
    let before = load.before.as_ref().map(|before| before.canonicalize());
    let before = before.transpose()?;
    let machines = LinkedMachines::new(&LinkKind::Emulated(plan.path.clone()))?;
    let application = MeasuredApplication::default();
    let target = machines.far.within(|| {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let target = format!("tcp:{}", listener.local_addr()?);
        application.serve(listener);
        Ok(target)
    })?;
    let start =
        |port, programs| NativeServer::start(&machines, programs, port, &target, &plan.server);
    let server = start(PORTS[0], None)?;
    let [auto, tls] = ["auto", "tls"].map(|carrier| flags(plan, carrier));
    let mut report = LoadReport::new(format!(
        "The first byte, {} pairs, round trip {:?}",
        load.pairs, plan.path.round_trip
    ));

    let later = || of_new_client(&machines, &server, &auto);
    let (now, earlier) = if let Some(before) = &before {
        let old = start(PORTS[1], Some(before.as_path()))?;
        let earlier = || of_new_client(&machines, &old, &plan.client);
        let pairs = in_turns(load.pairs, later, earlier)?;
        old.end()?;
        pairs
    } else {
        let alone = (0..load.pairs).map(|_| later()).collect::<Result<_>>()?;
        (alone, Vec::new())
    };
    add_ratio(&mut report, load, &now, &earlier);

    for (fate, name, most) in [
        (UdpFate::Swallowed, "UDP disappears", load.max_swallowed),
        (UdpFate::Rejected, "UDP is rejected", load.max_known),
    ] {
        block_udp(&machines, fate)?;
        let chosen = || {
            if fate == UdpFate::Rejected {
                pause(ICMP_PAUSE);
            }
            of_new_client(&machines, &server, &auto)
        };
        let alone = || of_new_client(&machines, &server, &tls);
        let pairs = in_turns(load.pairs, chosen, alone).context(name)?;
        pass_udp(&machines)?;
        add_difference(&mut report, name, &pairs, most);
    }

    block_udp(&machines, UdpFate::Swallowed)?;
    let other = start(PORTS[1], None)?;
    let name = "UDP is known to disappear";
    let pairs = where_known(
        &machines,
        [(&server, &auto[..]), (&other, &tls[..])],
        load.pairs,
    );
    add_difference(&mut report, name, &pairs.context(name)?, load.max_known);
    other.end()?;
    server.end()?;
    machines.end()?;
    Ok(report)
}

fn flags(plan: &CarriersPlan, carrier: &str) -> Vec<String> {
    let mut flags = plan.client.clone();
    flags.extend(["--carrier".to_owned(), carrier.to_owned()]);
    flags
}

/// The times of both arms, in the order of the pairs.
type Times = (Vec<Duration>, Vec<Duration>);

/// Measures two arms in turn; the first one begins every other pair.
fn in_turns(
    pairs: usize,
    first: impl Fn() -> Result<Duration>,
    second: impl Fn() -> Result<Duration>,
) -> Result<Times> {
    let mut times = Times::default();
    for number in 0..pairs {
        if number % 2 == 0 {
            times.0.push(first()?);
        }
        times.1.push(second()?);
        if number % 2 == 1 {
            times.0.push(first()?);
        }
    }
    Ok(times)
}

/// Returns the time from the first connection to a new client to the first byte of an answer.
fn of_new_client(
    machines: &LinkedMachines,
    server: &NativeServer<'_>,
    flags: &[String],
) -> Result<Duration> {
    let port = free_port(&machines.near)?;
    let home = server.client_home()?;
    let mut command = server.client_command(&home, port, flags)?;
    command.args(["--http", "off"]);
    // The process ends with the thread that starts it.
    machines.near.within(|| {
        let mut client = Program::start("client", &mut command)?;
        let forward = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let started = Instant::now();
        let (begin, mut stream) = loop {
            let begin = Instant::now();
            match TcpStream::connect(forward) {
                Ok(stream) => break (begin, stream),
                Err(error) if started.elapsed() > LIMIT => {
                    return Err(error).context("the client does not listen");
                }
                Err(_) => pause(ATTEMPT),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(&[Role::Echo as u8, b'?'])?;
        stream.read_exact(&mut [0])?;
        let time = begin.elapsed();
        client.silence();
        Ok(time)
    })
}

/// Measures clients that know that QUIC does not pass: each loses its connections and connects again.
fn where_known(
    machines: &LinkedMachines,
    arms: [(&NativeServer<'_>, &[String]); 2],
    pairs: usize,
) -> Result<Times> {
    let clients = arms.map(|(server, flags)| server.client(flags));
    let [chosen, alone] = clients;
    let clients = [chosen?, alone?];
    for client in &clients {
        first_byte(machines, client)?;
    }
    let knows = || {
        clients[0]
            .quic_state()
            .is_ok_and(|state| state == "blocked")
    };
    deadline::until("the client to find UDP blocked", LIMIT, knows)?;
    let again = |arm: usize| {
        let port = PORTS[arm];
        let lost = Instant::now();
        let kill = format!("ss -K -t -H dst {} dport = {port}", machines.address);
        let killed = machines.near.run(&kill)?;
        ensure!(
            !killed.trim().is_empty(),
            "the system did not end the TCP connections to port {port}"
        );
        first_byte(machines, &clients[arm])?;
        Ok(lost.elapsed())
    };
    let rested = |arm| {
        pause(KEPT);
        again(arm)
    };
    let times = in_turns(pairs, || rested(0), || rested(1))?;
    for client in clients {
        client.end()?;
    }
    Ok(times)
}

/// Opens a flow and waits for the first byte of its answer.
fn first_byte(machines: &LinkedMachines, client: &NativeClient<'_>) -> Result<()> {
    machines.near.within(|| {
        let mut connection = open(&client.client.forward, Role::Echo)?;
        connection.write_all(b"?")?;
        connection.read_exact(&mut [0])?;
        connection.reset()
    })
}

fn milliseconds(times: &[Duration]) -> Vec<f64> {
    times.iter().map(|time| time.as_secs_f64() * 1e3).collect()
}

fn add_ratio(
    report: &mut LoadReport,
    load: &FirstByteOptions,
    now: &[Duration],
    earlier: &[Duration],
) {
    let (now, earlier) = (milliseconds(now), milliseconds(earlier));
    let name = |what: &str| format!("UDP passes: {what}");
    let median = |times: &[f64]| stats::median(times).unwrap_or(f64::NAN);
    add_each(report, &name("auto"), &now);
    report.add(name("auto, median"), median(&now), "ms");
    let pairs: Vec<_> = now.into_iter().zip(earlier.iter().copied()).collect();
    let Some(paired) = stats::compare(&pairs) else {
        return;
    };
    add_each(report, &name("earlier build"), &earlier);
    report.add(name("earlier build, median"), median(&earlier), "ms");
    report.add(name("ratio, median"), paired.ratio, "");
    report.add(name("ratio, interval from"), paired.interval.low, "");
    let to = name("ratio, interval to");
    report.add_limited(to, paired.interval.high, "", Some(load.max_ratio));
}

/// Reports both arms, and the median of the pairs' differences.
fn add_difference(report: &mut LoadReport, network: &str, times: &Times, most: f64) {
    let (chosen, alone) = (milliseconds(&times.0), milliseconds(&times.1));
    let differences: Vec<f64> = chosen.iter().zip(&alone).map(|(a, b)| a - b).collect();
    let median = |times: &[f64]| stats::median(times).unwrap_or(f64::NAN);
    add_each(report, &format!("{network}: auto"), &chosen);
    add_each(report, &format!("{network}: TLS alone"), &alone);
    report.add(format!("{network}: auto, median"), median(&chosen), "ms");
    report.add(
        format!("{network}: TLS alone, median"),
        median(&alone),
        "ms",
    );
    let name = format!("{network}: added, median");
    report.add_limited(name, median(&differences), "ms", Some(most));
}

fn add_each(report: &mut LoadReport, name: &str, times: &[f64]) {
    for (number, time) in times.iter().enumerate() {
        report.add_detail(format!("{name}, {number}"), *time, "ms");
    }
}
