//! The cost of connections on which nothing happens, in wake-ups and send calls.

use std::time::Duration;

use quictun_sim::engine::report::Totals;
use quictun_sim::{HostId, Seed, config};

use crate::tunnel_pair::{MS, SECOND, TunnelPair, wire};

const CONNECTIONS: usize = 100;

/// The time over which hosts are observed, in keep-alive intervals.
const INTERVALS: u32 = 20;

/// The keep-alive interval of the engines.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Returns a pair with idle connections.
fn idle(connections: usize) -> TunnelPair {
    let mut client = config::client_speaking(config::NATIVE, 1);
    client.role.connections = connections;
    let link = wire(20 * MS);
    let mut pair = TunnelPair::with(
        Seed::fixed(1),
        client,
        config::server(1),
        link.clone(),
        link,
    );
    pair.connect();
    pair.network.run_for(30 * SECOND);
    for host in [pair.client, pair.server] {
        let reports = pair.network.host(host).engine().connection_reports();
        assert_eq!(reports.len(), connections);
    }
    pair
}

/// Observes a host: returns its wake-ups, send calls and datagrams.
fn observe(pair: &mut TunnelPair, host: HostId) -> (u64, u64, u64) {
    let read = |pair: &mut TunnelPair| -> (u64, Totals) {
        let host = pair.network.host(host);
        (host.wakes(), host.engine().totals())
    };
    let (wakes, before) = read(pair);
    pair.network.run_for(INTERVALS * KEEP_ALIVE);
    let (wakes_now, after) = read(pair);
    (
        wakes_now - wakes,
        after.batches_sent - before.batches_sent,
        after.datagrams_sent - before.datagrams_sent,
    )
}

#[test]
fn keep_alives_of_many_connections_and_their_answers_share_send_calls() {
    let mut pair = idle(CONNECTIONS);
    for host in [pair.client, pair.server] {
        let (_, batches, datagrams) = observe(&mut pair, host);
        assert!(datagrams >= u64::from(INTERVALS - 1) * CONNECTIONS as u64);
        assert!(batches * 5 < datagrams, "{batches} calls, {datagrams}");
    }
}

/// The client wakes to ask, and for the answer. The server wakes for the question, and because its own time to ask comes
/// a little earlier. If it delayed the answer, it would wake once more.
#[test]
fn a_keep_alive_wakes_each_side_twice() {
    let mut pair = idle(1);
    for host in [pair.client, pair.server] {
        let (wakes, _, datagrams) = observe(&mut pair, host);
        assert!(datagrams >= u64::from(INTERVALS - 1));
        let most = 2 * u64::from(INTERVALS) + 4;
        assert!(wakes <= most, "{wakes} wake-ups, {datagrams}");
    }
}
