//! Memory accounting over time: the charges for flows and connections are returned (PROTOCOL MEMORY-1), and clients
//! that take much are refused before clients that take little (LIMIT-1).

use quictun_sim::engine::{Account, Ending, LocalLimit};
use quictun_sim::{HostEngine, HostId, ReadStep, Script, Seed, SimulatedDial, WriteStep, config};
use quictun_wire::code::FlowCode;
use quictun_wire::control::Frame;
use quinn_proto::{Dir, VarInt};

use crate::guests::Guests as _;
use crate::oracle::check_accounting;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, request, wire};

const MIB: u64 = 1 << 20;

/// Creates a server with its own account of `budget` bytes and a client that proves its identity.
fn pair(budget: u64, identify: bool) -> (TunnelPair, Account) {
    let account = Account::new(budget);
    let mut server = config::server(1);
    server.transport.account = account.clone();
    server.role.identify = identify;
    server.role.max_handshakes = 16;
    let mut client = config::client_speaking(config::NATIVE, 1);
    client.role.servers[0].prover = Some(std::sync::Arc::new(|_| config::PROOF));
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, wire(20 * MS), wire(20 * MS));
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    host.serve("refused", SimulatedDial::refused(), Script::default());
    host.serve(
        "deaf",
        SimulatedDial::connects(),
        Script::default().read([ReadStep::Never]),
    );
    let source = Script::default().write([WriteStep::Send(u64::MAX)]);
    host.serve("source", SimulatedDial::connects(), source);
    (pair, account)
}

fn charged(pair: &mut TunnelPair) -> u64 {
    let engine = pair.network.host(pair.server).engine();
    engine.memory_usage().charged
}

/// Adds another connection, whose streams the test drives itself. Its round-trip time is 20 ms.
fn peer(pair: &mut TunnelPair) -> HostId {
    let (network, server) = (&mut pair.network, pair.server);
    let bare = network.add_bare("peer", config::NATIVE, server);
    network.link(bare, server, wire(20 * MS), wire(20 * MS));
    network.run_for(100 * MS);
    bare
}

/// Closes the connection of such a peer.
fn close(pair: &mut TunnelPair, bare: HostId) {
    let now = pair.network.now();
    let connection = pair.network.bare(bare).connection();
    connection.close(now, VarInt::from_u32(0), bytes::Bytes::new());
}

#[test]
fn a_hundred_thousand_flows_leave_nothing_charged() {
    let (mut pair, _) = pair(64 * MIB, false);
    let bare = peer(&mut pair);
    let control = pair.network.bare(bare).open();
    let mut hello = Vec::new();
    Frame::Hello {
        proof: None,
        join: None,
        bond: None,
        reverse: false,
    }
    .encode(&mut hello);
    pair.network.bare(bare).write(control, &hello);
    let mut before = 0;
    let (mut opened, mut round) = (0, 0_u32);
    while opened < 100_000 {
        let mut streams = Vec::new();
        let connection = pair.network.bare(bare).connection();
        while let Some(stream) = connection.streams().open(Dir::Bi) {
            let target = ["echo", "refused", "deaf"][opened % 3];
            let bytes = [request(config::NATIVE, target), vec![7; 20]].concat();
            let mut send = connection.send_stream(stream);
            streams.push(stream);
            if send.write(&bytes) != Ok(bytes.len()) || streams.len() == 1000 {
                break;
            }
            // Some streams finish, some are reset at once, some are reset later.
            match opened % 4 {
                0 | 1 => send.finish().expect("open"),
                2 => send.reset(VarInt::from_u32(1)).expect("open"),
                _ => {}
            }
            opened += 1;
        }
        pair.network.run_for(60 * MS);
        for stream in streams {
            drop(pair.network.bare(bare).read(stream));
            let connection = pair.network.bare(bare).connection();
            // An error means that the stream has ended already.
            drop(connection.send_stream(stream).reset(VarInt::from_u32(1)));
            drop(connection.recv_stream(stream).stop(VarInt::from_u32(1)));
        }
        pair.network.run_for(60 * MS);
        round += 1;
        if round == 20 {
            before = charged(&mut pair);
        }
    }
    assert_eq!(pair.network.bare(bare).lost(), None);
    // The server waits one minute for targets that read nothing.
    pair.network.run_for(70 * SECOND);
    let engine = pair.network.host(pair.server).engine();
    let residue = engine.flow_resources();
    assert_eq!((residue.flows, residue.received, residue.parked), (0, 0, 0));
    let after = charged(&mut pair);
    assert!(
        after <= before,
        "charged: {before} after 20 rounds, {after} after {round}"
    );
    close(&mut pair, bare);
    pair.network.run_for(10 * SECOND);
    let left = charged(&mut pair);
    assert!(left < after / 2, "{left} bytes for the connection left");
}

// PROTOCOL LIMIT-1.
#[test]
fn a_client_with_many_flows_is_refused_before_one_with_few() {
    let (mut pair, account) = pair(MIB, false);
    pair.connect();
    let bare = peer(&mut pair);
    for _ in 0..100 {
        let connection = pair.network.bare(bare).connection();
        while let Some(stream) = connection.streams().open(Dir::Bi) {
            // An OPEN frame that never ends.
            drop(connection.send_stream(stream).write(&[1]));
        }
        pair.network.run_for(50 * MS);
        let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
        let app = pair.network.open(pair.client, "echo", script);
        pair.network.run_for(50 * MS);
        let outcome = pair.network.outcome(app);
        assert!(outcome.is_clean(), "{outcome:?}");
        assert!(account.leased() <= account.budget());
    }
}

// PROTOCOL MEMORY-1, LIMIT-1.
#[test]
fn refused_streams_that_clients_keep_open_cost_others_nothing() {
    let (mut pair, account) = pair(2 * MIB, false);
    pair.connect();
    let peers: Vec<_> = (0..40).map(|_| peer(&mut pair)).collect();
    for round in 0..50 {
        for &bare in &peers {
            let connection = pair.network.bare(bare).connection();
            while let Some(stream) = connection.streams().open(Dir::Bi) {
                // An OPEN frame that never ends, on a stream that stays open whatever the server answers.
                drop(connection.send_stream(stream).write(&[1]));
            }
        }
        let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
        let app = pair.network.open(pair.client, "echo", script);
        pair.network.run_for(100 * MS);
        let outcome = pair.network.outcome(app);
        assert!(outcome.is_clean(), "round {round}: {outcome:?}");
        let (leased, budget) = (account.leased(), account.budget());
        assert!(leased <= budget, "round {round}: {leased} of {budget}");
    }
    for bare in peers {
        close(&mut pair, bare);
    }
    pair.network.run_for(SECOND);
    let engine = pair.network.host(pair.server).engine();
    assert_eq!(
        engine.flow_resources().flows,
        0,
        "waiting streams must not count as flows"
    );
}

// PROTOCOL MEMORY-1.
#[test]
fn each_stream_that_is_refused_for_lack_of_memory_is_reported_as_one_flow() {
    let (mut pair, _) = pair(MIB, false);
    let bare = peer(&mut pair);
    let mut refused = Vec::new();
    for _ in 0..5 {
        let mut streams = Vec::new();
        let connection = pair.network.bare(bare).connection();
        while let Some(stream) = connection.streams().open(Dir::Bi) {
            // An OPEN frame that never ends.
            drop(connection.send_stream(stream).write(&[1]));
            streams.push(stream);
        }
        pair.network.run_for(100 * MS);
        let bare = pair.network.bare(bare);
        let limit = Some(Err(FlowCode::Limit.to_u64()));
        for stream in streams {
            if bare.read(stream).1 == limit {
                refused.push(VarInt::from(stream).into_inner());
                // The refusal has ended the stream's other half, too.
                drop(
                    bare.connection()
                        .send_stream(stream)
                        .reset(VarInt::from_u32(1)),
                );
            }
        }
        pair.network.run_for(100 * MS);
    }
    assert!(refused.len() > 50, "{} streams", refused.len());
    let closed = pair.closed(pair.server);
    for summary in &closed {
        assert_eq!(summary.ending, Ending::LimitReached(LocalLimit::Memory));
        assert!(summary.remote.is_some() && !summary.established);
    }
    let mut reported: Vec<u64> = closed.iter().filter_map(|flow| flow.stream_id).collect();
    reported.sort_unstable();
    assert_eq!(reported, refused);
    close(&mut pair, bare);
    let (client, server) = (pair.client, pair.server);
    pair.network.command(client, HostEngine::close);
    pair.network.run_for(70 * SECOND);
    check_accounting(&mut pair, server);
}

#[test]
fn a_client_that_uses_all_its_streams_gets_more_of_them() {
    let (mut pair, _) = pair(64 * MIB, false);
    let bare = peer(&mut pair);
    let control = pair.network.bare(bare).open();
    let mut hello = Vec::new();
    Frame::Hello {
        proof: None,
        join: None,
        bond: None,
        reverse: false,
    }
    .encode(&mut hello);
    pair.network.bare(bare).write(control, &hello);
    let mut opened = 0;
    for _ in 0..20 {
        let connection = pair.network.bare(bare).connection();
        while opened < 2000
            && let Some(stream) = connection.streams().open(Dir::Bi)
        {
            let bytes = request(config::NATIVE, "echo");
            let mut send = connection.send_stream(stream);
            assert_eq!(send.write(&bytes), Ok(bytes.len()));
            opened += 1;
        }
        pair.network.run_for(50 * MS);
    }
    let engine = pair.network.host(pair.server).engine();
    assert_eq!((opened, engine.flow_resources().flows), (2000, 2000));
}

// PROTOCOL LIMIT-1.
#[test]
fn downloads_without_credit_do_not_stop_those_of_others() {
    let (mut pair, account) = pair(MIB, false);
    pair.connect();
    let peers: Vec<_> = (0..6).map(|_| peer(&mut pair)).collect();
    for bare in peers {
        let connection = pair.network.bare(bare).connection();
        while let Some(stream) = connection.streams().open(Dir::Bi) {
            let bytes = request(config::NATIVE, "source");
            drop(connection.send_stream(stream).write(&bytes));
        }
        pair.network.run_for(100 * MS);
    }
    pair.network.run_for(10 * SECOND);
    assert!(account.leased() <= account.budget());
    let script = Script::echoed(1).write([WriteStep::Send(50_000), WriteStep::Finish]);
    let app = pair.network.open(pair.client, "echo", script);
    pair.network.run_for(10 * SECOND);
    let outcome = pair.network.outcome(app);
    assert!(outcome.is_clean(), "{outcome:?}");
}

// PROTOCOL AUTH-6.
#[test]
fn dismissed_strangers_take_no_memory_from_a_newcomer() {
    let (mut pair, account) = pair(4 * MIB, true);
    pair.connect();
    // The strangers simulate a long path, so that the server would remember their connections for a long time.
    for round in 0..120 {
        let (network, server) = (&mut pair.network, pair.server);
        let bare = network.add_bare("stranger", config::NATIVE, server);
        network.link(bare, server, wire(6 * SECOND), wire(6 * SECOND));
        network.run_for(SECOND / 2);
        assert!(account.leased() <= account.budget());
        if round % 10 == 9 {
            let bare = peer(&mut pair);
            assert!(pair.network.bare(bare).is_connected(), "round {round}");
            close(&mut pair, bare);
        }
    }
}
