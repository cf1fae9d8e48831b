//! Middleboxes that tamper with TCP: new segments, resets and ends in the middle of records, and a server in the place
//! of the server.

use std::time::Duration;

use quictun_sim::engine::report::CarrierKind;
use quictun_sim::engine::{CarrierChoice, ClientEvent, EngineEvent, Event, LossReason};
use quictun_sim::{
    AppId, HostId, IncomingState, Network, Script, Seed, SimulatedDial, TcpCut, WriteStep, config,
};

use crate::carriers::{BOTH_PASS, NO_TCP, NO_UDP, configs};
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited, wire};

/// Bytes of the short exchange.
const SHORT: u64 = 200;

/// Bytes between two positions of a cut.
const STEP: usize = 3;

/// More bytes than a side receives of the short exchange with its handshake.
const TOTAL_MAX: usize = 6000;

fn pair(seed: u64, choice: CarrierChoice) -> TunnelPair {
    let (mut client, server) = configs(seed, choice);
    client.role.connections = 1;
    let link = limited(1_250_000, 2 * MS);
    let mut pair = TunnelPair::with(Seed::fixed(seed), client, server, link.clone(), link);
    pair.network.host(pair.server).set_listens_on_tcp(true);
    pair
}

/// Begins an echo of `bytes` bytes.
fn echo(pair: &mut TunnelPair, bytes: u64) -> AppId {
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    let script = Script::echoed(1).write([WriteStep::Send(bytes), WriteStep::Finish]);
    pair.network.open(pair.client, "echo", script)
}

/// Waits for the end of an application. Returns its state, and the number of bytes that it has received.
fn ended(pair: &mut TunnelPair, app: AppId, within: Duration) -> (IncomingState, u64) {
    let over = |network: &mut Network| network.outcome(app).is_over();
    pair.network.run_until(within, over);
    let outcome = pair.network.outcome(app);
    (outcome.incoming, outcome.received)
}

#[test]
fn records_that_are_split_at_every_byte_carry_flows() {
    for split in [1, 2, 3, 5, 7, 23, 211] {
        let mut pair = pair(1, CarrierChoice::Tls);
        for host in [pair.client, pair.server] {
            pair.network.split_tcp(host, split);
        }
        let app = echo(&mut pair, 3000);
        assert_eq!(
            ended(&mut pair, app, 60 * SECOND),
            (IncomingState::Fin, 3000)
        );
        assert_eq!(pair.moves(), [0, 0], "in segments of {split} bytes");
    }
}

/// Cuts the first connection of a short echo after every third byte that arrives at a side. The flow ends as if nothing
/// had happened. Only while the client cannot know whether the target has its bytes, it is reset before it has received
/// anything. It never ends as if it were complete.
fn cut_everywhere(side: impl Fn(&TunnelPair) -> HostId, cut: TcpCut) {
    let (mut resets, mut at) = (Vec::new(), 0);
    loop {
        let mut pair = pair(1, CarrierChoice::Tls);
        let host = side(&pair);
        pair.network.cut_next_tcp(host, at, cut);
        let app = echo(&mut pair, SHORT);
        match ended(&mut pair, app, 30 * SECOND) {
            (IncomingState::Fin, SHORT) => {}
            (IncomingState::Reset, 0) => resets.push(at),
            end => panic!("{cut:?} after {at} bytes: {end:?}"),
        }
        let dials = pair.count(pair.client, |event| {
            matches!(event, EngineEvent::Client(ClientEvent::DialCarrier { .. }))
        });
        if dials == 1 {
            // All bytes of the exchange have arrived before.
            break;
        }
        assert!(at < TOTAL_MAX, "the exchange is longer than expected");
        at += STEP;
    }
    assert!(at > 500, "the exchange has only {at} bytes");
    // From the first byte of the request until the answer.
    assert!(
        resets.windows(2).all(|two| two[1] - two[0] == STEP),
        "{resets:?}"
    );
    assert!(resets.len() * STEP < 500, "{resets:?}");
}

#[test]
fn a_reset_after_any_byte_ends_no_flow_as_if_it_were_complete() {
    cut_everywhere(|pair| pair.client, TcpCut::Reset);
    cut_everywhere(|pair| pair.server, TcpCut::Reset);
}

// PROTOCOL TLS-3.
#[test]
fn an_end_without_close_notify_after_any_byte_is_no_end_of_a_flow() {
    cut_everywhere(|pair| pair.client, TcpCut::Fin);
    cut_everywhere(|pair| pair.server, TcpCut::Fin);
}

#[test]
fn a_flow_whose_connection_was_truncated_for_good_is_reset() {
    for cut in [TcpCut::Fin, TcpCut::Reset] {
        for at in [3000, 10_000, 30_001] {
            let (mut client, mut server) = configs(1, CarrierChoice::Tls);
            (client.role.bond_ttl, server.role.bond_ttl) = (SECOND, SECOND);
            let link = limited(125_000, 20 * MS);
            let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
            pair.network.host(pair.server).set_listens_on_tcp(true);
            pair.network.cut_next_tcp(pair.client, at, cut);
            let app = echo(&mut pair, 100_000);
            let begun = |network: &mut Network| {
                let outcome = network.outcome(app);
                outcome.received > 500 || outcome.is_over()
            };
            pair.network.run_until(10 * SECOND, begun);
            // The connection in use carries on up to the cut, and no other begins.
            let lost = |pair: &mut TunnelPair| {
                pair.count(pair.client, |event| {
                    matches!(event, EngineEvent::Shared(Event::Disconnected { .. }))
                })
            };
            while lost(&mut pair) == 0 {
                pair.network.run_for(MS);
            }
            pair.filter(NO_TCP);
            let (state, received) = ended(&mut pair, app, 60 * SECOND);
            assert_eq!(state, IncomingState::Reset, "{cut:?} after {at} bytes");
            assert!(received < 100_000);
        }
    }
}

/// Returns the reasons for which a client's attempts have failed.
fn failures(pair: &mut TunnelPair) -> Vec<LossReason> {
    let events = pair.network.host(pair.client).events().iter();
    let reasons = events.filter_map(|(_, event)| match event {
        EngineEvent::Client(ClientEvent::ConnectFailed { reason, .. }) => Some(reason.clone()),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn an_impostor_on_tcp_gets_no_flow_and_its_certificate_is_reported_while_quic_is_tried() {
    let mut pair = pair(1, CarrierChoice::Auto);
    let impostor = pair.network.add_server("impostor", config::impostor(2));
    pair.network.host(impostor).set_listens_on_tcp(true);
    pair.network
        .link(pair.client, impostor, wire(2 * MS), wire(2 * MS));
    pair.network.divert_tcp(pair.client, pair.server, impostor);
    pair.filter(NO_UDP);
    let app = echo(&mut pair, SHORT);
    pair.network.run_for(20 * SECOND);
    let reasons = failures(&mut pair);
    assert!(!reasons.is_empty(), "no failure is reported");
    for reason in &reasons {
        let text = reason.to_string();
        assert!(text.contains("certificate"), "{text}");
    }
    pair.filter(BOTH_PASS);
    assert_eq!(
        ended(&mut pair, app, 30 * SECOND),
        (IncomingState::Fin, SHORT)
    );
    assert_eq!(pair.carriers(), [CarrierKind::Quic]);
}
