//! Flows of applications that exchange datagrams: their size, their end, their limits, and their company.

use std::time::Duration;

use quictun_sim::engine::{CarrierChoice, Ending};
use quictun_sim::{AppId, Script, Seed, SimulatedDial, WriteStep, config};
use quictun_wire::code::FlowCode;

use crate::carriers::NO_UDP;
use crate::datagram_schedules::{check_datagrams, datagrams};
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited, wire};

const TARGET: &str = "udp:target:4000";

fn pair(seed: u64) -> TunnelPair {
    let mut pair = TunnelPair::new(Seed::fixed(seed), config::NATIVE, wire(20 * MS));
    pair.connect();
    pair
}

fn echo(pair: &mut TunnelPair) {
    let script = datagrams(1, vec![WriteStep::Echo, WriteStep::Finish]);
    let server = pair.network.host(pair.server);
    server.serve(TARGET, SimulatedDial::connects(), script);
}

fn open(pair: &mut TunnelPair, write: Vec<WriteStep>) -> AppId {
    pair.network.open(pair.client, TARGET, datagrams(0, write))
}

/// Opens a flow that sends as much as the connection carries.
fn open_bulk(pair: &mut TunnelPair) -> AppId {
    let server = pair.network.host(pair.server);
    server.serve("bulk", SimulatedDial::connects(), Script::server(3));
    let send = Script::client(3).write([WriteStep::Send(1_000_000_000), WriteStep::Finish]);
    pair.network.open(pair.client, "bulk", send)
}

/// Returns the steps that send datagrams of these lengths, one every 10 ms.
fn paced(lengths: impl IntoIterator<Item = usize>) -> Vec<WriteStep> {
    let steps = |len| [WriteStep::Datagram(len), WriteStep::Wait(10 * MS)];
    lengths.into_iter().flat_map(steps).collect()
}

fn arrived(pair: &TunnelPair, app: AppId) -> [usize; 2] {
    check_datagrams(&pair.network, app, pair.server, TARGET)
}

// PROTOCOL UDP-3, UDP-4: empty, small, of a QUIC Initial, fragmented, and of the greatest length.
#[test]
fn datagrams_of_all_lengths_arrive_and_come_back() {
    let lengths = [0, 1, 200, 1100, 1200, 1472, 9000, 65_000, 65_507, 65_527];
    let mut pair = pair(1);
    echo(&mut pair);
    // A flow queues one of the greatest length.
    let steps = |len| [WriteStep::Datagram(len), WriteStep::Wait(200 * MS)];
    let app = open(&mut pair, lengths.into_iter().flat_map(steps).collect());
    pair.network.run_for(3 * SECOND);
    assert_eq!(arrived(&pair, app), [lengths.len(); 2]);
}

// PROTOCOL UDP-2: the stream is the flow's life, and the counters are those of every flow.
#[test]
fn a_flow_ends_with_its_application_on_both_sides() {
    let mut pair = pair(2);
    echo(&mut pair);
    let write = [
        paced([100, 200]),
        vec![WriteStep::Wait(SECOND), WriteStep::Finish],
    ]
    .concat();
    let app = open(&mut pair, write);
    pair.finish(app, 0, 10 * SECOND);
    for host in [pair.client, pair.server] {
        let [closed] = &pair.closed(host)[..] else {
            panic!("one flow");
        };
        assert_eq!(closed.ending, Ending::Finished);
        assert_eq!((closed.bytes_to_tunnel, closed.bytes_to_app), (300, 300));
    }
}

// PROTOCOL UDP-8.
#[test]
fn an_idle_flow_ends_as_if_its_application_had_ended() {
    for (port, answers, idle) in [
        (4000, true, 120),
        (53, true, 17),
        (123, true, 10),
        (123, false, 120),
    ] {
        let mut pair = pair(3);
        let token = format!("udp:target:{port}");
        let echo = if answers {
            vec![WriteStep::Echo]
        } else {
            vec![WriteStep::ReceivedEnd]
        };
        let script = datagrams(1, [echo, vec![WriteStep::Finish]].concat());
        let server = pair.network.host(pair.server);
        server.serve(&token, SimulatedDial::connects(), script);
        let write = vec![
            WriteStep::Datagram(10),
            WriteStep::ReceivedEnd,
            WriteStep::Finish,
        ];
        let app = pair.network.open(pair.client, &token, datagrams(0, write));
        pair.network.run_for(Duration::from_secs(idle - 1));
        assert!(!pair.network.outcome(app).is_over(), "{port}");
        pair.network.run_for(3 * SECOND);
        assert!(pair.network.outcome(app).is_clean(), "{port}");
        pair.check_nothing_left();
    }
}

// PROTOCOL UDP-7: at the limit, and one above.
#[test]
fn a_target_that_does_not_answer_gets_eight_datagrams_and_one_a_second() {
    let mut pair = pair(4);
    let silent = datagrams(1, vec![WriteStep::ReceivedEnd, WriteStep::Finish]);
    let server = pair.network.host(pair.server);
    server.serve(TARGET, SimulatedDial::connects(), silent);
    let app = open(&mut pair, [paced([50; 40]), paced([50; 100])].concat());
    pair.network.run_for(900 * MS);
    assert_eq!(arrived(&pair, app), [8, 0]);
    pair.network.run_for(200 * MS);
    assert_eq!(arrived(&pair, app), [9, 0]);
}

// PROTOCOL UDP-7: datagrams that arrive before the target is connected.
#[test]
fn a_slow_dial_keeps_eight_datagrams() {
    let mut pair = pair(5);
    let script = datagrams(1, vec![WriteStep::Echo, WriteStep::Finish]);
    let dial = SimulatedDial::Connects { after: SECOND };
    pair.network.host(pair.server).serve(TARGET, dial, script);
    let write = [paced([70; 12]), vec![WriteStep::Wait(10 * SECOND)]].concat();
    let app = open(&mut pair, write);
    pair.network.run_for(900 * MS);
    assert_eq!(arrived(&pair, app), [0, 0]);
    pair.network.run_for(SECOND);
    assert_eq!(arrived(&pair, app), [8, 8]);
}

// PROTOCOL UDP-1.
#[test]
fn a_peer_of_the_original_protocol_takes_no_datagrams() {
    let mut pair = TunnelPair::new(Seed::fixed(6), config::COMPAT, wire(20 * MS));
    pair.connect();
    echo(&mut pair);
    let app = open(&mut pair, paced([10]));
    pair.network.run_for(SECOND);
    assert!(pair.network.outcome(app).was_reset());
    let [closed] = &pair.closed(pair.client)[..] else {
        panic!("one flow");
    };
    assert_eq!(closed.ending, Ending::Abandoned(FlowCode::Unsupported));
    pair.check_nothing_left();
}

/// A flow keeps its target through a lost connection, and datagrams pass again after the move.
#[test]
fn a_flow_keeps_its_target_when_its_connection_is_lost() {
    let mut client = config::client_speaking(config::NATIVE, 7);
    let mut server = config::server(7);
    (client.role.bond_ttl, server.role.bond_ttl) = (600 * SECOND, 600 * SECOND);
    let link = wire(20 * MS);
    let mut pair = TunnelPair::with(Seed::fixed(7), client, server, link.clone(), link);
    pair.connect();
    echo(&mut pair);
    let app = open(&mut pair, paced([100; 1000]));
    for host in [pair.client, pair.server] {
        pair.network.run_for(2 * SECOND);
        let id = pair.network.host(host).engine().connection_reports()[0].id;
        let network = &mut pair.network;
        network.command(host, |engine, now| engine.forget_connection(now, id, true));
    }
    pair.network.run_for(6 * SECOND);
    assert!(pair.moves()[0] > 0, "the flow has moved");
    let [up, down] = arrived(&pair, app);
    assert!(up > 500 && down > 500, "{up} and {down}");
    let server = pair.network.apps_of(pair.server, TARGET).count();
    assert_eq!(server, 1, "one target for the flow's life");
}

/// Over TLS, datagrams pass in records.
#[test]
fn datagrams_pass_over_tls() {
    let mut client = config::client_speaking(config::NATIVE, 8);
    client.role.servers[0].carrier = CarrierChoice::Tls;
    let link = wire(20 * MS);
    let mut pair = TunnelPair::with(
        Seed::fixed(8),
        client,
        config::server(8),
        link.clone(),
        link,
    );
    pair.network.host(pair.server).set_listens_on_tcp(true);
    pair.filter(NO_UDP);
    pair.connect();
    echo(&mut pair);
    let lengths = [0, 100, 1200, 9000, 65_000];
    let app = open(
        &mut pair,
        [paced(lengths), vec![WriteStep::Wait(SECOND)]].concat(),
    );
    pair.network.run_for(2 * SECOND);
    assert_eq!(arrived(&pair, app), [lengths.len(); 2]);
}

/// Small datagrams 50 times a second beside a transfer that fills the link: neither starves the other.
#[test]
fn datagrams_and_a_transfer_share_a_connection() {
    let mut pair = TunnelPair::new(Seed::fixed(9), config::NATIVE, limited(2_500_000, 20 * MS));
    pair.connect();
    echo(&mut pair);
    let bulk = open_bulk(&mut pair);
    pair.network.run_for(SECOND);
    let steps = |_| [WriteStep::Datagram(200), WriteStep::Wait(20 * MS)];
    let app = open(&mut pair, (0..150).flat_map(steps).collect());
    pair.network.run_for(3 * SECOND);
    let sent = pair.network.outcome(bulk).sent;
    let [up, down] = arrived(&pair, app);
    assert!(up >= 145 && down >= 145, "{up} and {down} of 150");
    assert!(sent > 8_000_000, "{sent} bytes of the transfer");
}

/// A flood of datagrams does not starve a transfer.
#[test]
fn a_flood_of_datagrams_leaves_half_of_the_connection() {
    let mut pair = TunnelPair::new(Seed::fixed(10), config::NATIVE, limited(1_250_000, 20 * MS));
    pair.connect();
    echo(&mut pair);
    let bulk = open_bulk(&mut pair);
    // 20 datagrams of 1 200 bytes each 10 ms are twice what the link carries.
    let burst = |_| {
        let mut steps = vec![WriteStep::Datagram(1200); 20];
        steps.push(WriteStep::Wait(10 * MS));
        steps
    };
    let app = open(&mut pair, (0..400).flat_map(burst).collect());
    pair.network.run_for(4 * SECOND);
    let (bulk, flood) = (
        pair.network.outcome(bulk).sent,
        arrived(&pair, app)[0] * 1200,
    );
    assert!(
        bulk > 1_000_000 && flood > 1_000_000,
        "{bulk} and {flood} bytes"
    );
}

/// The first datagrams of a flow do not arrive before its request, however many packets they fill.
#[test]
fn the_first_datagrams_follow_their_request() {
    for (carrier, lengths) in [
        (CarrierChoice::Quic, &[1200; 3][..]),
        (CarrierChoice::Quic, &[9000]),
        (CarrierChoice::Tls, &[1200; 3]),
        (CarrierChoice::Tls, &[65_527]),
    ] {
        let mut client = config::client_speaking(config::NATIVE, 11);
        let mut server = config::server(11);
        client.role.servers[0].carrier = carrier;
        (client.role.bond_ttl, server.role.bond_ttl) = (600 * SECOND, 600 * SECOND);
        // Each packet arrives alone.
        let link = limited(1_250_000, 20 * MS);
        let mut pair = TunnelPair::with(Seed::fixed(11), client, server, link.clone(), link);
        pair.network.host(pair.server).set_listens_on_tcp(true);
        pair.connect();
        echo(&mut pair);
        let all = || lengths.iter().map(|&len| WriteStep::Datagram(len));
        let mut steps: Vec<_> = all().collect();
        steps.push(WriteStep::Wait(SECOND));
        steps.extend(all());
        steps.push(WriteStep::Wait(20 * SECOND));
        let app = open(&mut pair, steps);
        pair.network.run_for(900 * MS);
        assert_eq!(arrived(&pair, app), [lengths.len(); 2], "{carrier:?}");
        // Datagrams wait for the next leg, and follow its MOVE.
        let id = pair.network.host(pair.client).engine().connection_reports()[0].id;
        let (network, host) = (&mut pair.network, pair.client);
        network.run_for(90 * MS);
        network.command(host, |engine, now| engine.forget_connection(now, id, true));
        network.run_for(3 * SECOND);
        assert!(pair.moves()[0] > 0, "the flow has moved");
        let arrived = arrived(&pair, app);
        assert_eq!(arrived, [2 * lengths.len(); 2], "{carrier:?}");
    }
}
