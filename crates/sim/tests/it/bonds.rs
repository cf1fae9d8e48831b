//! Flows that outlive their connection (PROTOCOL section 5.8).

use std::time::Duration;

use quictun_sim::engine::{ClientRole, Ending, Engine, EngineConfig, Event, ServerRole};
use quictun_sim::{
    AppId, Dial, Incoming, LinkConfig, Network, Outage, Read, Script, Seed, Write, config,
};
use quictun_wire::code::FlowCode;

use crate::world::{MS, SECOND, World, limited};

const TTL: Duration = Duration::from_mins(30);

/// Rate of the links: 2 MB/s.
const RATE: u64 = 2_000_000;

fn configs(seed: u64) -> (EngineConfig<ClientRole>, EngineConfig<ServerRole>) {
    let (mut client, mut server) = (
        config::client_speaking(config::NATIVE, seed),
        config::server(seed),
    );
    client.role.bond_ttl = TTL;
    server.role.bond_ttl = TTL;
    (client, server)
}

/// Creates a client and a server that keep bonds, and an echo target.
fn world(link: LinkConfig) -> World {
    let seed = Seed::fixed(1);
    let (client, server) = configs(1);
    let mut world = World::with(seed, client, server, link.clone(), link);
    world
        .network
        .host(world.server)
        .serve("echo", Dial::connects(), Script::echo());
    world.connect();
    world
}

/// Opens a flow that sends `bytes` bytes to the echo, expects them back, and finishes.
fn echo(world: &mut World, bytes: u64) -> AppId {
    let script = Script::echoed(1).write([Write::Send(bytes), Write::Finish]);
    world.network.open(world.client, "echo", script)
}

fn outage(at: Duration, lasts: Duration) -> LinkConfig {
    let mut link = limited(RATE, 20 * MS);
    link.outages.push(Outage {
        from: at,
        until: at + lasts,
    });
    link
}

fn moves(world: &mut World) -> [usize; 2] {
    let moved = |event: &Event| matches!(event, Event::Moved { .. });
    [world.client, world.server].map(|host| world.count(host, moved))
}

/// Runs until the application is done, and checks that it received `bytes` bytes and a FIN.
fn finishes(world: &mut World, app: AppId, bytes: u64, within: Duration) {
    world
        .network
        .run_until(within, |network| network.outcome(app).is_over());
    let outcome = world.network.outcome(app);
    assert_eq!(outcome.incoming, Incoming::Fin, "{outcome:?}");
    assert_eq!(outcome.received, bytes);
    world.check_nothing_left();
}

#[test]
fn a_flow_outlives_a_path_that_is_dead_for_ten_minutes() {
    let mut world = world(outage(3 * SECOND, 600 * SECOND));
    let app = echo(&mut world, 20_000_000);
    finishes(&mut world, app, 20_000_000, 700 * SECOND);
    assert_eq!(moves(&mut world), [1, 1]);
}

#[test]
fn a_flow_goes_on_from_another_port_within_a_second_where_a_device_drops_all_of_its_own() {
    let mut world = world(limited(RATE, 20 * MS));
    let app = echo(&mut world, 10_000_000);
    world.network.run_for(SECOND);
    let (client, before) = (world.client, world.received(app));
    world.network.drop_port(client);
    let unanswered = |event: &Event| matches!(event, Event::Unanswered);
    let told = |network: &mut Network| {
        let events = network.host(client).events();
        events.iter().any(|(_, event)| unanswered(event))
    };
    let doubted = world.network.run_until(5 * SECOND, told);
    assert!(doubted <= 900 * MS, "{doubted:?}");
    world.network.rebind(client);
    world.network.command(client, Engine::handle_new_port);
    let took = world.network.run_until(5 * SECOND, |network| {
        network.outcome(app).received > before + 100_000
    });
    assert!(took <= 200 * MS, "{took:?}");
    assert_eq!(moves(&mut world), [1, 1]);
    finishes(&mut world, app, 10_000_000, 60 * SECOND);
    assert_eq!(world.count(client, unanswered), 1);
}

#[test]
fn a_client_that_only_receives_tries_another_port_after_little_more_than_a_second() {
    for offset in 0..10 {
        let mut world = world(limited(RATE, 20 * MS));
        let blocks = [Write::Send(100), Write::Wait(10 * MS)].repeat(1000);
        world.network.host(world.server).serve(
            "slow",
            Dial::connects(),
            Script::server(1).write(blocks),
        );
        let script = Script::client(1).write([Write::ReceivedEnd]);
        world.network.open(world.client, "slow", script);
        world.network.run_for(2 * SECOND + offset * 37 * MS);
        world.network.drop_port(world.client);
        let client = world.client;
        let unanswered = |event: &Event| matches!(event, Event::Unanswered);
        let doubted = world.network.run_until(5 * SECOND, |network| {
            let events = network.host(client).events();
            events.iter().any(|(_, event)| unanswered(event))
        });
        assert!(doubted <= 1100 * MS, "{offset}: {doubted:?}");
    }
}

#[test]
fn a_flow_outlives_an_outage_that_no_time_out_notices() {
    let mut world = world(outage(3 * SECOND, 3 * SECOND));
    let app = echo(&mut world, 20_000_000);
    finishes(&mut world, app, 20_000_000, 60 * SECOND);
}

#[test]
fn a_flow_moves_where_the_client_replaces_its_connection() {
    let mut world = world(limited(RATE, 20 * MS));
    let app = echo(&mut world, 8_000_000);
    world.network.run_for(SECOND);
    for _ in 0..3 {
        world.network.command(world.client, Engine::reconnect);
        world.network.run_for(SECOND);
    }
    finishes(&mut world, app, 8_000_000, 60 * SECOND);
    assert_eq!(moves(&mut world), [3, 3]);
}

#[test]
fn nothing_is_left_once_the_time_of_a_bond_is_over() {
    let mut world = world(outage(3 * SECOND, 4000 * SECOND));
    let app = echo(&mut world, 20_000_000);
    world.network.run_for(2000 * SECOND);
    assert_eq!(world.network.outcome(app).incoming, Incoming::Reset);
    world.check_nothing_left();
}

/// Waits until the client has had `connections` connections, then drops everything in both directions for `time`.
fn silence_after(world: &mut World, connections: usize, time: Duration) {
    let (client, server) = (world.client, world.server);
    let up = |event: &Event| matches!(event, Event::Connected { .. });
    while world.count(client, up) < connections {
        world.network.run_for(MS);
    }
    for (from, to) in [(client, server), (server, client)] {
        world.network.black_hole(from, to, time);
    }
}

#[test]
fn silence_before_the_server_has_answered_hello_costs_no_flow() {
    let mut world = world(limited(RATE, 20 * MS));
    let app = echo(&mut world, 8_000_000);
    world.network.run_for(SECOND);
    let id = world.up(world.client)[0];
    world.network.command(world.client, |engine, now| {
        engine.break_connection(now, id);
    });
    // The silence is longer than a server has time to answer.
    silence_after(&mut world, 2, 20 * SECOND);
    finishes(&mut world, app, 8_000_000, 120 * SECOND);
}

#[test]
fn two_connections_that_ask_for_a_bond_at_once_do_not_end_the_flows_of_each_other() {
    let seed = Seed::fixed(1);
    let (client, server) = configs(1);
    let link = limited(RATE, 20 * MS);
    let mut world = World::with(seed, client, server, link.clone(), link);
    let host = world.network.host(world.server);
    host.serve("echo", Dial::connects(), Script::echo());
    silence_after(&mut world, 1, 2 * SECOND);
    // The first connection falls silent, so the client opens a second one.
    let later = [
        Write::Wait(3 * SECOND),
        Write::Send(4_000_000),
        Write::Finish,
    ];
    let script = Script::echoed(1).write(later);
    let apps = [0, 1].map(|_| {
        let app = world.network.open(world.client, "echo", script.clone());
        world.network.run_for(4 * SECOND);
        app
    });
    world.network.run_until(60 * SECOND, |network| {
        apps.iter().all(|&app| network.outcome(app).is_over())
    });
    for app in apps {
        assert!(world.network.outcome(app).is_clean());
    }
    world.check_nothing_left();
}

// PROTOCOL BOND-3.
#[test]
fn a_server_that_begins_anew_ends_the_flows_that_it_does_not_know() {
    let mut world = world(limited(RATE, 20 * MS));
    let app = echo(&mut world, 20_000_000);
    world.network.run_for(SECOND);
    world.network.kill_server(world.server, configs(2).1);
    world
        .network
        .run_until(2 * SECOND, |network| network.outcome(app).is_over());
    assert_eq!(world.network.outcome(app).incoming, Incoming::Reset);
    let closed = world.closed(world.client);
    let endings: Vec<_> = closed.iter().map(|summary| summary.ending).collect();
    assert_eq!(endings, [Ending::Abandoned(FlowCode::NoBond)]);
    world.check_nothing_left();
}

// PROTOCOL BOND-17.
#[test]
fn flows_of_a_client_that_begins_anew_wait_for_as_long_as_their_bond() {
    let mut world = world(limited(RATE, 20 * MS));
    echo(&mut world, 20_000_000);
    world.network.run_for(SECOND);
    world.network.kill_client(world.client, configs(2).0);
    let incoming = |world: &World| {
        let target = world.network.dialled(world.server, "echo");
        target.map(|target| target.incoming)
    };
    world.network.run_for(TTL);
    assert_eq!(incoming(&world), Some(Incoming::Open));
    // The server noticed the loss of the client a moment after it happened.
    world.network.run_for(10 * SECOND);
    assert_eq!(incoming(&world), Some(Incoming::Reset));
    world.check_nothing_left();
}

#[test]
fn a_flow_that_is_opened_on_a_dead_path_asks_again_after_the_idle_time_out() {
    let link = outage(3 * SECOND, 5 * SECOND);
    let (mut client, mut server) = configs(1);
    client.transport.idle_timeout = 2 * SECOND;
    client.transport.keep_alive = SECOND / 2;
    server.transport.idle_timeout = 2 * SECOND;
    let mut world = World::with(Seed::fixed(1), client, server, link.clone(), link);
    world
        .network
        .host(world.server)
        .serve("echo", Dial::connects(), Script::echo());
    world.connect();
    let until = (3 * SECOND + 100 * MS).saturating_sub(world.network.elapsed());
    world.network.run_for(until);
    let speaks_late = [Write::Wait(10 * SECOND), Write::Send(1000), Write::Finish];
    let script = Script::echoed(1).write(speaks_late);
    let app = world.network.open(world.client, "echo", script);
    finishes(&mut world, app, 1000, 60 * SECOND);
}

/// The client's process is stopped while the answer to MOVE arrives and its application reads, so it finds both at
/// once.
#[test]
fn an_answer_to_a_move_that_comes_with_readiness_is_not_taken_for_data() {
    let mut world = world(limited(RATE, 20 * MS));
    let bytes = 4_000_000;
    let slowly = [Read::Slowly {
        bytes: 1_000,
        every: MS,
    }];
    let script = Script::echoed(1)
        .write([Write::Send(bytes), Write::Finish])
        .read(slowly);
    let app = world.network.open(world.client, "echo", script);
    world.network.run_for(SECOND);
    let client = world.client;
    // MOVE leaves two round trips after the first packet of the new connection.
    for after in 40..48 {
        world.network.command(client, Engine::reconnect);
        world.network.run_for(after * MS);
        world.network.stop(client, 60 * MS);
        world.network.run_for(200 * MS);
    }
    assert_eq!(moves(&mut world)[0], 8);
    finishes(&mut world, app, bytes, 60 * SECOND);
}

/// A flow that lacks no data does not move: no stream is opened for it, however long its application reads.
#[test]
fn a_flow_that_only_has_to_be_delivered_stays_where_it_is() {
    let mut world = world(limited(RATE, 20 * MS));
    let slowly = [Read::Slowly {
        bytes: 500,
        every: 20 * MS,
    }];
    let script = Script::echoed(1)
        .write([Write::Send(100_000), Write::Finish])
        .read(slowly);
    let app = world.network.open(world.client, "echo", script);
    world.network.run_for(SECOND);
    world.network.command(world.client, Engine::reconnect);
    world.network.run_for(SECOND);
    assert_eq!(moves(&mut world), [0, 0]);
    let server = world.server;
    let refused = world.network.host(server).engine().totals().moves_refused;
    assert_eq!(refused, 0);
    let opened = world.network.host(server).engine().totals().flows_opened;
    assert_eq!(opened, 1, "no stream was opened in vain");
    finishes(&mut world, app, 100_000, 60 * SECOND);
}
