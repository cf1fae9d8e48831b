//! Flows that outlive their connection (PROTOCOL section 5.8).

use std::time::Duration;

use quictun_sim::engine::{
    ClientEvent, ClientRole, Ending, EngineConfig, EngineEvent, Event, ServerRole,
};
use quictun_sim::{
    AppId, IncomingState, LinkConfig, Network, Outage, ReadStep, Script, Seed, SimulatedDial,
    WriteStep, config,
};
use quictun_wire::code::{CloseCode, FlowCode};

use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited};

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
fn pair(link: LinkConfig) -> TunnelPair {
    let seed = Seed::fixed(1);
    let (client, server) = configs(1);
    let mut pair = TunnelPair::with(seed, client, server, link.clone(), link);
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair.connect();
    pair
}

/// Opens a flow that sends `bytes` bytes to the echo, expects them back, and finishes.
fn echo(pair: &mut TunnelPair, bytes: u64) -> AppId {
    let script = Script::echoed(1).write([WriteStep::Send(bytes), WriteStep::Finish]);
    pair.network.open(pair.client, "echo", script)
}

fn outage(at: Duration, lasts: Duration) -> LinkConfig {
    let mut link = limited(RATE, 20 * MS);
    link.outages.push(Outage {
        from: at,
        until: at + lasts,
    });
    link
}

#[test]
fn a_flow_outlives_a_path_that_is_dead_for_ten_minutes() {
    let mut pair = pair(outage(3 * SECOND, 600 * SECOND));
    let app = echo(&mut pair, 20_000_000);
    pair.finish(app, 20_000_000, 700 * SECOND);
    assert_eq!(pair.moves(), [1, 1]);
}

#[test]
fn a_flow_continues_from_another_port_within_a_second_if_a_device_drops_its_port() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let app = echo(&mut pair, 10_000_000);
    pair.network.run_for(SECOND);
    let (client, before) = (pair.client, pair.received(app));
    pair.network.drop_port(client);
    let unanswered =
        |event: &EngineEvent| matches!(event, EngineEvent::Client(ClientEvent::Unanswered));
    let told = |network: &mut Network| {
        let events = network.host(client).events();
        events.iter().any(|(_, event)| unanswered(event))
    };
    let doubted = pair.network.run_until(5 * SECOND, told);
    assert!(doubted <= 900 * MS, "{doubted:?}");
    pair.network.rebind(client);
    pair.network
        .command(client, |engine, now| engine.client().handle_new_port(now));
    let took = pair.network.run_until(5 * SECOND, |network| {
        network.outcome(app).received > before + 100_000
    });
    assert!(took <= 200 * MS, "{took:?}");
    assert_eq!(pair.moves(), [1, 1]);
    pair.finish(app, 10_000_000, 60 * SECOND);
    assert_eq!(pair.count(client, unanswered), 1);
}

#[test]
fn a_client_that_only_receives_continues_within_a_second_whenever_its_port_is_dropped() {
    for offset in 0..10 {
        let mut pair = pair(limited(RATE, 20 * MS));
        let blocks = [WriteStep::Send(100), WriteStep::Wait(10 * MS)].repeat(2000);
        pair.network.host(pair.server).serve(
            "slow",
            SimulatedDial::connects(),
            Script::server(1).write(blocks),
        );
        let script = Script::client(1).write([WriteStep::ReceivedEnd]);
        let app = pair.network.open(pair.client, "slow", script);
        let client = pair.client;
        let doubts = |network: &mut Network| {
            let events = network.host(client).events().iter();
            events
                .filter(|(_, event)| matches!(event, EngineEvent::Client(ClientEvent::Unanswered)))
                .count()
        };
        for time in 1..=4 {
            pair.network.run_for(2 * SECOND + offset * 37 * MS);
            pair.network.drop_port(client);
            let before = pair.received(app);
            let doubted = pair
                .network
                .run_until(5 * SECOND, |network| doubts(network) == time);
            assert!(doubted <= 850 * MS, "{offset}, {time}: {doubted:?}");
            pair.network.rebind(client);
            pair.network
                .command(client, |engine, now| engine.client().handle_new_port(now));
            let took = pair.network.run_until(5 * SECOND, |network| {
                network.outcome(app).received > before + 500
            });
            assert!(took <= 150 * MS, "{offset}, {time}: {took:?}");
        }
    }
}

#[test]
fn a_flow_outlives_an_outage_that_no_time_out_notices() {
    let mut pair = pair(outage(3 * SECOND, 3 * SECOND));
    let app = echo(&mut pair, 20_000_000);
    pair.finish(app, 20_000_000, 60 * SECOND);
}

/// The old connection answers before any other one is made, so no Welcome follows.
#[test]
fn a_client_reports_the_first_answer_after_each_outage_that_its_connection_survives() {
    let mut link = limited(RATE, 20 * MS);
    for from in [3 * SECOND, 8 * SECOND, 13 * SECOND] {
        let until = from + 2 * SECOND;
        link.outages.push(Outage { from, until });
    }
    let mut pair = pair(link);
    let app = echo(&mut pair, 20_000_000);
    let (client, server) = (pair.client, pair.server);
    let answers = |event: &EngineEvent| {
        matches!(
            event,
            EngineEvent::Client(ClientEvent::ServerAnswers { .. })
        )
    };
    let mut told = Vec::new();
    for until in [4, 6, 9, 11, 14, 16] {
        let until = until * SECOND;
        let left = until.saturating_sub(pair.network.elapsed());
        pair.network.run_for(left);
        told.push(pair.count(client, answers));
    }
    assert_eq!(told, [0, 1, 1, 2, 2, 3]);
    let connected =
        |event: &EngineEvent| matches!(event, EngineEvent::Client(ClientEvent::Welcome { .. }));
    assert_eq!(pair.count(client, connected), 1, "no other connection");
    assert_eq!(pair.count(server, answers), 0);
    pair.finish(app, 20_000_000, 60 * SECOND);
}

#[test]
fn a_flow_moves_when_the_client_replaces_its_connection() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let app = echo(&mut pair, 8_000_000);
    pair.network.run_for(SECOND);
    for _ in 0..3 {
        pair.network
            .command(pair.client, |engine, now| engine.client().reconnect(now));
        pair.network.run_for(SECOND);
    }
    pair.finish(app, 8_000_000, 60 * SECOND);
    assert_eq!(pair.moves(), [3, 3]);
}

/// The answer to MOVE is due while the client sleeps. The new connection times out in that sleep, too.
#[test]
fn a_flow_continues_if_the_client_sleeps_between_a_move_and_its_answer() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let app = echo(&mut pair, 8_000_000);
    pair.network.run_for(SECOND);
    let (client, server) = (pair.client, pair.server);
    let first = pair.up(client)[0];
    pair.network.command(client, |engine, now| {
        engine.break_connection(now, first);
    });
    let moved = |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Moved { .. }));
    pair.network.run_until(SECOND, |network| {
        let events = network.host(server).events();
        events.iter().any(|(_, event)| moved(event))
    });
    assert_eq!(pair.moves(), [0, 1]);
    pair.network.sleep(client, 90 * SECOND);
    pair.finish(app, 8_000_000, 200 * SECOND);
}

/// The client closes the connection on which its flow was to continue, before the answer to MOVE. The application still
/// reads what has arrived, and the server learns of the end then. Otherwise it would keep the flow as long as the bond.
#[test]
fn the_end_of_a_flow_whose_move_was_not_answered_is_reported_on_the_next_connection() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let slowly = [ReadStep::Slowly {
        bytes: 50_000,
        every: 100 * MS,
    }];
    let script = Script::echoed(1)
        .write([WriteStep::Send(8_000_000)])
        .read(slowly);
    pair.network.open(pair.client, "echo", script);
    pair.network.run_for(SECOND);
    let (client, server) = (pair.client, pair.server);
    let first = pair.up(client)[0];
    pair.network.command(client, |engine, now| {
        engine.break_connection(now, first);
    });
    let moved = |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Moved { .. }));
    pair.network.run_until(SECOND, |network| {
        let events = network.host(server).events();
        events.iter().any(|(_, event)| moved(event))
    });
    assert_eq!(pair.moves(), [0, 1]);
    let second = pair.up(client)[0];
    pair.network.command(client, |engine, now| {
        engine.close_connection(now, second, CloseCode::Done);
    });
    // The echo program no longer reads, so the server also waits for it. That takes less time than a bond lives.
    pair.network.run_for(TTL / 2);
    let left =
        |pair: &mut TunnelPair, host| pair.network.host(host).engine().flow_resources().flows;
    assert_eq!([left(&mut pair, client), left(&mut pair, server)], [0, 0]);
}

#[test]
fn nothing_is_left_after_the_lifetime_of_a_bond() {
    let mut pair = pair(outage(3 * SECOND, 4000 * SECOND));
    let app = echo(&mut pair, 20_000_000);
    pair.network.run_for(2000 * SECOND);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    pair.check_nothing_left();
}

/// Waits until the client has had `connections` connections, then drops everything in both directions for `time`.
fn silence_after(pair: &mut TunnelPair, connections: usize, time: Duration) {
    let (client, server) = (pair.client, pair.server);
    let up = |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Connected { .. }));
    while pair.count(client, up) < connections {
        pair.network.run_for(MS);
    }
    for (from, to) in [(client, server), (server, client)] {
        pair.network.black_hole(from, to, time);
    }
}

#[test]
fn silence_before_the_server_has_answered_hello_costs_no_flow() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let app = echo(&mut pair, 8_000_000);
    pair.network.run_for(SECOND);
    let id = pair.up(pair.client)[0];
    pair.network.command(pair.client, |engine, now| {
        engine.break_connection(now, id);
    });
    // The silence is longer than a server has time to answer.
    silence_after(&mut pair, 2, 20 * SECOND);
    pair.finish(app, 8_000_000, 120 * SECOND);
}

#[test]
fn two_connections_that_ask_for_a_bond_at_once_do_not_end_the_flows_of_each_other() {
    let seed = Seed::fixed(1);
    let (client, server) = configs(1);
    let link = limited(RATE, 20 * MS);
    let mut pair = TunnelPair::with(seed, client, server, link.clone(), link);
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    silence_after(&mut pair, 1, 2 * SECOND);
    // The first connection falls silent, so the client opens a second one.
    let later = [
        WriteStep::Wait(3 * SECOND),
        WriteStep::Send(4_000_000),
        WriteStep::Finish,
    ];
    let script = Script::echoed(1).write(later);
    let apps = [0, 1].map(|_| {
        let app = pair.network.open(pair.client, "echo", script.clone());
        pair.network.run_for(4 * SECOND);
        app
    });
    pair.network.run_until(60 * SECOND, |network| {
        apps.iter().all(|&app| network.outcome(app).is_over())
    });
    for app in apps {
        assert!(pair.network.outcome(app).is_clean());
    }
    pair.check_nothing_left();
}

// PROTOCOL BOND-3.
#[test]
fn a_restarted_server_ends_the_flows_that_it_does_not_know() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let app = echo(&mut pair, 20_000_000);
    pair.network.run_for(SECOND);
    pair.network.kill_server(pair.server, configs(2).1);
    pair.network
        .run_until(2 * SECOND, |network| network.outcome(app).is_over());
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    let closed = pair.closed(pair.client);
    let endings: Vec<_> = closed.iter().map(|summary| summary.ending).collect();
    assert_eq!(endings, [Ending::PeerRefused(FlowCode::NoBond)]);
    pair.check_nothing_left();
}

// PROTOCOL BOND-17.
#[test]
fn flows_of_a_restarted_client_wait_for_the_lifetime_of_their_bond() {
    let mut pair = pair(limited(RATE, 20 * MS));
    echo(&mut pair, 20_000_000);
    pair.network.run_for(SECOND);
    pair.network.kill_client(pair.client, configs(2).0);
    let incoming = |pair: &TunnelPair| {
        let target = pair.network.dialled(pair.server, "echo");
        target.map(|target| target.incoming)
    };
    pair.network.run_for(TTL);
    assert_eq!(incoming(&pair), Some(IncomingState::Open));
    // The server noticed the loss of the client a moment after it happened.
    pair.network.run_for(10 * SECOND);
    assert_eq!(incoming(&pair), Some(IncomingState::Reset));
    pair.check_nothing_left();
}

#[test]
fn a_flow_that_is_opened_on_a_dead_path_asks_again_after_the_idle_time_out() {
    let link = outage(3 * SECOND, 5 * SECOND);
    let (mut client, mut server) = configs(1);
    client.transport.idle_timeout = 2 * SECOND;
    client.transport.keep_alive = SECOND / 2;
    server.transport.idle_timeout = 2 * SECOND;
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair.connect();
    let until = (3 * SECOND + 100 * MS).saturating_sub(pair.network.elapsed());
    pair.network.run_for(until);
    let speaks_late = [
        WriteStep::Wait(10 * SECOND),
        WriteStep::Send(1000),
        WriteStep::Finish,
    ];
    let script = Script::echoed(1).write(speaks_late);
    let app = pair.network.open(pair.client, "echo", script);
    pair.finish(app, 1000, 60 * SECOND);
}

/// The client's process is stopped while the answer to MOVE arrives and its application reads, so it finds both at
/// once.
#[test]
fn an_answer_to_a_move_that_comes_with_readiness_is_not_taken_for_data() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let bytes = 4_000_000;
    let slowly = [ReadStep::Slowly {
        bytes: 1_000,
        every: MS,
    }];
    let script = Script::echoed(1)
        .write([WriteStep::Send(bytes), WriteStep::Finish])
        .read(slowly);
    let app = pair.network.open(pair.client, "echo", script);
    pair.network.run_for(SECOND);
    let client = pair.client;
    // MOVE leaves two round trips after the first packet of the new connection.
    for after in 40..48 {
        pair.network
            .command(client, |engine, now| engine.client().reconnect(now));
        pair.network.run_for(after * MS);
        pair.network.stop(client, 60 * MS);
        pair.network.run_for(200 * MS);
    }
    assert_eq!(pair.moves()[0], 8);
    pair.finish(app, bytes, 60 * SECOND);
}

/// A process that ends first delivers what a lost connection has left.
#[test]
fn a_flow_that_only_has_to_be_delivered_outlives_its_connection_and_keeps_its_process() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let (bytes, client) = (200_000, pair.client);
    let slowly = [ReadStep::Slowly {
        bytes: 50,
        every: 100 * MS,
    }];
    let script = Script::echoed(1)
        .write([WriteStep::Send(bytes), WriteStep::Finish])
        .read(slowly);
    let app = pair.network.open(client, "echo", script);
    // The server keeps the bond for this flow.
    let other = Script::echoed(2).write([WriteStep::Wait(150 * SECOND), WriteStep::Finish]);
    pair.network.open(client, "echo", other);
    pair.network.run_for(SECOND);
    silence_after(&mut pair, 1, 120 * SECOND);
    pair.network.run_for(130 * SECOND);
    let engine = pair.network.host(client).engine();
    let left = engine.flow_resources();
    assert_eq!([left.flows, left.streams], [2, 1]);
    assert_eq!(engine.flow_reports().len(), 2, "one waits in the bond");
    pair.network.run_for(30 * SECOND);
    let engine = pair.network.host(client).engine();
    assert_eq!(engine.flow_resources().flows, 1);
    assert!(!engine.is_drained(), "the data of the flow would be lost");
    pair.finish(app, bytes, 500 * SECOND);
}

/// A flow that lacks no data does not move: no stream is opened for it, however long its application reads.
#[test]
fn a_flow_that_only_has_to_be_delivered_stays_where_it_is() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let slowly = [ReadStep::Slowly {
        bytes: 500,
        every: 20 * MS,
    }];
    let script = Script::echoed(1)
        .write([WriteStep::Send(100_000), WriteStep::Finish])
        .read(slowly);
    let app = pair.network.open(pair.client, "echo", script);
    pair.network.run_for(SECOND);
    pair.network
        .command(pair.client, |engine, now| engine.client().reconnect(now));
    pair.network.run_for(SECOND);
    assert_eq!(pair.moves(), [0, 0]);
    let server = pair.server;
    let refused = pair.network.host(server).engine().totals().moves_refused;
    assert_eq!(refused, 0);
    let opened = pair.network.host(server).engine().totals().flows_opened;
    assert_eq!(opened, 1, "no stream was opened in vain");
    pair.finish(app, 100_000, 60 * SECOND);
}
