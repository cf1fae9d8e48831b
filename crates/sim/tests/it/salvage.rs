//! Data that has arrived completely is delivered completely, however the connection ends (PROTOCOL CLOSE-12).

use std::time::Duration;

use quictun_sim::engine::{Ending, Engine};
use quictun_sim::{AppId, Dial, Incoming, Outgoing, Read, Script, Seed, Write, config};
use quictun_wire::code::FlowCode;

use crate::world::{MS, PROTOCOLS, SECOND, World, wire};

/// Size of an upload in bytes: less than the amount at which a flow is stopped.
const BYTES: u64 = 60_000;

/// Returns the script of a target that sends nothing, begins to read after a pause, and then reads slowly.
fn slow_reader(pause: Duration) -> Script {
    let slowly = Read::Slowly {
        bytes: 2_000,
        every: 20 * MS,
    };
    Script {
        buffer: 1000,
        ..Script::server(1)
            .write([Write::Finish])
            .read([Read::Pause(pause), slowly])
    }
}

/// Starts an upload whose target has finished its direction. For the client, the flow is over once the bytes are
/// acknowledged.
fn upload(protocols: &[&[u8]], pause: Duration) -> (World, AppId) {
    let mut world = World::new(Seed::fixed(1), protocols, wire(20 * MS));
    world.connect();
    let server = world.server;
    world
        .network
        .host(server)
        .serve("slow", Dial::connects(), slow_reader(pause));
    let app = world.network.open(
        world.client,
        "slow",
        Script::client(1).write([Write::Send(BYTES), Write::Finish]),
    );
    (world, app)
}

fn delivered(world: &World, token: &str) -> (u64, Incoming, Outgoing) {
    let target = world.network.dialled(world.server, token).expect("dialled");
    (target.received, target.incoming, target.outgoing)
}

#[test]
fn a_client_that_closes_leaves_the_server_to_deliver_what_it_has() {
    for protocols in PROTOCOLS {
        let (mut world, _) = upload(protocols, SECOND);
        world.network.run_for(SECOND / 2);
        let (client, server) = (world.client, world.server);
        assert!(
            world
                .network
                .host(client)
                .engine()
                .flow_reports()
                .is_empty()
        );
        world.network.command(client, Engine::close);
        world.network.run_until(30 * SECOND, |network| {
            network
                .dialled(server, "slow")
                .is_some_and(|target| target.over.is_some())
        });
        let whole = (BYTES, Incoming::Fin, Outgoing::Finished);
        assert_eq!(delivered(&world, "slow"), whole);
        world.check_nothing_left();
    }
}

#[test]
fn a_connection_that_falls_silent_leaves_both_ends_with_what_they_have() {
    let (mut world, _) = upload(config::NATIVE, 90 * SECOND);
    // Bytes that are never acknowledged do not affect those that have arrived.
    let answer = Script::server(2)
        .write([Write::Send(BYTES), Write::Finish])
        .read([Read::Never]);
    let server = world.server;
    world
        .network
        .host(server)
        .serve("answer", Dial::connects(), answer);
    let reads = Script::client(2)
        .write([Write::Send(u64::MAX / 4)])
        .read([Read::Pause(90 * SECOND), Read::Bytes(BYTES)]);
    let reader = world.network.open(world.client, "answer", reads);
    world.network.run_for(2 * SECOND);
    for (from, to) in [(world.client, server), (server, world.client)] {
        world.network.set_link(from, to, |link| link.loss = 1.0);
    }
    world.network.run_for(Duration::from_mins(5));
    let whole = (BYTES, Incoming::Fin, Outgoing::Finished);
    assert_eq!(delivered(&world, "slow"), whole);
    let reader = world.network.outcome(reader);
    assert_eq!(
        (reader.received, reader.incoming, reader.outgoing),
        (BYTES, Incoming::Fin, Outgoing::Reset),
        "the FIN is delivered before the reset of the other direction"
    );
}

#[test]
fn what_has_not_arrived_whole_is_a_reset() {
    let (mut world, app) = upload(config::NATIVE, SECOND);
    let (client, server) = (world.client, world.server);
    // All data arrives, but no FIN.
    let endless = Script::client(2).write([Write::Send(1000)]);
    world
        .network
        .host(server)
        .serve("endless", Dial::connects(), slow_reader(SECOND));
    world.network.open(client, "endless", endless);
    world.network.run_for(SECOND / 2);
    world.network.command(client, Engine::close);
    world.network.run_for(10 * SECOND);
    assert!(world.network.outcome(app).is_clean());
    assert_eq!(delivered(&world, "slow").1, Incoming::Fin);
    assert_eq!(delivered(&world, "endless").1, Incoming::Reset);
    world.check_nothing_left();
}

#[test]
fn an_application_that_takes_nothing_more_is_given_up() {
    let (mut world, _) = upload(config::NATIVE, Duration::from_hours(9));
    let (client, server) = (world.client, world.server);
    world.network.run_for(SECOND);
    world.network.command(client, Engine::close);
    world.network.run_for(50 * SECOND);
    assert_eq!(delivered(&world, "slow").1, Incoming::Open);
    assert!(!world.network.host(server).engine().is_drained());
    world.network.run_for(20 * SECOND);
    let endings: Vec<Ending> = world
        .closed(server)
        .iter()
        .map(|summary| summary.ending)
        .collect();
    assert_eq!(endings, [Ending::Abandoned(FlowCode::ConnectionLost)]);
    world.check_nothing_left();
}
