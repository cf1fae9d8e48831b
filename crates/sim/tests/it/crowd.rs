//! Many clients behind one address, and the server's restart that they all have to notice.

use std::sync::Arc;

use quictun_sim::engine::{EngineConfig, ServerRole};
use quictun_sim::{Dial, Script, Seed, Write, config};

use crate::world::{MS, SECOND, World, wire};

const CLIENTS: u64 = 200;

/// A server that asks for an identity, with so many places for those that have not shown theirs.
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
    // As many places as the default memory gives, far away, and as 16 MiB do, nearer: there a handshake has to be done
    // before as many others as there are places have begun.
    for (places, round_trip) in [(1024, 100 * MS), (21, 20 * MS)] {
        let client = |number| {
            let mut client = config::client_speaking(config::NATIVE, number);
            client.role.servers[0].prover = Some(Arc::new(|_| config::PROOF));
            client
        };
        let link = wire(round_trip);
        let first = client(1);
        let mut world = World::with(Seed::fixed(1), first, server(places), link.clone(), link);
        let mut clients = vec![world.client];
        for number in 2..=CLIENTS {
            let name = format!("client {number}");
            let (server, neighbour) = (world.server, world.client);
            let network = &mut world.network;
            let id = network.add_client_beside(&name, client(number), server, neighbour);
            network.link(id, server, wire(round_trip), wire(round_trip));
            clients.push(id);
        }
        let host = world.network.host(world.server);
        host.serve("echo", Dial::connects(), Script::echo());
        world.network.run_for(30 * SECOND);
        for &client in &clients {
            let connected = world.network.host(client).engine().is_connected();
            assert!(connected, "{places} places: a client is not connected");
        }
        world.network.kill_server(world.server, server(places));
        let host = world.network.host(world.server);
        host.serve("echo", Dial::connects(), Script::echo());
        let script = Script::echoed(1).write([Write::Send(100), Write::Finish]);
        world.network.run_for(10 * SECOND);
        let mut apps = Vec::new();
        for &client in &clients {
            apps.push(world.network.open(client, "echo", script.clone()));
        }
        world.network.run_for(SECOND / 2);
        let served = |app| world.network.outcome(app).is_clean();
        let served = apps.into_iter().filter(|&app| served(app)).count();
        assert_eq!(served, clients.len(), "{places} places");
    }
}
