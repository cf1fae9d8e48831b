//! A network that lets QUIC's handshake pass, and nothing after it. TLS carries there.

use std::time::Duration;

use quictun_sim::engine::CarrierChoice;
use quictun_sim::engine::report::CarrierKind;
use quictun_sim::{FilterRule, PathFilter, Script, SimulatedDial, WriteStep};

use crate::carriers::{BOTH_PASS, NO_UDP, pair};
use crate::transfers::echoes;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, wire};

const HANDSHAKES: PathFilter = PathFilter {
    udp: FilterRule::Handshakes,
    tcp: FilterRule::Pass,
};

/// Opens a flow each second. Returns the longest time until the first byte of an answer.
fn longest_first_byte(pair: &mut TunnelPair, flows: u64) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..flows {
        longest = longest.max(echoes(pair, 1)[0]);
        pair.network.run_for(SECOND);
    }
    longest
}

#[test]
fn flows_come_to_tls_and_stay_there() {
    for round_trip in [20 * MS, 300 * MS] {
        let mut pair = pair(1, CarrierChoice::Auto, &wire(round_trip));
        pair.filter(HANDSHAKES);
        // The client connects when it starts.
        pair.network.run_for(3 * SECOND);
        // Meanwhile QUIC is tried several times.
        let longest = longest_first_byte(&mut pair, 120);
        assert!(longest <= 3 * round_trip, "{longest:?} at {round_trip:?}");
        assert_eq!(pair.carriers(), [CarrierKind::Tls]);
        pair.filter(BOTH_PASS);
        pair.network.run_for(120 * SECOND);
        assert_eq!(pair.carriers(), [CarrierKind::Quic]);
    }
}

#[test]
fn a_probe_whose_handshake_alone_passes_takes_no_flow_from_tls() {
    let mut pair = pair(1, CarrierChoice::Auto, &wire(20 * MS));
    pair.filter(NO_UDP);
    longest_first_byte(&mut pair, 1);
    // A flow that rests, so that the probe has fewer.
    let host = pair.network.host(pair.server);
    host.serve("rests", SimulatedDial::connects(), Script::server(7));
    let rests = Script::client(7).write([WriteStep::Wait(100 * SECOND), WriteStep::Finish]);
    pair.network.open(pair.client, "rests", rests);
    pair.network.run_for(SECOND);
    let by_tls = |pair: &mut TunnelPair| {
        let reports = pair.network.client(pair.client).connection_reports();
        let by_tls = reports.iter().find(|it| it.carrier == CarrierKind::Tls);
        by_tls.map(|report| report.id)
    };
    let before = by_tls(&mut pair);
    pair.filter(HANDSHAKES);
    let longest = longest_first_byte(&mut pair, 60);
    assert!(longest <= 100 * MS, "{longest:?}");
    assert_eq!(by_tls(&mut pair), before, "the connection by TLS stays");
}

#[test]
fn handshakes_without_tls_beside_them_are_tried_about_once_a_second() {
    let mut pair = pair(1, CarrierChoice::Auto, &wire(20 * MS));
    pair.network.host(pair.server).set_listens_on_tcp(false);
    pair.filter(HANDSHAKES);
    pair.network.run_for(60 * SECOND);
    let connected = pair
        .network
        .host(pair.server)
        .engine()
        .totals()
        .connections_opened;
    assert!(connected <= 60, "{connected} handshakes in a minute");
}
