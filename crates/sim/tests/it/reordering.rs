//! The cost of late packets, and of losses on a path without late packets.

use std::time::Duration;

use quictun_sim::{LinkConfig, Reorder, Script, Seed, SimulatedDial, WriteStep, config};
use quictun_wire::code::CloseCode;

use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited};

/// Share of a link's rate that the headers of its packets leave to applications.
const CARRIED: f64 = 0.959;

/// Share of packets that arrive late.
const SHARE: f64 = 0.05;

/// Interval at which the delay of late packets changes.
const STEP: Duration = Duration::from_millis(2);

/// A link that two connections use, one after the other.
struct ReorderingLink {
    pair: TunnelPair,
    rate: u64,
    /// Maximum delay of late packets.
    late: Duration,
    turn: f64,
}

/// The result of one connection's flow.
#[derive(Debug)]
struct LinkUse {
    /// Share of the link's rate that reached the application.
    used: f64,
    /// Share of the packets that were declared lost although the link had not dropped them.
    falsely: f64,
}

impl ReorderingLink {
    fn new(mbit_per_s: u64, round_trip: Duration, loss: f64, late: Duration) -> Self {
        let rate = mbit_per_s * 1_000_000 / 8;
        let mut link = limited(rate, round_trip);
        link.loss = loss;
        if !late.is_zero() {
            link.reorder = Reorder {
                share: SHARE,
                extra: late,
            };
        }
        let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, link);
        pair.connect();
        Self {
            pair,
            rate,
            late,
            turn: 0.0,
        }
    }

    /// Lets time pass, during which the delay of late packets changes in both directions.
    fn run_for(&mut self, time: Duration) {
        let until = self.pair.network.now() + time;
        let (client, server) = (self.pair.client, self.pair.server);
        while self.pair.network.now() < until {
            if !self.late.is_zero() {
                // Steps of the golden ratio are spread evenly over any time.
                self.turn = (self.turn + 0.618_034) % 1.0;
                let extra = self.late.mul_f64(self.turn.max(0.01));
                let later = |link: &mut LinkConfig| link.reorder.extra = extra;
                self.pair.network.set_link(client, server, later);
                self.pair.network.set_link(server, client, later);
            }
            self.pair.network.run_for(STEP);
        }
    }

    /// Returns the packets sent, declared lost, and dropped by the link, and the bytes received by the flow of `token`.
    fn counts(&mut self, token: &str) -> [u64; 4] {
        let TunnelPair {
            network,
            client,
            server,
        } = &mut self.pair;
        let dropped = network.counters(*client, *server).dropped();
        let received = network.dialled(*server, token);
        let received = received.map_or(0, |sink| sink.received);
        let reports = network.host(*client).engine().connection_reports();
        [
            reports[0].packets_sent,
            reports[0].packets_lost,
            dropped,
            received,
        ]
    }

    /// Runs one upload and measures three seconds of it, after a first second that does not count.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    fn fill(&mut self, token: &str) -> LinkUse {
        let host = self.pair.network.host(self.pair.server);
        host.serve(token, SimulatedDial::connects(), Script::server(1));
        let script = Script::client(1).write([WriteStep::Send(u64::MAX / 4)]);
        self.pair.network.open(self.pair.client, token, script);
        self.run_for(SECOND);
        let before = self.counts(token);
        let time = 3 * SECOND;
        self.run_for(time);
        let after = self.counts(token);
        let [sent, lost, dropped, received] =
            [0, 1, 2, 3].map(|of| (after[of] - before[of]) as f64);
        LinkUse {
            used: received / (self.rate as f64 * time.as_secs_f64()),
            falsely: (lost - dropped) / sent,
        }
    }

    /// Ends the connection and waits for the client's next one.
    fn reconnect(&mut self) {
        self.pair.network.command(self.pair.client, |engine, now| {
            let id = engine.connection_reports()[0].id;
            engine.close_connection(now, id, CloseCode::Done);
        });
        self.run_for(SECOND);
        self.pair.connect();
    }

    /// Returns the mean and the 99th percentile of the times of 500 consecutive answers.
    fn answers(&mut self, bytes: u64) -> (Duration, Duration) {
        let (mut asks, mut gives) = (Vec::new(), Vec::new());
        for number in 1..=500 {
            asks.extend([WriteStep::Send(1000), WriteStep::Received(number * bytes)]);
            gives.extend([WriteStep::Received(number * 1000), WriteStep::Send(bytes)]);
        }
        let (client, server) = (self.pair.client, self.pair.server);
        let script = Script::server(1).write(gives);
        let host = self.pair.network.host(server);
        host.serve("answers", SimulatedDial::connects(), script);
        let script = Script::client(1).write(asks);
        let app = self.pair.network.open(client, "answers", script);
        let mut times = Vec::new();
        for number in 1..=500 {
            let took = self.pair.network.run_until(20 * SECOND, |network| {
                network.outcome(app).received >= number * bytes
            });
            times.push(took);
        }
        times.sort_unstable();
        (times.iter().sum::<Duration>() / 500, times[494])
    }
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "prints the measured shares for people who run it"
)]
fn the_second_connection_to_a_peer_waits_for_packets_that_are_half_a_round_trip_late() {
    // At 100 Mbit/s, 129 packets overtake a packet within 15 ms. If it is later than that, the receiving library
    // discards it.
    let cells = [
        (20, 20 * MS, 0.95, 0.001),
        (20, 40 * MS, 0.95, 0.001),
        (20, 100 * MS, 0.95, 0.001),
        (100, 20 * MS, 0.95, 0.001),
        (100, 40 * MS, 0.93, 0.02),
        (100, 100 * MS, 0.87, 0.045),
    ];
    for loss in [0.0, 0.002] {
        for (mbit_per_s, round_trip, least, most) in cells {
            let mut path = ReorderingLink::new(mbit_per_s, round_trip, loss, round_trip / 2);
            let first = path.fill("first");
            path.reconnect();
            let second = path.fill("second");
            let text = format!(
                "{mbit_per_s} Mbit/s, {round_trip:?}, {loss}: {first:.3?}, then {second:.4?}"
            );
            println!("{text}");
            assert!(second.used >= least * CARRIED * (1.0 - loss), "{text}");
            assert!(second.falsely <= most, "{text}");
        }
    }
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "prints the measured shares for people who run it"
)]
fn any_connection_waits_for_packets_that_few_others_have_overtaken() {
    for (mbit_per_s, round_trip) in [(20, 40 * MS), (100, 20 * MS)] {
        let mut path = ReorderingLink::new(mbit_per_s, round_trip, 0.0, round_trip / 16);
        let first = path.fill("first");
        println!("{mbit_per_s} Mbit/s, {round_trip:?}: {first:.4?}");
        assert!(first.falsely <= 0.0005, "{first:?}");
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "prints the measured times")]
fn a_path_with_loss_and_without_reordering_gets_no_longer_wait() {
    let mut path = ReorderingLink::new(100, 40 * MS, 0.01, Duration::ZERO);
    path.fill("bulk");
    path.reconnect();
    let (mean, late) = path.answers(20_000);
    println!("{mean:?}, p99 {late:?}");
    // One round trip, the time to detect the loss, and another round trip. With a longer wait the times are 49 and 110
    // ms.
    assert!(late <= 92 * MS, "{late:?}");
}
