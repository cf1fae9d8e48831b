//! Tests what leaves while the UDP socket has no room.

use std::cell::RefCell;
use std::io::{self, IoSlice, Write as _};
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use quictun_engine::{AcceptedTcp, EngineConfig, Server, ServerEngine, ServerRole, Transport};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivatePkcs8KeyDer;

use super::*;
use crate::udp_port;

/// A record of TLS whose message is not a `ClientHello`, and that is answered with an alert.
const NO_HELLO: [u8; 9] = [22, 3, 1, 0, 4, 20, 0, 0, 0];

/// The content type of an alert (RFC 8446 section 5.1).
const ALERT: u8 = 21;

/// A TCP connection: the bytes that have arrived, and those that were written.
#[derive(Clone, Debug, Default)]
struct Stranger(Rc<RefCell<(Vec<u8>, Vec<u8>)>>);

impl Stranger {
    /// Connects to a server and sends these bytes.
    fn connect(port: &mut EnginePort<Self, Server>, bytes: &[u8]) -> Self {
        let stranger = Self::default();
        stranger.0.borrow_mut().0.extend_from_slice(bytes);
        let now = Instant::now();
        let accepted = AcceptedTcp {
            remote: ([192, 0, 2, 1], 40000).into(),
            socket: stranger.clone(),
            received: BytesMut::new(),
        };
        let connection = port.engine.handle_accepted(now, accepted);
        let connection = connection.expect("a place");
        port.engine
            .handle_carrier_socket(now, connection, true, true, false);
        stranger
    }
}

impl Socket for Stranger {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let arrived = std::mem::take(&mut self.0.borrow_mut().0);
        if arrived.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        into.extend_from_slice(&arrived);
        Ok(arrived.len())
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.borrow_mut().1.write_vectored(chunks)
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn abort(&mut self) {}

    fn close(&mut self) {}
}

fn engine() -> ServerEngine<Stranger> {
    let made = rcgen::generate_simple_self_signed(["server.example".to_owned()]);
    let rcgen::CertifiedKey { cert, signing_key } = made.expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let crypto = ServerConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider supports TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .expect("a key of the certificate");
    let role = ServerRole {
        crypto: Arc::new(crypto),
        max_connections: 10,
        max_handshakes: 10,
        retry_above: 10,
        always_retry: false,
        https_proxy: false,
        identify: false,
        open_timeout: Duration::from_secs(10),
        bond_ttl: Duration::ZERO,
    };
    let config = EngineConfig {
        role,
        transport: Transport::new(Arc::new(|_| 1200)),
        worker: 0,
        seed: [0; 32],
        reset_key: [0; 32],
    };
    ServerEngine::server(config).expect("an engine")
}

/// Returns a port on a socket of its own.
fn port() -> EnginePort<Stranger, Server> {
    let socket = udp_port::bind("127.0.0.1:0".parse().expect("an address"), false);
    let udp = UdpPort::new(socket.expect("a port"), 1 << 20, true).expect("options");
    EnginePort::new(engine(), udp)
}

// PROTOCOL LIMIT-3.
#[test]
fn connections_over_tcp_send_while_the_udp_socket_has_no_room() {
    let mut port = port();
    let datagrams = Datagrams {
        destination: ([127, 0, 0, 1], 9).into(),
        ecn: None,
        size: 1,
        segment_size: None,
        source: None,
    };
    port.blocked = Some((datagrams, vec![0]));
    let stranger = Stranger::connect(&mut port, &NO_HELLO);
    // The message waits for its turn, and the next turn answers it.
    for _ in 0..3 {
        assert!(!port.transmit(), "nothing more for the UDP socket");
    }
    assert!(port.is_blocked());
    assert_eq!(stranger.0.borrow().1.first(), Some(&ALERT));
}

#[test]
fn a_worker_does_not_poll_while_it_moves_bulk_data_over_tcp() {
    let mut port = port();
    for bulk in [false, true] {
        for _ in 0..8 {
            port.note_wait(Duration::from_micros(30));
        }
        let bytes = if bulk { 20_000 } else { 100 };
        Stranger::connect(&mut port, &vec![22; bytes]);
        port.wait_plan(Instant::now());
        assert_eq!(port.spin.budget().is_zero(), bulk, "{bytes} bytes");
    }
}
