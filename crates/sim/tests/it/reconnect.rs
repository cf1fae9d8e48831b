//! Lost connections, and the attempts to make new ones.

use std::time::Duration;

use quictun_sim::engine::{ClientEvent, Ending, EngineEvent, Event, LossReason};
use quictun_sim::{IncomingState, Network, Script, Seed, SimulatedDial, WriteStep, config};
use quictun_wire::code::{CloseCode, FlowCode};

use crate::faults::{RATE, pair};
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited, wire};

#[test]
fn a_client_learns_at_once_of_a_restarted_server_that_keeps_its_key() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let app = pair.network.open(
        pair.client,
        "sink",
        Script::client(2).write([WriteStep::Send(u64::MAX / 4)]),
    );
    pair.network.run_for(SECOND);
    let server = pair.server;
    pair.network.replace(server, config::server(77));
    pair.network
        .host(server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    let took = pair
        .network
        .run_until(SECOND, |network| network.outcome(app).is_over());
    assert!(took <= 60 * MS, "{took:?}");
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    assert_eq!(pair.lost(), [LossReason::Reset]);
    pair.echoes_within(100 * MS);
}

#[test]
fn an_idle_client_learns_of_a_restarted_server_by_its_next_sign_of_life() {
    let mut pair = pair(limited(RATE, 20 * MS));
    pair.network.replace(pair.server, config::server(77));
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair.network.run_for(2100 * MS);
    assert_eq!(pair.lost(), [LossReason::Reset]);
    pair.echoes_within(30 * MS);
}

#[test]
fn a_client_leaves_a_restarted_server_with_another_key_within_five_seconds() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let app = pair
        .network
        .open(pair.client, "bulk", Script::client(1).write([]));
    pair.network.run_for(SECOND);
    let mut fresh = config::server(77);
    fresh.reset_key = [1; 32];
    pair.network.replace(pair.server, fresh);
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    let client = pair.client;
    let unresponsive =
        |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Unresponsive { .. }));
    let told = |network: &mut Network| {
        let events = network.host(client).events();
        events.iter().any(|(_, event)| unresponsive(event))
    };
    let took = pair.network.run_until(10 * SECOND, told);
    assert!(took <= 5 * SECOND, "{took:?}");
    pair.network.run_for(100 * MS);
    pair.echoes_within(30 * MS);
    // The flow of the old connection waits as long as the connection may recover.
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Open);
    pair.network.run_for(60 * SECOND);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    assert_eq!(pair.lost(), [LossReason::TimedOut]);
}

#[test]
fn attempts_to_reach_a_name_that_does_not_resolve_never_end_and_back_off() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let nowhere = Err("no such name".to_owned());
    pair.network.host(pair.client).set_resolver(nowhere, 5 * MS);
    pair.network.run_for(600 * SECOND);
    let events = pair.network.host(pair.client).events().iter();
    let waits: Vec<Duration> = events
        .filter_map(|(_, event)| match event {
            EngineEvent::Client(ClientEvent::ConnectFailed {
                retry_in,
                reason: LossReason::Resolve(_),
                ..
            }) => Some(*retry_in),
            _ => None,
        })
        .collect();
    assert_eq!(waits[0], Duration::ZERO, "the first retry comes at once");
    assert!(waits[1] >= 100 * MS && waits[1] <= 200 * MS, "{waits:?}");
    let late = &waits[10..];
    assert!(late.len() > 100, "{} attempts in ten minutes", waits.len());
    assert!(
        late.iter()
            .all(|&wait| wait >= 2500 * MS && wait <= 5 * SECOND),
        "{late:?}"
    );
    let extremes = (
        late.iter().min().expect("many"),
        late.iter().max().expect("many"),
    );
    assert!(
        *extremes.1 > *extremes.0 + SECOND,
        "the waits must be spread: {extremes:?}"
    );
    let server = pair.network.address(pair.server);
    pair.network
        .host(pair.client)
        .set_resolver(Ok(vec![server]), 5 * MS);
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair.echoes_within(6 * SECOND);
}

// During an outage, applications connect, give up after a second, and connect again.
#[test]
fn applications_that_gave_up_leave_their_places_to_others() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let (client, server) = (pair.client, pair.server);
    pair.network
        .host(server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair.network.black_hole(client, server, 5 * SECOND);
    let waits = || Script::echoed(1).write([WriteStep::Send(1000), WriteStep::Finish]);
    let first = pair.network.open(client, "echo", waits());
    // Twice as many as may wait.
    for _ in 0..9000 {
        let gives_up = Script::client(1).write([WriteStep::Abort]);
        pair.network.open(client, "echo", gives_up);
        pair.network.run_for(MS / 10);
    }
    let last = pair.network.open(client, "echo", waits());
    pair.network.run_for(20 * SECOND);
    for app in [first, last] {
        let outcome = pair.network.outcome(app);
        assert!(outcome.is_clean(), "{outcome:?}");
    }
    pair.check_nothing_left();
}

#[test]
fn a_dead_address_costs_a_quarter_of_a_second_if_there_is_another() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let server = pair.network.address(pair.server);
    let dead = "10.9.9.9:7500".parse().expect("an address");
    pair.network
        .host(pair.client)
        .set_resolver(Ok(vec![dead, server]), Duration::ZERO);
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair.echoes_within(300 * MS);
    pair.network.run_for(30 * SECOND);
    assert_eq!(
        pair.network
            .host(pair.client)
            .engine()
            .connection_reports()
            .len(),
        1
    );
}

/// Returns the number of attempts in a minute of a client whose server closes every connection with `code`.
fn attempts(code: CloseCode) -> usize {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let server = pair.server;
    let mut seen = 0;
    for _ in 0..6000 {
        pair.network.run_for(10 * MS);
        let events = pair.network.host(server).events().iter().skip(seen);
        let connected: Vec<_> = events
            .filter_map(|(_, event)| match event {
                EngineEvent::Shared(Event::Connected { connection, .. }) => Some(*connection),
                _ => None,
            })
            .collect();
        seen = pair.network.host(server).events().len();
        for connection in connected {
            pair.network.command(server, |engine, now| {
                engine.close_connection(now, connection, code);
            });
        }
    }
    pair.count(server, |event| {
        matches!(event, EngineEvent::Shared(Event::Connected { .. }))
    })
}

// PROTOCOL CODE-3.
#[test]
fn a_server_that_closes_every_connection_is_not_stormed() {
    for code in [CloseCode::TooManyConnections, CloseCode::Shutdown] {
        let attempts = attempts(code);
        assert!(
            (15..40).contains(&attempts),
            "{attempts} connections in a minute"
        );
    }
}

// PROTOCOL CODE-3: from the first attempt on, attempts are 2.5 to 5 seconds apart.
#[test]
fn a_server_that_does_not_want_this_client_is_asked_at_the_slowest_pace() {
    let attempts = attempts(CloseCode::NotAuthorized);
    assert!((12..=24).contains(&attempts), "{attempts} in a minute");
    let mut pair = TunnelPair::new(Seed::fixed(2), config::NATIVE, wire(20 * MS));
    pair.connect();
    let server = pair.server;
    let first = pair.network.host(server).engine().connection_reports()[0].id;
    pair.network.command(server, |engine, now| {
        engine.close_connection(now, first, CloseCode::NotAuthorized);
    });
    pair.network.run_for(2400 * MS);
    assert_eq!(pair.lost(), [LossReason::NotAuthorized]);
    assert!(!pair.network.client(pair.client).is_connected());
    pair.network.run_for(2700 * MS);
    assert!(pair.network.client(pair.client).is_connected());
}

#[test]
fn a_flow_that_ends_with_its_connection_names_the_reason_of_the_server() {
    for (close, ending) in [
        (
            CloseCode::NotAuthorized,
            Ending::Abandoned(FlowCode::Unauthenticated),
        ),
        (CloseCode::Revoked, Ending::Abandoned(FlowCode::Revoked)),
        (CloseCode::Expired, Ending::PeerClosed(CloseCode::Expired)),
        (CloseCode::Shutdown, Ending::PeerClosed(CloseCode::Shutdown)),
    ] {
        let mut pair = TunnelPair::new(Seed::fixed(2), config::NATIVE, wire(20 * MS));
        pair.connect();
        let host = pair.network.host(pair.server);
        host.serve("mute", SimulatedDial::Never, Script::echo());
        let app = pair.network.open(pair.client, "mute", Script::client(1));
        pair.network.run_for(100 * MS);
        let server = pair.server;
        let first = pair.network.host(server).engine().connection_reports()[0].id;
        pair.network.command(server, |engine, now| {
            engine.close_connection(now, first, close);
        });
        pair.network.run_for(100 * MS);
        assert!(pair.network.outcome(app).was_reset());
        let closed = pair.closed(pair.client);
        let endings: Vec<Ending> = closed.iter().map(|flow| flow.ending).collect();
        assert_eq!(endings, [ending]);
    }
}

#[test]
fn after_an_outage_that_no_connection_outlives_the_client_connects_again() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let app = pair.network.open(pair.client, "bulk", Script::client(1));
    pair.network.run_for(SECOND);
    let (client, server) = (pair.client, pair.server);
    let cut = |pair: &mut TunnelPair, loss| {
        for (from, to) in [(client, server), (server, client)] {
            pair.network.set_link(from, to, |link| link.loss = loss);
        }
    };
    cut(&mut pair, 1.0);
    pair.network.run_for(300 * SECOND);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    assert_eq!(pair.lost(), [LossReason::TimedOut]);
    cut(&mut pair, 0.0);
    pair.echoes_within(4 * SECOND);
}

/// Returns the time until a client is connected again after an outage. Name look-ups fail during the outage and after
/// it.
fn back_after(lasts: Duration, seed: u64) -> Duration {
    let mut pair = TunnelPair::new(Seed::fixed(seed), config::NATIVE, wire(20 * MS));
    pair.connect();
    let (client, server) = (pair.client, pair.server);
    let silence = Err("no answer".to_owned());
    pair.network.host(client).set_resolver(silence, 5 * SECOND);
    for (from, to) in [(client, server), (server, client)] {
        pair.network.black_hole(from, to, lasts);
    }
    pair.network.run_for(lasts);
    assert_eq!(pair.up(client), [], "no connection outlives the outage");
    pair.network
        .run_until(15 * SECOND, |network| network.client(client).is_connected())
}

#[test]
fn whenever_an_outage_ends_the_client_is_back_within_three_seconds_without_a_look_up() {
    let longer = (0..40u32).map(|step| 90 * SECOND + step * 290 * MS);
    let back = longer
        .zip(1..)
        .map(|(lasts, seed)| (back_after(lasts, seed), lasts));
    let (slowest, lasted) = back.max().expect("forty of them");
    assert!(slowest <= 3100 * MS, "{slowest:?} after {lasted:?}");
}

#[test]
fn a_client_that_reconnects_looks_up_where_its_server_is_now() {
    let mut pair = pair(wire(20 * MS));
    let (client, server) = (pair.client, pair.server);
    let address = pair.network.address(server);
    let asks =
        |event: &EngineEvent| matches!(event, EngineEvent::Client(ClientEvent::Resolve { .. }));
    let before = pair.count(client, asks);
    let host = pair.network.host(client);
    host.set_resolver(Ok(vec![address]), SECOND);
    pair.network
        .command(client, |engine, now| engine.client().reconnect(now));
    pair.network.run_for(900 * MS);
    assert_eq!(begun(&mut pair), 1, "the client waits for the look-up");
    pair.network.run_for(SECOND);
    assert_eq!(begun(&mut pair), 2);
    assert_eq!(pair.count(client, asks), before + 1);
}

/// Returns the number of connections that the client has begun.
fn begun(pair: &mut TunnelPair) -> u64 {
    let engine = pair.network.host(pair.client).engine();
    engine.totals().connections_opened
}

#[test]
fn an_attempt_that_the_server_has_answered_gets_no_other_beside_it() {
    let mut server = config::server(1);
    server.role.always_retry = true;
    let client = config::client_speaking(config::NATIVE, 1);
    let link = wire(20 * MS);
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
    pair.network.run_for(15 * MS);
    let (client, server) = (pair.client, pair.server);
    // The Retry is in flight, and the packets that follow it are lost.
    pair.network.black_hole(client, server, 9 * SECOND);
    pair.network.run_for(9 * SECOND);
    assert_eq!(begun(&mut pair), 1);
    pair.network.black_hole(client, server, 9 * SECOND);
    pair.network.run_for(6 * SECOND);
    assert_eq!(
        begun(&mut pair),
        3,
        "an unanswered attempt gets another one beside it"
    );
}

#[test]
fn as_long_as_a_silent_connection_is_asked_others_are_tried_only_every_ten_seconds() {
    let mut pair = pair(wire(20 * MS));
    let (client, server) = (pair.client, pair.server);
    for (from, to) in [(client, server), (server, client)] {
        pair.network.black_hole(from, to, 60 * SECOND);
    }
    pair.network.run_for(30 * SECOND);
    assert_eq!(pair.up(client).len(), 1, "the connection is still probed");
    assert_eq!(begun(&mut pair), 4);
}

#[test]
fn a_flow_that_never_had_a_connection_does_not_end_as_lost_with_one() {
    let mut nothing = wire(20 * MS);
    nothing.loss = 1.0;
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, nothing);
    let client = pair.client;
    let app = pair.network.open(client, "echo", Script::client(1));
    // The simulation's clients wait 30 s for a connection.
    pair.network.run_for(31 * SECOND);
    let closed = pair.closed(client);
    let endings: Vec<_> = closed.iter().map(|summary| summary.ending).collect();
    assert_eq!(endings, [Ending::NoConnection]);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    assert_eq!(pair.lost(), []);
}

#[test]
fn an_application_that_gives_up_before_there_is_a_connection_is_forgotten_at_once() {
    let mut nothing = wire(20 * MS);
    nothing.loss = 1.0;
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, nothing);
    let client = pair.client;
    let gives_up = Script::client(1).write([WriteStep::Wait(SECOND), WriteStep::Abort]);
    pair.network.open(client, "echo", gives_up);
    pair.network.run_for(SECOND + MS);
    let closed = pair.closed(client);
    let endings: Vec<_> = closed.iter().map(|summary| summary.ending).collect();
    assert_eq!(endings, [Ending::AppReset]);
    assert!(pair.network.host(client).engine().is_drained());
}
