//! A flow or connection that a server no longer allows ends at once, with its own code. Nothing else ends (PROTOCOL
//! section 6).

use quictun_sim::engine::{Asked, ConnectionId, Ending, Event, LossReason};
use quictun_sim::{Dial, Script, Seed, Write, config};
use quictun_wire::code::{CloseCode, FlowCode};

use crate::world::{MS, PROTOCOLS, SECOND, World, wire};

/// Creates a client with two flows that go on for ten seconds, each to its own target.
fn world(protocols: &[&[u8]]) -> World {
    let mut world = World::new(Seed::fixed(1), protocols, wire(20 * MS));
    world.connect();
    for target in ["kept", "revoked"] {
        let host = world.network.host(world.server);
        host.serve(target, Dial::connects(), Script::echo());
        let script = Script::echoed(1);
        let script = script.write([Write::Send(1000), Write::Wait(10 * SECOND), Write::Finish]);
        world.network.open(world.client, target, script);
    }
    world.network.run_for(SECOND);
    world
}

fn asked(world: &mut World, token: &str) -> Asked {
    let asked = world.network.host(world.server).engine().asked();
    let found = asked.into_iter().find(|asked| asked.token == token);
    found.expect("the flow is open")
}

fn connection(world: &mut World) -> ConnectionId {
    world
        .network
        .host(world.server)
        .engine()
        .connection_reports()[0]
        .id
}

#[test]
fn a_revoked_flow_is_reset_on_both_sides_and_its_neighbour_goes_on() {
    for protocols in PROTOCOLS {
        let mut world = world(protocols);
        let revoked = asked(&mut world, "revoked");
        assert_eq!(revoked.connection, connection(&mut world));
        let server = world.server;
        world.network.command(server, |engine, now| {
            engine.revoke_flow(now, revoked.flow);
            // A second call has no further effect.
            engine.revoke_flow(now, revoked.flow);
        });
        world.network.run_for(15 * SECOND);
        let closed = world.closed(world.client);
        let ending = |token: &str| {
            let closed = closed.iter().find(|summary| summary.token == token);
            closed.expect("the flow is over").ending
        };
        assert_eq!(
            ending("revoked"),
            Ending::PeerReset(Some(FlowCode::Revoked))
        );
        assert_eq!(ending("kept"), Ending::Finished);
        let there = world.network.dialled(world.server, "revoked");
        assert!(there.expect("the target was dialled").was_reset());
        world.check_nothing_left();
    }
}

// PROTOCOL BOND-18.
#[test]
fn a_flow_that_waits_is_revoked_as_one_that_is_carried() {
    let mut client = config::client_speaking(config::NATIVE, 1);
    let mut server = config::server(1);
    (client.role.bond_ttl, server.role.bond_ttl) = (60 * SECOND, 60 * SECOND);
    let mut world = World::with(Seed::fixed(1), client, server, wire(20 * MS), wire(20 * MS));
    let server = world.server;
    world.connect();
    for target in ["kept", "revoked"] {
        let host = world.network.host(server);
        host.serve(target, Dial::connects(), Script::echo());
        let script = Script::echoed(1);
        let script = script.write([Write::Send(1000), Write::Wait(10 * SECOND), Write::Finish]);
        world.network.open(world.client, target, script);
    }
    world.network.run_for(SECOND);
    world.network.black_hole(world.client, server, 3 * SECOND);
    let lost = connection(&mut world);
    world.network.command(server, |engine, now| {
        engine.break_connection(now, lost);
    });
    let revoked = asked(&mut world, "revoked");
    assert_eq!(revoked.connection, lost);
    world.network.command(server, |engine, now| {
        engine.revoke_flow(now, revoked.flow);
    });
    world.network.run_for(MS);
    let there = |world: &World, target| {
        let there = world.network.dialled(server, target);
        there.expect("the target was dialled").clone()
    };
    assert!(there(&world, "revoked").was_reset(), "not reset at once");
    assert!(!there(&world, "kept").is_over());
    world.network.run_for(20 * SECOND);
    let closed = world.closed(world.client);
    let ending = |token: &str| {
        let closed = closed.iter().find(|summary| summary.token == token);
        closed.expect("the flow is over").ending
    };
    assert_eq!(ending("revoked"), Ending::Abandoned(FlowCode::Revoked));
    assert_eq!(ending("kept"), Ending::Finished);
    world.check_nothing_left();
}

#[test]
fn a_flow_that_is_being_dialled_is_refused_and_its_target_finds_no_flow() {
    let mut world = World::new(Seed::fixed(2), config::NATIVE, wire(20 * MS));
    world.connect();
    let host = world.network.host(world.server);
    host.serve("slow", Dial::Never, Script::echo());
    world.network.open(
        world.client,
        "slow",
        Script::echoed(1).write([Write::Finish]),
    );
    world.network.run_for(SECOND);
    let dialling = asked(&mut world, "slow");
    assert_eq!(dialling.server_app, "");
    let server = world.server;
    world
        .network
        .command(server, |engine, now| engine.revoke_flow(now, dialling.flow));
    world.network.run_for(SECOND);
    let closed = world.closed(world.client);
    assert_eq!(
        closed[0].ending,
        Ending::Abandoned(FlowCode::Revoked),
        "{closed:?}"
    );
    world.check_nothing_left();
}

// PROTOCOL CODE-3.
#[test]
fn a_revoked_connection_ends_with_its_flows_and_its_client_comes_back_slowly() {
    for protocols in PROTOCOLS {
        let mut world = world(protocols);
        let first = connection(&mut world);
        let server = world.server;
        let flows = world.network.command(server, |engine, now| {
            engine.revoke_connection(now, first, CloseCode::Revoked)
        });
        assert_eq!(flows, 2);
        // On the server's side the flows have ended already.
        let endings: Vec<Ending> = world
            .network
            .command(server, |engine, _| {
                std::iter::from_fn(|| engine.poll_event()).collect::<Vec<_>>()
            })
            .iter()
            .filter_map(|event| match event {
                Event::FlowClosed(summary) => Some(summary.ending),
                _ => None,
            })
            .collect();
        assert_eq!(endings, [Ending::Abandoned(FlowCode::Revoked); 2]);
        world.network.run_for(SECOND);
        let revoked = |event: &Event| {
            matches!(
                event,
                Event::Disconnected {
                    reason: LossReason::Revoked,
                    flows: 2,
                    ..
                }
            )
        };
        assert_eq!(world.count(world.client, revoked), 1);
        assert!(!world.network.host(world.client).engine().is_connected());
        for target in ["kept", "revoked"] {
            let there = world.network.dialled(world.server, target);
            assert!(there.expect("the target was dialled").was_reset());
        }
        world.network.run_for(5 * SECOND);
        assert!(world.network.host(world.client).engine().is_connected());
        world.check_nothing_left();
    }
}

#[test]
fn a_new_certificate_is_for_new_connections_and_open_ones_go_on() {
    let mut world = world(config::NATIVE);
    let crypto = config::server(7).role.crypto;
    let server = world.server;
    world
        .network
        .command(server, |engine, _| engine.set_server_crypto(&crypto))
        .expect("a usable configuration");
    let seen = world.network.host(world.server).engine();
    let before = seen.connection_reports()[0].id;
    let shown = seen.credentials(before).expect("the connection is up");
    assert!(shown.certificates.is_none() && shown.exporter.is_some());
    world.network.run_for(12 * SECOND);
    let closed = world.closed(world.client);
    assert!(
        closed.len() == 2 && closed.iter().all(|flow| flow.ending == Ending::Finished),
        "{closed:?}"
    );
    assert_eq!(connection(&mut world), before);
    // A client that connects now is served.
    world.network.command(server, |engine, now| {
        engine.close_connection(now, before, CloseCode::Shutdown);
    });
    world.network.run_for(10 * SECOND);
    assert!(world.network.host(world.client).engine().is_connected());
    assert_ne!(connection(&mut world), before);
}
