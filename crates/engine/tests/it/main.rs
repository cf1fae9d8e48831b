//! One turn of a loop that has the order of the crate page: inputs, `drive`, datagrams.

#[path = "../../examples/over_mio/app.rs"]
#[expect(dead_code, reason = "no application is opened here")]
mod app;
#[path = "../../examples/over_mio/setup.rs"]
mod setup;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use bytes::BytesMut;
use quictun_engine::{ClientEvent, Engine, Role};

use app::App;

const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 7500);
const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 2), 4000);

/// Returns the datagrams that an engine sends in one turn.
fn turn<R: Role>(engine: &mut Engine<App, R>, now: Instant) -> Vec<BytesMut> {
    let (mut sent, mut buffer) = (Vec::new(), Vec::new());
    engine.drive(now);
    while let Some(datagrams) = engine.poll_transmit(now, &mut buffer) {
        sent.push(BytesMut::from(&buffer[..datagrams.size]));
    }
    sent
}

// A client with a classical key exchange sends one datagram, and would wait for its probe timeout otherwise.
#[test]
fn a_server_answers_a_first_datagram_in_the_turn_in_which_it_arrives() {
    let (server, client) = setup::engine_pair().expect("configurations");
    let mut server = Engine::server(server).expect("a server");
    let mut client = Engine::client(client).expect("a client");
    let now = Instant::now();
    turn(&mut client, now);
    let Some(ClientEvent::Resolve { server: id, tenant }) = client.poll_event() else {
        panic!("the client does not look up its server");
    };
    let resolved = Ok(vec![SocketAddr::from(SERVER)]);
    client.handle_resolved(now, id, tenant, &resolved);
    for datagram in turn(&mut client, now) {
        server.handle_datagram(now, CLIENT.into(), None, None, datagram);
    }
    assert!(!turn(&mut server, now).is_empty());
}
