//! The results of a handshake: protocol, algorithms, tickets and logged secrets.

use std::os::unix::fs::PermissionsExt;

use rustls::quic::{self, Version};
use rustls::{CipherSuite, HandshakeKind, NamedGroup, ProtocolVersion};

use super::*;

fn offering(offer: Offer) -> Arc<ClientConfig> {
    client_config(
        &ServerTrust::Insecure,
        &ClientIdentity::default(),
        offer,
        None,
    )
    .expect("a configuration")
}

fn own_server() -> Arc<ServerConfig> {
    server(&identity::ephemeral().expect("made"))
}

// PROTOCOL ALPN-1, ALPN-3.
#[test]
fn native_protocol_wins_where_both_are_offered() {
    for (offer, agreed) in [
        (Offer::Both, b"quictun/1".as_slice()),
        (Offer::Native, b"quictun/1"),
        (Offer::Compat, b"quic-tun"),
    ] {
        let (client, server) = handshake(&offering(offer), &own_server(), "example.net").both();
        assert_eq!(client.alpn_protocol(), Some(agreed), "{offer:?}");
        assert_eq!(server.alpn_protocol(), Some(agreed), "{offer:?}");
    }
}

// PROTOCOL ALPN-1.
#[test]
fn original_server_gets_its_own_protocol_from_a_client_that_offers_both() {
    let mut original = (*own_server()).clone();
    original.alpn_protocols = vec![b"quic-tun".to_vec()];
    let original = Arc::new(original);
    let (client, _) = handshake(&offering(Offer::Both), &original, "example.net").both();
    assert_eq!(client.alpn_protocol(), Some(b"quic-tun".as_slice()));
    let error = handshake(&offering(Offer::Native), &original, "example.net").server_refuses();
    assert_eq!(error, rustls::Error::NoApplicationProtocol);
}

// PROTOCOL QUIC-1.
#[test]
fn only_tls13_with_the_fast_algorithms_is_agreed_in_one_round_trip() {
    let (client, _) = handshake(&offering(Offer::Both), &own_server(), "example.net").both();
    assert_eq!(client.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let best = SharedConfig::default().suites.list()[0];
    assert_eq!(
        client.negotiated_cipher_suite().map(|suite| suite.suite()),
        Some(best.suite())
    );
    assert_eq!(client.handshake_kind(), Some(HandshakeKind::Full));

    let suites: Vec<_> = SharedConfig::default()
        .suites
        .list()
        .iter()
        .map(rustls::SupportedCipherSuite::suite)
        .collect();
    assert_eq!(suites.len(), 3);
    assert!(
        suites.contains(&CipherSuite::TLS13_AES_128_GCM_SHA256),
        "QUIC's Initial packets need it"
    );
}

// PROTOCOL QUIC-1.
#[test]
fn each_library_opens_packets_that_the_other_sealed() {
    let shared = |aead| SharedConfig::open(None, aead).expect("nothing is opened");
    let identity = identity::ephemeral().expect("made");
    let anyone = &ClientCertPolicy::NotRequested;
    for (sealing, opening) in [
        (Aead::Ring, Aead::AwsLc),
        (Aead::AwsLc, Aead::Ring),
        (Aead::Auto, Aead::Ring),
    ] {
        let own = ClientIdentity::default();
        let client = client_configs(&ServerTrust::Insecure, &own, Offer::Both, &shared(sealing));
        let (client, _) = client.expect("a configuration");
        let server = server_with(&identity, anyone, PROTOCOLS, &shared(opening));
        let server = server.expect("a configuration");
        let (client, server) = handshake(&client, &server, "example.net").both();
        assert_eq!(
            client.alpn_protocol(),
            server.alpn_protocol(),
            "{sealing:?}"
        );
    }
}

fn falling_back(offer: Offer) -> Option<Arc<ClientConfig>> {
    let identity = ClientIdentity::default();
    let shared = SharedConfig::default();
    let made = client_configs(&ServerTrust::Insecure, &identity, offer, &shared);
    made.expect("a configuration").1
}

/// Returns the configuration of a server without a hybrid group, like the original's.
fn classical_server() -> Arc<ServerConfig> {
    let provider = provider(KeyExchange::Classical, &SharedConfig::default().suites);
    let identity = identity::ephemeral().expect("made");
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(identity.chain.clone(), identity.key.clone_key());
    let mut server = server.expect("a pair");
    server.alpn_protocols = vec![b"quic-tun".to_vec()];
    Arc::new(server)
}

// PROTOCOL QUIC-6.
#[test]
fn keys_are_agreed_post_quantum_where_both_sides_can_and_always_in_one_round_trip() {
    let fallback = |offer| falling_back(offer).expect("there is one");
    for (what, client, server, group) in [
        (
            "native",
            offering(Offer::Native),
            own_server(),
            NamedGroup::X25519MLKEM768,
        ),
        (
            "both",
            offering(Offer::Both),
            own_server(),
            NamedGroup::X25519MLKEM768,
        ),
        (
            "compat",
            offering(Offer::Compat),
            own_server(),
            NamedGroup::X25519,
        ),
        (
            "original",
            offering(Offer::Both),
            classical_server(),
            NamedGroup::X25519,
        ),
        (
            "fall-back",
            fallback(Offer::Native),
            own_server(),
            NamedGroup::X25519,
        ),
    ] {
        let (client, _) = handshake(&client, &server, "example.net").both();
        let agreed = client.negotiated_key_exchange_group();
        assert_eq!(
            agreed.map(rustls::crypto::SupportedKxGroup::name),
            Some(group),
            "{what}"
        );
        // The kind is not `FullWithHelloRetryRequest`.
        assert_eq!(client.handshake_kind(), Some(HandshakeKind::Full), "{what}");
    }
    assert!(
        falling_back(Offer::Compat).is_none(),
        "it is classical anyway"
    );
}

#[test]
fn a_classical_client_hello_fits_one_packet_and_a_post_quantum_one_two() {
    let length = |config: &Arc<ClientConfig>| {
        let name = ServerName::try_from("a-rather-long-name-of-a-server.department.example.net");
        quic_client(config, name.expect("a name")).1.len()
    };
    // An Initial packet has 1200 bytes, minus its long header, a token of 200 bytes, a frame header and a tag. The
    // `ClientHello` includes transport parameters.
    for classical in [Some(offering(Offer::Compat)), falling_back(Offer::Both)] {
        let length = length(&classical.expect("a configuration"));
        assert!(length < 700, "{length} bytes");
    }
    let length = length(&offering(Offer::Both));
    assert!((1216..1900).contains(&length), "{length} bytes");
}

fn quic_client(
    config: &Arc<ClientConfig>,
    name: ServerName<'static>,
) -> (quic::ClientConnection, Vec<u8>) {
    let mut client = quic::ClientConnection::new(config.clone(), Version::V1, name, vec![0; 100])
        .expect("for QUIC");
    let mut hello = Vec::new();
    assert!(client.write_hs(&mut hello).is_none());
    (client, hello)
}

#[test]
fn both_configurations_serve_quic() {
    let name = ServerName::try_from("192.0.2.1").expect("an address");
    let (mut client, hello) = quic_client(&offering(Offer::Both), name);
    let mut server =
        quic::ServerConnection::new(own_server(), Version::V1, vec![0; 100]).expect("for QUIC");
    server.read_hs(&hello).expect("accepted without SNI");
    let (mut initial, mut rest) = (Vec::new(), Vec::new());
    let handshake_keys = server.write_hs(&mut initial);
    let one_rtt_keys = server.write_hs(&mut rest);
    assert!(matches!(
        handshake_keys,
        Some(quic::KeyChange::Handshake { .. })
    ));
    assert!(matches!(one_rtt_keys, Some(quic::KeyChange::OneRtt { .. })));
    client.read_hs(&initial).expect("accepted");
    client.read_hs(&rest).expect("accepted");
    assert_eq!(client.alpn_protocol(), Some(alpn::NATIVE));
    assert!(client.zero_rtt_keys().is_none() && server.zero_rtt_keys().is_none());
}

// PROTOCOL QUIC-4.
#[test]
fn second_connection_resumes_without_early_data() {
    let (client, server) = (offering(Offer::Both), own_server());
    assert!(!client.enable_early_data);
    assert_eq!(server.max_early_data_size, 0);
    let (first, _) = handshake(&client, &server, "example.net").both();
    assert_eq!(first.handshake_kind(), Some(HandshakeKind::Full));
    let (second, _) = handshake(&client, &server, "example.net").both();
    assert_eq!(second.handshake_kind(), Some(HandshakeKind::Resumed));
    assert!(!second.is_early_data_accepted());

    let mut forgetful = (*client).clone();
    forgetful.resumption = Resumption::disabled();
    let (third, _) = handshake(&Arc::new(forgetful), &server, "example.net").both();
    assert_eq!(third.handshake_kind(), Some(HandshakeKind::Full));
}

#[test]
fn resumed_connection_keeps_the_client_certificate() {
    let pki = Pki::new();
    let (own, pin) = pki.alone("laptop");
    let client = client_with(&ServerTrust::Insecure, Some(&own));
    let identity = identity::ephemeral().expect("made");
    let server = server_config(&identity, &ClientCertPolicy::Any, None).expect("a configuration");
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let (_, server) = handshake(&client, &server, "example.net").both();
        assert_eq!(server.handshake_kind(), Some(kind));
        let certs = server.peer_certificates().expect("a certificate");
        assert_eq!(identity::pin_of(&certs[0]).expect("a pin"), pin);
    }
}

#[test]
fn both_ends_export_the_same_bytes_and_no_other_connection_does() {
    let export = |outcome: HandshakeResult| {
        let (client, server) = outcome.both();
        let one = client.export_keying_material([0; 32], crate::psk::EXPORTER_LABEL, Some(&[]));
        let two = server.export_keying_material([0; 32], crate::psk::EXPORTER_LABEL, Some(&[]));
        (one.expect("bytes"), two.expect("bytes"))
    };
    let (client, server) = (offering(Offer::Both), own_server());
    let (one, two) = export(handshake(&client, &server, "example.net"));
    assert_eq!(one, two);
    let (other, _) = export(handshake(&client, &server, "example.net"));
    assert_ne!(one, other);
}

#[test]
fn key_log_is_private_nss_lines_of_both_sides() {
    let pki = Pki::new();
    let path = pki.path("keys.log");
    let identity = identity::ephemeral().expect("made");
    let anyone = ServerTrust::Insecure;
    let client = client_config(
        &anyone,
        &ClientIdentity::default(),
        Offer::Both,
        Some(&path),
    );
    let server = server_config(&identity, &ClientCertPolicy::NotRequested, Some(&path));
    handshake(
        &client.expect("a configuration"),
        &server.expect("a configuration"),
        "example.net",
    )
    .both();

    let mode = fs::metadata(&path).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let log = fs::read_to_string(&path).expect("text");
    let hex = |text: &str, len| {
        text.len() == len
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    for line in log.lines() {
        let words: Vec<_> = line.split(' ').collect();
        assert!(
            words.len() == 3 && hex(words[1], 64) && hex(words[2], 64),
            "{line}"
        );
    }
    for label in [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
        "EXPORTER_SECRET",
    ] {
        let mut lines: Vec<_> = log
            .lines()
            .filter(|line| line.starts_with(&format!("{label} ")))
            .collect();
        assert_eq!(lines.len(), 2, "{label}: one from each side");
        lines.dedup();
        assert_eq!(lines.len(), 1, "{label}: the same secret");
    }
}

#[test]
fn key_log_that_cannot_be_written_is_an_error() {
    let path = PathBuf::from("/nonexistent/keys.log");
    let identity = identity::ephemeral().expect("made");
    let server = server_config(&identity, &ClientCertPolicy::NotRequested, Some(&path));
    let Err(TlsError::KeyLog(named, _)) = server else {
        panic!("no error")
    };
    assert_eq!(named, path);
}
