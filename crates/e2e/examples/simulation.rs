//! Measures how fast virtual time runs: packets that hosts receive per second of a core of this machine.
//!
//! `cargo run --release -p quictun-e2e --example simulation [ROUNDS [CASE]]` prints the fastest round of each case
//! whose name begins with CASE: the round that other work on the machine disturbed least. A packet counts once, however
//! many links it crosses. The time is that of the one thread on a core, so that other work on the machine has little
//! effect.

use std::io::Write as _;
use std::time::Duration;

use quictun_sim::{
    CrossTraffic, HostId, LinkConfig, Network, Queue, Script, Seed, SimulatedDial, Tcp, WriteStep,
    config,
};

/// The virtual time of one step, and the minimum processor time of a round in seconds. Shorter rounds would be measured
/// badly, because the kernel updates its accounting only at intervals.
const STEP: Duration = Duration::from_millis(100);
const ROUND_MIN: f64 = 0.1;

/// The time for slow start to end.
const WARM_UP: Duration = Duration::from_secs(3);

/// Creates the network of a case.
type NetworkFactory = fn() -> Network;

fn main() -> std::io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let rounds: u32 = rounds.unwrap_or(10);
    let wanted = std::env::args().nth(2).unwrap_or_default();
    let cases: [(&str, NetworkFactory); 5] = [
        ("tunnel, 600 Mbit/s, 20 ms", || tunnel(0.0, 0)),
        ("tunnel, 600 Mbit/s, 20 ms, 1 % lost", || tunnel(0.01, 0)),
        ("tunnel and 3 TCP, dumb-bell", || tunnel(0.0, 3)),
        ("1 TCP, one link", || plain(1)),
        ("10 TCP, dumb-bell", || plain(10)),
    ];
    writeln!(
        std::io::stdout(),
        "{:<36} {:>12} {:>10} {:>12} {:>14}",
        "case",
        "packets/s",
        "ns/packet",
        "per link",
        "virtual s/s"
    )?;
    for (name, make) in cases.iter().filter(|case| case.0.starts_with(&wanted)) {
        let mut network = make();
        network.run_for(WARM_UP);
        let mut best = Round::run(&mut network);
        for _ in 1..rounds {
            let round = Round::run(&mut network);
            if round.packets * best.took > best.packets * round.took {
                best = round;
            }
        }
        writeln!(
            std::io::stdout(),
            "{name:<36} {:>12.0} {:>10.0} {:>12.0} {:>14.2}",
            best.packets / best.took,
            best.took / best.packets * 1e9,
            best.links / best.took,
            best.virtual_s / best.took,
        )?;
    }
    Ok(())
}

/// One measured round of the simulation.
struct Round {
    /// The duration in seconds on the core.
    took: f64,
    packets: f64,
    /// The number of packets that entered a link.
    links: f64,
    /// The duration in seconds of virtual time.
    virtual_s: f64,
}

impl Round {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    fn run(network: &mut Network) -> Self {
        let (packets, links) = (network.datagrams(), network.packets());
        let (start, began) = (on_core(), network.now());
        let took = loop {
            network.run_for(STEP);
            let took = (on_core() - start) / 1e9;
            if took.is_nan() || took >= ROUND_MIN {
                break took;
            }
        };
        Self {
            took,
            virtual_s: (network.now() - began).as_secs_f64(),
            packets: (network.datagrams() - packets) as f64,
            links: (network.packets() - links) as f64,
        }
    }
}

/// Returns the nanoseconds that this thread has spent on a core.
fn on_core() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

fn link(loss: f64) -> LinkConfig {
    LinkConfig {
        rate: Some(600_000_000 / 8),
        delay: Duration::from_millis(10),
        queue: Queue::Bytes(1_500_000),
        mtu: 1500,
        loss,
        ..LinkConfig::default()
    }
}

/// Creates a tunnel with an upload, with TCP connections beside it.
fn tunnel(loss: f64, connections: usize) -> Network {
    let mut network = Network::new(Seed::plain(1));
    let server = network.add_server("server", config::server(1));
    let client = network.add_client("client", config::client(1), server);
    if connections == 0 {
        network.link(client, server, link(loss), link(loss));
    } else {
        dumbbell(&mut network, Some((client, server)), connections);
    }
    let sink = Script::default();
    network
        .host(server)
        .serve("sink", SimulatedDial::connects(), sink);
    let script = Script::client(1).write([WriteStep::Send(u64::MAX / 4)]);
    network.open(client, "sink", script);
    network
}

/// Creates a network with TCP connections only.
fn plain(connections: usize) -> Network {
    let mut network = Network::new(Seed::plain(1));
    if connections == 1 {
        let (from, to) = (network.add_plain("from"), network.add_plain("to"));
        network.link(from, to, link(0.0), link(0.0));
        network.add_traffic(from, to, &CrossTraffic::Tcp(Tcp::default()));
    } else {
        dumbbell(&mut network, None, connections);
    }
    network
}

fn dumbbell(network: &mut Network, tunnel: Option<(HostId, HostId)>, connections: usize) {
    let (mut left, mut right): (Vec<HostId>, Vec<HostId>) = tunnel.into_iter().unzip();
    for number in 0..connections {
        left.push(network.add_plain(&format!("left {number}")));
        right.push(network.add_plain(&format!("right {number}")));
    }
    let shared = link(0.0);
    network.dumbbell(&left, &right, shared.clone(), shared, Duration::ZERO);
    let skip = usize::from(tunnel.is_some());
    for (&from, &to) in left.iter().zip(&right).skip(skip) {
        network.add_traffic(from, to, &CrossTraffic::Tcp(Tcp::default()));
    }
}
