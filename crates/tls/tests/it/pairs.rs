//! Both ends by this crate.

use proptest::prelude::*;
use quictun_tls::check::{ALPN, End, configs, established_pair, new_pair, pump, server_name};
use quictun_tls::{PLAINTEXT_MAX, SendBuffer, TlsError, TlsLimits, TlsStream};
use rustls::crypto::{aws_lc_rs, ring};
use rustls::{AlertDescription, CipherSuite, ClientConfig, ServerConfig, SupportedCipherSuite};

/// The suites of both libraries.
pub(crate) fn all_suites() -> Vec<SupportedCipherSuite> {
    let ring = ring::DEFAULT_CIPHER_SUITES.iter();
    let aws_lc = aws_lc_rs::DEFAULT_CIPHER_SUITES.iter();
    let all: Vec<_> = ring
        .chain(aws_lc)
        .copied()
        .filter(|suite| suite.tls13().is_some())
        .collect();
    assert_eq!(all.len(), 6);
    all
}

pub(crate) fn any_configs() -> (ClientConfig, ServerConfig) {
    configs(aws_lc_rs::DEFAULT_CIPHER_SUITES)
}

#[test]
fn both_directions_carry_data_with_every_suite_of_both_libraries() {
    for suite in all_suites() {
        let (mut client, mut server) = established_pair(&configs(&[suite]), TlsLimits::SERVER);
        let data = bytes_of_len(100_000);
        server
            .handle(&client.seal(&data, PLAINTEXT_MAX).expect("open"))
            .expect("authentic");
        client
            .handle(&server.seal(&data[1..], 1_000).expect("open"))
            .expect("authentic");
        assert!(server.plaintext == data && client.plaintext == data[1..]);
        for end in [&client, &server] {
            assert_eq!(end.tls.suite(), Some(suite.suite()));
            assert_eq!(end.tls.alpn(), Some(ALPN));
        }
        assert_eq!(client.tls.certificates().map(<[_]>::len), Some(1));
        assert_eq!(server.tls.certificates(), None);
        let exported = client.tls.export(b"label");
        assert!(exported.is_some() && exported == server.tls.export(b"label"));
        assert_ne!(exported, client.tls.export(b"other"));
    }
}

#[test]
fn sixty_four_mebibytes_arrive_unchanged() {
    let (mut client, mut server) = established_pair(&any_configs(), TlsLimits::SERVER);
    let data = bytes_of_len(64 << 20);
    for part in data.chunks(1 << 20) {
        let records = client.seal(part, PLAINTEXT_MAX).expect("open");
        // The parts end within records.
        for chunk in records.chunks(100_003) {
            server.handle(chunk).expect("authentic");
        }
    }
    assert!(server.plaintext == data);
}

#[test]
fn data_right_after_the_last_flight_arrive() {
    let (mut client, mut server) = new_pair(&any_configs(), TlsLimits::SERVER);
    server.handle(&client.output()).expect("a hello");
    client.handle(&server.output()).expect("a flight");
    assert!(client.tls.is_established() && !server.tls.is_established());
    // One buffer holds the last flight, data, and a part of a record.
    let mut flight = client.seal(b"early bird", 100).expect("open");
    flight.extend(client.seal(b"worm", 100).expect("open"));
    let (now, later) = flight.split_at(flight.len() - 1);
    server.handle(now).expect("a flight and a record");
    assert_eq!(server.plaintext, b"early bird");
    server.handle(later).expect("the rest");
    assert_eq!(server.plaintext, b"early birdworm");
}

#[test]
fn nothing_is_sealed_before_the_handshake_nor_after_the_end() {
    let (mut client, mut server) = new_pair(&any_configs(), TlsLimits::SERVER);
    assert_eq!(client.seal(b"data", 4), Ok(Vec::new()));
    assert_eq!(client.tls.export(b"label"), None);
    pump(&mut client, &mut server).expect("a handshake");
    let mut out = SendBuffer::new();
    assert_eq!(client.tls.seal(&mut out, |_| 0), Ok(0));
    assert!(out.is_empty());
    client.tls.close();
    let end = client.seal(b"data", 4).expect("open");
    assert_eq!(end.len(), 5 + 2 + 1 + 16, "close_notify and nothing else");
    server.handle(&end).expect("an end");
    assert!(server.tls.is_peer_closed() && !client.tls.is_peer_closed());
    assert_eq!(client.seal(b"data", 4), Ok(Vec::new()));
    // The other direction goes on.
    client
        .handle(&server.seal(b"data", 4).expect("open"))
        .expect("authentic");
    assert_eq!(client.plaintext, b"data");
    assert_eq!(server.tls.handle_end(), Ok(()));
}

#[test]
fn bytes_after_close_notify_are_ignored() {
    let (mut client, mut server) = established_pair(&any_configs(), TlsLimits::SERVER);
    client.tls.close();
    let mut flight = client.output();
    flight.extend_from_slice(b"GET / HTTP/1.1");
    server.handle(&flight).expect("an end");
    assert!(server.tls.is_peer_closed() && server.received.is_empty());
}

#[test]
fn an_end_without_close_notify_is_an_error() {
    let (mut client, mut server) = established_pair(&any_configs(), TlsLimits::SERVER);
    server
        .handle(&client.seal(b"data", 4).expect("open"))
        .expect("authentic");
    assert_eq!(server.tls.handle_end(), Err(TlsError::Truncated));
    assert_eq!(server.handle(b""), Err(TlsError::Truncated));
    let (mut client, _) = new_pair(&any_configs(), TlsLimits::SERVER);
    assert_eq!(client.tls.handle_end(), Err(TlsError::EndedInHandshake));
}

#[test]
fn no_common_protocol_is_an_error_on_both_sides() {
    let (client, mut server) = any_configs();
    server.alpn_protocols = vec![b"other/1".to_vec()];
    let (mut client, mut server) = new_pair(&(client, server), TlsLimits::SERVER);
    let refused = server.handle(&client.output()).expect_err("no protocol");
    assert_eq!(
        refused,
        TlsError::Handshake(rustls::Error::NoApplicationProtocol)
    );
    let alert = TlsError::PeerAlert(AlertDescription::NoApplicationProtocol);
    assert_eq!(client.handle(&server.output()), Err(alert.clone()));
    let text = alert.to_string();
    assert!(
        text.ends_with("compare the versions of both sides"),
        "{text}"
    );
}

#[test]
fn an_untrusted_certificate_is_refused_and_the_server_learns_of_it() {
    let (client, server) = any_configs();
    let name = "elsewhere.test".try_into().expect("a name");
    let client = TlsStream::client(&client, name, TlsLimits::CLIENT).expect("a client");
    let server = TlsStream::server(&server, TlsLimits::SERVER).expect("a server");
    let (mut client, mut server) = (End::new(client), End::new(server));
    server.handle(&client.output()).expect("a hello");
    let refused = client.handle(&server.output()).expect_err("another name");
    assert!(
        matches!(
            refused,
            TlsError::CertificateRefused(rustls::Error::InvalidCertificate(_))
        ),
        "{refused:?}"
    );
    let alert = TlsError::PeerAlert(AlertDescription::BadCertificate);
    assert_eq!(server.handle(&client.output()), Err(alert));
}

#[test]
fn the_suite_of_aes_128_leads() {
    let (client, _) = established_pair(&configs(ring::DEFAULT_CIPHER_SUITES), TlsLimits::SERVER);
    assert_ne!(
        client.tls.suite(),
        Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256)
    );
    assert_eq!(server_name().to_str(), quictun_tls::check::NAME);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// However the bytes are cut, the same plaintext arrives.
    #[test]
    fn cuts_do_not_matter(
        cuts in prop::collection::vec(1_usize..3_000, 1..20),
        lens in prop::collection::vec(1_usize..40_000, 1..5),
        one_byte in any::<bool>(),
    ) {
        let (mut client, mut server) = new_pair(&any_configs(), TlsLimits::SERVER);
        let mut cuts = cuts.into_iter().map(|cut| if one_byte { 1 } else { cut }).cycle();
        let mut deliver = |to: &mut End, mut bytes: &[u8]| {
            while !bytes.is_empty() {
                let (now, rest) = bytes.split_at(cuts.next().unwrap_or(1).min(bytes.len()));
                to.handle(now).expect("authentic");
                bytes = rest;
            }
        };
        for _flight in 0..3 {
            deliver(&mut server, &client.output());
            deliver(&mut client, &server.output());
        }
        prop_assert!(client.tls.is_established() && server.tls.is_established());
        let mut all = Vec::new();
        for len in lens {
            let data = bytes_of_len(len);
            deliver(&mut client, &server.seal(&data, PLAINTEXT_MAX).expect("open"));
            deliver(&mut server, &client.seal(&data, 999).expect("open"));
            all.extend(data);
        }
        server.tls.close();
        deliver(&mut client, &server.output());
        prop_assert!(client.plaintext == all && server.plaintext == all);
        prop_assert!(client.tls.is_peer_closed() && !server.tls.is_peer_closed());
    }
}

/// Returns bytes in which a shift or a swap shows.
pub(crate) fn bytes_of_len(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}
