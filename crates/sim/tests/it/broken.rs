//! Connections that break, and hosts that sleep, move or receive nothing.

use std::net::SocketAddr;
use std::time::Duration;

use quictun_sim::engine::{ConnectionId, EngineEvent, Event, LossReason, ServerEvent};
use quictun_sim::{AppId, HostId, IncomingState, Script, WriteStep, config};

use crate::faults::{RATE, pair};
use crate::guests::Guests as _;
use crate::open::with_bare;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited, request};

impl TunnelPair {
    /// Returns the ids of a host's connections that are up.
    pub(crate) fn up(&mut self, host: HostId) -> Vec<ConnectionId> {
        let reports = self.network.host(host).engine().connection_reports();
        let up = reports.iter().filter(|report| report.protocol.is_some());
        up.map(|report| report.id).collect()
    }

    fn ends(&mut self, host: HostId) -> Vec<LossReason> {
        let events = self.network.host(host).events().iter();
        let reasons = events.filter_map(|(_, event)| match event {
            EngineEvent::Shared(Event::Disconnected { reason, .. }) => Some(reason.clone()),
            _ => None,
        });
        reasons.collect()
    }

    /// Creates a pair in which the client receives without end.
    fn receiving() -> (Self, AppId) {
        let mut pair = pair(limited(RATE, 20 * MS));
        let down = Script::client(1).write([]);
        let app = pair.network.open(pair.client, "bulk", down);
        pair.network.run_for(SECOND);
        (pair, app)
    }

    fn break_at(&mut self, host: HostId) {
        let id = self.up(host)[0];
        self.network
            .command(host, |engine, now| engine.break_connection(now, id));
    }

    fn forget_at(&mut self, host: HostId, mute: bool) {
        let id = self.up(host)[0];
        self.network
            .command(host, |engine, now| engine.forget_connection(now, id, mute));
    }
}

#[test]
fn a_connection_that_a_library_gives_up_is_followed_by_another_at_once() {
    for breaks in ["client", "server"] {
        let (mut pair, app) = TunnelPair::receiving();
        let (client, server) = (pair.client, pair.server);
        let [host, other] = if breaks == "client" {
            [client, server]
        } else {
            [server, client]
        };
        pair.break_at(host);
        // The one-way delay, plus the time by which an acknowledgement may be delayed.
        pair.network.run_for(15 * MS);
        let [here, there] = [host, other].map(|host| pair.ends(host));
        assert!(matches!(here[..], [LossReason::Protocol(_)]), "{here:?}");
        assert!(
            matches!(there[..], [LossReason::ClosedByPeer(_)]),
            "{there:?}"
        );
        assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
        pair.echoes_within(100 * MS);
    }
}

#[test]
fn a_connection_that_one_end_has_forgotten_ends_at_the_other_by_a_stateless_reset() {
    for forgets in ["client", "server"] {
        let (mut pair, app) = TunnelPair::receiving();
        let (client, server) = (pair.client, pair.server);
        let [host, other] = if forgets == "client" {
            [client, server]
        } else {
            [server, client]
        };
        // This flow keeps data in flight to the side that forgets.
        let up = Script::client(2).write([WriteStep::Send(u64::MAX / 4)]);
        pair.network.open(client, "sink", up);
        pair.network.run_for(100 * MS);
        pair.forget_at(host, false);
        pair.network.run_for(50 * MS);
        assert_eq!(pair.ends(other), [LossReason::Reset]);
        assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
        pair.echoes_within(100 * MS);
    }
}

#[test]
fn a_connection_that_one_end_forgets_without_stateless_resets_ends_at_the_other_by_silence() {
    let (mut pair, app) = TunnelPair::receiving();
    let (client, server) = (pair.client, pair.server);
    pair.forget_at(server, true);
    pair.network.run_for(5 * SECOND);
    let silent =
        |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Unresponsive { .. }));
    assert_eq!(pair.count(client, silent), 1);
    assert_eq!(pair.ends(client), []);
    pair.echoes_within(100 * MS);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Open);
    pair.network.run_for(60 * SECOND);
    assert_eq!(pair.ends(client), [LossReason::TimedOut]);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
}

#[test]
fn a_host_that_sleeps_receives_nothing_and_continues_where_it_was() {
    let (mut pair, app) = TunnelPair::receiving();
    let client = pair.client;
    let before = pair.received(app);
    pair.network.sleep(client, 20 * SECOND);
    pair.network.run_for(19_999 * MS);
    assert_eq!(pair.received(app), before);
    // A process that was merely stopped would find at least 65 KiB in its socket now.
    pair.network.run_for(2 * MS);
    assert!(pair.received(app) < before + 60_000);
    pair.network.run_for(10 * SECOND);
    assert!(pair.received(app) > before + RATE);
    assert_eq!(pair.ends(client), []);
}

#[test]
fn a_host_that_sleeps_beyond_the_idle_timeout_finds_its_connection_gone() {
    let (mut pair, app) = TunnelPair::receiving();
    let (client, server) = (pair.client, pair.server);
    pair.network.sleep(client, 100 * SECOND);
    pair.network.run_for(100 * SECOND);
    assert_eq!(pair.ends(server), [LossReason::TimedOut]);
    pair.network.run_for(MS);
    assert_eq!(pair.ends(client), [LossReason::TimedOut]);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    pair.echoes_within(100 * MS);
}

#[test]
fn a_client_continues_from_another_port_after_its_nat_forgets_it() {
    let (mut pair, app) = TunnelPair::receiving();
    let (client, server) = (pair.client, pair.server);
    let before = pair.received(app);
    let old = pair.network.address(client);
    pair.network.rebind(client);
    let new = pair.network.address(client);
    assert_eq!(old.ip(), new.ip());
    assert_ne!(old.port(), new.port());
    pair.network.run_for(5 * SECOND);
    assert!(pair.received(app) > before + RATE);
    let events = pair.network.host(server).events().iter();
    let moves: Vec<(SocketAddr, SocketAddr)> = events
        .filter_map(|(_, event)| match event {
            EngineEvent::Shared(Event::Migrated { from, to, .. }) => Some((*from, *to)),
            _ => None,
        })
        .collect();
    assert_eq!(moves, [(old, new)]);
    assert_eq!(pair.ends(client), []);
}

// PROTOCOL HEADER-2, RFC 9000 section 9.3: a datagram may have a false source address.
#[test]
fn an_address_counts_as_the_clients_once_the_client_has_received_there() {
    let (mut pair, bare) = with_bare(config::NATIVE);
    let server = pair.server;
    let migrations = |pair: &mut TunnelPair| -> Vec<(SocketAddr, SocketAddr)> {
        let events = pair.network.host(server).events().iter();
        let moves = events.filter_map(|(_, event)| match event {
            EngineEvent::Shared(Event::Migrated { from, to, .. }) => Some((*from, *to)),
            _ => None,
        });
        moves.collect()
    };
    let first = pair.network.address(bare);
    pair.network.black_hole(server, bare, SECOND);
    pair.network.move_host(bare);
    let second = pair.network.address(bare);
    let stream = pair.network.bare(bare).open();
    let bytes = request(config::NATIVE, "echo");
    pair.network.bare(bare).write(stream, &bytes);
    pair.network.run_for(SECOND);
    let host = pair.network.host(server);
    let opened: Vec<SocketAddr> = host
        .events()
        .iter()
        .filter_map(|(_, event)| match event {
            EngineEvent::Server(ServerEvent::Open(opened)) => Some(opened.remote),
            _ => None,
        })
        .collect();
    assert_eq!(opened, [first]);
    let reports = host.engine().connection_reports();
    assert!(reports.iter().any(|report| report.remote == first));
    assert_eq!(migrations(&mut pair), []);
    // From now on, the client receives there.
    pair.network.run_for(5 * SECOND);
    assert_eq!(migrations(&mut pair), [(first, second)]);
    // An idle client needs no flow to show that it has moved.
    pair.network.rebind(bare);
    let third = pair.network.address(bare);
    pair.network.bare(bare).connection().ping();
    pair.network.run_for(SECOND);
    assert_eq!(migrations(&mut pair), [(first, second), (second, third)]);
}

#[test]
fn a_black_hole_takes_one_direction_and_ends_on_time() {
    let hole = 5000 * MS;
    for taken in [[true, false], [false, true], [true, true]] {
        let (mut pair, app) = TunnelPair::receiving();
        let (client, server) = (pair.client, pair.server);
        let ways = [(client, server), (server, client)];
        let delivered = |pair: &TunnelPair, way: usize| {
            let (from, to) = ways[way];
            pair.network.counters(from, to).delivered
        };
        for way in 0..2 {
            let (from, to) = ways[way];
            if taken[way] {
                pair.network.black_hole(from, to, hole);
            }
        }
        pair.network.run_for(100 * MS);
        let before = [0, 1].map(|way| delivered(&pair, way));
        pair.network.run_for(4800 * MS);
        for way in 0..2 {
            let passed = delivered(&pair, way) > before[way];
            assert_eq!(passed, !taken[way], "{taken:?}, way {way}");
        }
        let before = pair.received(app);
        pair.network.run_for(Duration::from_secs(6));
        assert!(pair.received(app) > before + RATE, "{taken:?}");
        assert_eq!(pair.ends(client), []);
    }
}
