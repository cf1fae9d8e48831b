//! Measures the tunnel's own cost per packet: both engines with real encryption, without the kernel, on one thread.
//!
//! `cargo run --release -p quictun-e2e --example core [ROUNDS]` sends one flow over a link that is never the
//! bottleneck. It prints the fastest round, which other work on the machine disturbed least.

use std::io::Write as _;
use std::time::{Duration, Instant};

use quictun_sim::{LinkConfig, Network, Queue, Script, Seed, SimulatedDial, WriteStep, config};

/// The length of a round, in virtual time.
const ROUND: Duration = Duration::from_millis(100);

fn main() -> std::io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let mut network = Network::new(Seed::fixed(1));
    let server = network.add_server("server", config::server(1));
    let client = network.add_client("client", config::client(1), server);
    let wire = LinkConfig {
        rate: Some(10_000_000_000 / 8),
        delay: Duration::from_micros(100),
        mtu: 1500,
        queue: Queue::Bytes(4 << 20),
        ..LinkConfig::default()
    };
    network.link(client, server, wire.clone(), wire);
    network
        .host(server)
        .serve("sink", SimulatedDial::connects(), Script::server(1));
    let script = Script::client(1).write([WriteStep::Send(u64::MAX / 4)]);
    network.open(client, "sink", script);
    network.run_for(Duration::from_secs(1));

    let mut best: Option<Round> = None;
    for _ in 0..rounds.unwrap_or(20) {
        let round = Round::run(&mut network, |network| {
            let packets = network.host(server).engine().totals().datagrams_received;
            let bytes = network
                .dialled(server, "sink")
                .map_or(0, |app| app.received);
            (packets, bytes)
        });
        if best.as_ref().is_none_or(|best| round.cost() < best.cost()) {
            best = Some(round);
        }
    }
    if let Some(best) = best {
        let seconds = best.took.as_secs_f64();
        writeln!(
            std::io::stdout(),
            "{:.0} packets/s, {:.0} ns per packet, {:.3} CPU-s/GB (sender, receiver and simulation)",
            best.packets / seconds,
            best.cost() * 1e9,
            seconds / (best.bytes / 1e9),
        )?;
    }
    Ok(())
}

/// One measured round of the simulation.
struct Round {
    took: Duration,
    packets: f64,
    bytes: f64,
}

impl Round {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    fn run(network: &mut Network, mut count: impl FnMut(&mut Network) -> (u64, u64)) -> Self {
        let before = count(network);
        let start = Instant::now();
        network.run_for(ROUND);
        let took = start.elapsed();
        let after = count(network);
        Self {
            took,
            packets: (after.0 - before.0) as f64,
            bytes: (after.1 - before.1) as f64,
        }
    }

    /// Returns the seconds per packet.
    fn cost(&self) -> f64 {
        self.took.as_secs_f64() / self.packets
    }
}
