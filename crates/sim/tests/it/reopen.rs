//! Flows on a connection that turns out to be stuck: flows that have sent nothing are opened again elsewhere (PROTOCOL
//! CLOSE-10, HAZARD-5).

use std::time::Duration;

use quictun_sim::engine::{EngineEvent, Event};
use quictun_sim::{AppId, IncomingState, Network, Script, Seed, SimulatedDial, WriteStep, config};

use crate::guests::Guests as _;
use crate::original::OriginalPair;
use crate::tunnel_pair::{MS, PROTOCOLS, SECOND, TunnelPair, limited};

/// Returns the script of an application that sends after `wait` and waits for its echo.
fn speaks_after(wait: Duration) -> Script {
    Script::echoed(1).write([
        WriteStep::Wait(wait),
        WriteStep::Send(100),
        WriteStep::Received(100),
        WriteStep::Finish,
    ])
}

/// Returns the script of an application that sends at once and waits for its echo.
fn speaks() -> Script {
    speaks_after(Duration::ZERO)
}

/// Creates a client and an original server whose connection is up.
fn pair() -> OriginalPair {
    let mut pair = OriginalPair::new(limited(12_500_000, 20 * MS));
    pair.connect();
    pair
}

#[test]
fn flows_that_have_sent_nothing_leave_the_queue_behind_a_dead_target() {
    let mut pair = pair();
    let open = |pair: &mut OriginalPair, token: &str, script| {
        pair.network.open(pair.client, token, script)
    };
    let before = open(&mut pair, "tcp:echo", speaks_after(3 * SECOND));
    let dead = open(&mut pair, "tcp:black-hole", speaks_after(90 * SECOND));
    let mut quiet = Vec::new();
    for _ in 0..19 {
        quiet.push(open(&mut pair, "tcp:echo", speaks_after(5 * SECOND)));
        pair.network.run_for(100 * MS);
    }
    let bold = open(&mut pair, "tcp:echo", speaks());
    pair.network.run_for(200 * MS);
    let original = pair.network.original(pair.original);
    assert_eq!((original.accepted(), original.established()), (2, 20));
    pair.all_clean(&[before], 5 * SECOND);
    pair.all_clean(&quiet, 10 * SECOND);
    // This flow has sent bytes, which must not be sent twice.
    assert_eq!(pair.network.outcome(bold).received, 0);
    pair.all_clean(&[bold], 70 * SECOND);
    // The flow to the dead target was opened once, and the flows that left were not dialled again.
    assert_eq!(pair.network.outcome(dead).incoming, IncomingState::Reset);
    let original = pair.network.original(pair.original);
    assert_eq!((original.refused(), original.established()), (1, 21));
    assert_eq!(pair.network.original(pair.original).accepted(), 2);
}

#[test]
fn a_flow_begins_again_a_few_times_at_most() {
    let mut pair = pair();
    let dead = |pair: &mut OriginalPair| {
        let script = speaks_after(300 * SECOND);
        pair.network.open(pair.client, "tcp:black-hole", script)
    };
    for _ in 0..3 {
        dead(&mut pair);
    }
    let fourth = pair
        .network
        .open(pair.client, "tcp:echo", speaks_after(9 * SECOND));
    for _ in 0..2 {
        dead(&mut pair);
    }
    let last = pair
        .network
        .open(pair.client, "tcp:echo", speaks_after(9 * SECOND));
    pair.network.run_for(6 * SECOND + 500 * MS);
    // Three dead targets take two seconds each. Behind the fourth one, the last flow stays.
    assert_eq!(pair.network.original(pair.original).established(), 1);
    pair.all_clean(&[fourth], 10 * SECOND);
    assert_eq!(pair.network.outcome(last).received, 0);
    pair.network.run_for(30 * SECOND);
    let original = pair.network.original(pair.original);
    assert_eq!((original.accepted(), original.established()), (5, 1));
    pair.all_clean(&[last], 200 * SECOND);
    assert_eq!(pair.network.original(pair.original).refused(), 5);
}

/// Creates a client whose server was restarted and has lost its key. The server does not answer on the old connection
/// any more, but it does on a new one.
fn forgotten(protocols: &[&[u8]]) -> TunnelPair {
    let link = limited(2_500_000, 20 * MS);
    let mut pair = TunnelPair::new(Seed::fixed(1), protocols, link);
    pair.connect();
    let mut fresh = config::server(77);
    fresh.reset_key = [1; 32];
    pair.network.replace(pair.server, fresh);
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair
}

#[test]
fn flows_that_have_sent_nothing_leave_a_silent_connection() {
    for protocols in PROTOCOLS {
        let mut pair = forgotten(protocols);
        let open = |pair: &mut TunnelPair, script| pair.network.open(pair.client, "echo", script);
        let bold = open(&mut pair, speaks());
        pair.network.run_for(MS);
        let quiet: Vec<AppId> = (0..50)
            .map(|_| open(&mut pair, speaks_after(6 * SECOND)))
            .collect();
        pair.network.run_for(5 * SECOND);
        let established =
            |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Established { .. }));
        assert_eq!(pair.count(pair.client, established), quiet.len());
        pair.network.run_for(2 * SECOND);
        for app in quiet {
            let outcome = pair.network.outcome(app);
            assert!(outcome.is_clean(), "{outcome:?}");
        }
        // The server may have acted on the bytes of this flow, so the flow ends with its connection.
        assert_eq!(pair.network.outcome(bold).incoming, IncomingState::Open);
        pair.network.run_for(60 * SECOND);
        assert_eq!(pair.network.outcome(bold).incoming, IncomingState::Reset);
        assert_eq!(pair.network.outcome(bold).received, 0);
        pair.check_nothing_left();
    }
}

/// Cuts the link for `outage`, just before a quiet flow is opened. Returns the time from the end of the outage until
/// the flow is established.
fn cut_for(outage: Duration, protocols: &[&[u8]]) -> (TunnelPair, Duration) {
    let mut pair = TunnelPair::new(Seed::fixed(1), protocols, limited(2_500_000, 20 * MS));
    pair.connect();
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    let (client, server) = (pair.client, pair.server);
    let cut = |pair: &mut TunnelPair, loss| {
        for (from, to) in [(client, server), (server, client)] {
            pair.network.set_link(from, to, |link| link.loss = loss);
        }
    };
    cut(&mut pair, 1.0);
    let script = speaks_after(outage + 10 * SECOND);
    let app = pair.network.open(client, "echo", script);
    pair.network.run_for(outage);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Open);
    cut(&mut pair, 0.0);
    let up = |network: &mut Network| {
        let events = network.host(client).events();
        let mut events = events.iter().map(|(_, event)| event);
        events.any(|event| matches!(event, EngineEvent::Shared(Event::Established { .. })))
    };
    let took = pair.network.run_until(10 * SECOND, up);
    pair.network.run_for(20 * SECOND);
    let outcome = pair.network.outcome(app);
    assert!(outcome.is_clean(), "{outcome:?}");
    pair.check_nothing_left();
    (pair, took)
}

#[test]
fn a_flow_that_left_a_silent_connection_returns_to_it_when_it_answers() {
    for protocols in PROTOCOLS {
        let (mut pair, took) = cut_for(18 * SECOND, protocols);
        // The client probes the silent peer every second.
        assert!(took <= 1100 * MS, "{took:?}");
        let lost =
            |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Disconnected { .. }));
        assert_eq!(pair.count(pair.client, lost), 0);
    }
}

#[test]
fn a_flow_that_left_a_silent_connection_waits_as_long_as_it_would_have_there() {
    // The outage is longer than a flow may wait for its first connection, and shorter than the idle timeout.
    for protocols in PROTOCOLS {
        let (mut pair, _took) = cut_for(45 * SECOND, protocols);
        let attempts = pair.network.host(pair.client).engine().totals();
        assert!(attempts.connections_opened < 10, "{attempts:?}");
    }
}
