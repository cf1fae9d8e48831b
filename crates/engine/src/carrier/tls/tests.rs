//! A server's connection: against peers that speak something else, and as one stream.

mod single;

use std::io::{self, IoSlice, Read as _, Write as _};
use std::sync::Arc;
use std::time::Instant;

use quictun_flow::Socket;
use quictun_tls::SendBuffer;
use quictun_wire::alpn;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

use super::{TlsCarrier, TlsServer};
use crate::carrier::CarrierEvent;
use crate::config::Transport;
use crate::grants::InitialGrants;
use crate::loss::LossReason;

/// The content type of an alert (RFC 8446 section 5.1).
const ALERT: u8 = 21;

/// A socket in memory: bytes for this side, and bytes of this side.
#[derive(Default)]
struct Pipe {
    arrived: Vec<u8>,
    /// The peer's direction has ended behind what has arrived.
    ended: bool,
    sent: Vec<u8>,
    /// This side's direction has ended.
    finished: bool,
    aborted: bool,
    /// Bytes that the system has not sent yet.
    unsent: usize,
}

impl Socket for Pipe {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        if self.arrived.is_empty() && std::mem::take(&mut self.ended) {
            return Ok(0);
        }
        if self.arrived.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        into.extend_from_slice(&self.arrived);
        Ok(std::mem::take(&mut self.arrived).len())
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        self.sent.write_vectored(chunks)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.finished = true;
        Ok(())
    }

    fn unsent(&self) -> usize {
        self.unsent
    }

    fn abort(&mut self) {
        self.aborted = true;
    }

    fn close(&mut self) {}
}

/// A server's connection, its socket, and the certificate of the server.
struct Served {
    carrier: TlsCarrier,
    pipe: Pipe,
    roots: RootCertStore,
}

impl Served {
    fn new() -> Self {
        Self::with(false)
    }

    /// Makes a server that is an HTTPS proxy, or none.
    fn with(serves_http: bool) -> Self {
        let made = rcgen::generate_simple_self_signed(["server.example".to_owned()]);
        let rcgen::CertifiedKey { cert, signing_key } = made.expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).expect("a root");
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider supports TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())
            .expect("a key of the certificate");
        let first = InitialGrants {
            window: 1 << 20,
            remembered: 0,
            flows: 8,
        };
        let begun = (([192, 0, 2, 1], 40000).into(), &[][..]);
        let transport = Transport::new(Arc::new(|_| 1200));
        let mut server = TlsServer::new(&config, serves_http);
        server.select_others(vec![alpn::ACME.to_vec()]);
        server.replace(&config);
        let carrier = TlsCarrier::server(Instant::now(), begun, &server, &transport, first);
        Self {
            carrier: carrier.expect("a connection"),
            pipe: Pipe::default(),
            roots,
        }
    }

    /// Gives the server these bytes. Returns its answer.
    fn give(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (now, carrier) = (Instant::now(), &mut self.carrier);
        self.pipe.arrived.extend_from_slice(bytes);
        carrier.handle_ready(true, true, false);
        carrier.read(now, &mut self.pipe, &mut Vec::new());
        if carrier.is_queued() {
            carrier.answer_client_hello(now);
        }
        while carrier.write(now, &mut self.pipe, &mut SendBuffer::new()) {}
        std::mem::take(&mut self.pipe.sent)
    }

    fn events(&mut self) -> Vec<CarrierEvent> {
        std::iter::from_fn(|| self.carrier.poll_event()).collect()
    }
}

/// Makes a handshake with a client that offers these protocols. Returns the client, which has been sent all.
fn handshake(served: &mut Served, offered: &[&[u8]]) -> ClientConnection {
    let config = ClientConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider supports TLS 1.3")
        .with_root_certificates(served.roots.clone());
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    let name = "server.example".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    while client.wants_write() {
        let mut flight = Vec::new();
        client.write_tls(&mut flight).expect("memory takes all");
        let answer = served.give(&flight);
        let mut left = &answer[..];
        while !left.is_empty() {
            client.read_tls(&mut left).expect("records");
            client.process_new_packets().expect("a handshake");
        }
    }
    assert!(
        !client.is_handshaking(),
        "the client has seen no error of TLS"
    );
    client
}

/// Checks that the server has ended the connection, and has sent nothing before the end.
fn assert_ended(served: &Served, client: &mut ClientConnection) {
    assert!(served.carrier.is_over());
    let mut plaintext = [0; 100];
    let ended = client.reader().read(&mut plaintext);
    assert_eq!(ended.expect("close_notify"), 0, "no transport parameters");
}

// PROTOCOL TCP-1: TLS itself permits a client to offer no protocol.
#[test]
fn a_client_without_a_protocol_is_refused() {
    let mut served = Served::new();
    let mut client = handshake(&mut served, &[]);
    let events = served.events();
    assert!(matches!(&events[..], [CarrierEvent::Lost(_)]), "{events:?}");
    assert_ended(&served, &mut client);
}

// RFC 8737 section 3.
#[test]
fn the_handshake_is_all_that_an_authority_gets() {
    let mut served = Served::new();
    let mut client = handshake(&mut served, &[alpn::ACME]);
    assert_eq!(client.alpn_protocol(), Some(alpn::ACME));
    let events = served.events();
    let no_failure = CarrierEvent::Lost(LossReason::ClosedLocally);
    assert_eq!(format!("{events:?}"), format!("{:?}", [no_failure]));
    assert_ended(&served, &mut client);
}

#[test]
fn a_client_that_offers_the_tunnels_protocol_gets_it_whatever_else_it_offers() {
    let mut served = Served::new();
    let client = handshake(&mut served, &[alpn::ACME, alpn::MUX]);
    assert_eq!(client.alpn_protocol(), Some(alpn::MUX));
    assert!(!served.carrier.is_over());
}

#[test]
fn a_peer_that_speaks_another_protocol_gets_the_end_and_an_alert_if_it_speaks_tls() {
    let more = vec![0; 20_000];
    let no_hello = [&[22, 3, 1, 0, 4, 20, 0, 0, 0], &more[..]].concat();
    let http = [b"GET / HTTP/1.1\r\n\r\n", &more[..]].concat();
    for (bytes, alert) in [(http, None), (no_hello, Some(ALERT))] {
        let mut served = Served::new();
        let answer = served.give(&bytes);
        let events = served.events();
        assert!(matches!(&events[..], [CarrierEvent::Lost(_)]), "{events:?}");
        assert!(served.carrier.is_over());
        assert_eq!(answer.first().copied(), alert);
    }
}
