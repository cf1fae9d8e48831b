//! Connections that break, and hosts that sleep, move or receive nothing.

use std::net::SocketAddr;
use std::time::Duration;

use quictun_sim::engine::{ConnectionId, Event, LossReason};
use quictun_sim::{AppId, HostId, Incoming, Script, Write};

use crate::faults::{RATE, world};
use crate::world::{MS, SECOND, World, limited};

impl World {
    /// Returns the ids of a host's connections that are up.
    pub(crate) fn up(&mut self, host: HostId) -> Vec<ConnectionId> {
        let reports = self.network.host(host).engine().connection_reports();
        let up = reports.iter().filter(|report| report.protocol.is_some());
        up.map(|report| report.id).collect()
    }

    fn ends(&mut self, host: HostId) -> Vec<LossReason> {
        let events = self.network.host(host).events().iter();
        let reasons = events.filter_map(|(_, event)| match event {
            Event::Disconnected { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        reasons.collect()
    }

    /// Creates a world in which the client receives without end.
    fn receiving() -> (Self, AppId) {
        let mut world = world(limited(RATE, 20 * MS));
        let down = Script::client(1).write([]);
        let app = world.network.open(world.client, "bulk", down);
        world.network.run_for(SECOND);
        (world, app)
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
        let (mut world, app) = World::receiving();
        let (client, server) = (world.client, world.server);
        let [host, other] = if breaks == "client" {
            [client, server]
        } else {
            [server, client]
        };
        world.break_at(host);
        // The one-way delay, plus the time by which an acknowledgement may be delayed.
        world.network.run_for(15 * MS);
        let [here, there] = [host, other].map(|host| world.ends(host));
        assert!(matches!(here[..], [LossReason::Protocol(_)]), "{here:?}");
        assert!(
            matches!(there[..], [LossReason::ClosedByPeer(_)]),
            "{there:?}"
        );
        assert_eq!(world.network.outcome(app).incoming, Incoming::Reset);
        world.echoes_within(100 * MS);
    }
}

#[test]
fn a_connection_that_one_end_has_forgotten_ends_at_the_other_by_a_stateless_reset() {
    for forgets in ["client", "server"] {
        let (mut world, app) = World::receiving();
        let (client, server) = (world.client, world.server);
        let [host, other] = if forgets == "client" {
            [client, server]
        } else {
            [server, client]
        };
        // This flow keeps data in flight to the side that forgets.
        let up = Script::client(2).write([Write::Send(u64::MAX / 4)]);
        world.network.open(client, "sink", up);
        world.network.run_for(100 * MS);
        world.forget_at(host, false);
        world.network.run_for(50 * MS);
        assert_eq!(world.ends(other), [LossReason::Reset]);
        assert_eq!(world.network.outcome(app).incoming, Incoming::Reset);
        world.echoes_within(100 * MS);
    }
}

#[test]
fn a_connection_that_one_end_has_forgotten_and_hides_ends_at_the_other_by_silence() {
    let (mut world, app) = World::receiving();
    let (client, server) = (world.client, world.server);
    world.forget_at(server, true);
    world.network.run_for(5 * SECOND);
    let silent = |event: &Event| matches!(event, Event::Unresponsive { .. });
    assert_eq!(world.count(client, silent), 1);
    assert_eq!(world.ends(client), []);
    world.echoes_within(100 * MS);
    assert_eq!(world.network.outcome(app).incoming, Incoming::Open);
    world.network.run_for(60 * SECOND);
    assert_eq!(world.ends(client), [LossReason::TimedOut]);
    assert_eq!(world.network.outcome(app).incoming, Incoming::Reset);
}

#[test]
fn a_host_that_sleeps_hears_nothing_and_goes_on_where_it_was() {
    let (mut world, app) = World::receiving();
    let client = world.client;
    let before = world.received(app);
    world.network.sleep(client, 20 * SECOND);
    world.network.run_for(19_999 * MS);
    assert_eq!(world.received(app), before);
    // A process that was merely stopped would find at least 65 KiB in its socket now.
    world.network.run_for(2 * MS);
    assert!(world.received(app) < before + 60_000);
    world.network.run_for(10 * SECOND);
    assert!(world.received(app) > before + RATE);
    assert_eq!(world.ends(client), []);
}

#[test]
fn a_host_that_sleeps_beyond_the_idle_timeout_finds_its_connection_gone() {
    let (mut world, app) = World::receiving();
    let (client, server) = (world.client, world.server);
    world.network.sleep(client, 100 * SECOND);
    world.network.run_for(100 * SECOND);
    assert_eq!(world.ends(server), [LossReason::TimedOut]);
    world.network.run_for(MS);
    assert_eq!(world.ends(client), [LossReason::TimedOut]);
    assert_eq!(world.network.outcome(app).incoming, Incoming::Reset);
    world.echoes_within(100 * MS);
}

#[test]
fn a_client_that_its_translator_forgets_goes_on_from_another_port() {
    let (mut world, app) = World::receiving();
    let (client, server) = (world.client, world.server);
    let before = world.received(app);
    let old = world.network.address(client);
    world.network.rebind(client);
    let new = world.network.address(client);
    assert_eq!(old.ip(), new.ip());
    assert_ne!(old.port(), new.port());
    world.network.run_for(5 * SECOND);
    assert!(world.received(app) > before + RATE);
    let events = world.network.host(server).events().iter();
    let moves: Vec<(SocketAddr, SocketAddr)> = events
        .filter_map(|(_, event)| match event {
            Event::Migrated { from, to, .. } => Some((*from, *to)),
            _ => None,
        })
        .collect();
    assert_eq!(moves, [(old, new)]);
    assert_eq!(world.ends(client), []);
}

#[test]
fn a_black_hole_takes_one_direction_and_ends_on_time() {
    let hole = 5000 * MS;
    for taken in [[true, false], [false, true], [true, true]] {
        let (mut world, app) = World::receiving();
        let (client, server) = (world.client, world.server);
        let ways = [(client, server), (server, client)];
        let delivered = |world: &World, way: usize| {
            let (from, to) = ways[way];
            world.network.counters(from, to).delivered
        };
        for way in 0..2 {
            let (from, to) = ways[way];
            if taken[way] {
                world.network.black_hole(from, to, hole);
            }
        }
        world.network.run_for(100 * MS);
        let before = [0, 1].map(|way| delivered(&world, way));
        world.network.run_for(4800 * MS);
        for way in 0..2 {
            let passed = delivered(&world, way) > before[way];
            assert_eq!(passed, !taken[way], "{taken:?}, way {way}");
        }
        let before = world.received(app);
        world.network.run_for(Duration::from_secs(6));
        assert!(world.received(app) > before + RATE, "{taken:?}");
        assert_eq!(world.ends(client), []);
    }
}
