//! Transfers beside QUIC: a network that throttles UDP while it lets TCP pass.

use std::time::Duration;

use quictun_sim::engine::report::{CarrierKind, TransferReason};
use quictun_sim::engine::{CarrierChoice, ClientEvent, EngineEvent};
use quictun_sim::{
    AppId, FilterRule, LinkConfig, Network, PathFilter, Script, SimulatedDial, WriteStep,
};

use crate::carriers::{BOTH_PASS, configs, pair};
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited};

/// UDP passes at a megabit per second after two megabytes.
const THROTTLED: PathFilter = PathFilter {
    udp: FilterRule::Police {
        after: 2_000_000,
        rate: 125_000.0,
    },
    tcp: FilterRule::Pass,
};

/// Begins an upload or a download of `bytes` bytes.
fn transfer(pair: &mut TunnelPair, bytes: u64, up: bool) -> AppId {
    let sends = [WriteStep::Send(bytes), WriteStep::Finish];
    let ends = [WriteStep::ReceivedEnd, WriteStep::Finish];
    let (near, far) = if up { (sends, ends) } else { (ends, sends) };
    let host = pair.network.host(pair.server);
    let far = Script::server(1).write(far);
    host.serve("far", SimulatedDial::connects(), far);
    let near = Script::client(1).write(near);
    pair.network.open(pair.client, "far", near)
}

/// Runs until a transfer is over.
fn end(pair: &mut TunnelPair, app: AppId, within: Duration) {
    let over = |network: &mut Network| network.outcome(app).is_over();
    pair.network.run_until(within, over);
}

/// Returns the changes of the transfers' carrier so far.
fn changes(pair: &mut TunnelPair) -> Vec<TransferReason> {
    let events = pair.network.host(pair.client).events().iter();
    let changes = events.filter_map(|(_, event)| match event {
        EngineEvent::Client(ClientEvent::TransfersMoved { reason, .. }) => Some(*reason),
        _ => None,
    });
    changes.collect()
}

#[test]
fn a_throttled_transfer_moves_to_tls_in_seconds_and_messages_stay_on_quic() {
    for up in [true, false] {
        let mut pair = pair(1, CarrierChoice::Auto, &limited(2_500_000, 20 * MS));
        pair.filter(THROTTLED);
        let app = transfer(&mut pair, 200_000_000, up);
        pair.network.run_for(15 * SECOND);
        assert_eq!(changes(&mut pair), [TransferReason::Throttled], "up: {up}");
        // At a megabit per second, it would take half an hour.
        end(&mut pair, app, 120 * SECOND);
        assert_eq!(changes(&mut pair), [TransferReason::Throttled], "up: {up}");
        let carriers = pair.carriers();
        assert!(carriers.contains(&CarrierKind::Quic), "{carriers:?}");
        pair.check_nothing_left();
    }
}

#[test]
fn a_transfer_that_is_throttled_from_its_first_byte_on_moves_to_tls() {
    for (rate, up) in [(125_000.0, true), (125_000.0, false), (1.1e6, false)] {
        let mut pair = pair(1, CarrierChoice::Auto, &limited(2_500_000, 20 * MS));
        pair.filter(PathFilter {
            udp: FilterRule::Police { after: 0, rate },
            tcp: FilterRule::Pass,
        });
        let app = transfer(&mut pair, 60_000_000, up);
        pair.network.run_for(60 * SECOND);
        assert_eq!(changes(&mut pair), [TransferReason::Throttled], "up: {up}");
        end(&mut pair, app, 60 * SECOND);
        pair.check_nothing_left();
    }
}

// A balancer may lead TCP to another machine than UDP. That one knows no flow of the bond.
#[test]
fn a_transfer_keeps_its_bond_if_tls_leads_to_another_server() {
    let link = limited(2_500_000, 20 * MS);
    let mut pair = pair(1, CarrierChoice::Auto, &link);
    let (_, config) = configs(2, CarrierChoice::Auto);
    let other = pair.network.add_server("other", config);
    pair.network.host(other).set_listens_on_tcp(true);
    let (up, down) = (link.clone(), link);
    pair.network.link(pair.client, other, up, down);
    pair.network.divert_tcp(pair.client, pair.server, other);
    pair.filter(BOTH_PASS);
    let app = transfer(&mut pair, 1 << 40, false);
    pair.network.run_for(120 * SECOND);
    assert_eq!(changes(&mut pair), []);
    let connected = pair
        .network
        .host(other)
        .engine()
        .totals()
        .connections_opened;
    assert!(connected > 0, "TLS was not tried");
    let reports = pair.network.client(pair.client).connection_reports();
    let bonds: Vec<bool> = reports.iter().map(|it| it.bond.is_some()).collect();
    assert_eq!(bonds, [true]);
    assert!(!pair.network.outcome(app).is_over());
}

#[test]
fn trials_of_tls_cost_a_long_transfer_on_a_lossy_path_little() {
    let lossy = LinkConfig {
        loss: 0.02,
        ..limited(500_000, 20 * MS)
    };
    let moved = |choice| {
        let mut pair = pair(1, choice, &lossy);
        pair.filter(BOTH_PASS);
        let app = transfer(&mut pair, 1 << 40, false);
        pair.network.run_for(120 * SECOND);
        assert_eq!(changes(&mut pair), []);
        pair.network.outcome(app).received
    };
    let (auto, quic) = (moved(CarrierChoice::Auto), moved(CarrierChoice::Quic));
    assert!(auto * 100 >= quic * 97, "{auto} of {quic}");
}

#[test]
fn a_path_that_becomes_slower_for_both_carriers_keeps_its_transfers_on_quic() {
    for up in [true, false] {
        let mut pair = pair(1, CarrierChoice::Auto, &limited(2_500_000, 20 * MS));
        pair.filter(BOTH_PASS);
        let app = transfer(&mut pair, 30_000_000, up);
        pair.network.run_for(3 * SECOND);
        for (from, to) in [(pair.client, pair.server), (pair.server, pair.client)] {
            let slower = |link: &mut LinkConfig| *link = limited(250_000, 20 * MS);
            pair.network.set_link(from, to, slower);
        }
        end(&mut pair, app, 180 * SECOND);
        assert_eq!(changes(&mut pair), [], "up: {up}");
        pair.check_nothing_left();
    }
}

/// Sends messages one after the other. Returns the sorted times from each to its echo.
pub(crate) fn echoes(pair: &mut TunnelPair, count: u64) -> Vec<Duration> {
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    let mut times = Vec::new();
    for number in 0..count {
        let script = Script::echoed(number).write([WriteStep::Send(100), WriteStep::Finish]);
        let app = pair.network.open(pair.client, "echo", script);
        let over = |network: &mut Network| network.outcome(app).is_over();
        pair.network.run_until(30 * SECOND, over);
        let outcome = pair.network.outcome(app);
        times.push(outcome.first_byte_after().expect("an answer"));
    }
    times.sort_unstable();
    times
}

#[test]
fn messages_over_tls_do_not_wait_for_the_lost_segments_of_a_transfer() {
    let lossy = LinkConfig {
        loss: 0.02,
        ..limited(2_500_000, 20 * MS)
    };
    let mut pair = pair(1, CarrierChoice::Tls, &lossy);
    transfer(&mut pair, 1 << 40, false);
    pair.network.run_for(2 * SECOND);
    assert_eq!(pair.carriers(), [CarrierKind::Tls]);
    let _first = echoes(&mut pair, 10);
    let times = echoes(&mut pair, 100);
    assert_eq!(pair.carriers(), [CarrierKind::Tls, CarrierKind::Tls]);
    assert!(times[50] <= 25 * MS && times[90] <= 60 * MS, "{times:?}");
}
