//! The second connection to a peer starts with what the first one has learnt about the path.

use std::time::Duration;

use quictun_sim::{Script, Seed, SimulatedDial, WriteStep, config};
use quictun_wire::code::CloseCode;

use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited};

/// Rate of the link: 100 Mbit/s.
const RATE: u64 = 12_500_000;

/// Share of the link's rate that reaches an application when the link is nine tenths full.
const FULL: f64 = 0.9 * 0.95;

/// Returns the time from the start of an upload until the link has been nine tenths full for one round trip.
fn fill(pair: &mut TunnelPair, token: &str, round_trip: Duration) -> Duration {
    let sink = Script::server(1);
    let host = pair.network.host(pair.server);
    host.serve(token, SimulatedDial::connects(), sink);
    let script = Script::client(1).write([WriteStep::Send(u64::MAX / 4)]);
    pair.network.open(pair.client, token, script);
    let opened = pair.network.now();
    let server = pair.server;
    let mut received = Vec::new();
    let steps = usize::try_from(round_trip.as_millis() / 10).expect("few");
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "bytes"
    )]
    let enough = (RATE as f64 * round_trip.as_secs_f64() * FULL) as u64;
    for _ in 0..500 {
        pair.network.run_for(10 * MS);
        let sink = pair.network.dialled(server, token);
        received.push(sink.map_or(0, |sink| sink.received));
        let before = received.len().saturating_sub(steps + 1);
        if received.len() > steps && received[received.len() - 1] - received[before] >= enough {
            break;
        }
    }
    pair.network.now() - opened
}

/// Returns the times to fill a link: with the first connection at 100 ms, and with the second at `round_trip`.
fn first_and_second(round_trip: Duration) -> (Duration, Duration) {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, limited(RATE, 100 * MS));
    pair.connect();
    let first = fill(&mut pair, "first", 100 * MS);
    pair.network.run_for(500 * MS);
    let (client, server) = (pair.client, pair.server);
    pair.network.command(client, |engine, now| {
        let id = engine.connection_reports()[0].id;
        engine.close_connection(now, id, CloseCode::Done);
    });
    for (from, to) in [(client, server), (server, client)] {
        let delay = round_trip / 2;
        pair.network.set_link(from, to, |link| link.delay = delay);
    }
    pair.network.run_for(SECOND);
    pair.connect();
    (first, fill(&mut pair, "second", round_trip))
}

/// Returns the time to fill a link about which nothing is known.
fn alone(round_trip: Duration) -> Duration {
    let mut link = limited(RATE, 100 * MS);
    link.delay = round_trip / 2;
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, link);
    pair.connect();
    fill(&mut pair, "only", round_trip)
}

#[test]
#[expect(clippy::print_stdout, reason = "prints the measured times")]
fn a_second_connection_fills_the_path_sooner() {
    let (first, second) = first_and_second(100 * MS);
    println!("{first:?}, then {second:?}");
    assert!(second <= 400 * MS, "{first:?}, then {second:?}");
    assert!(second + 100 * MS <= first, "{first:?}, then {second:?}");
}

#[test]
fn a_path_with_less_than_half_the_round_trip_time_is_not_resumed() {
    let (_, second) = first_and_second(40 * MS);
    let alone = alone(40 * MS);
    assert!(second + 20 * MS >= alone, "{second:?}, alone {alone:?}");
}
