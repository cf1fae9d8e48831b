//! A client that is notified of a network change does not wait for its timers.

use std::time::Duration;

use quictun_sim::engine::{Engine, Event, LossReason};
use quictun_sim::{AppId, Dial, Script, Seed, config};
use quictun_wire::code::CloseCode;

use crate::faults::{RATE, world};
use crate::world::{MS, SECOND, World, limited, wire};

/// Round-trip time of the links.
const ROUND_TRIP: Duration = Duration::from_millis(40);

impl World {
    fn tell_of_another_network(&mut self) {
        let client = self.client;
        self.network.command(client, Engine::handle_network_change);
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
/// goes on.
fn stands_still(told: bool) -> Duration {
    let mut world = world(limited(RATE, ROUND_TRIP));
    let app = world.download();
    world.cut(true);
    world.network.run_for(1900 * MS);
    let client = world.client;
    world.network.move_host(client);
    world.cut(false);
    if told {
        world.tell_of_another_network();
    }
    let time = world.goes_on_after(app);
    assert_eq!(world.lost(), []);
    time
}

#[test]
fn a_download_goes_on_within_three_round_trips_of_the_change() {
    let told = stands_still(true);
    assert!(told <= 3 * ROUND_TRIP, "{told:?}");
    // A client that is not notified waits for a timer.
    let silent = stands_still(false);
    assert!(silent > told, "{silent:?}");
}

#[test]
fn a_server_that_has_forgotten_the_connection_says_so_at_once() {
    let mut world = world(limited(RATE, ROUND_TRIP));
    world.network.run_for(SECOND);
    world.network.replace(world.server, config::server(77));
    world
        .network
        .host(world.server)
        .serve("echo", Dial::connects(), Script::echo());
    world.tell_of_another_network();
    world.network.run_for(ROUND_TRIP + 5 * MS);
    assert_eq!(world.lost(), [LossReason::Reset]);
    world.echoes_within(3 * ROUND_TRIP + 10 * MS);
}

#[test]
fn a_client_that_waits_for_its_next_attempt_makes_it_at_once() {
    let mut world = World::new(Seed::fixed(1), config::NATIVE, wire(ROUND_TRIP));
    let (client, server) = (world.client, world.network.address(world.server));
    let host = world.network.host(client);
    host.set_resolver(Err("no network".to_owned()), MS);
    world.network.run_for(60 * SECOND);
    let asks = |event: &Event| matches!(event, Event::Resolve { .. });
    let attempts = |world: &mut World| world.count(client, asks);
    let before = attempts(&mut world);
    let host = world.network.host(client);
    host.set_resolver(Ok(vec![server]), MS);
    world.tell_of_another_network();
    // A second change during the attempt does not start another one.
    world.network.run_for(2 * MS);
    world.tell_of_another_network();
    world.network.run_for(2 * ROUND_TRIP);
    assert!(world.network.host(client).engine().is_connected());
    assert_eq!(attempts(&mut world), before + 1);
    let reports = world.network.host(client).engine().connection_reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
}

#[test]
fn an_attempt_that_has_had_no_answer_for_long_is_overtaken_by_another() {
    let mut world = World::new(Seed::fixed(1), config::NATIVE, wire(ROUND_TRIP));
    world.cut(true);
    // The library has retransmitted its packets after 1 s and 3 s, and waits until 7 s.
    world.network.run_for(3500 * MS);
    world.cut(false);
    world.tell_of_another_network();
    world.network.run_for(2 * ROUND_TRIP);
    let client = world.client;
    assert!(world.network.host(client).engine().is_connected());
    world.network.run_for(20 * SECOND);
    let reports = world.network.host(client).engine().connection_reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(world.lost(), []);
}

// PROTOCOL CODE-3.
#[test]
fn another_network_does_not_hasten_a_client_that_was_refused() {
    let mut world = World::new(Seed::fixed(2), config::NATIVE, wire(ROUND_TRIP));
    world.connect();
    let (client, server) = (world.client, world.server);
    let first = world.network.host(server).engine().connection_reports()[0].id;
    world.network.command(server, |engine, now| {
        engine.close_connection(now, first, CloseCode::NotAuthorized);
    });
    for _ in 0..12 {
        world.network.run_for(200 * MS);
        world.tell_of_another_network();
        assert!(!world.network.host(client).engine().is_connected());
    }
    world.network.run_for(3 * SECOND);
    assert!(world.network.host(client).engine().is_connected());
}

#[test]
fn a_network_that_changes_all_the_time_does_not_keep_a_client_from_its_server() {
    // A round trip takes longer than the time between two changes.
    let mut world = World::new(Seed::fixed(1), config::NATIVE, wire(600 * MS));
    let client = world.client;
    for _ in 0..15 {
        world.network.run_for(200 * MS);
        world.tell_of_another_network();
    }
    assert!(world.network.host(client).engine().is_connected());
    let opened = world.network.host(client).engine().totals();
    assert_eq!(opened.connections_opened, 1, "{opened:?}");
}

#[test]
fn a_change_that_goes_on_costs_an_idle_connection_a_packet_each() {
    let mut world = world(wire(ROUND_TRIP));
    world.network.run_for(10 * SECOND);
    let client = world.client;
    let before = world.network.host(client).engine().totals().datagrams_sent;
    for _ in 0..50 {
        world.tell_of_another_network();
        world.network.run_for(200 * MS);
    }
    let after = world.network.host(client).engine().totals().datagrams_sent;
    assert!(
        after - before <= 60,
        "{} datagrams for 50 changes",
        after - before
    );
    assert!(after - before >= 50, "each change must send a packet");
}

#[test]
fn a_server_and_a_client_that_has_ended_are_told_without_effect() {
    let mut world = world(wire(ROUND_TRIP));
    let (client, server) = (world.client, world.server);
    world.network.command(server, Engine::handle_network_change);
    world.network.command(client, Engine::close);
    world.tell_of_another_network();
    world.network.run_for(30 * SECOND);
    assert!(!world.network.host(client).engine().is_connected());
    let totals = world.network.host(client).engine().totals();
    assert_eq!(totals.connections_opened, 1, "{totals:?}");
}
