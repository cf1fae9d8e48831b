//! Many clients behind one address, and a restart of the server that all of them must notice.

use std::sync::Arc;
use std::time::Duration;

use quictun_sim::engine::{EngineConfig, ServerRole};
use quictun_sim::{AppId, HostId, LinkConfig, Script, Seed, SimulatedDial, WriteStep, config};

use crate::tunnel_pair::{MS, SECOND, TunnelPair, wire};

const CLIENTS: u64 = 200;

/// Returns a server that asks for an identity and has `places` places for clients that have not proved theirs.
fn server(places: usize) -> EngineConfig<ServerRole> {
    let mut server = config::server(1);
    server.role.identify = true;
    server.role.max_handshakes = places;
    server.role.retry_above = places / 2;
    server
}

// PROTOCOL AUTH-6.
#[test]
fn two_hundred_clients_behind_one_address_return_within_10_s_of_a_restart() {
    // First the places that the default memory allows, at a long distance; then the places that 16 MiB allow, at a
    // short one. In the second case a handshake must complete before as many others begin as there are places.
    for (places, round_trip) in [(1024, 100 * MS), (21, 20 * MS)] {
        let client = |number| {
            let mut client = config::client_speaking(config::NATIVE, number);
            client.role.servers[0].prover = Some(Arc::new(|_| config::PROOF));
            client
        };
        let link = wire(round_trip);
        let first = client(1);
        let mut pair = TunnelPair::with(Seed::fixed(1), first, server(places), link.clone(), link);
        let mut clients = vec![pair.client];
        for number in 2..=CLIENTS {
            let name = format!("client {number}");
            let (server, neighbour) = (pair.server, pair.client);
            let network = &mut pair.network;
            let id = network.add_client_beside(&name, client(number), server, neighbour);
            network.link(id, server, wire(round_trip), wire(round_trip));
            clients.push(id);
        }
        let host = pair.network.host(pair.server);
        host.serve("echo", SimulatedDial::connects(), Script::echo());
        pair.network.run_for(30 * SECOND);
        for &client in &clients {
            let connected = pair.network.client(client).is_connected();
            assert!(connected, "{places} places: a client is not connected");
        }
        pair.network.kill_server(pair.server, server(places));
        let host = pair.network.host(pair.server);
        host.serve("echo", SimulatedDial::connects(), Script::echo());
        let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
        pair.network.run_for(10 * SECOND);
        let mut apps = Vec::new();
        for &client in &clients {
            apps.push(pair.network.open(client, "echo", script.clone()));
        }
        pair.network.run_for(SECOND / 2);
        let served = |app| pair.network.outcome(app).is_clean();
        let served = apps.into_iter().filter(|&app| served(app)).count();
        assert_eq!(served, clients.len(), "{places} places");
    }
}

/// Number of clients in an outage, and the maximum number of handshakes that they may cost the server afterwards.
const CUT_OFF: u64 = 30;
const HANDSHAKES: u64 = 33;

/// Cuts off many clients behind one address, whose flows have bonds. Returns the time until the slowest flow continues
/// after the outage, and the number of handshakes that the server has begun by then.
fn slowest_after(outage: Duration) -> (Duration, u64) {
    let client = |number| {
        let mut client = config::client_speaking(config::NATIVE, number);
        client.role.bond_ttl = 600 * SECOND;
        client
    };
    let mut server = config::server(1);
    server.role.bond_ttl = 600 * SECOND;
    let link = wire(20 * MS);
    let mut pair = TunnelPair::with(Seed::fixed(1), client(1), server, link.clone(), link);
    let mut clients = vec![pair.client];
    for number in 2..=CUT_OFF {
        let name = format!("client {number}");
        let (server, neighbour) = (pair.server, pair.client);
        let network = &mut pair.network;
        let id = network.add_client_beside(&name, client(number), server, neighbour);
        network.link(id, server, wire(20 * MS), wire(20 * MS));
        clients.push(id);
    }
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    pair.network.run_for(2 * SECOND);
    let blocks = [WriteStep::Send(100), WriteStep::Wait(100 * MS)].repeat(2000);
    let script = Script::echoed(1).write(blocks);
    let open = |&client: &HostId| pair.network.open(client, "echo", script.clone());
    let apps: Vec<_> = clients.iter().map(open).collect();
    pair.network.run_for(SECOND);
    for &client in &clients {
        pair.network.black_hole(client, pair.server, outage);
        pair.network.black_hole(pair.server, client, outage);
    }
    pair.network.run_for(outage);
    let before: Vec<_> = apps.iter().map(|&app| pair.received(app)).collect();
    let took = pair.network.run_until(15 * SECOND, |network| {
        let mut all = apps.iter().zip(&before);
        all.all(|(&app, &before)| network.outcome(app).received > before)
    });
    let begun = pair.network.host(pair.server).engine().totals();
    (took, begun.connections_opened - CUT_OFF)
}

#[test]
fn flows_of_many_clients_continue_within_three_seconds_of_an_outage() {
    // The connections outlive the first outage, and are probed every 0.6 s at its end.
    let (took, _) = slowest_after(20 * SECOND);
    assert!(took <= 700 * MS, "{took:?}");
    for outage in [80 * SECOND, 95 * SECOND] {
        let (took, handshakes) = slowest_after(outage);
        assert!(took <= 3100 * MS, "{took:?} after {outage:?}");
        let fair = CUT_OFF..=HANDSHAKES;
        assert!(fair.contains(&handshakes), "{handshakes} after {outage:?}");
    }
}

/// Joins a client and a server, and opens a flow of a bond that sends 100 bytes every 100 ms, 200 times.
fn talking_pair(loss: f64) -> (TunnelPair, AppId) {
    let mut client = config::client_speaking(config::NATIVE, 1);
    client.role.bond_ttl = 600 * SECOND;
    let mut server = config::server(1);
    server.role.bond_ttl = 600 * SECOND;
    let link = LinkConfig {
        loss,
        ..wire(20 * MS)
    };
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    pair.network.run_for(2 * SECOND);
    let blocks = [WriteStep::Send(100), WriteStep::Wait(100 * MS)].repeat(200);
    let script = Script::echoed(1).write(blocks);
    let app = pair.network.open(pair.client, "echo", script);
    pair.network.run_for(SECOND);
    (pair, app)
}

/// Returns the number of connections that the client has opened so far.
fn opened(pair: &mut TunnelPair) -> u64 {
    let totals = pair.network.host(pair.client).engine().totals();
    totals.connections_opened
}

#[test]
fn a_client_that_gets_no_processor_time_does_not_dial_again() {
    let (mut pair, app) = talking_pair(0.0);
    for _ in 0..10 {
        // The server runs a little later, so the client finds no answer when it runs.
        pair.network.stop(pair.client, 1500 * MS);
        pair.network.stop(pair.server, 1550 * MS);
        pair.network.run_for(2 * SECOND);
    }
    pair.network.run_for(20 * SECOND);
    assert!(pair.network.outcome(app).received >= 20_000);
    assert_eq!(opened(&mut pair), 1);
}

#[test]
fn a_client_of_a_busy_server_dials_once_and_then_gives_it_time() {
    // A busy server also loses datagrams, for which its socket has no room.
    for loss in [0.0, 0.2] {
        let (mut pair, app) = talking_pair(loss);
        let mut dials = Vec::new();
        for _ in 0..4 {
            let before = opened(&mut pair);
            pair.network.stop(pair.server, SECOND);
            pair.network.run_for(4 * SECOND);
            dials.push(opened(&mut pair) - before);
        }
        assert!(pair.network.outcome(app).received >= 10_000);
        assert_eq!(dials, [1, 0, 0, 0], "loss {loss}");
    }
}
