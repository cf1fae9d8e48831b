//! Rates of named clients: they hold, all connections of a client share them, and other clients do not notice them.

use std::sync::Arc;
use std::time::Duration;

use quictun_sim::engine::{Allowance, AllowanceLimits, EngineEvent, ServerEvent};
use quictun_sim::{AppId, HostId, Network, Script, Seed, SimulatedDial, WriteStep, config};
use quictun_wire::listening::{HOLDER_LEN, Listen};

use crate::tunnel_pair::{MS, SECOND, limited};

/// Time that flows wait for another connection.
const TTL: Duration = Duration::from_mins(30);

const ENDLESS: u64 = u64::MAX / 4;

/// Bytes per second at 1 Mbit/s.
const RATE: u64 = 125_000;

/// The clients of one server, each on its own link of 100 Mbit/s.
struct RateTest {
    network: Network,
    server: HostId,
    clients: Vec<HostId>,
    allowances: Vec<Arc<Allowance>>,
}

impl RateTest {
    fn new(round_trip: Duration, limits: &[AllowanceLimits]) -> Self {
        let mut network = Network::new(Seed::fixed(1));
        let mut settings = config::server(1);
        settings.role.bond_ttl = TTL;
        settings.role.identify = true;
        let server = network.add_server("server", settings);
        let mut clients = Vec::new();
        for number in 0..limits.len() as u64 {
            let mut settings = config::client_speaking(config::NATIVE, number + 2);
            settings.role.reverse = true;
            settings.role.servers[0].prover = Some(Arc::new(|_| config::PROOF));
            settings.role.bond_ttl = TTL;
            let client = network.add_client(&format!("client {number}"), settings, server);
            let link = limited(12_500_000, round_trip);
            network.link(client, server, link.clone(), link);
            clients.push(client);
        }
        network.run_for(3 * SECOND);
        let mut test = Self {
            network,
            server,
            clients,
            allowances: Vec::new(),
        };
        for (client, &limits) in limits.iter().enumerate() {
            let allowance = Arc::new(Allowance::new(test.network.now()));
            allowance.set(limits);
            test.allowances.push(allowance.clone());
            test.network.command(server, |engine, _| {
                engine
                    .server()
                    .allow_client(&format!("client {client}"), allowance);
            });
            test.name_connections(client);
        }
        let host = test.network.host(server);
        host.serve("echo", SimulatedDial::connects(), Script::echo());
        let source = anything(Script::server(1).write([WriteStep::Send(ENDLESS)]));
        host.serve("source", SimulatedDial::connects(), source);
        host.serve(
            "sink",
            SimulatedDial::connects(),
            anything(Script::server(1)),
        );
        test
    }

    /// Tells the server that the connections of a client are the client's.
    fn name_connections(&mut self, client: usize) {
        let address = self.network.address(self.clients[client]);
        self.network.command(self.server, |engine, now| {
            for report in engine.connection_reports() {
                if report.remote == address {
                    let (name, proofs) = (format!("client {client}"), [config::PROOF].into());
                    engine.server().name_peer(now, report.id, name, proofs);
                }
            }
        });
    }

    /// Ends the connections of the first client at the server, and drops everything between the two for `silence`.
    fn cut(&mut self, silence: Duration) {
        let (server, client) = (self.server, self.clients[0]);
        for (from, to) in [(client, server), (server, client)] {
            self.network.black_hole(from, to, silence);
        }
        self.network.command(server, |engine, now| {
            for report in engine.connection_reports() {
                engine.break_connection(now, report.id);
            }
        });
    }

    /// Opens a flow that transfers as much as possible, down or up.
    fn bulk(&mut self, client: usize, down: bool) -> AppId {
        let (token, script) = if down {
            ("source", Script::default())
        } else {
            ("sink", Script::default().write([WriteStep::Send(ENDLESS)]))
        };
        self.network.open(self.clients[client], token, script)
    }

    /// Returns the bytes that each client has moved so far, in both directions together.
    fn moved(&self) -> Vec<u64> {
        let usages = self.allowances.iter().map(|allowance| allowance.usage());
        usages.map(|usage| usage.up + usage.down).collect()
    }

    /// Returns the bytes that each client moves within `time`.
    fn moved_in(&mut self, time: Duration) -> Vec<u64> {
        let before = self.moved();
        self.network.run_for(time);
        let after = self.moved().into_iter().zip(before);
        after.map(|(after, before)| after - before).collect()
    }

    /// Returns the times of `count` consecutive echoes of a client. Each echo begins one second after the previous one.
    fn echoes(&mut self, client: usize, count: u64) -> Vec<Duration> {
        let mut writes = Vec::new();
        for number in 0..count {
            writes.extend([
                WriteStep::Wait(SECOND),
                WriteStep::Send(100),
                WriteStep::Received((number + 1) * 100),
            ]);
        }
        let script = Script::echoed(1).write(writes);
        let app = self.network.open(self.clients[client], "echo", script);
        let mut times = Vec::new();
        for number in 0..count {
            self.network.run_until(20 * SECOND, |network| {
                network.outcome(app).sent > number * 100
            });
            times.push(self.network.run_until(20 * SECOND, |network| {
                network.outcome(app).received >= (number + 1) * 100
            }));
        }
        times
    }
}

fn down(rate: u64) -> AllowanceLimits {
    AllowanceLimits {
        rate_down: Some(rate),
        ..AllowanceLimits::default()
    }
}

fn up(rate: u64) -> AllowanceLimits {
    AllowanceLimits {
        rate_up: Some(rate),
        ..AllowanceLimits::default()
    }
}

/// Makes a script accept any received bytes.
fn anything(script: Script) -> Script {
    Script {
        expects: None,
        ..script
    }
}

/// Lets the client ask for a listener and waits until the server listens.
fn listen(network: &mut Network, client: HostId) {
    let listen = Listen {
        id: 1,
        wait: false,
        holder: [1; HOLDER_LEN],
        address: "tcp:127.0.0.1:0".to_owned(),
    };
    let asked = network.command(client, |engine, _| {
        let connection = engine.connection_reports()[0].id;
        engine.client().listen(connection, listen)
    });
    assert!(asked, "the server listens for clients");
    network.run_for(SECOND);
}

fn within(moved: u64, rate: u64, time: Duration) {
    let want = rate * time.as_secs();
    assert!(
        moved.abs_diff(want) * 100 <= 2 * want,
        "{moved} bytes moved instead of {want}"
    );
}

// A client that asks for flows and resets them must not lengthen the server's queue.
#[test]
fn flows_that_end_while_they_wait_for_the_rate_leave_the_queue() {
    let limits = AllowanceLimits {
        rate_down: Some(1),
        ..AllowanceLimits::default()
    };
    let mut test = RateTest::new(20 * MS, &[limits]);
    for _ in 0..500 {
        let script = Script::default().write([WriteStep::Wait(100 * MS), WriteStep::Abort]);
        test.network.open(test.clients[0], "source", script);
        test.network.run_for(20 * MS);
    }
    let server = test.network.host(test.server);
    let queued = server.engine().flow_resources().queued;
    assert!(queued <= 100, "{queued}");
}

#[test]
fn one_flow_holds_its_rate_within_2_percent_over_30_s() {
    let time = 30 * SECOND;
    for round_trip in [2 * MS, 80 * MS] {
        for (limits, is_down) in [(down(RATE), true), (up(RATE), false)] {
            let mut test = RateTest::new(round_trip, &[limits]);
            let app = test.bulk(0, is_down);
            let first = test.moved_in(time)[0];
            within(first, RATE, time);
            // No data piles up on the way: there is only a short queue, or a receive window.
            let app = test.network.outcome(app);
            let here = if is_down {
                first - app.received
            } else {
                app.sent - first
            };
            assert!(here <= 300_000, "{here} bytes are in flight");
        }
    }
}

// PROTOCOL section 5.9.
#[test]
fn a_flow_to_the_clients_listener_holds_the_rate_too() {
    let time = 30 * SECOND;
    for (limits, is_down) in [(down(RATE), true), (up(RATE), false)] {
        let mut test = RateTest::new(20 * MS, &[limits]);
        let (client, server) = (test.clients[0], test.server);
        listen(&mut test.network, client);
        let endless = Script::server(1).write([WriteStep::Send(ENDLESS)]);
        let silent = Script::server(1);
        let (outside, inside) = if is_down {
            (endless, silent)
        } else {
            (silent, endless)
        };
        let (outside, inside) = (anything(outside), anything(inside));
        let target = config::reverse_token(1);
        let host = test.network.host(client);
        host.serve(&target, SimulatedDial::connects(), inside);
        test.network.open_incoming(server, 1, outside);
        within(test.moved_in(time)[0], RATE, time);
    }
}

// PROTOCOL BOND-15, CLOSE-12.
#[test]
fn flows_without_a_connection_hold_the_rate_and_the_quota() {
    let rate = 20_000;
    for (end, quota) in [
        (None, None),
        (Some(WriteStep::Finish), None),
        (None, Some(5000)),
    ] {
        let mut test = RateTest::new(20 * MS, &[up(rate)]);
        for _ in 0..4 {
            let mut writes = vec![WriteStep::Send(end.map_or(ENDLESS, |_| 30_000))];
            writes.extend(end);
            let script = anything(Script::default().write(writes));
            test.network.open(test.clients[0], "sink", script);
        }
        test.network.run_for(2 * SECOND);
        test.cut(60 * SECOND);
        let left = quota.map(|left| test.allowances[0].used() + left);
        let limits = AllowanceLimits {
            quota: left,
            ..up(rate)
        };
        test.allowances[0].set(limits);
        let at_once = test.moved_in(MS)[0];
        assert!(at_once <= 6000, "{at_once} bytes without a wait");
        let half = test.moved_in(SECOND / 2)[0];
        let most = quota.unwrap_or(rate / 2) + 1200;
        assert!(half <= most, "{half} bytes in half a second");
        let rest = test.moved_in(30 * SECOND)[0];
        let held = test.network.host(test.server).engine().flow_resources();
        match (quota, end) {
            (Some(_), _) => assert_eq!(Some(test.allowances[0].used()), left, "exactly the quota"),
            (None, Some(_)) => assert_eq!((test.moved()[0], held.buffered), (120_000, 0)),
            (None, None) => within(rest, rate, 30 * SECOND),
        }
    }
}

// PROTOCOL section 5.8.
#[test]
fn bytes_that_are_sent_again_after_a_move_are_counted_once_and_hold_the_rate() {
    for is_down in [true, false] {
        let limits: fn(u64) -> AllowanceLimits = if is_down { down } else { up };
        let mut test = RateTest::new(80 * MS, &[limits(RATE)]);
        let app = test.bulk(0, is_down);
        test.network.run_for(2 * SECOND);
        let (before, began) = (test.moved()[0], test.network.now());
        for moves in 1..=10 {
            test.cut(100 * MS);
            let server = test.server;
            test.network.run_until(10 * SECOND, |network| {
                network.host(server).engine().totals().flows_moved == moves
            });
            test.name_connections(0);
            test.network.run_for(SECOND);
        }
        let moved = test.moved()[0];
        let time = test.network.now() - began;
        let ms = u64::try_from(time.as_millis()).expect("fits");
        let most = RATE * 21 / 20 * ms / 1000;
        assert!(
            moved - before <= most,
            "{} bytes in {time:?}",
            moved - before
        );
        assert!(moved - before >= RATE * 8, "{} bytes", moved - before);
        let outcome = test.network.outcome(app);
        // Bytes between a move and the naming of the new connection do not count.
        let (least, most) = if is_down {
            (outcome.received - 200_000, outcome.received + 40_000)
        } else {
            (0, outcome.sent)
        };
        assert!((least..=most).contains(&moved), "{moved}: {outcome:?}");
    }
}

#[test]
fn two_clients_of_unequal_rates_hold_them_beside_one_without() {
    let time = 30 * SECOND;
    for is_down in [true, false] {
        let limits: fn(u64) -> AllowanceLimits = if is_down { down } else { up };
        let rates = [RATE / 2, RATE];
        let mut test = RateTest::new(
            20 * MS,
            &[
                limits(rates[0]),
                limits(rates[1]),
                AllowanceLimits::default(),
            ],
        );
        for client in 0..2 {
            for _ in 0..2 {
                test.bulk(client, is_down);
            }
        }
        let times = test.echoes(2, 10);
        let latest = times.iter().max().copied().unwrap_or_default();
        assert!(latest <= 21 * MS, "the third client's echoes: {times:?}");
        test.bulk(2, is_down);
        test.network.run_for(SECOND / 2);
        let unlimited = test.moved_in(SECOND)[2];
        assert!(unlimited > 20 * RATE, "{unlimited} bytes a second");
        let mut test = RateTest::new(
            20 * MS,
            &[
                limits(rates[0]),
                limits(rates[1]),
                AllowanceLimits::default(),
            ],
        );
        test.bulk(0, is_down);
        test.bulk(1, is_down);
        let moved = test.moved_in(time);
        within(moved[0], rates[0], time);
        within(moved[1], rates[1], time);
    }
}

#[test]
fn flows_of_one_client_have_equal_parts_and_a_new_one_does_not_wait_for_the_rest() {
    for is_down in [true, false] {
        let limits: fn(u64) -> AllowanceLimits = if is_down { down } else { up };
        let rate = 4 * RATE;
        let mut test = RateTest::new(20 * MS, &[limits(rate)]);
        let flows: Vec<AppId> = (0..8).map(|_| test.bulk(0, is_down)).collect();
        // Data that was sent before the client was known arrives first.
        test.network.run_for(8 * SECOND);
        let moved = |test: &RateTest| -> Vec<u64> {
            let outcomes = flows.iter().map(|&app| test.network.outcome(app));
            outcomes
                .map(|outcome| {
                    if is_down {
                        outcome.received
                    } else {
                        outcome.sent
                    }
                })
                .collect()
        };
        let before = moved(&test);
        test.network.run_for(10 * SECOND);
        let after = moved(&test);
        let parts: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        let least = parts.iter().min().copied().unwrap_or_default();
        assert!(least >= rate * 10 / 8 * 3 / 4, "down {is_down}: {parts:?}");
        // Eight other flows send 2 kB each before this one, which takes 4 ms each. On the way up, a window is in
        // flight.
        let times = test.echoes(0, 3);
        let latest = times.iter().max().copied().unwrap_or_default();
        assert!(latest <= 400 * MS, "down {is_down}: {times:?}");
    }
}

#[test]
fn a_new_rate_holds_at_once_for_open_flows_and_no_rate_lifts_the_limit() {
    for is_down in [true, false] {
        let limits: fn(u64) -> AllowanceLimits = if is_down { down } else { up };
        let mut test = RateTest::new(20 * MS, &[limits(10_000)]);
        test.bulk(0, is_down);
        test.network.run_for(5 * SECOND);
        for (rate, least, most) in [
            (Some(RATE), RATE * 9 / 10, RATE * 11 / 10),
            (None, 20 * RATE, ENDLESS),
        ] {
            test.allowances[0].set(rate.map_or_else(AllowanceLimits::default, limits));
            test.name_connections(0);
            test.network.run_for(SECOND);
            let moved = test.moved_in(5 * SECOND)[0] / 5;
            assert!(
                (least..most).contains(&moved),
                "{is_down} {rate:?}: {moved}"
            );
        }
    }
}

#[test]
fn a_flow_that_ends_while_it_waits_leaves_nothing_behind_and_its_bytes_arrive() {
    let mut test = RateTest::new(
        20 * MS,
        &[AllowanceLimits {
            rate_up: Some(20_000),
            rate_down: Some(20_000),
            ..AllowanceLimits::default()
        }],
    );
    let end = |end| Script::echoed(1).write([WriteStep::Send(30_000), end]);
    let whole = test
        .network
        .open(test.clients[0], "echo", end(WriteStep::Finish));
    for _ in 0..50 {
        test.network
            .open(test.clients[0], "echo", end(WriteStep::Abort));
    }
    // What was sent before a reset is delivered at the client's rate, too.
    test.network.run_for(240 * SECOND);
    assert!(test.network.outcome(whole).is_clean());
    assert_eq!(test.network.outcome(whole).received, 30_000);
    let residue = test.network.host(test.server).engine().flow_resources();
    assert_eq!(residue, quictun_sim::engine::FlowResources::default());
}

#[test]
fn an_exhausted_quota_is_reported_once_and_again_after_each_renewal() {
    let mut test = RateTest::new(
        20 * MS,
        &[AllowanceLimits {
            quota: Some(1_000_000),
            ..AllowanceLimits::default()
        }],
    );
    let told = |test: &mut RateTest| {
        let events = test.network.host(test.server).events().iter();
        let told = events.filter(
            |(_, event)| matches!(event, EngineEvent::Server(ServerEvent::QuotaUsedUp { client }) if **client == *"client 0"),
        );
        told.count()
    };
    let script = |bytes| Script::echoed(1).write([WriteStep::Send(bytes), WriteStep::Finish]);
    test.network.open(test.clients[0], "echo", script(400_000));
    test.network.run_for(2 * SECOND);
    assert_eq!(told(&mut test), 0, "both ways: 800 kB of 1 MB");
    test.network.open(test.clients[0], "echo", script(200_000));
    test.network.run_for(2 * SECOND);
    assert_eq!(told(&mut test), 1);
    test.network.open(test.clients[0], "echo", script(1000));
    test.network.run_for(2 * SECOND);
    assert_eq!(told(&mut test), 1);
    assert_eq!(test.allowances[0].used(), 1_000_000, "exactly the quota");
    test.allowances[0].set_used(999_000);
    test.network.open(test.clients[0], "echo", script(1000));
    test.network.run_for(2 * SECOND);
    assert_eq!(told(&mut test), 2);
}
