//! Opening flows: latency, refusals, fragments, and independence of the flows from each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quictun_sim::engine::{Ending, EngineEvent, ServerEvent};
use quictun_sim::{
    AppId, HostId, IncomingState, Network, Script, Seed, SimulatedDial, WriteStep, config,
};
use quictun_wire::code::FlowCode;

use crate::guests::Guests as _;
use crate::tunnel_pair::{MS, PROTOCOLS, SECOND, TunnelPair, limited, request, wire};

/// Returns the script of an application that sends a request and reads the answer.
fn asks(number: u64) -> Script {
    Script::client(number).write([
        WriteStep::Send(100),
        WriteStep::ReceivedEnd,
        WriteStep::Finish,
    ])
}

/// Returns the script of the peer of [`asks`].
fn answers(number: u64) -> Script {
    Script::server(number).write([
        WriteStep::Received(100),
        WriteStep::Send(1000),
        WriteStep::Finish,
    ])
}

// PROTOCOL OPEN-2.
#[test]
fn the_first_byte_takes_one_round_trip_and_the_dial() {
    let (round_trip, dial) = (25 * MS, 7 * MS);
    for protocols in PROTOCOLS {
        let mut pair = TunnelPair::new(Seed::fixed(1), protocols, wire(round_trip));
        pair.connect();
        let greets = Script::server(2).write([WriteStep::Send(40), WriteStep::Finish]);
        let host = pair.network.host(pair.server);
        host.serve("asked", SimulatedDial::Connects { after: dial }, answers(1));
        host.serve("greeting", SimulatedDial::Connects { after: dial }, greets);
        let listens = Script::client(2).write([WriteStep::ReceivedEnd, WriteStep::Finish]);
        let apps = [
            pair.network.open(pair.client, "asked", asks(1)),
            pair.network.open(pair.client, "greeting", listens),
        ];
        pair.network.run_for(SECOND);
        for app in apps {
            let outcome = pair.network.outcome(app);
            let after = outcome.first_byte_after().expect("an answer");
            assert!(after <= round_trip.mul_f64(1.05) + dial, "{after:?}");
            assert!(outcome.is_clean());
        }
    }
}

#[test]
fn a_cold_client_carries_data_that_came_before_the_connection() {
    for protocols in PROTOCOLS {
        let mut pair = TunnelPair::new(Seed::fixed(1), protocols, wire(25 * MS));
        pair.network
            .host(pair.server)
            .serve("asked", SimulatedDial::connects(), answers(1));
        let app = pair.network.open(pair.client, "asked", asks(1));
        pair.network.run_for(SECOND);
        let outcome = pair.network.outcome(app);
        assert!(outcome.is_clean());
        // One round trip for the handshake, one for the answer.
        assert!(outcome.first_byte_after() <= Some(52 * MS), "{outcome:?}");
    }
}

// PROTOCOL OPEN-3.
#[test]
fn a_refusal_reaches_the_client_as_a_reset_with_its_reason() {
    let codes = [
        FlowCode::Refused,
        FlowCode::Denied,
        FlowCode::Unreachable,
        FlowCode::NameNotFound,
        FlowCode::Unauthenticated,
        FlowCode::Unsupported,
        FlowCode::DialTimeout,
        FlowCode::Limit,
    ];
    for protocols in PROTOCOLS {
        let mut pair = TunnelPair::new(Seed::fixed(1), protocols, wire(25 * MS));
        pair.connect();
        for code in codes {
            let dial = SimulatedDial::Fails { after: MS, code };
            pair.network
                .host(pair.server)
                .serve(code.label(), dial, Script::echo());
            // An application that has half-closed must not mistake the refusal for the end of an answer.
            let script = Script::client(1).write([WriteStep::Send(3000), WriteStep::Finish]);
            let app = pair.network.open(pair.client, code.label(), script);
            pair.network.run_for(SECOND);
            let outcome = pair.network.outcome(app);
            assert_eq!(
                (outcome.incoming, outcome.received),
                (IncomingState::Reset, 0),
                "{code:?}"
            );
            let summary = pair.closed(pair.client).pop().expect("the flow is closed");
            let told = if protocols == config::NATIVE {
                code
            } else if code == FlowCode::Unsupported {
                FlowCode::BadOpen
            } else {
                FlowCode::Unreachable
            };
            assert_eq!(summary.ending, Ending::PeerRefused(told));
            assert!(!summary.established);
        }
        pair.check_nothing_left();
    }
}

// PROTOCOL TOKEN-1, HAZARD-12.
#[test]
fn tokens_up_to_the_limit_pass_and_longer_ones_are_refused_here() {
    for (protocols, most) in [(config::COMPAT, 512), (config::NATIVE, 1024)] {
        let mut pair = TunnelPair::new(Seed::fixed(1), protocols, wire(25 * MS));
        pair.connect();
        let longest = "x".repeat(most);
        pair.network
            .host(pair.server)
            .serve(&longest, SimulatedDial::connects(), answers(1));
        let good = pair.network.open(pair.client, &longest, asks(1));
        let bad = pair
            .network
            .open(pair.client, &"x".repeat(most + 1), asks(1));
        pair.network.run_for(SECOND);
        assert!(pair.network.outcome(good).is_clean());
        assert_eq!(pair.network.outcome(bad).incoming, IncomingState::Reset);
        let endings: Vec<Ending> = pair
            .closed(pair.client)
            .iter()
            .map(|summary| summary.ending)
            .collect();
        assert!(
            endings.contains(&Ending::Abandoned(FlowCode::BadOpen)),
            "{endings:?}"
        );
        pair.check_nothing_left();
    }
}

/// Creates a pair with a bare client that is connected.
pub(crate) fn with_bare(protocols: &[&[u8]]) -> (TunnelPair, HostId) {
    let mut pair = TunnelPair::new(Seed::fixed(3), protocols, wire(10 * MS));
    pair.connect();
    let bare = pair.network.add_bare("bare", protocols, pair.server);
    pair.network
        .link(bare, pair.server, wire(10 * MS), wire(10 * MS));
    pair.network
        .run_until(SECOND, |network| network.bare(bare).is_connected());
    (pair, bare)
}

// PROTOCOL OPEN-1, OPEN-4, TOKEN-2.
#[test]
fn a_request_in_any_number_of_pieces_is_read() {
    for protocols in PROTOCOLS {
        for piece in [1, 7, 100] {
            let (mut pair, bare) = with_bare(protocols);
            pair.network
                .host(pair.server)
                .serve("echo", SimulatedDial::connects(), Script::echo());
            let stream = pair.network.bare(bare).open();
            let mut bytes = request(protocols, "echo");
            bytes.extend_from_slice(b"hello");
            for part in bytes.chunks(piece) {
                pair.network.bare(bare).write(stream, part);
                pair.network.run_for(MS / 2);
            }
            pair.network.run_for(SECOND);
            let (answer, ended) = pair.network.bare(bare).read(stream);
            assert!(answer.ends_with(b"hello"), "pieces of {piece}: {answer:?}");
            assert_eq!(ended, None);
        }
    }
}

// PROTOCOL OPEN-4, TOKEN-4.
#[test]
fn an_incomplete_request_is_refused_and_harms_no_other_flow() {
    for protocols in PROTOCOLS {
        let (mut pair, bare) = with_bare(protocols);
        pair.network
            .host(pair.server)
            .serve("asked", SimulatedDial::connects(), answers(1));
        let bytes = request(protocols, "asked");
        let streams: Vec<_> = (0..50)
            .map(|_| {
                let stream = pair.network.bare(bare).open();
                pair.network
                    .bare(bare)
                    .write(stream, &bytes[..bytes.len() - 1]);
                stream
            })
            .collect();
        for _ in 0..9 {
            let app = pair.network.open(pair.client, "asked", asks(1));
            pair.network.run_for(SECOND);
            let outcome = pair.network.outcome(app);
            assert!(
                outcome.is_clean() && outcome.first_byte_after() <= Some(11 * MS),
                "{outcome:?}"
            );
        }
        pair.network.run_for(3 * SECOND);
        for stream in streams {
            let (answer, ended) = pair.network.bare(bare).read(stream);
            if protocols == config::COMPAT {
                assert_eq!((answer, ended), (vec![2], Some(Ok(()))));
            } else {
                assert_eq!(ended, Some(Err(FlowCode::BadOpen.to_u64())));
            }
        }
        // The library of the bare client answers STOP_SENDING with a reset only if its caller resets the stream.
        let residue = pair.network.host(pair.server).engine().flow_resources();
        assert_eq!(
            (residue.flows, residue.deadlines, residue.buffered),
            (0, 0, 0)
        );
    }
}

/// Opens a flow every 10 ms for a few seconds. With `bad`, some more flows lead to targets that refuse or never answer.
/// Returns the latencies of the flows to the good target.
fn storm(protocols: &[&[u8]], bad: bool) -> Vec<Duration> {
    let mut pair = TunnelPair::new(Seed::fixed(1), protocols, limited(12_500_000, 20 * MS));
    pair.connect();
    let host = pair.network.host(pair.server);
    host.serve("asked", SimulatedDial::connects(), answers(1));
    host.serve("refused", SimulatedDial::refused(), Script::echo());
    host.serve("black hole", SimulatedDial::Never, Script::echo());
    let mut good: Vec<AppId> = Vec::new();
    for round in 0..400u64 {
        // The number of flows stays below the limit from which on a client opens a spare connection.
        if bad && round % 4 == 0 {
            let token = if round % 8 == 0 {
                "refused"
            } else {
                "black hole"
            };
            pair.network.open(pair.client, token, asks(1));
        }
        good.push(pair.network.open(pair.client, "asked", asks(1)));
        pair.network.run_for(10 * MS);
    }
    pair.network.run_for(30 * SECOND);
    pair.check_nothing_left();
    let outcomes = good.iter().map(|&app| pair.network.outcome(app));
    let latencies = outcomes.map(|outcome| {
        assert!(outcome.is_clean(), "{outcome:?}");
        outcome.first_byte_after().expect("an answer")
    });
    latencies.collect()
}

// PROTOCOL TOKEN-4, LIMIT-1.
#[test]
fn refused_and_unanswered_targets_delay_no_other_flow() {
    for protocols in PROTOCOLS {
        let worst = |latencies: Vec<Duration>| latencies.into_iter().max().expect("many");
        let (calm, stormy) = (
            worst(storm(protocols, false)),
            worst(storm(protocols, true)),
        );
        assert!(stormy <= calm + MS, "calm {calm:?}, stormy {stormy:?}");
    }
}

// PROTOCOL OPEN-5.
#[test]
fn uploads_to_targets_that_never_answer_leave_room_for_others() {
    for protocols in PROTOCOLS {
        let mut pair = TunnelPair::new(Seed::fixed(1), protocols, limited(2_500_000, 20 * MS));
        pair.connect();
        let host = pair.network.host(pair.server);
        host.serve(
            "sink",
            SimulatedDial::connects(),
            Script::server(1).write([WriteStep::ReceivedEnd, WriteStep::Finish]),
        );
        host.serve("black hole", SimulatedDial::Never, Script::echo());
        let upload = |bytes| Script::client(1).write([WriteStep::Send(bytes), WriteStep::Finish]);
        for _ in 0..20 {
            pair.network
                .open(pair.client, "black hole", upload(5_000_000));
        }
        pair.network.run_for(SECOND);
        let app = pair.network.open(pair.client, "sink", upload(5_000_000));
        let over = |network: &mut Network| network.outcome(app).is_over();
        let took = pair.network.run_until(9 * SECOND, over);
        assert!(
            took < 3 * SECOND,
            "{took:?} for two seconds of data at the link's rate"
        );
        assert!(pair.network.outcome(app).is_clean());
    }
}

#[test]
fn hundreds_of_flows_open_at_once() {
    for protocols in PROTOCOLS {
        let mut pair = TunnelPair::new(Seed::fixed(1), protocols, limited(12_500_000, 20 * MS));
        pair.connect();
        pair.network
            .host(pair.server)
            .serve("asked", SimulatedDial::connects(), answers(1));
        let apps: Vec<AppId> = (0..500)
            .map(|_| pair.network.open(pair.client, "asked", asks(1)))
            .collect();
        let over = |network: &mut Network| apps.iter().all(|&app| network.outcome(app).is_over());
        let took = pair.network.run_until(10 * SECOND, over);
        assert!(apps.iter().all(|&app| pair.network.outcome(app).is_clean()));
        assert!(took < SECOND, "{took:?}");
        pair.check_nothing_left();
    }
}

// PROTOCOL PROOF-1.
#[test]
fn a_proof_is_made_from_what_both_ends_of_the_connection_export() {
    let mut client = config::client_speaking(config::NATIVE, 1);
    client.role.servers[0].prover = Some(Arc::new(|value| value.map(|byte| byte ^ 0x55)));
    let link = wire(10 * MS);
    let mut pair = TunnelPair::with(
        Seed::fixed(1),
        client,
        config::server(1),
        link.clone(),
        link,
    );
    pair.connect();
    pair.network.open(pair.client, "anything", asks(1));
    pair.network.run_for(SECOND);
    let host = pair.network.host(pair.server);
    let asked = host.events().iter().find_map(|(_, event)| match event {
        EngineEvent::Server(ServerEvent::Open(opened)) => Some((opened.connection, opened.proof)),
        _ => None,
    });
    let (connection, proof) = asked.expect("the flow was asked for");
    let exported = host
        .engine()
        .server()
        .exporter(connection)
        .expect("the connection is up");
    assert_eq!(proof, Some(exported.map(|byte| byte ^ 0x55)));
}

/// Returns the application addresses that the server received, in the order of their flows.
fn told(pair: &mut TunnelPair) -> Vec<Option<SocketAddr>> {
    let host = pair.network.host(pair.server);
    let told = host.events().iter().filter_map(|(_, event)| match event {
        EngineEvent::Server(ServerEvent::Open(opened)) => Some(opened.source),
        _ => None,
    });
    told.collect()
}

// PROTOCOL SOURCE-2.
#[test]
fn the_address_of_an_application_is_sent_if_the_client_wants_it_and_speaks_quictun_1() {
    let source = SocketAddr::from(([192, 0, 2, 7], 40_000));
    for protocols in PROTOCOLS {
        let mut pair = TunnelPair::new(Seed::fixed(1), protocols, wire(10 * MS));
        pair.connect();
        pair.network
            .host(pair.server)
            .serve("asked", SimulatedDial::connects(), answers(1));
        let silent = pair.network.open(pair.client, "asked", asks(1));
        pair.network.run_for(SECOND);
        pair.network.host(pair.client).set_source(source);
        let telling = pair.network.open(pair.client, "asked", asks(1));
        pair.network.run_for(SECOND);
        for app in [silent, telling] {
            assert!(pair.network.outcome(app).is_clean());
        }
        let native = protocols == config::NATIVE;
        assert_eq!(told(&mut pair), [None, native.then_some(source)]);
    }
}
