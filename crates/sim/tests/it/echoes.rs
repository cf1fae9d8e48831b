//! The cost of a lost packet for an application that waits for an answer.

use std::time::Duration;

use quictun_sim::{Script, Seed, SimulatedDial, WriteStep, config};

use crate::tunnel_pair::{MS, SECOND, TunnelPair, wire};

const ECHOES: usize = 1000;
const BYTES: u64 = 1000;

/// The times of all echoes of all runs. Within a run, each echo begins after the previous one.
struct EchoStatistics {
    runs: u32,
    times: Vec<Duration>,
    /// Datagrams that the client sent, and the number of them that were repeats.
    sent: u64,
    repeated: u64,
}

impl EchoStatistics {
    /// Returns the mean total time of a run.
    fn total(&self) -> Duration {
        self.times.iter().sum::<Duration>() / self.runs
    }

    fn quantile(&self, per_mille: usize) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[(times.len() - 1) * per_mille / 1000]
    }
}

/// Measures echoes one after the other: the client sends a request, waits for its echo, and sends the next request.
fn echoes(round_trip: Duration, loss: f64, seeds: std::ops::Range<u64>) -> EchoStatistics {
    let mut link = wire(round_trip);
    link.loss = loss;
    let mut all = EchoStatistics {
        runs: 0,
        times: Vec::new(),
        sent: 0,
        repeated: 0,
    };
    for seed in seeds {
        let mut pair = TunnelPair::new(Seed::fixed(seed), config::NATIVE, link.clone());
        pair.connect();
        let (client, server) = (pair.client, pair.server);
        let host = pair.network.host(server);
        host.serve("echo", SimulatedDial::connects(), Script::echo());
        let mut writes = Vec::new();
        for number in 0..=ECHOES as u64 {
            writes.extend([
                WriteStep::Send(BYTES),
                WriteStep::Received((number + 1) * BYTES),
            ]);
        }
        let script = Script::echoed(1).write(writes);
        let app = pair.network.open(client, "echo", script);
        for number in 0..=ECHOES as u64 {
            let took = pair.network.run_until(10 * SECOND, |network| {
                network.outcome(app).received >= (number + 1) * BYTES
            });
            // The first echo includes the opening of the flow.
            if number > 0 {
                all.times.push(took);
            }
        }
        let report = pair.network.host(client).engine().connection_reports();
        all.sent += report[0].datagrams_sent;
        all.repeated += report[0].datagrams_repeated;
        all.runs += 1;
    }
    all
}

#[test]
#[expect(clippy::print_stdout, reason = "prints the measured times")]
fn a_lost_packet_costs_little_more_than_a_round_trip() {
    let limits = [
        (MS, 0.01, 1100 * MS, 3 * MS / 2),
        (25 * MS, 0.02, 26_500 * MS, 30 * MS),
        (100 * MS, 0.02, 106_000 * MS, 110 * MS),
    ];
    for (round_trip, loss, most, latest) in limits {
        let echoes = echoes(round_trip, loss, 1..4);
        let (total, late) = (echoes.total(), echoes.quantile(990));
        println!(
            "{round_trip:?} {loss}: {total:?}, p50 {:?}, p99 {late:?}, p99.9 {:?}, {} of {} datagrams repeated",
            echoes.quantile(500),
            echoes.quantile(999),
            echoes.repeated,
            echoes.sent,
        );
        assert!(total <= most, "{round_trip:?}: {total:?}");
        assert!(late <= latest, "{round_trip:?}: {late:?}");
    }
}

#[test]
fn with_little_loss_little_is_sent_twice() {
    assert_eq!(echoes(25 * MS, 0.0, 1..2).repeated, 0);
    let rare = echoes(25 * MS, 0.000_5, 1..9);
    assert!(
        rare.repeated * 10 < rare.sent,
        "{} of {}",
        rare.repeated,
        rare.sent
    );
}
