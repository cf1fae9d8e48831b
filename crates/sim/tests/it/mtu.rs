//! The size that packets reach, and the time until they do.

use std::net::SocketAddr;
use std::sync::Arc;

use quictun_sim::engine::{EngineConfig, Transport};
use quictun_sim::{Script, Seed, SimulatedDial, WriteStep, config};

use crate::tunnel_pair::{MS, SECOND, TunnelPair, wire};

/// Returns the UDP payload of a packet of `mtu` bytes.
const fn payload(mtu: u16) -> u16 {
    mtu - 28
}

/// Creates engines whose first hop carries packets of `first` bytes, on a path that carries packets of `path` bytes.
fn pair(first: u16, path: u16) -> TunnelPair {
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
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
    let client = pair.client;
    pair.network
        .run_until(30 * SECOND, |network| network.client(client).is_connected());
    pair
}

/// Returns the largest UDP payload that each side sends.
fn found(pair: &mut TunnelPair) -> [u16; 2] {
    [pair.client, pair.server].map(|host| {
        let reports = pair.network.host(host).engine().connection_reports();
        reports
            .first()
            .and_then(|report| report.mtu)
            .expect("a connection by QUIC")
    })
}

#[test]
fn the_mtu_of_the_first_hop_of_a_local_path_is_known_after_a_round_trip() {
    let mut pair = pair(u16::MAX, u16::MAX);
    pair.network.run_for(50 * MS);
    assert_eq!(found(&mut pair), [payload(u16::MAX); 2]);
}

#[test]
fn an_overstated_first_hop_mtu_costs_no_connection() {
    // From 16 KiB on there is only one attempt; below that, the search continues.
    let limit = 16 * 1024 + 28;
    for (first, least) in [(u16::MAX, 1200), (limit, 1200), (limit - 1, 1440)] {
        let mut pair = pair(first, 1500);
        let sink = Script::server(1).write([WriteStep::ReceivedEnd, WriteStep::Finish]);
        let host = pair.network.host(pair.server);
        host.serve("sink", SimulatedDial::connects(), sink);
        let script = Script::client(1).write([WriteStep::Send(2_000_000), WriteStep::Finish]);
        let app = pair.network.open(pair.client, "sink", script);
        pair.network
            .run_until(30 * SECOND, |network| network.outcome(app).is_over());
        assert!(pair.network.outcome(app).is_clean(), "{first}");
        pair.network.run_for(10 * SECOND);
        let found = found(&mut pair);
        let fits = |mtu| (least..=payload(1500)).contains(&mtu);
        assert!(found.into_iter().all(fits), "{first}: {found:?}");
    }
}
