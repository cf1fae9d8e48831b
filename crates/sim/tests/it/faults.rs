//! Faults, and the operations that must continue despite them.

use std::time::Duration;

use quictun_sim::engine::{EngineEvent, Event, LossReason};
use quictun_sim::{
    AppId, HostEngine, IncomingState, Network, Outage, ReadStep, Script, Seed, SimulatedDial,
    WriteStep, config,
};

use crate::tunnel_pair::{MS, PROTOCOLS, SECOND, TunnelPair, limited, wire};

/// Rate of the links, in bytes per second.
pub(crate) const RATE: u64 = 2_500_000;

/// Creates a pair with a connection and three targets: "bulk" sends without end, "sink" receives, "echo" echoes.
pub(crate) fn pair(link: quictun_sim::LinkConfig) -> TunnelPair {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, link);
    pair.connect();
    let host = pair.network.host(pair.server);
    host.serve(
        "bulk",
        SimulatedDial::connects(),
        Script::server(1).write([WriteStep::Send(u64::MAX / 4)]),
    );
    host.serve(
        "sink",
        SimulatedDial::connects(),
        Script::server(2).write([WriteStep::ReceivedEnd, WriteStep::Finish]),
    );
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    pair
}

impl TunnelPair {
    pub(crate) fn echo(&mut self) -> AppId {
        let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
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
            EngineEvent::Shared(Event::Disconnected { reason, .. }) => Some(reason.clone()),
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
    let mut pair = pair(link);
    let down = pair
        .network
        .open(pair.client, "bulk", Script::client(1).write([]));
    let left = until.saturating_sub(pair.network.elapsed());
    pair.network.run_for(left);
    let before = pair.received(down);
    let most = 250 * MS;
    pair.network.run_until(most, |network| {
        network.outcome(down).received >= before + RATE / 100
    });
    let after = pair.network.elapsed().saturating_sub(until);
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
    let mut pair = pair(link);
    let down = pair
        .network
        .open(pair.client, "bulk", Script::client(1).write([]));
    let bytes = 10 * RATE;
    let script = Script::client(2).write([WriteStep::Send(bytes), WriteStep::Finish]);
    let up = pair.network.open(pair.client, "sink", script);
    let quiet = pair.network.open(
        pair.client,
        "echo",
        Script::echoed(1).write([
            WriteStep::Send(10),
            WriteStep::Wait(33 * SECOND),
            WriteStep::Send(10),
            WriteStep::Received(20),
            WriteStep::Finish,
        ]),
    );
    let outage_left = (35 * SECOND).saturating_sub(pair.network.elapsed());
    pair.network.run_for(outage_left);
    let before = pair.received(down);
    pair.network.run_for(2 * SECOND);
    let after = pair.received(down);
    assert!(
        after > before + 100_000,
        "{before} bytes before the outage, {after} two seconds after it"
    );
    assert!(
        pair.network.outcome(quiet).is_clean(),
        "{:?}",
        pair.network.outcome(quiet)
    );
    pair.network
        .run_until(30 * SECOND, |network| network.outcome(up).is_over());
    assert!(pair.network.outcome(up).is_clean());
    assert_eq!(
        pair.network
            .dialled(pair.server, "sink")
            .map(|sink| sink.received),
        Some(bytes)
    );
    assert_eq!(pair.lost(), []);
}

// PROTOCOL LIMIT-3.
#[test]
fn arrived_data_is_delivered_while_the_udp_socket_is_full() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let down = pair
        .network
        .open(pair.client, "bulk", Script::client(1).write([]));
    pair.network.run_for(2 * SECOND);
    let client = pair.client;
    pair.network.host(client).set_udp_full(true);
    let before = pair.received(down);
    // Data in flight still arrives; the client need not send anything for that.
    pair.network.run_for(40 * MS);
    let after = pair.received(down);
    assert!(after > before + 10_000, "{before} bytes, then {after}");
    pair.network.host(client).set_udp_full(false);
    pair.echoes_within(SECOND);
}

#[test]
fn silence_is_reported_once_and_then_only_its_end() {
    let mut link = limited(RATE, 20 * MS);
    link.outages.push(Outage {
        from: 5 * SECOND,
        until: 20 * SECOND,
    });
    for flows in [0, 1] {
        let mut pair = pair(link.clone());
        if flows == 1 {
            pair.network.open(pair.client, "bulk", Script::client(1));
        }
        pair.network.run_for(30 * SECOND);
        let (client, server) = (pair.client, pair.server);
        let mut told = |host| {
            let silent = pair.count(host, |event| {
                matches!(event, EngineEvent::Shared(Event::Unresponsive { .. }))
            });
            (
                silent,
                pair.count(host, |event| {
                    matches!(event, EngineEvent::Shared(Event::Responsive { .. }))
                }),
            )
        };
        assert_eq!(told(client), (1, 1));
        assert_eq!(told(server), (flows, flows));
    }
}

// PROTOCOL QUIC-5.
#[test]
fn transfers_continue_when_the_client_gets_another_address() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let down = pair
        .network
        .open(pair.client, "bulk", Script::client(1).write([]));
    pair.network.run_for(2 * SECOND);
    let rate = pair.received(down) / 2;
    pair.network.move_host(pair.client);
    pair.network.run_for(5 * SECOND);
    // A client that only receives does not notice the move. The next packet that it sends shows the move to the server.
    let expected = 2 * rate + 2 * rate;
    assert!(
        pair.received(down) > expected,
        "{} of {expected}",
        pair.received(down)
    );
    let up = pair.network.open(
        pair.client,
        "sink",
        Script::client(2).write([WriteStep::Send(3 * RATE), WriteStep::Finish]),
    );
    pair.network.run_for(SECOND);
    pair.network.move_host(pair.client);
    pair.network.run_for(SECOND);
    let arrived = pair
        .network
        .dialled(pair.server, "sink")
        .map_or(0, |sink| sink.received);
    assert!(
        arrived > RATE,
        "{arrived} bytes in two seconds with a move between them"
    );
    pair.network
        .run_until(10 * SECOND, |network| network.outcome(up).is_over());
    assert!(pair.network.outcome(up).is_clean());
    let server = pair.server;
    assert_eq!(
        pair.count(server, |event| matches!(
            event,
            EngineEvent::Shared(Event::Migrated { .. })
        )),
        2
    );
    assert_eq!(pair.lost(), []);
}

/// Lets `stalled` applications stop reading for 20 s while another one continues. Returns the share of the link that
/// the other one gets meanwhile, and the most bytes that a stalled one has cost.
fn stalls(stalled: u64, loss: f64) -> (f64, u64) {
    let mut link = limited(RATE, 20 * MS);
    link.loss = loss;
    let mut client = config::client(1);
    client.transport.stream_window = WINDOW;
    let mut pair = TunnelPair::with(
        Seed::fixed(1),
        client,
        config::server(1),
        link.clone(),
        link,
    );
    pair.connect();
    let bytes = 8_000_000;
    let host = pair.network.host(pair.server);
    host.serve(
        "bulk",
        SimulatedDial::connects(),
        Script::server(1).write([WriteStep::Send(u64::MAX / 4)]),
    );
    let sleeper = Script::client(1)
        .read([ReadStep::Bytes(1000), ReadStep::Pause(20 * SECOND)])
        .write([WriteStep::Finish]);
    let mut sleepers = Vec::new();
    for number in 0..stalled {
        let token = format!("sleeper {number}");
        let answer = Script::server(1).write([WriteStep::Send(bytes), WriteStep::Finish]);
        pair.network
            .host(pair.server)
            .serve(&token, SimulatedDial::connects(), answer);
        sleepers.push((
            pair.network.open(pair.client, &token, sleeper.clone()),
            token,
        ));
    }
    pair.network.run_for(8 * SECOND);
    let busy = Script::client(1).write([WriteStep::Wait(11 * SECOND), WriteStep::Abort]);
    let busy = pair.network.open(pair.client, "bulk", busy);
    pair.network.run_for(SECOND);
    let before = pair.received(busy);
    pair.network.run_for(9 * SECOND);
    let got = pair.received(busy) - before;
    let sent = sleepers
        .iter()
        .filter_map(|(_, token)| pair.network.dialled(pair.server, token));
    let cost = sent.map(|outcome| outcome.sent).max().unwrap_or(0);
    let over = |network: &mut Network| {
        sleepers
            .iter()
            .all(|(app, _)| network.outcome(*app).is_over())
    };
    pair.network.run_until(300 * SECOND, over);
    for (app, _) in &sleepers {
        assert!(pair.network.outcome(*app).is_clean());
        assert_eq!(pair.received(*app), bytes);
    }
    pair.check_nothing_left();
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = got as f64 / (RATE * 9) as f64;
    (share, cost)
}

/// Stream window of the side whose applications stop reading.
const WINDOW: u32 = 512 * 1024;

#[test]
fn an_application_that_stops_reading_costs_a_bounded_amount_and_slows_no_other_flow() {
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
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let (client, server) = (pair.client, pair.server);
    pair.network
        .set_link(client, server, |link| link.loss = 1.0);
    let app = pair.echo();
    pair.network.run_for(29 * SECOND);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Open);
    pair.network.run_for(2 * SECOND);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    pair.check_nothing_left();
    pair.network
        .set_link(client, server, |link| link.loss = 0.0);
    pair.network
        .host(server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair.echoes_within(20 * SECOND);
}

#[test]
fn a_connection_that_its_client_closes_after_its_flows_is_not_lost() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let app = pair.echo();
    pair.network
        .run_until(SECOND, |network| network.outcome(app).is_over());
    assert!(pair.network.outcome(app).is_clean());
    // The server still waits for the confirmation that the client has its bytes.
    pair.network.command(pair.client, HostEngine::close);
    pair.network.run_for(SECOND);
    let in_order = |event: &EngineEvent| {
        matches!(
            event,
            EngineEvent::Shared(Event::Disconnected { flows: 0, .. })
        )
    };
    assert_eq!(pair.count(pair.server, in_order), 1);
    let totals = pair.network.host(pair.server).engine().totals();
    assert_eq!((totals.flows_finished, totals.connections_lost), (1, 0));
}

#[test]
fn closing_notifies_both_sides_and_leaves_nothing() {
    for protocols in PROTOCOLS {
        for closes in ["client", "server"] {
            let mut pair = TunnelPair::new(Seed::fixed(1), protocols, limited(RATE, 20 * MS));
            pair.connect();
            let busy = [WriteStep::Send(u64::MAX / 4)];
            pair.network.host(pair.server).serve(
                "bulk",
                SimulatedDial::connects(),
                Script::server(1).write(busy),
            );
            let app = pair
                .network
                .open(pair.client, "bulk", Script::client(1).write(busy));
            pair.network.run_for(SECOND);
            let host = if closes == "client" {
                pair.client
            } else {
                pair.server
            };
            pair.network.command(host, HostEngine::close);
            pair.network.run_for(SECOND);
            assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
            let there = pair.network.dialled(pair.server, "bulk").expect("dialled");
            assert_eq!(there.incoming, IncomingState::Reset);
            pair.check_nothing_left();
            for side in [pair.client, pair.server] {
                let totals = pair.network.host(side).engine().totals();
                assert_eq!(totals.connections_lost, u64::from(side != host));
                // A client keeps trying to connect; a server that has closed refuses its handshakes.
                assert_eq!(
                    totals.handshakes_failed == 0,
                    host == pair.client,
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
        let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
        let parse = |text: &str| text.parse().expect("an address");
        let (addresses, after) = match tries {
            Ok(texts) => (texts.into_iter().map(parse).collect(), Duration::ZERO),
            Err(()) => (vec![pair.network.address(pair.server)], SECOND),
        };
        let client = pair.client;
        pair.network.host(client).set_resolver(Ok(addresses), after);
        pair.network.run_for(100 * MS);
        pair.network.command(client, HostEngine::close);
        assert!(pair.network.run_to_silence(30 * SECOND));
        let reports = pair.network.host(client).engine().connection_reports();
        assert_eq!(reports.len(), 0, "{reports:?}");
        assert_eq!(pair.count(pair.server, |_| true), 0);
    }
}

#[test]
fn a_draining_server_takes_flows_until_its_last_connection_has_none() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let bytes = 2 * RATE;
    let script = Script::client(2).write([WriteStep::Send(bytes), WriteStep::Finish]);
    let running = pair.network.open(pair.client, "sink", script);
    pair.network.run_for(SECOND);
    let server = pair.server;
    pair.network.host(server).engine().drain();
    let last = pair.echo();
    pair.network.run_for(100 * MS);
    // The client has no other server.
    assert!(pair.network.outcome(last).is_clean());
    assert!(!pair.network.host(server).engine().is_drained());
    pair.network.run_until(10 * SECOND, |network| {
        network.host(server).engine().is_drained()
    });
    assert!(pair.network.outcome(running).is_clean());
    assert_eq!(
        pair.network
            .dialled(server, "sink")
            .map(|sink| sink.received),
        Some(bytes)
    );
}

#[test]
fn transfers_continue_when_the_path_carries_only_smaller_packets() {
    let mut pair = pair(limited(RATE, 20 * MS));
    let down = pair.network.open(pair.client, "bulk", Script::client(1));
    let up = Script::client(2).write([WriteStep::Send(u64::MAX / 4)]);
    pair.network.open(pair.client, "sink", up);
    pair.network.run_for(3 * SECOND);
    let (client, server) = (pair.client, pair.server);
    for (from, to) in [(client, server), (server, client)] {
        pair.network.set_link(from, to, |link| link.mtu = 1250);
    }
    let arrived = |pair: &TunnelPair| {
        let up = pair
            .network
            .dialled(pair.server, "sink")
            .map_or(0, |sink| sink.received);
        (pair.received(down), up)
    };
    pair.network.run_for(3 * SECOND);
    let before = arrived(&pair);
    pair.network.run_for(2 * SECOND);
    let after = arrived(&pair);
    assert!(
        after.0 > before.0 + RATE && after.1 > before.1 + RATE,
        "{before:?} {after:?}"
    );
    assert_eq!(pair.lost(), []);
}
