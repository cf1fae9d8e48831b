//! Faults, and the operations that must continue in spite of them.

use std::time::Duration;

use quictun_sim::engine::{Ending, Engine, Event, LossReason};
use quictun_sim::{AppId, Dial, Incoming, Network, Outage, Read, Script, Seed, Write, config};
use quictun_wire::code::FlowCode;

use crate::world::{MS, PROTOCOLS, SECOND, World, limited, wire};

/// Rate of the links, in bytes per second.
pub(crate) const RATE: u64 = 2_500_000;

/// Creates a world with a connection and three targets: "bulk" sends without end, "sink" receives, "echo" echoes.
pub(crate) fn world(link: quictun_sim::LinkConfig) -> World {
    let mut world = World::new(Seed::fixed(1), config::NATIVE, link);
    world.connect();
    let host = world.network.host(world.server);
    host.serve(
        "bulk",
        Dial::connects(),
        Script::server(1).write([Write::Send(u64::MAX / 4)]),
    );
    host.serve(
        "sink",
        Dial::connects(),
        Script::server(2).write([Write::ReceivedEnd, Write::Finish]),
    );
    host.serve("echo", Dial::connects(), Script::echo());
    world
}

impl World {
    pub(crate) fn echo(&mut self) -> AppId {
        let script = Script::echoed(1).write([Write::Send(100), Write::Finish]);
        self.network.open(self.client, "echo", script)
    }

    pub(crate) fn echoes_within(&mut self, most: Duration) {
        let app = self.echo();
        self.network
            .run_until(most, |network| network.outcome(app).is_over());
        assert!(self.network.outcome(app).is_clean());
    }

    pub(crate) fn received(&self, app: AppId) -> u64 {
        self.network.outcome(app).received
    }

    pub(crate) fn lost(&mut self) -> Vec<LossReason> {
        let events = self.network.host(self.client).events().iter();
        let reasons = events.filter_map(|(_, event)| match event {
            Event::Disconnected { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        reasons.collect()
    }
}

#[test]
fn data_arrives_soon_after_an_outage() {
    let mut link = limited(RATE, 5 * MS);
    let until = 7 * SECOND;
    link.outages.push(Outage {
        from: until.saturating_sub(1400 * MS),
        until,
    });
    let mut world = world(link);
    let down = world
        .network
        .open(world.client, "bulk", Script::client(1).write([]));
    let left = until.saturating_sub(world.network.elapsed());
    world.network.run_for(left);
    let before = world.received(down);
    let most = 250 * MS;
    world.network.run_until(most, |network| {
        network.outcome(down).received >= before + RATE / 100
    });
    let after = world.network.elapsed().saturating_sub(until);
    assert!(after < most, "nothing arrived for {after:?}");
}

#[test]
fn flows_outlive_thirty_seconds_without_a_link() {
    let mut link = limited(RATE, 20 * MS);
    let outage = Outage {
        from: 5 * SECOND,
        until: 35 * SECOND,
    };
    link.outages.push(outage);
    let mut world = world(link);
    let down = world
        .network
        .open(world.client, "bulk", Script::client(1).write([]));
    let bytes = 10 * RATE;
    let script = Script::client(2).write([Write::Send(bytes), Write::Finish]);
    let up = world.network.open(world.client, "sink", script);
    let quiet = world.network.open(
        world.client,
        "echo",
        Script::echoed(1).write([
            Write::Send(10),
            Write::Wait(33 * SECOND),
            Write::Send(10),
            Write::Received(20),
            Write::Finish,
        ]),
    );
    let outage_left = (35 * SECOND).saturating_sub(world.network.elapsed());
    world.network.run_for(outage_left);
    let before = world.received(down);
    world.network.run_for(2 * SECOND);
    let after = world.received(down);
    assert!(
        after > before + 100_000,
        "{before} bytes before the outage, {after} two seconds after it"
    );
    assert!(
        world.network.outcome(quiet).is_clean(),
        "{:?}",
        world.network.outcome(quiet)
    );
    world
        .network
        .run_until(30 * SECOND, |network| network.outcome(up).is_over());
    assert!(world.network.outcome(up).is_clean());
    assert_eq!(
        world
            .network
            .dialled(world.server, "sink")
            .map(|sink| sink.received),
        Some(bytes)
    );
    assert_eq!(world.lost(), []);
}

// PROTOCOL LIMIT-3.
#[test]
fn what_has_arrived_is_delivered_while_the_udp_socket_is_full() {
    let mut world = world(limited(RATE, 20 * MS));
    let down = world
        .network
        .open(world.client, "bulk", Script::client(1).write([]));
    world.network.run_for(2 * SECOND);
    let client = world.client;
    world.network.host(client).set_udp_full(true);
    let before = world.received(down);
    // Data in flight still arrives; the client need not send anything for that.
    world.network.run_for(40 * MS);
    let after = world.received(down);
    assert!(after > before + 10_000, "{before} bytes, then {after}");
    world.network.host(client).set_udp_full(false);
    world.echoes_within(SECOND);
}

#[test]
fn silence_is_told_once_and_only_its_end_is_told_after_it() {
    let mut link = limited(RATE, 20 * MS);
    link.outages.push(Outage {
        from: 5 * SECOND,
        until: 20 * SECOND,
    });
    for flows in [0, 1] {
        let mut world = world(link.clone());
        if flows == 1 {
            world.network.open(world.client, "bulk", Script::client(1));
        }
        world.network.run_for(30 * SECOND);
        let (client, server) = (world.client, world.server);
        let mut told = |host| {
            let silent = world.count(host, |event| matches!(event, Event::Unresponsive { .. }));
            (
                silent,
                world.count(host, |event| matches!(event, Event::Responsive { .. })),
            )
        };
        assert_eq!(told(client), (1, 1));
        assert_eq!(told(server), (flows, flows));
    }
}

// PROTOCOL QUIC-5.
#[test]
fn transfers_go_on_when_the_client_gets_another_address() {
    let mut world = world(limited(RATE, 20 * MS));
    let down = world
        .network
        .open(world.client, "bulk", Script::client(1).write([]));
    world.network.run_for(2 * SECOND);
    let rate = world.received(down) / 2;
    world.network.move_host(world.client);
    world.network.run_for(5 * SECOND);
    // A client that only receives does not notice the move. The next packet that it sends tells the server.
    let expected = 2 * rate + 2 * rate;
    assert!(
        world.received(down) > expected,
        "{} of {expected}",
        world.received(down)
    );
    let up = world.network.open(
        world.client,
        "sink",
        Script::client(2).write([Write::Send(3 * RATE), Write::Finish]),
    );
    world.network.run_for(SECOND);
    world.network.move_host(world.client);
    world.network.run_for(SECOND);
    let arrived = world
        .network
        .dialled(world.server, "sink")
        .map_or(0, |sink| sink.received);
    assert!(
        arrived > RATE,
        "{arrived} bytes in two seconds with a move between them"
    );
    world
        .network
        .run_until(10 * SECOND, |network| network.outcome(up).is_over());
    assert!(world.network.outcome(up).is_clean());
    let server = world.server;
    assert_eq!(
        world.count(server, |event| matches!(event, Event::Migrated { .. })),
        2
    );
    assert_eq!(world.lost(), []);
}

/// Lets `stalled` applications stop reading for 20 s while another one goes on. Returns the share of the link that the
/// other one gets meanwhile, and the most bytes that a stalled one has cost.
fn stalls(stalled: u64, loss: f64) -> (f64, u64) {
    let mut link = limited(RATE, 20 * MS);
    link.loss = loss;
    let mut client = config::client(1);
    client.transport.stream_window = WINDOW;
    let mut world = World::with(
        Seed::fixed(1),
        client,
        config::server(1),
        link.clone(),
        link,
    );
    world.connect();
    let bytes = 8_000_000;
    let host = world.network.host(world.server);
    host.serve(
        "bulk",
        Dial::connects(),
        Script::server(1).write([Write::Send(u64::MAX / 4)]),
    );
    let sleeper = Script::client(1)
        .read([Read::Bytes(1000), Read::Pause(20 * SECOND)])
        .write([Write::Finish]);
    let mut sleepers = Vec::new();
    for number in 0..stalled {
        let token = format!("sleeper {number}");
        let answer = Script::server(1).write([Write::Send(bytes), Write::Finish]);
        world
            .network
            .host(world.server)
            .serve(&token, Dial::connects(), answer);
        sleepers.push((
            world.network.open(world.client, &token, sleeper.clone()),
            token,
        ));
    }
    world.network.run_for(8 * SECOND);
    let busy = Script::client(1).write([Write::Wait(11 * SECOND), Write::Abort]);
    let busy = world.network.open(world.client, "bulk", busy);
    world.network.run_for(SECOND);
    let before = world.received(busy);
    world.network.run_for(9 * SECOND);
    let got = world.received(busy) - before;
    let sent = sleepers
        .iter()
        .filter_map(|(_, token)| world.network.dialled(world.server, token));
    let cost = sent.map(|outcome| outcome.sent).max().unwrap_or(0);
    let over = |network: &mut Network| {
        sleepers
            .iter()
            .all(|(app, _)| network.outcome(*app).is_over())
    };
    world.network.run_until(300 * SECOND, over);
    for (app, _) in &sleepers {
        assert!(world.network.outcome(*app).is_clean());
        assert_eq!(world.received(*app), bytes);
    }
    world.check_nothing_left();
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = got as f64 / (RATE * 9) as f64;
    (share, cost)
}

/// Stream window of the side whose applications stop reading.
const WINDOW: u32 = 512 * 1024;

#[test]
fn an_application_that_stops_reading_costs_a_bounded_amount_and_slows_nobody() {
    for (stalled, loss, least) in [(1, 0.0, 0.9), (6, 0.0, 0.9), (6, 0.002, 0.2)] {
        let (share, cost) = stalls(stalled, loss);
        let alone = if loss > 0.0 { stalls(0, loss).0 } else { 0.959 };
        assert!(
            share >= alone * 0.8 && share > least,
            "{stalled} stalled: {share} of the link, alone {alone}"
        );
        // Data that may be in flight, data that may be held beyond gaps, and the applications' own buffers.
        let most = 3 * u64::from(WINDOW) + 4 * 64 * 1024;
        assert!(
            cost <= most,
            "{stalled} stalled at {loss}: {cost} bytes of {most}"
        );
    }
}

#[test]
fn a_flow_that_waits_too_long_for_a_connection_is_reset() {
    let mut world = World::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let (client, server) = (world.client, world.server);
    world
        .network
        .set_link(client, server, |link| link.loss = 1.0);
    let app = world.echo();
    world.network.run_for(29 * SECOND);
    assert_eq!(world.network.outcome(app).incoming, Incoming::Open);
    world.network.run_for(2 * SECOND);
    assert_eq!(world.network.outcome(app).incoming, Incoming::Reset);
    world.check_nothing_left();
    world
        .network
        .set_link(client, server, |link| link.loss = 0.0);
    world
        .network
        .host(server)
        .serve("echo", Dial::connects(), Script::echo());
    world.echoes_within(20 * SECOND);
}

#[test]
fn closing_tells_both_sides_and_leaves_nothing() {
    for protocols in PROTOCOLS {
        for closes in ["client", "server"] {
            let mut world = World::new(Seed::fixed(1), protocols, limited(RATE, 20 * MS));
            world.connect();
            let busy = [Write::Send(u64::MAX / 4)];
            world.network.host(world.server).serve(
                "bulk",
                Dial::connects(),
                Script::server(1).write(busy),
            );
            let app = world
                .network
                .open(world.client, "bulk", Script::client(1).write(busy));
            world.network.run_for(SECOND);
            let host = if closes == "client" {
                world.client
            } else {
                world.server
            };
            world.network.command(host, Engine::close);
            world.network.run_for(SECOND);
            assert_eq!(world.network.outcome(app).incoming, Incoming::Reset);
            let there = world
                .network
                .dialled(world.server, "bulk")
                .expect("dialled");
            assert_eq!(there.incoming, Incoming::Reset);
            world.check_nothing_left();
            for side in [world.client, world.server] {
                let totals = world.network.host(side).engine().totals();
                assert_eq!(totals.connections_lost, u64::from(side != host));
                // A client keeps trying to connect; a server that has closed refuses its handshakes.
                assert_eq!(
                    totals.handshakes_failed == 0,
                    host == world.client,
                    "{closes}: {totals:?}"
                );
            }
        }
    }
}

#[test]
fn nothing_begins_after_a_close() {
    // The client closes while it tries one of two addresses, and during the name look-up.
    for tries in [Ok(vec!["10.9.9.9:7500", "10.9.9.8:7500"]), Err(())] {
        let mut world = World::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
        let parse = |text: &str| text.parse().expect("an address");
        let (addresses, after) = match tries {
            Ok(texts) => (texts.into_iter().map(parse).collect(), Duration::ZERO),
            Err(()) => (vec![world.network.address(world.server)], SECOND),
        };
        let client = world.client;
        world
            .network
            .host(client)
            .set_resolver(Ok(addresses), after);
        world.network.run_for(100 * MS);
        world.network.command(client, Engine::close);
        assert!(world.network.run_to_silence(30 * SECOND));
        let reports = world.network.host(client).engine().connection_reports();
        assert_eq!(reports.len(), 0, "{reports:?}");
        assert_eq!(world.count(world.server, |_| true), 0);
    }
}

#[test]
fn a_draining_server_finishes_what_it_has_and_refuses_the_rest() {
    let mut world = world(limited(RATE, 20 * MS));
    let bytes = 2 * RATE;
    let script = Script::client(2).write([Write::Send(bytes), Write::Finish]);
    let running = world.network.open(world.client, "sink", script);
    world.network.run_for(SECOND);
    let server = world.server;
    world.network.host(server).engine().drain();
    let refused = world.echo();
    world.network.run_for(100 * MS);
    assert_eq!(world.network.outcome(refused).incoming, Incoming::Reset);
    let summary = world.closed(world.client).pop().expect("refused");
    assert_eq!(summary.ending, Ending::Abandoned(FlowCode::ShuttingDown));
    assert!(!world.network.host(server).engine().is_drained());
    world.network.run_until(10 * SECOND, |network| {
        network.host(server).engine().is_drained()
    });
    assert!(world.network.outcome(running).is_clean());
    assert_eq!(
        world
            .network
            .dialled(server, "sink")
            .map(|sink| sink.received),
        Some(bytes)
    );
}

#[test]
fn transfers_go_on_when_the_path_carries_only_smaller_packets() {
    let mut world = world(limited(RATE, 20 * MS));
    let down = world.network.open(world.client, "bulk", Script::client(1));
    let up = Script::client(2).write([Write::Send(u64::MAX / 4)]);
    world.network.open(world.client, "sink", up);
    world.network.run_for(3 * SECOND);
    let (client, server) = (world.client, world.server);
    for (from, to) in [(client, server), (server, client)] {
        world.network.set_link(from, to, |link| link.mtu = 1250);
    }
    let arrived = |world: &World| {
        let up = world
            .network
            .dialled(world.server, "sink")
            .map_or(0, |sink| sink.received);
        (world.received(down), up)
    };
    world.network.run_for(3 * SECOND);
    let before = arrived(&world);
    world.network.run_for(2 * SECOND);
    let after = arrived(&world);
    assert!(
        after.0 > before.0 + RATE && after.1 > before.1 + RATE,
        "{before:?} {after:?}"
    );
    assert_eq!(world.lost(), []);
}
