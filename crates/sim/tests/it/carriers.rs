//! Flows over TLS in TCP: alone, beside QUIC, and where UDP stops to pass.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use quictun_sim::engine::report::{CarrierKind, QuicState, ServerId};
use quictun_sim::engine::{
    CarrierChoice, ClientEvent, ClientRole, EngineConfig, EngineEvent, Event, ServerRole,
};
use quictun_sim::{
    AppId, FilterRule, IncomingState, LinkConfig, Network, PathFilter, Script, Seed, SimulatedDial,
    WriteStep, config,
};
use quictun_wire::code::CloseCode;

use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited, wire};

/// Filters of a network through which only one carrier passes.
pub(crate) const NO_UDP: PathFilter = only(FilterRule::Block, FilterRule::Pass);
pub(crate) const NO_TCP: PathFilter = only(FilterRule::Pass, FilterRule::Block);
pub(crate) const NEITHER: PathFilter = only(FilterRule::Block, FilterRule::Block);
pub(crate) const BOTH_PASS: PathFilter = only(FilterRule::Pass, FilterRule::Pass);

const fn only(udp: FilterRule, tcp: FilterRule) -> PathFilter {
    PathFilter { udp, tcp }
}

const BOND_TTL: Duration = Duration::from_mins(5);

/// Returns the configurations of a client with bonds that makes this `choice`, and of its server.
pub(crate) fn configs(
    seed: u64,
    choice: CarrierChoice,
) -> (EngineConfig<ClientRole>, EngineConfig<ServerRole>) {
    let mut client = config::client_speaking(config::NATIVE, seed);
    let mut server = config::server(seed);
    (client.role.bond_ttl, server.role.bond_ttl) = (BOND_TTL, BOND_TTL);
    for server in &mut client.role.servers {
        server.carrier = choice;
    }
    (client, server)
}

pub(crate) fn pair(seed: u64, choice: CarrierChoice, link: &LinkConfig) -> TunnelPair {
    let (client, server) = configs(seed, choice);
    pair_of(Seed::fixed(seed), client, server, link)
}

fn pair_of(
    seed: Seed,
    client: EngineConfig<ClientRole>,
    server: EngineConfig<ServerRole>,
    link: &LinkConfig,
) -> TunnelPair {
    let mut pair = TunnelPair::with(seed, client, server, link.clone(), link.clone());
    pair.network.host(pair.server).set_listens_on_tcp(true);
    pair
}

impl TunnelPair {
    pub(crate) fn filter(&mut self, filter: PathFilter) {
        self.network.set_filters(self.client, self.server, filter);
    }

    /// Returns the kinds of the client's connections that are established.
    pub(crate) fn carriers(&mut self) -> Vec<CarrierKind> {
        let reports = self.network.client(self.client).connection_reports();
        let up = reports.iter().filter(|report| report.protocol.is_some());
        up.map(|report| report.carrier).collect()
    }

    /// Returns whether QUIC carries. A transfer that lasts may try TLS beside it.
    fn has_quic(&mut self) -> bool {
        self.carriers().contains(&CarrierKind::Quic)
    }

    fn echoed(&mut self, number: u64, bytes: u64) -> AppId {
        let host = self.network.host(self.server);
        host.serve("echo", SimulatedDial::connects(), Script::echo());
        let script = Script::echoed(number).write([WriteStep::Send(bytes), WriteStep::Finish]);
        self.network.open(self.client, "echo", script)
    }
}

#[test]
fn tls_alone_carries_flows_and_their_ends() {
    for link in [
        wire(20 * MS),
        limited(1_250_000, 20 * MS),
        LinkConfig {
            loss: 0.02,
            ..wire(20 * MS)
        },
    ] {
        let mut pair = pair(1, CarrierChoice::Tls, &link);
        let app = pair.echoed(1, 1_000_000);
        pair.finish(app, 1_000_000, 60 * SECOND);
        assert_eq!(pair.carriers(), [CarrierKind::Tls]);
    }
}

/// Returns a script that sends, and accepts any bytes.
fn sends(bytes: u64) -> Script {
    Script::client(1).write([WriteStep::Send(bytes), WriteStep::Finish])
}

fn receives() -> Script {
    Script::server(1).write([WriteStep::ReceivedEnd, WriteStep::Finish])
}

#[test]
fn resets_and_refusals_over_tls_stay_what_they_are() {
    let mut pair = pair(1, CarrierChoice::Tls, &wire(20 * MS));
    let host = pair.network.host(pair.server);
    host.serve("refuses", SimulatedDial::refused(), Script::default());
    let aborts = Script::server(1).write([WriteStep::Send(1000), WriteStep::Abort]);
    host.serve("aborts", SimulatedDial::connects(), aborts);
    host.serve("sink", SimulatedDial::connects(), receives());
    let client = pair.client;
    let refused = pair.network.open(client, "refuses", sends(100));
    let reset = pair.network.open(client, "aborts", sends(100));
    let aborted = Script::client(1).write([WriteStep::Send(70_000), WriteStep::Abort]);
    pair.network.open(client, "sink", aborted);
    pair.network.run_for(5 * SECOND);
    for app in [refused, reset] {
        let outcome = pair.network.outcome(app);
        assert_eq!(outcome.incoming, IncomingState::Reset, "{outcome:?}");
    }
    let sink = pair.network.dialled(pair.server, "sink").expect("dialled");
    assert_eq!(sink.incoming, IncomingState::Reset);
    pair.check_nothing_left();
}

#[test]
fn flows_of_reverse_forwards_arrive_over_tls() {
    let (mut client, server) = configs(1, CarrierChoice::Tls);
    client.role.reverse = true;
    let mut pair = pair_of(Seed::fixed(1), client, server, &wire(20 * MS));
    pair.connect();
    pair.listen(3);
    let (token, client) = (config::reverse_token(3), pair.client);
    let host = pair.network.host(client);
    host.serve(&token, SimulatedDial::connects(), Script::echo());
    let script = Script::echoed(1).write([WriteStep::Send(100_000), WriteStep::Finish]);
    let app = pair.network.open_incoming(pair.server, 3, script);
    pair.finish(app, 100_000, 10 * SECOND);
}

#[test]
fn a_long_upload_over_slow_tls_stays_on_its_connection() {
    let mut pair = pair(1, CarrierChoice::Tls, &limited(20_000, 100 * MS));
    let host = pair.network.host(pair.server);
    host.serve("sink", SimulatedDial::connects(), receives());
    let app = pair.network.open(pair.client, "sink", sends(1_000_000));
    let over = |network: &mut Network| network.outcome(app).is_over();
    pair.network.run_until(300 * SECOND, over);
    assert_eq!(pair.moves(), [0, 0]);
    pair.check_nothing_left();
}

#[test]
fn an_upload_notices_a_silent_tcp_connection_within_two_seconds() {
    for seed in 1..=10 {
        let mut pair = pair(seed, CarrierChoice::Tls, &limited(250_000, 20 * MS));
        let host = pair.network.host(pair.server);
        host.serve("sink", SimulatedDial::connects(), receives());
        pair.network.open(pair.client, "sink", sends(1 << 40));
        pair.network
            .run_for(3 * SECOND + Duration::from_millis(37 * seed));
        pair.network.silence_tcp(pair.client);
        let moved = |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Moved { .. }));
        let server = pair.server;
        let moves = |network: &mut Network| {
            let mut events = network.host(server).events().iter();
            events.any(|(_, event)| moved(event))
        };
        let time = pair.network.run_until(20 * SECOND, moves);
        assert!(time <= 2 * SECOND, "seed {seed}: {time:?}");
    }
}

/// Returns the time from the first flow of a fresh client to its first byte.
fn first_byte(choice: CarrierChoice, filter: PathFilter, seed: u64) -> (TunnelPair, Duration) {
    let mut pair = pair(seed, choice, &wire(20 * MS));
    pair.filter(filter);
    let after = pair.first_byte_of_echo();
    (pair, after)
}

impl TunnelPair {
    fn first_byte_of_echo(&mut self) -> Duration {
        let app = self.echoed(1, 1000);
        let over = |network: &mut Network| network.outcome(app).is_over();
        self.network.run_until(60 * SECOND, over);
        let outcome = self.network.outcome(app);
        outcome.first_byte_after().expect("an answer")
    }
}

#[test]
fn a_network_without_udp_costs_at_most_the_head_start_and_then_nothing() {
    let (_, alone) = first_byte(CarrierChoice::Tls, NO_UDP, 1);
    let (mut pair, unknown) = first_byte(CarrierChoice::Auto, NO_UDP, 1);
    assert!(unknown <= alone + 250 * MS, "{unknown:?} {alone:?}");
    // The attempts by QUIC end, and the network counts as one that blocks it.
    pair.network.run_for(15 * SECOND);
    pair.network.cut_tcp(pair.client);
    pair.network.run_for(Duration::ZERO);
    let remembered = pair.first_byte_of_echo();
    assert!(remembered <= alone + 50 * MS, "{remembered:?} {alone:?}");
}

/// Returns the time until a flow's first byte if an ICMP error says, after some time, that datagrams are rejected.
fn first_byte_if_rejected(pair: &mut TunnelPair, after: Duration) -> Duration {
    let app = pair.echoed(1, 1000);
    pair.network.run_for(after);
    let (server, now) = (pair.network.address(pair.server), pair.network.now());
    let engine = pair.network.client(pair.client);
    engine.handle_udp_rejected(now, server);
    let over = |network: &mut Network| network.outcome(app).is_over();
    pair.network.run_until(60 * SECOND, over);
    let outcome = pair.network.outcome(app);
    outcome.first_byte_after().expect("an answer")
}

#[test]
fn a_network_that_rejects_udp_costs_hardly_any_time() {
    let (_, alone) = first_byte(CarrierChoice::Tls, NO_UDP, 1);
    let mut pair = pair(1, CarrierChoice::Auto, &wire(20 * MS));
    pair.filter(NO_UDP);
    let rejected = first_byte_if_rejected(&mut pair, 40 * MS);
    assert!(rejected <= alone + 50 * MS, "{rejected:?} {alone:?}");
    assert!(rejected > alone + 30 * MS, "QUIC gets its head start");
}

#[test]
fn a_forged_rejection_does_not_keep_flows_from_quic() {
    let (_, alone) = first_byte(CarrierChoice::Quic, BOTH_PASS, 1);
    let mut pair = pair(1, CarrierChoice::Auto, &wire(20 * MS));
    let forged = first_byte_if_rejected(&mut pair, Duration::ZERO);
    assert_eq!(forged, alone);
    let dials = pair.count(pair.client, |event| {
        matches!(event, EngineEvent::Client(ClientEvent::DialCarrier { .. }))
    });
    assert_eq!(dials, 1, "TLS begins beside QUIC");
    assert_eq!(pair.carriers(), [CarrierKind::Quic]);
}

#[test]
fn quic_is_tried_on_after_a_rejection() {
    let mut pair = pair(1, CarrierChoice::Auto, &wire(20 * MS));
    pair.filter(NO_UDP);
    first_byte_if_rejected(&mut pair, 40 * MS);
    assert_eq!(pair.carriers(), [CarrierKind::Tls]);
    pair.filter(BOTH_PASS);
    pair.network.run_for(2 * SECOND);
    assert_eq!(pair.carriers(), [CarrierKind::Quic]);
}

#[test]
fn a_blocked_network_is_known_after_a_time_on_another_one() {
    let (mut client, server) = configs(1, CarrierChoice::Auto);
    let network = Arc::new(AtomicU8::new(1));
    let present = network.clone();
    client.role.surroundings.local_address = Some(Arc::new(move |_| {
        Some([192, 0, 2, present.load(Relaxed)].into())
    }));
    let mut pair = pair_of(Seed::fixed(1), client, server, &wire(20 * MS));
    // Connects again on a network. Returns the time until TLS carries where UDP is blocked.
    let mut comes_to = |number, filter| {
        network.store(number, Relaxed);
        pair.filter(filter);
        let (client, start) = (pair.client, pair.network.now());
        pair.network.client(client).handle_network_change(start);
        pair.network.client(client).reconnect(start);
        let by_tls = |network: &mut Network| {
            let reports = network.client(client).connection_reports();
            let mut up = reports.iter().filter(|report| report.protocol.is_some());
            up.any(|report| report.carrier == CarrierKind::Tls && report.opened >= start)
        };
        let after = if filter == NO_UDP {
            pair.network.run_until(5 * SECOND, by_tls)
        } else {
            Duration::ZERO
        };
        pair.network.run_for(60 * SECOND);
        after
    };
    comes_to(1, NO_UDP);
    comes_to(2, BOTH_PASS);
    let known = comes_to(1, NO_UDP);
    comes_to(2, BOTH_PASS);
    let unknown = comes_to(3, NO_UDP);
    assert!(known + 90 * MS <= unknown, "{known:?} {unknown:?}");
}

#[test]
fn quic_is_preferred_where_it_passes() {
    let (_, alone) = first_byte(CarrierChoice::Quic, BOTH_PASS, 1);
    let (mut pair, auto) = first_byte(CarrierChoice::Auto, BOTH_PASS, 1);
    assert_eq!(auto, alone);
    assert_eq!(pair.carriers(), [CarrierKind::Quic]);
}

/// Runs a download of endless bytes. Returns its application.
fn download(pair: &mut TunnelPair) -> AppId {
    let host = pair.network.host(pair.server);
    let endless = Script::server(1).write([WriteStep::Send(1 << 50)]);
    host.serve("endless", SimulatedDial::connects(), endless);
    let reads = Script::client(1);
    pair.network.open(pair.client, "endless", reads)
}

/// Lets time pass. Returns the longest time in which the application has received nothing.
fn longest_pause(pair: &mut TunnelPair, app: AppId, time: Duration) -> Duration {
    const STEP: Duration = Duration::from_millis(10);
    let end = pair.network.now() + time;
    let (mut longest, mut last) = (Duration::ZERO, pair.network.now());
    while pair.network.now() < end {
        pair.network.run_for(STEP);
        let received = pair.network.outcome(app).last_byte;
        last = received.map_or(last, |at| at.max(last));
        longest = longest.max(pair.network.now() - last);
    }
    longest
}

#[test]
fn a_flow_goes_on_over_tls_when_udp_is_blocked_and_returns_to_quic() {
    let mut pauses = Vec::new();
    for seed in 1..=20 {
        let mut pair = pair(seed, CarrierChoice::Auto, &limited(250_000, 20 * MS));
        let app = download(&mut pair);
        pair.network
            .run_for(3 * SECOND + Duration::from_millis(17 * seed));
        pair.filter(NO_UDP);
        pauses.push(longest_pause(&mut pair, app, 20 * SECOND));
        assert_eq!(pair.carriers(), [CarrierKind::Tls], "seed {seed}");
        pair.filter(BOTH_PASS);
        let pause = longest_pause(&mut pair, app, 30 * SECOND);
        assert!(pause <= SECOND, "the climb takes {pause:?}");
        assert!(pair.has_quic(), "seed {seed}");
    }
    pauses.sort_unstable();
    assert!(
        pauses[10] <= SECOND && pauses[19] <= 1500 * MS,
        "{pauses:?}"
    );
}

/// Returns the bytes that arrive in ten minutes in which UDP passes for 20 s and then does not for 5 s, and the number
/// of times that QUIC has taken flows back. The system reports changes all the time, as those of other devices.
fn flapping(choice: CarrierChoice) -> (u64, usize) {
    let (mut client, server) = configs(1, choice);
    let here = Arc::new(|_| Some([192, 0, 2, 1].into()));
    client.role.surroundings.local_address = Some(here);
    let link = limited(250_000, 20 * MS);
    let mut pair = pair_of(Seed::fixed(1), client, server, &link);
    let app = download(&mut pair);
    let mut climbs = Vec::new();
    let mut was = None;
    for second in 0..600 {
        let filter = if second % 25 < 20 { BOTH_PASS } else { NO_UDP };
        if second % 25 == 0 || second % 25 == 20 {
            pair.filter(filter);
        }
        if second % 7 == 0 {
            let now = pair.network.now();
            pair.network.client(pair.client).handle_network_change(now);
        }
        for _ in 0..10 {
            pair.network.run_for(100 * MS);
            let reports = pair.network.client(pair.client).connection_reports();
            let busy = reports.iter().find(|report| report.flows > 0);
            let kind = busy.map(|report| report.carrier);
            if was == Some(CarrierKind::Tls) && kind == Some(CarrierKind::Quic) {
                climbs.push(second);
            }
            was = kind.or(was);
        }
    }
    let close = climbs.windows(2).any(|pair| pair[1] - pair[0] < 30);
    assert!(!close, "climbs at {climbs:?}");
    if choice == CarrierChoice::Auto {
        // A probe takes 10 s.
        let (client, at) = (pair.client, |network: &Network| network.now());
        let known = |network: &mut Network| {
            let now = at(network);
            let known = &network.client(client).server_reports(now)[0];
            known.quic == QuicState::Works || known.probe_in.is_some()
        };
        pair.network.run_until(12 * SECOND, known);
    }
    (pair.network.outcome(app).received, climbs.len())
}

#[test]
fn flapping_udp_costs_little_and_is_not_followed() {
    let [quic, tls, auto] =
        [CarrierChoice::Quic, CarrierChoice::Tls, CarrierChoice::Auto].map(flapping);
    let better = quic.0.max(tls.0);
    assert!(auto.0 * 10 >= better * 8, "{quic:?} {tls:?} {auto:?}");
    assert!(auto.1 <= 20);
}

#[test]
fn flows_continue_on_the_next_connection_when_tcp_is_cut_or_silent() {
    for silent in [false, true] {
        for choice in [CarrierChoice::Tls, CarrierChoice::Auto] {
            let mut pair = pair(1, choice, &limited(250_000, 20 * MS));
            pair.filter(NO_UDP);
            let app = download(&mut pair);
            pair.network.run_for(15 * SECOND);
            for _ in 0..3 {
                if silent {
                    pair.network.silence_tcp(pair.client);
                } else {
                    pair.network.cut_tcp(pair.client);
                }
                let pause = longest_pause(&mut pair, app, 10 * SECOND);
                // A cut is known at once. Silence counts after the time for an idle peer at the latest, because the
                // answers to pings wait behind what the server's system has not sent.
                let most = if silent { 6 * SECOND } else { SECOND };
                assert!(pause <= most, "{choice:?} {silent}: {pause:?}");
            }
        }
    }
}

#[test]
fn a_network_that_is_away_does_not_count_as_one_that_blocks_udp() {
    let mut pair = pair(1, CarrierChoice::Auto, &limited(250_000, 20 * MS));
    let app = download(&mut pair);
    pair.network.run_for(3 * SECOND);
    pair.filter(NEITHER);
    pair.network.run_for(40 * SECOND);
    pair.filter(BOTH_PASS);
    let pause = longest_pause(&mut pair, app, 10 * SECOND);
    assert!(pause <= 5 * SECOND, "{pause:?}");
    assert_eq!(pair.carriers(), [CarrierKind::Quic]);
}

#[test]
fn a_server_without_tcp_serves_by_quic_alone() {
    let mut pair = pair(1, CarrierChoice::Auto, &limited(250_000, 20 * MS));
    pair.network.host(pair.server).set_listens_on_tcp(false);
    let app = download(&mut pair);
    pair.network.run_for(3 * SECOND);
    pair.filter(NO_UDP);
    pair.network.run_for(10 * SECOND);
    pair.filter(BOTH_PASS);
    let pause = longest_pause(&mut pair, app, 10 * SECOND);
    assert!(pause <= 3 * SECOND, "{pause:?}");
    assert_eq!(pair.carriers(), [CarrierKind::Quic]);
}

#[test]
fn quic_is_tried_beside_each_connection_by_tls_although_another_one_has_climbed() {
    let (mut client, server) = configs(1, CarrierChoice::Auto);
    client.role.connections = 2;
    let mut pair = pair_of(Seed::fixed(1), client, server, &wire(20 * MS));
    pair.filter(NO_UDP);
    pair.connect();
    pair.network.run_for(12 * SECOND);
    assert_eq!(pair.carriers(), [CarrierKind::Tls; 2]);
    pair.filter(BOTH_PASS);
    let first = pair.network.client(pair.client).connection_reports()[0].id;
    pair.network.command(pair.client, |engine, now| {
        engine.close_connection(now, first, CloseCode::Done);
    });
    pair.network.run_for(2 * SECOND);
    assert!(pair.has_quic() && pair.carriers().contains(&CarrierKind::Tls));
    pair.network.run_for(20 * SECOND);
    assert_eq!(pair.carriers(), [CarrierKind::Quic; 2]);
}

/// Returns a pair whose server takes TLS at a port of its own.
fn pair_with_tls_port() -> TunnelPair {
    const HTTPS: u16 = 443;
    let (mut client, server) = configs(1, CarrierChoice::Auto);
    client.role.servers[0].place.tls_port = Some(HTTPS);
    let mut pair = pair_of(Seed::fixed(1), client, server, &limited(250_000, 20 * MS));
    pair.network.host(pair.client).set_servers_tcp_port(HTTPS);
    pair
}

#[test]
fn quic_is_tried_at_its_own_port_after_silence_on_the_connection_of_transfers() {
    let mut pair = pair_with_tls_port();
    pair.filter(NO_UDP);
    let other = download(&mut pair);
    let app = download(&mut pair);
    pair.echoed(1, 100);
    let host = pair.network.host(pair.server);
    let talks = Script::server(1).write([WriteStep::ReceivedEnd]);
    host.serve("open", SimulatedDial::connects(), talks);
    let quiet = Script::client(1).write([WriteStep::Send(10)]);
    pair.network.open(pair.client, "open", quiet);
    pair.network.run_for(20 * SECOND);
    assert_eq!(pair.carriers(), [CarrierKind::Tls; 2]);
    for silence in [1, 2, 3, 4, 5].map(|seconds| seconds * SECOND) {
        pair.filter(NEITHER);
        pair.network.run_for(silence);
        pair.filter(NO_UDP);
        pair.network.run_for(15 * SECOND);
    }
    pair.filter(BOTH_PASS);
    for app in [app, other] {
        longest_pause(&mut pair, app, 30 * SECOND);
    }
    assert!(pair.has_quic());
}

// PROTOCOL LIMIT-3.
#[test]
fn flows_over_tls_go_on_while_the_udp_socket_is_full() {
    let mut pair = pair(1, CarrierChoice::Tls, &limited(1_250_000, 20 * MS));
    for host in [pair.client, pair.server] {
        pair.network.host(host).set_udp_full(true);
    }
    let app = pair.echoed(1, 100_000);
    pair.finish(app, 100_000, 10 * SECOND);
}

#[test]
fn tls_is_dialled_at_its_own_port_and_quic_at_that_of_the_address() {
    let mut pair = pair_with_tls_port();
    let app = download(&mut pair);
    pair.filter(NO_UDP);
    pair.network.run_for(20 * SECOND);
    assert_eq!(pair.carriers(), [CarrierKind::Tls]);
    // The connection is lost by silence: its address is dialled before its name is resolved again.
    pair.filter(NEITHER);
    pair.network.run_for(10 * SECOND);
    pair.filter(NO_UDP);
    pair.network.run_for(10 * SECOND);
    assert_eq!(pair.carriers(), [CarrierKind::Tls]);
    pair.filter(BOTH_PASS);
    let pause = longest_pause(&mut pair, app, 60 * SECOND);
    assert!(pause <= SECOND, "the climb takes {pause:?}");
    assert!(pair.has_quic());
}

// The port by which TLS leads to the server stands for a proxy here: what a proxy passes on is the same.
#[test]
fn tls_leads_through_a_proxy_that_alone_resolves_the_name_and_quic_is_tried_beside_it() {
    const PROXY: u16 = 3128;
    let mut pair = pair(1, CarrierChoice::Auto, &limited(250_000, 20 * MS));
    let (client, server) = (pair.client, pair.server);
    pair.network.host(client).set_servers_tcp_port(PROXY);
    let mut proxy = pair.network.address(server);
    let resolved = Ok(vec![proxy]);
    proxy.set_port(PROXY);
    let set_proxy = |pair: &mut TunnelPair, proxy| {
        let now = pair.network.now();
        let client = pair.network.client(client);
        client.set_proxy(now, ServerId(0), Some(Ok(vec![proxy])));
    };
    set_proxy(&mut pair, proxy);
    pair.filter(NO_UDP);
    let unresolved = Err("no such name".to_owned());
    pair.network.host(client).set_resolver(unresolved, MS);
    let app = download(&mut pair);
    pair.network.run_for(10 * SECOND);
    assert_eq!(pair.carriers(), [CarrierKind::Tls]);
    // The connection is lost by silence, and the next one finds the name resolved.
    pair.network.host(client).set_resolver(resolved, MS);
    pair.filter(NEITHER);
    pair.network.run_for(10 * SECOND);
    pair.filter(NO_UDP);
    pair.network.run_for(20 * SECOND);
    assert_eq!(pair.carriers(), [CarrierKind::Tls]);
    let quic = |pair: &mut TunnelPair| {
        let now = pair.network.now();
        pair.network.client(client).server_reports(now)[0].quic
    };
    assert_eq!(quic(&mut pair), QuicState::Blocked);
    set_proxy(&mut pair, proxy);
    assert_eq!(quic(&mut pair), QuicState::Blocked, "the same network");
    pair.filter(BOTH_PASS);
    let pause = longest_pause(&mut pair, app, 60 * SECOND);
    assert!(pause <= SECOND, "the climb takes {pause:?}");
    assert!(pair.has_quic());
    // Another proxy is another network.
    pair.filter(NO_UDP);
    pair.network.run_for(20 * SECOND);
    assert_eq!(quic(&mut pair), QuicState::Blocked);
    let other = (proxy.ip(), PROXY + 1).into();
    set_proxy(&mut pair, other);
    assert_ne!(quic(&mut pair), QuicState::Blocked);
}
