//! rustls at the other end.

use std::sync::Arc;

use quictun_tls::check::{
    ALPN, End, NAME, configs, established_pair, pump as pump_own, server_name,
};
use quictun_tls::{PLAINTEXT_MAX, TlsError, TlsLimits, TlsStream};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig,
    ServerConnection,
};

use crate::foreign_peer::{ForeignPeer, PairError, pump};
use crate::pairs::{all_suites, any_configs, bytes_of_len};

/// An end of this crate, with rustls as its peer.
fn pair_of(configs: &(ClientConfig, ServerConfig), own_is_client: bool) -> (End, ForeignPeer) {
    let (client, server) = configs.clone();
    if own_is_client {
        let own = TlsStream::client(&client, server_name(), TlsLimits::CLIENT);
        let foreign = ServerConnection::new(Arc::new(server)).expect("a server");
        (End::new(own.expect("a client")), ForeignPeer::new(foreign))
    } else {
        let own = TlsStream::server(&server, TlsLimits::SERVER);
        let foreign = ClientConnection::new(Arc::new(client), server_name()).expect("a client");
        (End::new(own.expect("a server")), ForeignPeer::new(foreign))
    }
}

/// The length of a record with a `KeyUpdate`.
const KEY_UPDATE_RECORD: usize = 5 + 5 + 1 + 16;

/// Sends data both ways.
fn exchange(own: &mut End, foreign: &mut ForeignPeer) {
    let data = bytes_of_len(50_000);
    let before = (own.plaintext.len(), foreign.plaintext.len());
    let mut records = own.seal(&data, PLAINTEXT_MAX).expect("open");
    records.extend(own.seal(&data, 1_001).expect("open"));
    foreign.handle(&records).expect("authentic");
    own.handle(&foreign.write(&data)).expect("authentic");
    assert!(own.plaintext[before.0..] == data);
    assert!(foreign.plaintext[before.1..] == [&data[..], &data[..]].concat());
}

#[test]
fn rustls_understands_every_suite_on_either_side() {
    for suite in all_suites() {
        for own_is_client in [false, true] {
            let (mut own, mut foreign) = pair_of(&configs(&[suite]), own_is_client);
            pump(&mut own, &mut foreign).expect("a handshake");
            exchange(&mut own, &mut foreign);
            assert_eq!(own.tls.alpn(), Some(ALPN));
            assert_eq!(foreign.tls.alpn_protocol(), Some(ALPN));
            let exported = foreign
                .tls
                .export_keying_material([0; 32], b"some label", None)
                .expect("complete");
            assert_eq!(own.tls.export(b"some label"), Some(exported));
        }
    }
}

#[test]
fn a_key_update_by_rustls_is_followed_and_answered() {
    for own_is_client in [false, true] {
        let (mut own, mut foreign) = pair_of(&any_configs(), own_is_client);
        pump(&mut own, &mut foreign).expect("a handshake");
        for _update in 0..3 {
            foreign.tls.refresh_traffic_keys().expect("complete");
            let mut flight = foreign.write(b"under the next key");
            foreign.tls.refresh_traffic_keys().expect("complete");
            flight.extend(foreign.output());
            own.handle(&flight).expect("authentic");
            // Data of this end carry the answer, before or after them.
            exchange(&mut own, &mut foreign);
            own.plaintext.clear();
        }
    }
}

#[test]
fn one_answer_serves_many_key_updates() {
    let (mut own, mut foreign) = pair_of(&any_configs(), true);
    pump(&mut own, &mut foreign).expect("a handshake");
    for _update in 0..20 {
        foreign.tls.refresh_traffic_keys().expect("complete");
        own.handle(&foreign.output()).expect("authentic");
    }
    let answer = own.output();
    assert_eq!(answer.len(), KEY_UPDATE_RECORD, "one record");
    assert!(own.output().is_empty());
    foreign.handle(&answer).expect("authentic");
    exchange(&mut own, &mut foreign);
}

#[test]
fn the_answer_to_a_key_update_precedes_data() {
    let (mut own, mut foreign) = pair_of(&any_configs(), true);
    pump(&mut own, &mut foreign).expect("a handshake");
    foreign.tls.refresh_traffic_keys().expect("complete");
    own.handle(&foreign.output()).expect("authentic");
    let records = own.seal(b"data", 4).expect("open");
    assert_eq!(records.len(), KEY_UPDATE_RECORD + 5 + 4 + 1 + 16);
    foreign.handle(&records).expect("authentic");
    assert_eq!(foreign.plaintext, b"data");
}

#[test]
fn session_tickets_resume_connections_in_both_roles() {
    for own_is_client in [false, true] {
        let configs = any_configs();
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let (mut own, mut foreign) = pair_of(&configs, own_is_client);
            pump(&mut own, &mut foreign).expect("a handshake");
            assert_eq!(foreign.tls.handshake_kind(), Some(kind));
            exchange(&mut own, &mut foreign);
            let has_certificates = own.tls.certificates().is_some();
            assert_eq!(has_certificates, own_is_client);
        }
    }
}

#[test]
fn a_resumed_connection_between_both_of_us_works() {
    let configs = any_configs();
    for _connection in 0..3 {
        let (mut client, mut server) = established_pair(&configs, TlsLimits::SERVER);
        server
            .handle(&client.seal(b"data", 4).expect("open"))
            .expect("authentic");
        assert_eq!(server.plaintext, b"data");
        assert_eq!(client.tls.export(b"label"), server.tls.export(b"label"));
        pump_own(&mut client, &mut server).expect("nothing");
    }
}

/// Returns configurations in which the server demands a certificate that the client has.
fn mutual_configs(suffix: &[u8]) -> (ClientConfig, ServerConfig) {
    let (mut client, server) = any_configs();
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let provider = server.crypto_provider().clone();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let mut mutual = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("suites of TLS 1.3")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_cert_resolver(server.cert_resolver.clone());
    mutual.alpn_protocols = server.alpn_protocols;
    let mut chain = vec![made.cert.der().clone()];
    if !suffix.is_empty() {
        chain.push(suffix.to_vec().into());
    }
    let resolver = rustls::sign::CertifiedKey::from_der(chain, key.into(), &provider);
    let resolver = rustls::sign::SingleCertAndKey::from(resolver.expect("a key"));
    client.client_auth_cert_resolver = Arc::new(resolver);
    (client, mutual)
}

#[test]
fn client_certificates_arrive() {
    let (mut own, mut foreign) = pair_of(&mutual_configs(b""), false);
    pump(&mut own, &mut foreign).expect("a handshake");
    assert_eq!(own.tls.certificates().map(<[_]>::len), Some(1));
    exchange(&mut own, &mut foreign);
    let (mut own, mut foreign) = pair_of(&mutual_configs(b""), true);
    pump(&mut own, &mut foreign).expect("a handshake");
    assert_eq!(foreign.tls.peer_certificates().map(<[_]>::len), Some(1));
    exchange(&mut own, &mut foreign);
}

#[test]
fn a_server_that_demands_a_certificate_says_so_after_the_clients_handshake() {
    let (_, server) = mutual_configs(b"");
    let (client, _) = any_configs();
    for own_is_client in [false, true] {
        let (mut own, mut foreign) = pair_of(&(client.clone(), server.clone()), own_is_client);
        let error = pump(&mut own, &mut foreign).expect_err("no certificate");
        if own_is_client {
            assert!(matches!(
                error,
                PairError::Foreign(rustls::Error::NoCertificatesPresented)
            ));
            let alert = TlsError::PeerAlert(AlertDescription::CertificateRequired);
            assert_eq!(own.handle(&foreign.output()), Err(alert));
        } else {
            assert!(
                matches!(
                    error,
                    PairError::Own(TlsError::CertificateRefused(
                        rustls::Error::NoCertificatesPresented
                    ))
                ),
                "{error:?}"
            );
            let told = foreign.handle(&own.output());
            let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
            assert_eq!(told, Err(alert));
        }
    }
}

#[test]
fn a_long_chain_is_refused_before_it_has_arrived() {
    // The hello and the second flight have some 1 kB besides the second certificate.
    let (mut own, mut foreign) = pair_of(&mutual_configs(&vec![0; 17_000]), false);
    let error = pump(&mut own, &mut foreign).expect_err("too long");
    let long = TlsError::Violation(quictun_tls::Violation::HandshakeTooLong);
    assert!(
        matches!(&error, PairError::Own(own) if *own == long),
        "{error:?}"
    );
    let told = foreign.handle(&own.output());
    let alert = rustls::Error::AlertReceived(AlertDescription::DecodeError);
    assert_eq!(
        told,
        Err(alert),
        "the alert is under the keys of the handshake"
    );
}

#[test]
fn the_end_of_either_direction_arrives() {
    for own_is_client in [false, true] {
        let (mut own, mut foreign) = pair_of(&any_configs(), own_is_client);
        pump(&mut own, &mut foreign).expect("a handshake");
        foreign.tls.send_close_notify();
        own.handle(&foreign.output()).expect("an end");
        assert!(own.tls.is_peer_closed());
        let mut last = own.seal(b"last", 4).expect("open");
        own.tls.close();
        last.extend(own.output());
        foreign.handle(&last).expect("an end");
        assert_eq!(foreign.plaintext, b"last");
        let state = foreign.tls.process_new_packets().expect("an end");
        assert!(state.peer_has_closed());
    }
}

#[test]
fn a_fatal_alert_is_the_peers() {
    let (mut own, mut foreign) = pair_of(&any_configs(), true);
    pump(&mut own, &mut foreign).expect("a handshake");
    let mut record = own.seal(b"data", 4).expect("open");
    record[7] ^= 1;
    foreign.handle(&record).expect_err("changed on the way");
    let alert = TlsError::PeerAlert(AlertDescription::BadRecordMac);
    assert_eq!(own.handle(&foreign.output()), Err(alert));
    assert!(own.output().is_empty());
}

#[test]
fn our_alert_reaches_rustls() {
    let (mut own, mut foreign) = pair_of(&any_configs(), false);
    pump(&mut own, &mut foreign).expect("a handshake");
    let mut record = foreign.write(b"data");
    record[7] ^= 1;
    own.handle(&record).expect_err("changed on the way");
    let alert = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
    assert_eq!(foreign.handle(&own.output()), Err(alert));
}
