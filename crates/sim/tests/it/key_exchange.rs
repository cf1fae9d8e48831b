//! The cost of a post-quantum key exchange when its longer `ClientHello` is lost.

use std::time::Duration;

use quictun_sim::engine::{ClientEvent, ClientRole, EngineConfig, EngineEvent, LossReason};
use quictun_sim::{LinkConfig, Network, Seed, config};

use crate::tunnel_pair::{MS, SECOND, TunnelPair, wire};

/// Number of connections of each kind: enough that the slowest percent is more than a handful.
const TRIES: u64 = 500;

/// Share of packets that the link loses.
const LOSS: f64 = 0.05;

fn pair(seed: u64, client: fn(u64) -> EngineConfig<ClientRole>, link: &LinkConfig) -> TunnelPair {
    TunnelPair::with(
        Seed::fixed(seed),
        client(seed),
        config::server(seed),
        link.clone(),
        link.clone(),
    )
}

fn classical(seed: u64) -> EngineConfig<ClientRole> {
    config::client_speaking(config::NATIVE, seed)
}

/// Returns the times that clients took to connect, shortest first.
fn times(client: fn(u64) -> EngineConfig<ClientRole>, round_trip: Duration) -> Vec<Duration> {
    let mut link = wire(round_trip);
    link.loss = LOSS;
    let mut times: Vec<Duration> = (0..TRIES)
        .map(|seed| {
            let mut pair = pair(seed, client, &link);
            let client = pair.client;
            pair.network
                .run_until(60 * SECOND, |network| network.client(client).is_connected())
        })
        .collect();
    times.sort_unstable();
    times
}

fn mean(times: &[Duration]) -> Duration {
    let count = u32::try_from(times.len()).expect("a few");
    times.iter().sum::<Duration>() / count
}

#[test]
fn at_5_percent_loss_a_post_quantum_connection_takes_at_most_a_tenth_longer() {
    for round_trip in [20 * MS, 100 * MS] {
        let before = times(classical, round_trip);
        let now = times(config::post_quantum_client, round_trip);
        let check = |what: &str, before: Duration, now: Duration| {
            assert!(
                now * 10 <= before * 11,
                "{round_trip:?}, {what}: {now:?} instead of {before:?}"
            );
        };
        check("mean", mean(&before), mean(&now));
        for percent in [50, 90, 95, 99, 100] {
            let at = |times: &[Duration]| times[(times.len() * percent / 100).min(times.len() - 1)];
            check(&format!("{percent} %"), at(&before), at(&now));
        }
    }
}

/// Returns the number of datagrams in the first flight of attempt 1 and of attempts 3 to 7. All attempts fail for a
/// reason that `expected` accepts. Attempt 2 begins at the instant at which attempt 1 ends, so the two flights cannot
/// be distinguished.
fn first_flights(mut pair: TunnelPair, expected: fn(&LossReason) -> bool) -> Vec<u64> {
    let client = pair.client;
    let mut flights = Vec::new();
    for attempt in [0, 2, 3, 4, 5, 6] {
        let failed = |network: &mut Network| {
            let events = network.host(client).events().iter();
            let failures = events.filter(|(_, event)| {
                matches!(
                    event,
                    EngineEvent::Client(ClientEvent::ConnectFailed { .. })
                )
            });
            failures.count()
        };
        pair.network
            .run_until(60 * SECOND, |network| failed(network) >= attempt);
        let sent = |network: &mut Network| network.host(client).engine().totals().datagrams_sent;
        let before = sent(&mut pair.network);
        pair.network
            .run_until(60 * SECOND, |network| sent(network) > before);
        flights.push(sent(&mut pair.network) - before);
    }
    for (_, event) in pair.network.host(client).events() {
        if let EngineEvent::Client(ClientEvent::ConnectFailed { reason, .. }) = event {
            assert!(expected(reason), "{reason}");
        }
    }
    flights
}

#[test]
fn after_a_time_out_every_other_attempt_is_classical() {
    let mut nothing = wire(20 * MS);
    nothing.loss = 1.0;
    let pair = pair(1, config::post_quantum_client, &nothing);
    let flights = first_flights(pair, |reason| *reason == LossReason::TimedOut);
    assert_eq!(flights, [2, 2, 1, 2, 1, 2]);
}

#[test]
fn a_server_that_answers_and_refuses_is_never_asked_classically() {
    let mut pair = pair(1, config::post_quantum_client, &wire(20 * MS));
    let mut server = config::server(1);
    // The client does not speak the protocol of this server.
    server.role.crypto = config::compat_server_tls();
    pair.network.replace(pair.server, server);
    let flights = first_flights(pair, |reason| matches!(reason, LossReason::Protocol(_)));
    assert_eq!(flights, [2; 6]);
}
