//! Flows that a server opens for connections to its listeners (PROTOCOL section 5.9).

use quictun_sim::engine::{ClientEvent, Ending, EngineEvent, ServerEvent};
use quictun_sim::{
    AppId, IncomingState, OutgoingState, Script, Seed, SimulatedDial, WriteStep, config,
};
use quictun_wire::code::FlowCode;
use quictun_wire::control::Frame;
use quinn_proto::{Dir, VarInt};

use crate::guests::Guests as _;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, listen, wire};

fn pair(reverse: bool) -> TunnelPair {
    let seed = Seed::fixed(6);
    let mut client = config::client_speaking(config::NATIVE, seed.value());
    client.role.reverse = reverse;
    let server = config::server(seed.value());
    let mut pair = TunnelPair::with(seed, client, server, wire(20 * MS), wire(20 * MS));
    pair.connect();
    pair
}

fn serve(pair: &mut TunnelPair, dial: SimulatedDial) {
    let token = config::reverse_token(1);
    let host = pair.network.host(pair.client);
    host.serve(&token, dial, Script::echo());
}

fn open(pair: &mut TunnelPair, writes: &[WriteStep]) -> AppId {
    let script = Script::echoed(1).write(writes.to_vec());
    pair.network.open_incoming(pair.server, 1, script)
}

fn is_reset(pair: &TunnelPair, app: AppId) -> bool {
    let outcome = pair.network.outcome(app);
    (outcome.incoming, outcome.outgoing) == (IncomingState::Reset, OutgoingState::Reset)
}

// PROTOCOL REVERSE-9, REVERSE-10.
#[test]
fn a_connection_to_a_listener_reaches_the_clients_target() {
    let mut pair = pair(true);
    pair.listen(1);
    serve(&mut pair, SimulatedDial::connects());
    let app = open(&mut pair, &[WriteStep::Send(3_000_000), WriteStep::Finish]);
    pair.network.run_for(20 * SECOND);
    let outcome = pair.network.outcome(app);
    assert!(
        outcome.is_clean() && outcome.received == 3_000_000,
        "{outcome:?}"
    );
    for host in [pair.client, pair.server] {
        let closed = pair.closed(host);
        assert!(closed[0].incoming && closed[0].ending == Ending::Finished);
        assert_eq!(closed[0].server_app, "unix");
        // PROTOCOL CONTROL-5.
        assert_eq!(pair.network.host(host).engine().unconfirmed(), 0);
    }
    pair.check_nothing_left();
}

// PROTOCOL REVERSE-9.
#[test]
fn a_connection_that_the_client_refuses_is_reset_and_the_next_is_served() {
    let mut pair = pair(true);
    pair.listen(1);
    for (dial, code) in [
        (SimulatedDial::refused(), FlowCode::Refused),
        (SimulatedDial::Never, FlowCode::DialTimeout),
    ] {
        serve(&mut pair, dial);
        let app = open(&mut pair, &[WriteStep::Send(1000)]);
        pair.network.run_for(11 * SECOND);
        assert!(is_reset(&pair, app), "{code}");
        let closed = pair.closed(pair.server);
        let last = closed.last().expect("a flow");
        let mut endings = vec![Ending::PeerRefused(code), Ending::PeerReset(Some(code))];
        if code == FlowCode::DialTimeout {
            // The server may give up before the answer of the client arrives.
            endings.push(Ending::Abandoned(code));
        }
        assert!(endings.contains(&last.ending), "{last:?}");
    }
    serve(&mut pair, SimulatedDial::connects());
    let app = open(&mut pair, &[WriteStep::Send(1000), WriteStep::Finish]);
    pair.network.run_for(SECOND);
    assert!(pair.network.outcome(app).is_clean());
    pair.check_nothing_left();
}

// PROTOCOL REVERSE-2.
#[test]
fn a_server_can_open_nothing_before_the_client_has_asked() {
    let mut pair = pair(true);
    serve(&mut pair, SimulatedDial::connects());
    let app = open(&mut pair, &[WriteStep::Send(1000)]);
    pair.network.run_for(SECOND);
    assert!(is_reset(&pair, app));
    assert!(pair.closed(pair.server).is_empty(), "no flow existed");
    pair.listen(1);
    let app = open(&mut pair, &[WriteStep::Send(1000), WriteStep::Finish]);
    pair.network.run_for(SECOND);
    assert!(pair.network.outcome(app).is_clean());
}

#[test]
fn a_client_grants_more_flows_than_at_first() {
    let mut pair = pair(true);
    pair.listen(1);
    serve(&mut pair, SimulatedDial::connects());
    let mut apps = Vec::new();
    for _ in 0..6 {
        let wait = [
            WriteStep::Send(1000),
            WriteStep::Wait(20 * SECOND),
            WriteStep::Finish,
        ];
        apps.extend((0..60).map(|_| open(&mut pair, &wait)));
        pair.network.run_for(SECOND);
    }
    pair.network.run_for(30 * SECOND);
    for app in apps {
        assert!(pair.network.outcome(app).is_clean());
    }
    pair.check_nothing_left();
}

// PROTOCOL REVERSE-1.
#[test]
fn a_client_that_did_not_ask_for_it_may_not_ask_to_listen() {
    for (reverse, agreed) in [(false, false), (true, true)] {
        let mut pair = pair(reverse);
        let welcome = |event: &EngineEvent| matches!(event, EngineEvent::Client(ClientEvent::Welcome { reverse, .. }) if *reverse == agreed);
        assert_eq!(pair.count(pair.client, welcome), 1);
        let client = pair.client;
        let asked = pair.network.command(client, |engine, _| {
            let connection = engine.connection_reports()[0].id;
            engine.client().listen(connection, listen(1))
        });
        assert_eq!(asked, agreed);
        pair.network.run_for(SECOND);
        let listen =
            |event: &EngineEvent| matches!(event, EngineEvent::Server(ServerEvent::Listen { .. }));
        assert_eq!(pair.count(pair.server, listen), usize::from(agreed));
    }
}

// Each report makes the server try all listeners of the client again.
#[test]
fn a_client_that_permits_more_flows_again_and_again_is_reported_once_in_a_turn() {
    let mut pair = pair(false);
    let server = pair.server;
    let bare = pair.network.add_bare("generous", config::NATIVE, server);
    let link = wire(20 * MS);
    pair.network.link(bare, server, link.clone(), link);
    pair.network.run_for(SECOND);
    pair.network.stop(server, SECOND);
    for flows in 1000..1020 {
        let connection = pair.network.bare(bare).connection();
        connection.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(flows));
        pair.network.run_for(10 * MS);
    }
    let available = |event: &EngineEvent| {
        matches!(
            event,
            EngineEvent::Server(ServerEvent::StreamsAvailable { .. })
        )
    };
    assert_eq!(pair.count(server, available), 0, "the server has stopped");
    pair.network.run_for(2 * SECOND);
    assert_eq!(pair.count(server, available), 1);
}

// PROTOCOL REVERSE-1, REVERSE-5.
#[test]
fn a_listen_that_was_not_agreed_on_ends_the_connection() {
    for (agreed, frame, violates) in [
        (true, Frame::Listen(listen(1)), false),
        (true, Frame::Unlisten(vec![7]), false),
        (false, Frame::Listen(listen(1)), true),
        (false, Frame::Unlisten(vec![7]), true),
    ] {
        let mut pair = pair(false);
        let bare = pair
            .network
            .add_bare("stranger", config::NATIVE, pair.server);
        let link = wire(20 * MS);
        pair.network.link(bare, pair.server, link.clone(), link);
        pair.network.run_for(SECOND);
        let mut bytes = Vec::new();
        let hello = Frame::Hello {
            proof: None,
            join: None,
            bond: None,
            reverse: agreed,
        };
        hello.encode(&mut bytes);
        frame.encode(&mut bytes);
        let stream = pair.network.bare(bare).open();
        pair.network.bare(bare).write(stream, &bytes);
        pair.network.run_for(SECOND);
        let lost = pair.network.bare(bare).lost();
        assert_eq!(lost.is_some(), violates, "{frame:?}: {lost:?}");
    }
}
