//! The size that packets reach, and the time until they do.

use std::net::SocketAddr;
use std::sync::Arc;

use quictun_sim::engine::{EngineConfig, Transport};
use quictun_sim::{Dial, Script, Seed, Write, config};

use crate::world::{MS, SECOND, World, wire};

/// Returns the UDP payload of a packet of `mtu` bytes.
const fn payload(mtu: u16) -> u16 {
    mtu - 28
}

/// Creates engines whose first hop carries packets of `first` bytes, on a path that carries packets of `path` bytes.
fn world(first: u16, path: u16) -> World {
    fn hop<R>(config: EngineConfig<R>, payload: u16) -> EngineConfig<R> {
        let path_mtu = Arc::new(move |_: SocketAddr| payload);
        EngineConfig {
            transport: Transport::new(path_mtu),
            ..config
        }
    }
    let client = hop(config::client_speaking(config::NATIVE, 1), payload(first));
    let server = hop(config::server(1), payload(first));
    let mut link = wire(20 * MS);
    link.mtu = usize::from(path);
    let mut world = World::with(Seed::fixed(1), client, server, link.clone(), link);
    let client = world.client;
    world.network.run_until(30 * SECOND, |network| {
        network.host(client).engine().is_connected()
    });
    world
}

/// Returns the largest UDP payload that each side sends.
fn found(world: &mut World) -> [u16; 2] {
    [world.client, world.server].map(|host| {
        let reports = world.network.host(host).engine().connection_reports();
        reports.first().expect("a connection").mtu
    })
}

#[test]
fn what_the_first_hop_of_a_local_path_carries_is_known_after_a_round_trip() {
    let mut world = world(u16::MAX, u16::MAX);
    world.network.run_for(50 * MS);
    assert_eq!(found(&mut world), [payload(u16::MAX); 2]);
}

#[test]
fn a_first_hop_that_promises_too_much_costs_no_connection() {
    // From 16 KiB on there is only one attempt; below that, the search goes on.
    let limit = 16 * 1024 + 28;
    for (first, least) in [(u16::MAX, 1200), (limit, 1200), (limit - 1, 1440)] {
        let mut world = world(first, 1500);
        let sink = Script::server(1).write([Write::ReceivedEnd, Write::Finish]);
        let host = world.network.host(world.server);
        host.serve("sink", Dial::connects(), sink);
        let script = Script::client(1).write([Write::Send(2_000_000), Write::Finish]);
        let app = world.network.open(world.client, "sink", script);
        world
            .network
            .run_until(30 * SECOND, |network| network.outcome(app).is_over());
        assert!(world.network.outcome(app).is_clean(), "{first}");
        world.network.run_for(10 * SECOND);
        let found = found(&mut world);
        let fits = |mtu| (least..=payload(1500)).contains(&mtu);
        assert!(found.into_iter().all(fits), "{first}: {found:?}");
    }
}
