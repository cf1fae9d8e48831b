//! The control stream: the identity of a client, and the confirmation of received data (PROTOCOL sections 5.4 and 5.6).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quictun_sim::engine::{Account, ClientEvent, EngineEvent, Event, ServerEvent};
use quictun_sim::{AppId, HostId, ReadStep, Script, Seed, SimulatedDial, WriteStep, config};
use quictun_wire::control::{Frame, Seen};
use quinn_proto::{Dir, WriteError};

use crate::guests::Guests as _;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, request, wire};

/// Creates a server that asks its clients for their identity, and a client with the right or a wrong secret.
fn pair(known: bool) -> TunnelPair {
    let mut server = config::server(1);
    server.role.identify = true;
    let mut client = config::client_speaking(config::NATIVE, 1);
    let proof = if known { config::PROOF } else { [0; 32] };
    client.role.servers[0].prover = Some(Arc::new(move |_| proof));
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, wire(20 * MS), wire(20 * MS));
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    pair
}

fn stranger(pair: &mut TunnelPair) -> HostId {
    let bare = pair
        .network
        .add_bare("stranger", config::NATIVE, pair.server);
    pair.network
        .link(bare, pair.server, wire(20 * MS), wire(20 * MS));
    pair.network.run_for(SECOND);
    assert!(pair.network.bare(bare).is_connected());
    bare
}

fn hello(proof: Option<[u8; 32]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame::Hello {
        proof,
        join: None,
        bond: None,
        reverse: false,
    }
    .encode(&mut bytes);
    bytes
}

fn echo(pair: &mut TunnelPair) -> AppId {
    let script = Script::echoed(1).write([WriteStep::Send(100_000), WriteStep::Finish]);
    pair.network.open(pair.client, "echo", script)
}

// PROTOCOL AUTH-4.
#[test]
fn a_known_client_is_served_in_full_from_its_first_round_trip() {
    let mut pair = pair(true);
    let app = echo(&mut pair);
    pair.network.run_for(SECOND);
    assert!(pair.network.outcome(app).is_clean());
    let (client, server) = (pair.client, pair.server);
    assert_eq!(
        pair.count(client, |e| matches!(
            e,
            EngineEvent::Client(ClientEvent::Welcome { .. })
        )),
        1
    );
    let reports = pair.network.host(server).engine().connection_reports();
    assert!(
        reports[0].admitted && reports[0].receive_window >= 1 << 20,
        "{reports:?}"
    );
    pair.network.run_for(30 * SECOND);
    assert!(pair.network.client(client).is_connected());
}

#[test]
fn a_connection_is_proven_once_for_all_its_flows() {
    let mut server = config::server(1);
    server.role.identify = true;
    let mut client = config::client_speaking(config::NATIVE, 1);
    let proofs = Arc::new(AtomicUsize::new(0));
    let counted = proofs.clone();
    client.role.servers[0].prover = Some(Arc::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        config::PROOF
    }));
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, wire(20 * MS), wire(20 * MS));
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    for _ in 0..3 {
        let app = echo(&mut pair);
        pair.network.run_for(SECOND);
        assert!(pair.network.outcome(app).is_clean());
    }
    assert_eq!(proofs.load(Ordering::Relaxed), 1);
}

// PROTOCOL AUTH-4.
#[test]
fn a_client_with_a_wrong_secret_learns_it_at_once() {
    let mut pair = pair(false);
    let client = pair.client;
    pair.network.run_for(SECOND / 10);
    let refused = |event: &EngineEvent| {
        matches!(event, EngineEvent::Shared(Event::Disconnected { reason, .. })
            if *reason == quictun_sim::engine::LossReason::NotAuthorized)
    };
    assert_eq!(pair.count(client, refused), 1);
    assert_eq!(
        pair.count(client, |e| matches!(
            e,
            EngineEvent::Client(ClientEvent::Welcome { .. })
        )),
        0
    );
    assert!(!pair.network.client(client).is_connected());
}

// PROTOCOL AUTH-4: at the limit, and one above.
#[test]
fn a_stranger_gets_little_and_is_dismissed_after_ten_seconds() {
    let mut pair = pair(true);
    let bare = stranger(&mut pair);
    let connection = pair.network.bare(bare).connection();
    let streams: Vec<_> = std::iter::from_fn(|| connection.streams().open(Dir::Bi)).collect();
    assert_eq!(streams.len(), 16);
    // An OPEN that announces 4096 bytes and never ends.
    let open = [&[1, 0x50, 0][..], &[b'x'; 64]].concat();
    let mut taken = 0;
    for stream in streams {
        let mut send = connection.send_stream(stream);
        loop {
            match send.write(&open) {
                Ok(bytes) => taken += bytes,
                Err(WriteError::Blocked) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(taken, 64 * 1024);
    pair.network.run_for(8 * SECOND);
    assert_eq!(pair.network.bare(bare).lost(), None);
    pair.network.run_for(2 * SECOND);
    let lost = pair.network.bare(bare).lost().unwrap_or_default();
    assert!(lost.contains("no identity"), "{lost:?}");
    let server = pair.server;
    assert_eq!(
        pair.count(server, |e| matches!(
            e,
            EngineEvent::Server(ServerEvent::Unproven { .. })
        )),
        1
    );
    pair.check_nothing_left();
}

// PROTOCOL AUTH-4: older clients prove their identity with their first flow.
#[test]
fn a_client_without_a_control_stream_may_prove_itself_with_a_flow() {
    let mut pair = pair(true);
    let bare = stranger(&mut pair);
    let open = quictun_wire::open::Open {
        target: "echo".to_owned(),
        proof: Some(config::PROOF),
        ..quictun_wire::open::Open::default()
    };
    let mut bytes = Vec::new();
    open.encode(&mut bytes).expect("a short target");
    let stream = pair.network.bare(bare).open();
    pair.network.bare(bare).write(stream, &bytes);
    pair.network.run_for(30 * SECOND);
    assert_eq!(pair.network.bare(bare).lost(), None);
    assert_eq!(pair.network.bare(bare).read(stream).0, [2, 0], "OPEN_ACK");
    let streams = pair.network.bare(bare).connection().streams();
    let mut streams = streams;
    let granted = std::iter::from_fn(|| streams.open(Dir::Bi)).count();
    assert!(granted > 100, "{granted} streams");
}

// PROTOCOL AUTH-6.
#[test]
fn four_strangers_do_not_keep_the_only_client_out() {
    let mut server = config::server(1);
    server.role.identify = true;
    server.role.max_connections = 4;
    let mut client = config::client_speaking(config::NATIVE, 1);
    client.role.servers[0].prover = Some(Arc::new(|_| config::PROOF));
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, wire(20 * MS), wire(20 * MS));
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    let client = pair.client;
    pair.connect();
    pair.network.command(client, |engine, now| {
        let id = engine.connection_reports()[0].id;
        engine.close_connection(now, id, quictun_wire::code::CloseCode::Done);
    });
    for _ in 0..6 {
        let bare = pair
            .network
            .add_bare("stranger", config::NATIVE, pair.server);
        let link = wire(2 * MS);
        pair.network.link(bare, pair.server, link.clone(), link);
    }
    pair.network.run_for(SECOND);
    let app = echo(&mut pair);
    pair.network.run_for(SECOND);
    assert!(pair.network.outcome(app).is_clean());
}

// PROTOCOL CONTROL-2.
#[test]
fn frames_out_of_turn_end_the_connection_and_nothing_else() {
    let second: fn() -> Vec<Vec<u8>> = || vec![hello(None), hello(None)];
    let twice: fn() -> Vec<Vec<u8>> = || vec![[hello(None), hello(None)].concat()];
    let answer: fn() -> Vec<Vec<u8>> = || {
        let mut bytes = hello(None);
        Frame::HelloAck {
            grant: None,
            bond: None,
            reverse: false,
        }
        .encode(&mut bytes);
        vec![bytes]
    };
    let malformed: fn() -> Vec<Vec<u8>> = || vec![[hello(None), vec![0x10, 0]].concat()];
    // A control stream that has ended still was the only one: each end costs the server more than the client.
    let anew: fn() -> Vec<Vec<u8>> = || vec![hello(None), Vec::new(), hello(None)];
    for streams in [second, twice, answer, malformed, anew] {
        let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
        let bare = stranger(&mut pair);
        let mut latest = None;
        for bytes in streams() {
            if bytes.is_empty() {
                let connection = pair.network.bare(bare).connection();
                let ended = latest.map(|stream| connection.send_stream(stream).finish());
                assert_eq!(ended, Some(Ok(())));
                pair.network.run_for(SECOND);
                continue;
            }
            let stream = pair.network.bare(bare).open();
            latest = Some(stream);
            pair.network.bare(bare).write(stream, &bytes);
            pair.network.run_for(SECOND);
        }
        let lost = pair.network.bare(bare).lost().unwrap_or_default();
        assert!(lost.contains("control"), "{lost:?}");
        let client = pair.client;
        assert!(pair.network.client(client).is_connected());
        pair.check_nothing_left();
    }
}

// PROTOCOL CONTROL-3, CONTROL-6.
#[test]
fn a_control_stream_that_ends_leaves_the_flows_alone() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    let bare = stranger(&mut pair);
    let control = pair.network.bare(bare).open();
    // A frame of a type that this version does not know, then the end of the stream.
    let bytes = [hello(None), vec![0x21, 2, 7, 7]].concat();
    pair.network.bare(bare).write(control, &bytes);
    pair.network.run_for(SECOND);
    assert_eq!(pair.network.bare(bare).read(control).0, [8, 0], "HELLO_ACK");
    let connection = pair.network.bare(bare).connection();
    connection.send_stream(control).finish().expect("open");
    let flow = pair.network.bare(bare).open();
    let bytes = [request(config::NATIVE, "echo"), b"still here".to_vec()].concat();
    pair.network.bare(bare).write(flow, &bytes);
    pair.network.run_for(SECOND);
    assert_eq!(pair.network.bare(bare).lost(), None);
    let (echoed, _) = pair.network.bare(bare).read(flow);
    assert_eq!(echoed, [&[2, 0][..], b"still here"].concat());
}

// PROTOCOL MEMORY-1: the charge for bytes moves with them to the control stream.
#[test]
fn a_hello_in_pieces_is_charged_once() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let bare = stranger(&mut pair);
    let control = pair.network.bare(bare).open();
    // The frame type is in its longest form, so the first bytes do not identify the kind of stream yet.
    for piece in [&[0xc0][..], &[0, 0, 0, 0, 0, 0, 7], &[0]] {
        pair.network.bare(bare).write(control, piece);
        pair.network.run_for(SECOND);
    }
    assert_eq!(pair.network.bare(bare).read(control).0, [8, 0], "HELLO_ACK");
    let engine = pair.network.host(pair.server).engine();
    assert_eq!(engine.flow_resources().received, 0);
}

// PROTOCOL CLOSE-13.
#[test]
fn a_drain_waits_until_the_peer_has_everything() {
    for speaks in [true, false] {
        let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
        let server = pair.server;
        let sends = Script::server(1).write([WriteStep::Send(1000), WriteStep::Finish]);
        let host = pair.network.host(server);
        host.serve("sends", SimulatedDial::connects(), sends);
        let bare = stranger(&mut pair);
        let control = speaks.then(|| pair.network.bare(bare).open());
        if let Some(control) = control {
            pair.network.bare(bare).write(control, &hello(None));
        }
        let flow = pair.network.bare(bare).open();
        let bytes = request(config::NATIVE, "sends");
        pair.network.bare(bare).write(flow, &bytes);
        let connection = pair.network.bare(bare).connection();
        connection.send_stream(flow).finish().expect("open");
        pair.network.run_for(SECOND);
        // Both directions have ended and everything is acknowledged.
        pair.network.command(server, |engine, _| engine.drain());
        assert!(pair.network.host(server).engine().flow_reports().is_empty());
        let drained = pair.network.host(server).engine().is_drained();
        assert_eq!(
            drained, !speaks,
            "an older peer cannot confirm that it has everything"
        );
        if let Some(control) = control {
            // Confirmations of other flows, or of less data, do not count.
            let number = flow.index() << 2;
            for (flow, next) in [(number + 4, 1001), (number, 1000)] {
                let mut bytes = Vec::new();
                Frame::Seen(vec![Seen { flow, next }]).encode(&mut bytes);
                pair.network.bare(bare).write(control, &bytes);
            }
            pair.network.run_for(SECOND);
            assert_eq!(pair.network.host(server).engine().unconfirmed(), 1);
            let mut bytes = Vec::new();
            let seen = Seen {
                flow: number,
                next: 1001,
            };
            Frame::Seen(vec![seen]).encode(&mut bytes);
            pair.network.bare(bare).write(control, &bytes);
            pair.network.run_for(SECOND);
            assert!(pair.network.host(server).engine().is_drained());
        }
    }
}

// PROTOCOL CONTROL-7.
#[test]
fn a_flow_whose_application_does_not_read_rests_and_continues() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let server = pair.server;
    let host = pair.network.host(server);
    host.serve(
        "bulk",
        SimulatedDial::connects(),
        Script::server(1).write([WriteStep::Send(20_000_000), WriteStep::Finish]),
    );
    let script = Script::client(1)
        .write([WriteStep::Finish])
        .read([ReadStep::Bytes(1000), ReadStep::Pause(5 * SECOND)]);
    let app = pair.network.open(pair.client, "bulk", script);
    pair.network.run_for(4 * SECOND);
    let sent = pair.network.dialled(server, "bulk").expect("dialled").sent;
    assert!(
        sent < 2_000_000,
        "{sent} bytes for an application that reads nothing"
    );
    pair.network.run_for(10 * SECOND);
    assert!(pair.network.outcome(app).is_clean());
    pair.check_nothing_left();
}

// PROTOCOL MEMORY-1: reading ahead of the application gives the peer no credit.
#[test]
fn a_peer_sends_no_more_than_its_window_and_its_share_while_nothing_is_consumed() {
    let mut pair = pair(true);
    let server = pair.server;
    pair.network
        .host(server)
        .serve("never", SimulatedDial::Never, Script::default());
    let bare = stranger(&mut pair);
    let flow = pair.network.bare(bare).open();
    let bytes = request(config::NATIVE, "never");
    pair.network.bare(bare).write(flow, &bytes);
    let mut taken = 0;
    for _ in 0..500 {
        let connection = pair.network.bare(bare).connection();
        while let Ok(bytes) = connection.send_stream(flow).write(&[0; 1000]) {
            taken += bytes;
        }
        pair.network.run_for(10 * MS);
    }
    // The window of a stranger may be granted twice.
    assert!(taken <= 2 * 64 * 1024, "{taken} bytes");
}

/// Connects a client whose round trip takes a second, so that a gap on its control stream lasts.
fn far_client(pair: &mut TunnelPair) -> HostId {
    let bare = pair.network.add_bare("far", config::NATIVE, pair.server);
    pair.network
        .link(bare, pair.server, wire(SECOND), wire(SECOND));
    pair.network.run_for(5 * SECOND);
    assert!(pair.network.bare(bare).is_connected());
    bare
}

/// Sends `begin` on a new stream, and then `pieces` single bytes behind a byte that is lost. Returns the most memory that
/// the server has held for them, and whether the server has then refused the stream.
fn send_pieces(pair: &mut TunnelPair, bare: HostId, begin: &[u8], pieces: usize) -> (usize, bool) {
    let server = pair.server;
    let control = pair.network.bare(bare).open();
    pair.network.bare(bare).write(control, begin);
    pair.network.run_for(2 * SECOND);
    pair.network.set_link(bare, server, |link| link.loss = 1.0);
    pair.network.bare(bare).write(control, &[0x3f]);
    pair.network.run_for(MS);
    pair.network.set_link(bare, server, |link| link.loss = 0.0);
    for _ in 0..pieces {
        pair.network.bare(bare).write(control, &[0]);
        pair.network.run_for(MS / 4);
    }
    let mut most = 0;
    for _ in 0..70 {
        pair.network.run_for(10 * MS);
        let engine = pair.network.host(server).engine();
        most = most.max(engine.flow_resources().received);
    }
    pair.network.run_for(SECOND / 2);
    let (_, end) = pair.network.bare(bare).read(control);
    (most, matches!(end, Some(Err(_))))
}

// PROTOCOL MEMORY-1: behind a gap, each byte costs 160.
#[test]
fn a_stranger_holds_little_by_single_bytes_behind_a_gap() {
    for (pieces, refused) in [(20, false), (300, true)] {
        let mut pair = pair(true);
        let bare = far_client(&mut pair);
        // The first byte of HELLO tells that the stream is the control stream.
        let (held, ended) = send_pieces(&mut pair, bare, &[7], pieces);
        assert!(held < 5000, "{held} bytes are held for {pieces}");
        assert_eq!(ended, refused, "{pieces} pieces");
        pair.check_nothing_left();
    }
}

// PROTOCOL MEMORY-1, CONTROL-6.
#[test]
fn a_known_client_that_sends_single_bytes_behind_a_gap_loses_its_control_stream() {
    for (pieces, refused) in [(150, false), (300, true)] {
        let mut server = config::server(1);
        server.transport.account = Account::new(4 << 20);
        let client = config::client_speaking(config::NATIVE, 1);
        let (up, down) = (wire(20 * MS), wire(20 * MS));
        let mut pair = TunnelPair::with(Seed::fixed(1), client, server, up, down);
        let host = pair.network.host(pair.server);
        host.serve("echo", SimulatedDial::connects(), Script::echo());
        let bare = far_client(&mut pair);
        let (held, ended) = send_pieces(&mut pair, bare, &hello(None), pieces);
        assert!(held < 33 * 1024, "{held} bytes are held for {pieces}");
        assert_eq!(ended, refused, "{pieces} pieces");
        let flow = pair.network.bare(bare).open();
        let bytes = [request(config::NATIVE, "echo"), b"served".to_vec()].concat();
        pair.network.bare(bare).write(flow, &bytes);
        pair.network.run_for(5 * SECOND);
        assert_eq!(pair.network.bare(bare).lost(), None);
        let (echoed, _) = pair.network.bare(bare).read(flow);
        assert_eq!(echoed, [&[2, 0][..], b"served"].concat());
    }
}

// Each of these frames has three bytes, and its event a hundred times as much.
#[test]
fn frames_that_arrive_at_once_cause_few_events_in_a_turn() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    let server = pair.server;
    let bare = stranger(&mut pair);
    let control = pair.network.bare(bare).open();
    let mut bytes = Vec::new();
    Frame::Hello {
        proof: None,
        join: None,
        bond: None,
        reverse: true,
    }
    .encode(&mut bytes);
    pair.network.bare(bare).write(control, &bytes);
    pair.network.run_for(SECOND);
    let before = pair.network.host(server).events().len();
    // The server's process does nothing for a moment, so it finds all datagrams at once.
    pair.network.stop(server, SECOND);
    let frames = 3000;
    let mut bytes = Vec::new();
    for id in 0..frames {
        Frame::Unlisten(vec![id % 60]).encode(&mut bytes);
    }
    pair.network.bare(bare).write(control, &bytes);
    let connection = pair.network.bare(bare).connection();
    connection.send_stream(control).finish().expect("open");
    pair.network.run_for(2 * SECOND);
    let host = pair.network.host(server);
    let after = host.events()[before..].iter();
    let asked = after
        .filter(|(_, event)| matches!(event, EngineEvent::Server(ServerEvent::Unlisten { .. })));
    assert_eq!(asked.count() as u64, frames, "each frame is handled");
    let most = host.events_most();
    assert!(most <= 20, "{most} events in one turn");
    assert_eq!(pair.network.bare(bare).lost(), None);
    // PROTOCOL CONTROL-6: the end of the stream comes after its last frame.
    let (_, end) = pair.network.bare(bare).read(control);
    assert!(end.is_some(), "the server has ended its half");
}
