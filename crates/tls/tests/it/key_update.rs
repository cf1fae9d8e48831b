//! Keys that change by themselves.

use quictun_tls::TlsLimits;
use quictun_tls::check::{End, configs, established_pair};
use rustls::crypto::{CipherSuiteCommon, aws_lc_rs};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

use crate::pairs::{any_configs, bytes_of_len};

const FEW: TlsLimits = TlsLimits {
    records_per_key: 8,
    ..TlsLimits::SERVER
};

#[test]
fn both_directions_change_their_keys_at_once() {
    let (mut client, mut server) = established_pair(&any_configs(), FEW);
    let data = bytes_of_len(10_000);
    for _turn in 0..20 {
        // Each direction's records leave before the other's have arrived.
        let up = client.seal(&data, 900).expect("open");
        let down = server.seal(&data, 700).expect("open");
        server.handle(&up).expect("authentic");
        client.handle(&down).expect("authentic");
    }
    assert!(client.plaintext == data.repeat(20) && server.plaintext == data.repeat(20));
}

/// Returns the number of records in a flight, and those of them that are as long as a `KeyUpdate`.
fn count(mut flight: &[u8]) -> (usize, usize) {
    let (mut records, mut updates) = (0, 0);
    while let Some((head, rest)) = flight.split_first_chunk::<5>() {
        let len = usize::from(u16::from_be_bytes([head[3], head[4]]));
        flight = &rest[len..];
        records += 1;
        updates += usize::from(len == 5 + 1 + 16);
    }
    (records, updates)
}

#[test]
fn no_key_seals_more_records_than_its_limit() {
    let (mut client, _) = established_pair(&any_configs(), FEW);
    // One key seals seven records with data, and the update.
    let mut seal = |records: usize| count(&client.seal(&vec![7; records], 1).expect("open"));
    assert_eq!(seal(7), (7, 0));
    assert_eq!(seal(1), (2, 1));
    assert_eq!(seal(6), (6, 0));
    assert_eq!(seal(15), (18, 3));
}

#[test]
fn the_limit_of_the_suite_applies_too() {
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = suite.tls13().expect("a suite of TLS 1.3");
    let suite = Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: 8,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: suite.quic,
    }));
    let configs = configs(&[SupportedCipherSuite::Tls13(suite)]);
    let (mut client, _) = established_pair(&configs, TlsLimits::SERVER);
    assert_eq!(count(&client.seal(&[7; 8], 1).expect("open")), (9, 1));
}

#[test]
fn a_limit_of_one_counts_as_two() {
    let limits = TlsLimits {
        records_per_key: 0,
        ..TlsLimits::SERVER
    };
    let (mut client, mut server) = established_pair(&any_configs(), limits);
    let send = |from: &mut End, to: &mut End| {
        let records = from.seal(&[9; 30], 1).expect("open");
        to.handle(&records).expect("authentic");
    };
    send(&mut client, &mut server);
    send(&mut server, &mut client);
    assert!(client.plaintext == [9; 30] && server.plaintext == [9; 30]);
}
