use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::exchange::{FlowFates, HandoverMessage, SocketPurpose};
use super::*;
use crate::bond::SERVER_NUMBERS;

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(SocketAddr::from)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300)
}

fn socket() -> impl Strategy<Value = HandedSocket> {
    prop_oneof![
        any::<(bool, bool)>()
            .prop_map(|(reset, half_closed)| HandedSocket::Tcp { reset, half_closed }),
        Just(HandedSocket::Unix),
        address().prop_map(HandedSocket::Datagrams),
    ]
}

fn sent() -> impl Strategy<Value = HandedSent> {
    (0..1u64 << 40, bytes(), any::<(bool, u16, u16)>()).prop_map(
        |(from, kept, (finished, less, seen))| {
            let end = from + kept.len() as u64;
            let less = if finished {
                0
            } else {
                u64::from(less).min(end)
            };
            let mut sent = HandedSent {
                bytes: end - less,
                seen: 0,
                kept_from: from,
                kept,
                finished,
            };
            sent.seen = sent.end().saturating_sub(seen.into());
            sent
        },
    )
}

fn received() -> impl Strategy<Value = HandedReceived> {
    (0..1u64 << 40, bytes(), 0u8..4).prop_map(|(delivered, waiting, state)| HandedReceived {
        delivered,
        whole: state > 0,
        end_reported: state > 1,
        finished: state > 2 && waiting.is_empty(),
        waiting,
    })
}

prop_compose! {
    fn flow()(
        texts in vec("[a-z:.0-9]{0,20}", 4),
        (remote, source) in (address(), option::of(address())),
        (leg, age_ms, wait_ms, stalled_ms) in (0..9u64, 0..1u64 << 50, 0..86_400_000u64, 0..99u64),
        (sent, received, socket) in (sent(), received(), socket()),
        ((named, answered, asked), visitor) in
            (any::<(bool, bool, bool)>(), option::of((option::of(address()), address()))),
    ) -> HandedFlow {
        let visitor = visitor.map(|(peer, asked)| HandedVisitor {
            peer: peer.map_or(IncomingPeer::Unix, IncomingPeer::Ip),
            asked: ListenAddress::tcp(asked),
        });
        HandedFlow {
            number: if visitor.is_some() { SERVER_NUMBERS } else { 0 },
            leg,
            token: texts[0].clone(),
            client_app: texts[1].clone(),
            server_app: texts[2].clone(),
            client: named.then(|| texts[3].clone()),
            remote,
            source,
            age_ms,
            wait_ms,
            stalled_ms,
            sent,
            received,
            answered,
            asked,
            socket,
            visitor,
        }
    }
}

prop_compose! {
    fn bond()(
        (id, secret) in any::<([u8; 16], [u8; 32])>(),
        holder in prop_oneof![
            any::<IpAddr>().prop_map(HandedHolder::Source),
            "[a-z]{1,9}".prop_map(HandedHolder::Named),
            any::<[u8; 32]>().prop_map(HandedHolder::Certificate),
        ],
        proofs in vec(any::<[u8; 32]>(), 0..3),
        (ttl_s, ended) in (0..86_400u64, vec(0..20u64, 0..5)),
        mut flows in vec(flow(), 0..4),
    ) -> HandedBond {
        for (flow, number) in flows.iter_mut().zip(1000..) {
            flow.number += number;
        }
        HandedBond {
            id,
            secret,
            holder,
            proofs,
            ttl_s,
            next_number: SERVER_NUMBERS + 2000,
            ended: (0..).zip(ended).collect(),
            flows,
        }
    }
}

fn state() -> impl Strategy<Value = Handover> {
    let usage = vec(("[a-z]{1,9}", 0..1u64 << 50), 0..4);
    let server = (usage, vec(vec(bond(), 0..3), 1..4)).prop_map(|(usage, workers)| Handover {
        month: "2026-11".to_owned(),
        usage,
        workers,
        ..Handover::default()
    });
    (server, any::<bool>())
        .prop_map(|(state, client)| if client { of_client(state) } else { state })
}

/// Makes the state of a client of a server's.
fn of_client(state: Handover) -> Handover {
    let mut workers = state.workers;
    for bond in workers.iter_mut().flatten() {
        let address = "vpn.example.net:7500".to_owned();
        bond.holder = HandedHolder::Server {
            address,
            route: 255,
        };
        bond.proofs.clear();
        bond.next_number = 3000;
        for flow in &mut bond.flows {
            flow.visitor = None;
        }
    }
    Handover {
        kind: HandoverKind::Client,
        workers,
        ..Handover::default()
    }
}

proptest! {
    #[test]
    fn every_state_survives_its_encoding(state in state()) {
        prop_assert_eq!(Handover::decode(&state.encode(), state.kind), Ok(state));
    }

    #[test]
    fn a_document_that_was_cut_or_extended_is_refused(state in state(), cut in any::<prop::sample::Index>()) {
        let mut bytes = state.encode();
        prop_assert!(Handover::decode(&bytes[..cut.index(bytes.len())], state.kind).is_err());
        bytes.push(0);
        prop_assert_eq!(Handover::decode(&bytes, state.kind), Err(HandoverError::Length));
    }
}

fn one(change: impl FnOnce(&mut HandedBond)) -> Result<Handover, HandoverError> {
    let state = with_one_bond(change);
    Handover::decode(&state.encode(), state.kind)
}

fn with_one_bond(change: impl FnOnce(&mut HandedBond)) -> Handover {
    let flow = |number| HandedFlow {
        number,
        leg: 1,
        token: "tcp:db:5432".to_owned(),
        client_app: String::new(),
        server_app: "192.0.2.1:5432".to_owned(),
        client: None,
        remote: ([192, 0, 2, 9], 1234).into(),
        source: None,
        age_ms: 1000,
        wait_ms: 60_000,
        stalled_ms: 5,
        sent: HandedSent {
            bytes: 12,
            seen: 8,
            kept_from: 10,
            kept: vec![1, 2],
            finished: true,
        },
        received: HandedReceived {
            delivered: 7,
            waiting: vec![3],
            whole: true,
            finished: false,
            end_reported: false,
        },
        answered: false,
        asked: false,
        socket: HandedSocket::Unix,
        visitor: None,
    };
    let mut bond = HandedBond {
        id: [1; 16],
        secret: [2; 32],
        holder: HandedHolder::Named("laptop".to_owned()),
        proofs: vec![[3; 32]],
        ttl_s: 60,
        next_number: SERVER_NUMBERS,
        ended: vec![(3, 0)],
        flows: vec![flow(4), flow(5)],
    };
    change(&mut bond);
    Handover {
        workers: vec![vec![bond]],
        ..Handover::default()
    }
}

#[test]
fn values_that_would_lose_or_repeat_bytes_are_refused() {
    type Change = fn(&mut HandedBond);
    assert!(one(|_| {}).is_ok());
    let wrong: [(&str, Change); 12] = [
        ("twice", |bond| bond.flows[1].number = 4),
        ("ended", |bond| bond.ended.push((5, 1))),
        ("of the server", |bond| {
            bond.flows[0].number = SERVER_NUMBERS;
        }),
        ("time", |bond| bond.ttl_s = 86_401),
        ("next", |bond| bond.next_number = 9),
        ("sent", |bond| bond.flows[0].sent.bytes = 13),
        ("sent and finished", |bond| bond.flows[0].sent.bytes = 11),
        ("seen", |bond| bond.flows[0].sent.seen = 14),
        ("finished", |bond| bond.flows[0].received.finished = true),
        ("not whole", |bond| {
            let received = &mut bond.flows[0].received;
            (received.whole, received.end_reported) = (false, true);
        }),
        ("wait", |bond| bond.flows[0].wait_ms = 86_400_001),
        ("text", |bond| {
            bond.flows[0].token = "x".repeat(MAX_STATE_TEXT + 1);
        }),
    ];
    for (name, change) in wrong {
        let read = one(change);
        assert!(
            matches!(read, Err(HandoverError::Value(_))),
            "{name}: {read:?}"
        );
    }
}

#[test]
fn other_documents_and_other_versions_are_refused_by_name() {
    let bytes = Handover::default().encode();
    let read = |bytes: &[u8]| Handover::decode(bytes, HandoverKind::Server);
    assert_eq!(read(b"{}"), Err(HandoverError::Magic));
    assert_eq!(read(&bytes[..8]), Err(HandoverError::Length));
    let mut newer = bytes.clone();
    newer[8] = 3;
    let version = |found, read| Err(HandoverError::Version { found, read });
    assert_eq!(read(&newer), version(3, 1));
    let none = HandoverError::Value("the number of workers");
    assert_eq!(read(&bytes), Err(none));
    // The state of a process of the other kind.
    let server = with_one_bond(|_| {});
    let client = of_client(server.clone());
    assert_eq!(read(&client.encode()), version(2, 1));
    let by_client = Handover::decode(&server.encode(), HandoverKind::Client);
    assert_eq!(by_client, version(1, 2));
}

#[test]
fn what_only_the_other_kind_of_process_has_is_refused() {
    let server = with_one_bond(|_| {});
    let usage = vec![("laptop".to_owned(), 5)];
    let with_usage = Handover {
        usage,
        ..of_client(server.clone())
    };
    let mut with_client = of_client(server.clone());
    with_client.workers[0][0].holder = HandedHolder::Named("laptop".to_owned());
    let mut with_proof = of_client(server.clone());
    with_proof.workers[0][0].proofs.push([3; 32]);
    let mut too_low = of_client(server.clone());
    too_low.workers[0][0].next_number = 5;
    let mut with_server = server.clone();
    with_server.workers[0][0].holder = of_client(server).workers[0][0].holder.clone();
    for wrong in [with_usage, with_client, with_proof, too_low, with_server] {
        let read = Handover::decode(&wrong.encode(), wrong.kind);
        assert!(
            matches!(read, Err(HandoverError::Value(_))),
            "{wrong:?}: {read:?}"
        );
    }
}

#[test]
fn secrets_and_bytes_of_applications_are_not_shown() {
    let state = one(|bond| bond.flows[0].sent.kept = vec![77; 2]).expect("valid");
    let shown = format!("{state:?}");
    assert!(
        !shown.contains("77") && !shown.contains("2, 2, 2"),
        "{shown}"
    );
}

#[test]
fn every_message_survives_its_encoding() {
    let text = || "why".to_owned();
    let messages = [
        HandoverMessage::Hello {
            lowest: 1,
            highest: 2,
            program: text(),
        },
        HandoverMessage::Accept {
            version: 1,
            program: text(),
            listen: ([192, 0, 2, 1], 7500).into(),
            workers: 4,
            servers: vec![text(), "192.0.2.1:7500".to_owned()],
        },
        HandoverMessage::Accept {
            version: 1,
            program: text(),
            listen: ([192, 0, 2, 1], 7500).into(),
            workers: 4,
            servers: Vec::new(),
        },
        HandoverMessage::Refuse { reason: text() },
        HandoverMessage::Take,
        HandoverMessage::Sockets(SocketPurpose::Udp { worker: 3 }),
        HandoverMessage::Sockets(SocketPurpose::Handover),
        HandoverMessage::Sockets(SocketPurpose::Forward { address: text() }),
        HandoverMessage::Flows { worker: 3 },
        HandoverMessage::State,
        HandoverMessage::Committed,
        HandoverMessage::Released,
        HandoverMessage::Kept { reason: text() },
        HandoverMessage::Ask,
        HandoverMessage::Drain,
        HandoverMessage::Fates(FlowFates {
            continuing: 9000,
            reset: 2,
        }),
    ];
    for message in messages {
        let mut bytes = message.encode();
        assert_eq!(HandoverMessage::decode(&bytes), Ok(message));
        bytes.push(0);
        assert!(HandoverMessage::decode(&bytes).is_err());
    }
    for bytes in [&[][..], &[0], &[14], &[5, 5]] {
        assert!(HandoverMessage::decode(bytes).is_err());
    }
}
