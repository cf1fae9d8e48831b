//! The server's turns while many clients begin handshakes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::BytesMut;
use quictun_sim::engine::{
    ClientEngine, ClientEvent, ClientRole, Engine, EngineConfig, Event, Role, ServerEngine,
    ServerEvent,
};
use quictun_sim::{MemSocket, config};
use quictun_wire::code::CloseCode;

/// Datagrams that an engine sends in one turn, with their destinations.
type Sent = Vec<(SocketAddr, BytesMut)>;

/// Number of clients that dial at the same moment.
const CROWD: u16 = 5;

fn server_address() -> SocketAddr {
    ([192, 0, 2, 1], 7500).into()
}

fn client_address(number: u16) -> SocketAddr {
    ([192, 0, 2, 2], 4000 + number).into()
}

fn turn<R: Role>(engine: &mut Engine<MemSocket, R>, now: Instant) -> Sent {
    let (mut sent, mut buffer) = (Vec::new(), Vec::new());
    engine.drive(now);
    while let Some(datagrams) = engine.poll_transmit(now, &mut buffer) {
        let mut bytes = BytesMut::from(&buffer[..datagrams.size]);
        let segment = datagrams.segment_size.unwrap_or(datagrams.size);
        while !bytes.is_empty() {
            let datagram = bytes.split_to(segment.min(bytes.len()));
            sent.push((datagrams.destination, datagram));
        }
    }
    sent
}

fn receive<R: Role>(engine: &mut Engine<MemSocket, R>, now: Instant, from: SocketAddr, sent: Sent) {
    for (_, datagram) in sent {
        engine.handle_datagram(now, from, None, None, datagram);
    }
}

/// Creates a client, and returns it with its first datagrams.
fn dial(now: Instant, client: EngineConfig<ClientRole>) -> (ClientEngine<MemSocket>, Sent) {
    let mut client = Engine::client(client).expect("a client");
    client.handle_timeout(now);
    let Some(ClientEvent::Resolve { server, tenant }) = client.poll_event() else {
        panic!("the client does not look up its server");
    };
    client.handle_resolved(now, server, tenant, &Ok(vec![server_address()]));
    let sent = turn(&mut client, now);
    (client, sent)
}

/// Takes turns until no step of a handshake waits. Returns the destinations of what the server sends in each turn.
fn turns(server: &mut ServerEngine<MemSocket>, now: Instant) -> Vec<Vec<SocketAddr>> {
    let mut turns = Vec::new();
    loop {
        let sent = turn(server, now);
        let mut to: Vec<_> = sent.into_iter().map(|sent| sent.0).collect();
        to.dedup();
        turns.push(to);
        if server.next_timeout().is_none_or(|next| next > now) {
            return turns;
        }
    }
}

/// Connects one client, lets a crowd of `newcomer`s dial, and closes the first one's connection. Returns the
/// destinations of what the server sends in each turn from then on. If the datagrams of a newcomer come `apart`, the
/// server has handled the first one of each before.
fn destinations(
    newcomer: fn(u64) -> EngineConfig<ClientRole>,
    apart: bool,
) -> Vec<Vec<SocketAddr>> {
    let now = Instant::now();
    let mut server = Engine::server(config::server(1)).expect("a server");
    let (mut client, mut sent) = dial(now, config::client(1));
    let connected = loop {
        receive(&mut server, now, client_address(0), sent);
        let answer = turn(&mut server, now);
        receive(&mut client, now, server_address(), answer);
        sent = turn(&mut client, now);
        let event = std::iter::from_fn(|| server.poll_event())
            .find(|event| matches!(event, ServerEvent::Shared(Event::Connected { .. })));
        if let Some(ServerEvent::Shared(Event::Connected { connection, .. })) = event {
            break connection;
        }
        assert!(!sent.is_empty(), "the client does not connect");
    };
    receive(&mut server, now, client_address(0), sent);
    turn(&mut server, now);
    let mut crowd: Vec<_> = (1..=CROWD)
        .map(|number| {
            let (_, sent) = dial(now, newcomer(u64::from(number) + 1));
            (client_address(number), sent)
        })
        .collect();
    if apart {
        for (from, sent) in &mut crowd {
            let first = sent.drain(..1).collect();
            receive(&mut server, now, *from, first);
        }
        turns(&mut server, now);
    }
    for (from, sent) in crowd {
        receive(&mut server, now, from, sent);
    }
    server.close_connection(now, connected, CloseCode::Shutdown);
    turns(&mut server, now)
}

// PROTOCOL AUTH-6.
#[test]
fn a_connection_that_is_served_goes_before_handshakes() {
    for (newcomer, apart) in [
        (classical as fn(u64) -> _, false),
        (config::post_quantum_client, false),
        (config::post_quantum_client, true),
    ] {
        let turns = destinations(newcomer, apart);
        assert_eq!(turns[0].first(), Some(&client_address(0)), "{turns:?}");
        let newcomers =
            |to: &Vec<SocketAddr>| to.iter().filter(|to| **to != client_address(0)).count();
        assert!(turns.iter().all(|to| newcomers(to) <= 1), "{turns:?}");
        for number in 1..=CROWD {
            let answered = |to: &Vec<SocketAddr>| to.contains(&client_address(number));
            assert!(turns.iter().any(answered), "{turns:?}");
        }
    }
}

// Senders of much data, or a full socket, leave no turn in which there is nothing to send.
#[test]
fn handshakes_advance_in_turns_that_send_nothing() {
    let now = Instant::now();
    let mut server = Engine::server(config::server(1)).expect("a server");
    for number in 1..=CROWD {
        let (_, sent) = dial(now, classical(u64::from(number)));
        receive(&mut server, now, client_address(number), sent);
    }
    for _ in 0..=CROWD {
        server.drive(now);
    }
    assert!(server.next_timeout().is_none_or(|next| next > now));
    let answered: BTreeSet<_> = turn(&mut server, now)
        .into_iter()
        .map(|sent| sent.0)
        .collect();
    assert_eq!(answered.len(), usize::from(CROWD));
}

fn classical(seed: u64) -> EngineConfig<ClientRole> {
    config::client_speaking(config::NATIVE, seed)
}
