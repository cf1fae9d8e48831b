//! The second connection to a peer starts with what the first one has learnt about the path.

use std::time::Duration;

use quictun_sim::{Dial, Script, Seed, Write, config};
use quictun_wire::code::CloseCode;

use crate::world::{MS, SECOND, World, limited};

/// Rate of the link: 100 Mbit/s.
const RATE: u64 = 12_500_000;

/// Share of the link's rate that reaches an application when the link is nine tenths full.
const FULL: f64 = 0.9 * 0.95;

/// Returns the time from the start of an upload until the link has been nine tenths full for one round trip.
fn fill(world: &mut World, token: &str, round_trip: Duration) -> Duration {
    let sink = Script::server(1);
    let host = world.network.host(world.server);
    host.serve(token, Dial::connects(), sink);
    let script = Script::client(1).write([Write::Send(u64::MAX / 4)]);
    world.network.open(world.client, token, script);
    let opened = world.network.now();
    let server = world.server;
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
        world.network.run_for(10 * MS);
        let sink = world.network.dialled(server, token);
        received.push(sink.map_or(0, |sink| sink.received));
        let before = received.len().saturating_sub(steps + 1);
        if received.len() > steps && received[received.len() - 1] - received[before] >= enough {
            break;
        }
    }
    world.network.now() - opened
}

/// Returns the times to fill a link: with the first connection at 100 ms, and with the second at `round_trip`.
fn first_and_second(round_trip: Duration) -> (Duration, Duration) {
    let mut world = World::new(Seed::fixed(1), config::NATIVE, limited(RATE, 100 * MS));
    world.connect();
    let first = fill(&mut world, "first", 100 * MS);
    world.network.run_for(500 * MS);
    let (client, server) = (world.client, world.server);
    world.network.command(client, |engine, now| {
        let id = engine.connection_reports()[0].id;
        engine.close_connection(now, id, CloseCode::Done);
    });
    for (from, to) in [(client, server), (server, client)] {
        let delay = round_trip / 2;
        world.network.set_link(from, to, |link| link.delay = delay);
    }
    world.network.run_for(SECOND);
    world.connect();
    (first, fill(&mut world, "second", round_trip))
}

/// Returns the time to fill a link about which nothing is known.
fn alone(round_trip: Duration) -> Duration {
    let mut link = limited(RATE, 100 * MS);
    link.delay = round_trip / 2;
    let mut world = World::new(Seed::fixed(1), config::NATIVE, link);
    world.connect();
    fill(&mut world, "only", round_trip)
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
fn a_path_of_less_than_half_the_round_trip_time_is_another_one() {
    let (_, second) = first_and_second(40 * MS);
    let alone = alone(40 * MS);
    assert!(second + 20 * MS >= alone, "{second:?}, alone {alone:?}");
}
