//! A client that is notified of a network change does not wait for its timers.

use std::time::Duration;

use quictun_sim::engine::report::QuicState;
use quictun_sim::engine::{ClientEvent, EngineEvent, LossReason};
use quictun_sim::{AppId, HostEngine, Script, Seed, SimulatedDial, config};
use quictun_wire::code::CloseCode;

use crate::faults::{RATE, pair};
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited, wire};

/// Round-trip time of the links.
const ROUND_TRIP: Duration = Duration::from_millis(40);

impl TunnelPair {
    fn report_network_change(&mut self) {
        let client = self.client;
        self.network.command(client, |engine, now| {
            engine.client().handle_network_change(now);
        });
    }

    /// Makes the link drop all packets in both directions, or none.
    fn cut(&mut self, cut: bool) {
        for (from, to) in [(self.client, self.server), (self.server, self.client)] {
            let loss = if cut { 1.0 } else { 0.0 };
            self.network.set_link(from, to, |link| link.loss = loss);
        }
    }

    /// Returns the time until more bytes arrive.
    fn goes_on_after(&mut self, app: AppId) -> Duration {
        let before = self.received(app);
        self.network.run_until(10 * SECOND, |network| {
            network.outcome(app).received > before
        })
    }

    fn download(&mut self) -> AppId {
        let script = Script::client(1).write([]);
        let app = self.network.open(self.client, "bulk", script);
        self.network.run_for(SECOND);
        assert!(self.received(app) > 0);
        app
    }
}

/// Interrupts a download by an outage, after which the client has another address. Returns the time until the download
/// continues.
fn stands_still(told: bool) -> Duration {
    let mut pair = pair(limited(RATE, ROUND_TRIP));
    let app = pair.download();
    pair.cut(true);
    pair.network.run_for(1900 * MS);
    let client = pair.client;
    pair.network.move_host(client);
    pair.cut(false);
    if told {
        pair.report_network_change();
    }
    let time = pair.goes_on_after(app);
    assert_eq!(pair.lost(), []);
    time
}

#[test]
fn a_download_continues_within_three_round_trips_of_the_change() {
    let told = stands_still(true);
    assert!(told <= 3 * ROUND_TRIP, "{told:?}");
    // A client that is not notified waits for a timer.
    let silent = stands_still(false);
    assert!(silent > told, "{silent:?}");
}

#[test]
fn a_server_that_has_forgotten_the_connection_says_so_at_once() {
    let mut pair = pair(limited(RATE, ROUND_TRIP));
    pair.network.run_for(SECOND);
    pair.network.replace(pair.server, config::server(77));
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair.report_network_change();
    pair.network.run_for(ROUND_TRIP + 5 * MS);
    assert_eq!(pair.lost(), [LossReason::Reset]);
    pair.echoes_within(3 * ROUND_TRIP + 10 * MS);
}

#[test]
fn a_client_that_waits_for_its_next_attempt_makes_it_at_once() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(ROUND_TRIP));
    let (client, server) = (pair.client, pair.network.address(pair.server));
    let host = pair.network.host(client);
    host.set_resolver(Err("no network".to_owned()), MS);
    pair.network.run_for(60 * SECOND);
    let asks =
        |event: &EngineEvent| matches!(event, EngineEvent::Client(ClientEvent::Resolve { .. }));
    let attempts = |pair: &mut TunnelPair| pair.count(client, asks);
    let before = attempts(&mut pair);
    let host = pair.network.host(client);
    host.set_resolver(Ok(vec![server]), MS);
    pair.report_network_change();
    // A second change during the attempt does not start another one.
    pair.network.run_for(2 * MS);
    pair.report_network_change();
    pair.network.run_for(2 * ROUND_TRIP);
    assert!(pair.network.client(client).is_connected());
    assert_eq!(attempts(&mut pair), before + 1);
    let reports = pair.network.host(client).engine().connection_reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
}

#[test]
fn an_attempt_that_has_had_no_answer_for_long_is_overtaken_by_another() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(ROUND_TRIP));
    pair.cut(true);
    // The library has retransmitted its packets after 1 s and 3 s, and waits until 7 s.
    pair.network.run_for(3500 * MS);
    pair.cut(false);
    pair.report_network_change();
    pair.network.run_for(2 * ROUND_TRIP);
    let client = pair.client;
    assert!(pair.network.client(client).is_connected());
    pair.network.run_for(20 * SECOND);
    let reports = pair.network.host(client).engine().connection_reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(pair.lost(), []);
}

#[test]
fn a_process_that_pauses_does_not_dial_beside_a_connection_that_it_asks() {
    let mut pair = pair(wire(ROUND_TRIP));
    let app = pair.download();
    let client = pair.client;
    pair.cut(true);
    pair.network.run_for(5500 * MS);
    let opened = |pair: &mut TunnelPair| {
        let totals = pair.network.host(client).engine().totals();
        totals.connections_opened
    };
    let before = opened(&mut pair);
    assert!(before > 1, "the client dials beside the silent connection");
    for _ in 0..3 {
        let since = pair.network.now();
        pair.network.stop(client, SECOND);
        pair.network.run_for(SECOND);
        pair.network.command(client, |engine, now| {
            engine.client().handle_pause(now, since);
        });
    }
    assert_eq!(opened(&mut pair), before);
    // The silent connection is asked at once, which costs no handshake.
    pair.cut(false);
    let since = pair.network.now();
    pair.network.command(client, |engine, now| {
        engine.client().handle_pause(now, since);
    });
    let continues = pair.goes_on_after(app);
    assert!(continues <= 3 * ROUND_TRIP, "{continues:?}");
}

// PROTOCOL CODE-3.
#[test]
fn another_network_does_not_hasten_a_client_that_was_refused() {
    let mut pair = TunnelPair::new(Seed::fixed(2), config::NATIVE, wire(ROUND_TRIP));
    pair.connect();
    let (client, server) = (pair.client, pair.server);
    let first = pair.network.host(server).engine().connection_reports()[0].id;
    pair.network.command(server, |engine, now| {
        engine.close_connection(now, first, CloseCode::NotAuthorized);
    });
    for _ in 0..12 {
        pair.network.run_for(200 * MS);
        pair.report_network_change();
        assert!(!pair.network.client(client).is_connected());
    }
    pair.network.run_for(3 * SECOND);
    assert!(pair.network.client(client).is_connected());
}

#[test]
fn a_network_that_changes_all_the_time_does_not_keep_a_client_from_its_server() {
    // A round trip takes longer than the time between two changes.
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(600 * MS));
    let client = pair.client;
    for _ in 0..15 {
        pair.network.run_for(200 * MS);
        pair.report_network_change();
    }
    assert!(pair.network.client(client).is_connected());
    let opened = pair.network.host(client).engine().totals();
    assert_eq!(opened.connections_opened, 1, "{opened:?}");
}

#[test]
fn a_change_that_continues_costs_an_idle_connection_a_packet_each() {
    let mut pair = pair(wire(ROUND_TRIP));
    pair.network.run_for(10 * SECOND);
    let client = pair.client;
    let before = pair.network.host(client).engine().totals().datagrams_sent;
    for _ in 0..50 {
        pair.report_network_change();
        pair.network.run_for(200 * MS);
    }
    let after = pair.network.host(client).engine().totals().datagrams_sent;
    assert!(
        after - before <= 60,
        "{} datagrams for 50 changes",
        after - before
    );
    assert!(after - before >= 50, "each change must send a packet");
}

#[test]
fn a_network_change_has_no_effect_on_an_ended_client() {
    let mut pair = pair(wire(ROUND_TRIP));
    let client = pair.client;
    pair.network.command(client, HostEngine::close);
    pair.report_network_change();
    pair.network.run_for(30 * SECOND);
    assert!(!pair.network.client(client).is_connected());
    let totals = pair.network.host(client).engine().totals();
    assert_eq!(totals.connections_opened, 1, "{totals:?}");
}

#[test]
fn quic_works_for_a_client_whose_connection_outlives_a_network_change() {
    let mut pair = pair(wire(ROUND_TRIP));
    pair.network.run_for(SECOND);
    pair.report_network_change();
    let state = |pair: &mut TunnelPair| {
        let client = pair.client;
        let report = |engine: &mut HostEngine, now| engine.client().server_reports(now);
        pair.network.command(client, report)[0].quic
    };
    pair.network.run_for(SECOND);
    assert_eq!(state(&mut pair), QuicState::Works);
    pair.cut(true);
    pair.report_network_change();
    pair.network.run_for(5 * SECOND);
    assert_eq!(state(&mut pair), QuicState::Unknown);
}
