//! Peers and networks that send what they may not.

use quictun_tls::check::{End, established_pair, new_pair};
use quictun_tls::{PLAINTEXT_MAX, RECORD_MAX, TlsError, TlsLimits, Violation};
use rustls::AlertDescription;

use crate::pairs::any_configs;

const DATA: u8 = 23;
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

fn pair() -> (End, End) {
    established_pair(&any_configs(), TlsLimits::SERVER)
}

/// Sends `bytes` to the server, and expects that it fails, and that the client learns the reason.
fn expect_violation(
    bytes: &[u8],
    mut ends: (End, End),
    violation: Violation,
    alert: AlertDescription,
) {
    let (client, server) = (&mut ends.0, &mut ends.1);
    let error = TlsError::Violation(violation);
    assert_eq!(server.handle(bytes), Err(error.clone()));
    let told = server.output();
    assert_eq!(client.handle(&told), Err(TlsError::PeerAlert(alert)));
    assert!(client.output().is_empty(), "an alert is not answered");
    assert_eq!(server.handle(b"more"), Err(error));
}

/// Lets the client send a record with this inner plaintext.
fn expect_forged(inner: &[u8], violation: Violation, alert: AlertDescription) {
    let mut ends = pair();
    let record = ends.0.forge(inner);
    expect_violation(&record, ends, violation, alert);
}

#[test]
fn a_change_of_any_byte_of_a_record_is_noticed() {
    let (mut client, mut server) = pair();
    let record = client.seal(b"some data", 9).expect("open");
    for at in 0..record.len() {
        let (mut client, mut server) = pair();
        let mut record = client.seal(b"some data", 9).expect("open");
        record[at] ^= 1;
        let handled = server.handle(&record);
        // A length that is one byte longer needs another byte first.
        let handled = handled.and_then(|()| server.handle(&[0; 300]));
        let error = handled.expect_err("changed");
        let expected = match at {
            0 => Violation::RecordType(DATA ^ 1),
            1 => Violation::RecordVersion([2, 3]),
            2 => Violation::RecordVersion([3, 2]),
            _ => Violation::BadRecordMac,
        };
        assert_eq!(error, TlsError::Violation(expected), "at {at}");
        assert!(server.plaintext.is_empty());
    }
    server.handle(&record).expect("unchanged");
}

#[test]
fn a_record_that_is_repeated_or_left_out_is_noticed() {
    let mut ends = pair();
    let record = ends.0.seal(b"data", 4).expect("open");
    ends.1.handle(&record).expect("the first time");
    expect_violation(
        &record,
        ends,
        Violation::BadRecordMac,
        AlertDescription::BadRecordMac,
    );
    let mut ends = pair();
    ends.0.seal(b"lost", 4).expect("open");
    let record = ends.0.seal(b"data", 4).expect("open");
    expect_violation(
        &record,
        ends,
        Violation::BadRecordMac,
        AlertDescription::BadRecordMac,
    );
}

#[test]
fn records_of_wrong_lengths_are_refused() {
    for len in 0..=16_u8 {
        let record = [&[DATA, 3, 3, 0, len][..], &vec![0; len.into()]].concat();
        expect_violation(
            &record,
            pair(),
            Violation::BadRecordMac,
            AlertDescription::BadRecordMac,
        );
    }
    let longest = u16::try_from(RECORD_MAX - 5).expect("short");
    let [high, low] = longest.to_be_bytes();
    let (_, mut server) = pair();
    assert_eq!(
        server.handle(&[DATA, 3, 3, high, low]),
        Ok(()),
        "at the limit"
    );
    let [high, low] = (longest + 1).to_be_bytes();
    expect_violation(
        &[DATA, 3, 3, high, low],
        pair(),
        Violation::RecordTooLong,
        AlertDescription::RecordOverflow,
    );
}

#[test]
fn a_full_record_with_padding_arrives() {
    let (mut client, mut server) = pair();
    let mut inner = vec![b'x'; 10_000];
    inner.push(DATA);
    inner.resize(PLAINTEXT_MAX, 0);
    server.handle(&client.forge(&inner)).expect("padded");
    assert!(server.plaintext == [b'x'; 10_000]);
}

#[test]
fn plaintext_after_the_handshake_is_refused() {
    for kind in [0, 20, 21, 22, 24, b'G', 255] {
        expect_violation(
            &[kind, 3, 3, 0, 1, 1],
            pair(),
            Violation::RecordType(kind),
            AlertDescription::UnexpectedMessage,
        );
    }
}

#[test]
fn contents_that_are_not_permitted_are_refused() {
    let unexpected = AlertDescription::UnexpectedMessage;
    expect_forged(&[0; 100], Violation::NoContentType, unexpected);
    expect_forged(&[1, 20], Violation::Content(20), unexpected);
    expect_forged(&[1, 99], Violation::Content(99), unexpected);
    expect_forged(&[HANDSHAKE], Violation::EmptyMessage, unexpected);
    for alert in [&[ALERT][..], &[1, ALERT], &[1, 0, 1, ALERT]] {
        expect_forged(alert, Violation::Alert, AlertDescription::DecodeError);
    }
    // A client may neither send session tickets nor begin another handshake. The first bytes of a message suffice.
    expect_forged(
        &[4, 0, 0x10, 0, HANDSHAKE],
        Violation::MessageType(4),
        unexpected,
    );
    expect_forged(
        &[4, 0, 0, 1, 1, HANDSHAKE],
        Violation::MessageType(4),
        unexpected,
    );
    expect_forged(
        &[1, 0, 0, 1, 1, HANDSHAKE],
        Violation::MessageType(1),
        unexpected,
    );
    let illegal = AlertDescription::IllegalParameter;
    expect_forged(&[24, 0, 0, 1, 2, HANDSHAKE], Violation::KeyUpdate, illegal);
    expect_forged(
        &[24, 0, 0, 2, 0, 0, HANDSHAKE],
        Violation::KeyUpdate,
        illegal,
    );
    let two = [&KEY_UPDATE[..], &KEY_UPDATE, &[HANDSHAKE]].concat();
    expect_forged(&two, Violation::NotAligned, unexpected);
}

#[test]
fn nothing_interrupts_a_message() {
    for inner in [&[b'x', DATA][..], &[DATA], &[1, 0, ALERT]] {
        let mut ends = pair();
        let half = ends.0.forge(&[24, 0, 0, HANDSHAKE]);
        ends.1.handle(&half).expect("half a message");
        let record = ends.0.forge(inner);
        expect_violation(
            &record,
            ends,
            Violation::Interrupted,
            AlertDescription::UnexpectedMessage,
        );
    }
}

#[test]
fn a_message_in_pieces_of_one_byte_is_understood() {
    let (mut client, mut server) = pair();
    for byte in KEY_UPDATE {
        server
            .handle(&client.forge(&[byte, HANDSHAKE]))
            .expect("a piece");
    }
    // The client itself has not changed its key, so nothing of it can be read any more.
    let record = client.seal(b"data", 4).expect("open");
    let error = server.handle(&record).expect_err("another key");
    assert_eq!(error, TlsError::Violation(Violation::BadRecordMac));
}

#[test]
fn a_server_with_bad_session_tickets_is_refused() {
    let announced = |len: u32| {
        let [_, a, b, c] = len.to_be_bytes();
        vec![4, a, b, c]
    };
    for (message, violation) in [
        (vec![4, 0, 0, 1, 1], Violation::SessionTicket),
        (
            announced(32 * 1024 + 1),
            Violation::MessageTooLong(32 * 1024 + 1),
        ),
        (announced(0xff_ffff), Violation::MessageTooLong(0xff_ffff)),
    ] {
        let (mut client, mut server) = pair();
        let record = server.forge(&[&message[..], &[HANDSHAKE]].concat());
        assert_eq!(client.handle(&record), Err(TlsError::Violation(violation)));
        let alert = TlsError::PeerAlert(AlertDescription::DecodeError);
        assert_eq!(server.handle(&client.output()), Err(alert));
    }
    let (mut client, mut server) = pair();
    let longest = server.forge(&[&announced(32 * 1024)[..], &[HANDSHAKE]].concat());
    client.handle(&longest).expect("at the limit");
}

/// Sends records without data until the server has enough of them.
fn expect_bounded(what: &str, mut record: impl FnMut(&mut End) -> Vec<u8>) {
    let (mut client, mut server) = pair();
    for turn in 0..100 {
        if turn == 20 {
            let data = client.seal(b"data", 4).expect("open");
            server.handle(&data).expect("data begin the count anew");
        }
        let idle = record(&mut client);
        if let Err(error) = server.handle(&idle) {
            assert_eq!(error, TlsError::Violation(Violation::Idle), "{what}");
            assert_eq!(turn, 20 + 32, "{what}: 32 are permitted");
            return;
        }
    }
    panic!("{what}: without a limit");
}

#[test]
fn records_without_data_are_limited() {
    expect_bounded("empty records", |client| client.forge(&[DATA]));
    expect_bounded("warnings", |client| client.forge(&[1, 90, ALERT]));
    expect_bounded("key updates", End::update_key);
}

#[test]
fn a_server_that_repeats_session_tickets_is_limited() {
    let (mut client, mut server) = pair();
    // Lifetime, age, nonce, a ticket of one byte, no extensions.
    let ticket = [4, 0, 0, 14, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0];
    let many = [&ticket.repeat(32)[..], &[HANDSHAKE]].concat();
    // Two have arrived already.
    assert_eq!(
        client.handle(&server.forge(&many)),
        Err(TlsError::Violation(Violation::Idle))
    );
    let (mut client, mut server) = pair();
    let many = [&ticket.repeat(30)[..], &[HANDSHAKE]].concat();
    client.handle(&server.forge(&many)).expect("at the limit");
}

#[test]
fn pieces_of_a_message_are_limited() {
    let (mut client, mut server) = pair();
    let head = server.forge(&[4, 0, 0x10, 0, HANDSHAKE]);
    client.handle(&head).expect("the first piece");
    let pieces = (0..100).take_while(|_| {
        let piece = server.forge(&[0, HANDSHAKE]);
        client.handle(&piece).is_ok()
    });
    // Two session tickets and the first piece precede them.
    assert_eq!(pieces.count(), 29);
}

#[test]
fn a_peer_without_tls_is_named_as_such() {
    for greeting in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-OpenSSH_9.9\r\n",
        &[22, 2, 0, 0, 9],
    ] {
        let (mut client, mut server) = new_pair(&any_configs(), TlsLimits::SERVER);
        assert_eq!(server.handle(greeting), Err(TlsError::NotTls));
        assert!(
            server.output().is_empty(),
            "it would not understand an alert"
        );
        assert_eq!(client.handle(greeting), Err(TlsError::NotTls));
    }
}

#[test]
fn the_limit_of_handshakes_acts_before_the_bytes_arrive() {
    let limits = TlsLimits {
        handshake_bytes: 1_000,
        ..TlsLimits::SERVER
    };
    for (len, permitted) in [(995_u16, true), (996, false)] {
        let (_, mut server) = new_pair(&any_configs(), limits);
        let [high, low] = len.to_be_bytes();
        let handled = server.handle(&[HANDSHAKE, 3, 1, high, low]);
        if permitted {
            assert_eq!(handled, Ok(()));
        } else {
            let error = TlsError::Violation(Violation::HandshakeTooLong);
            assert_eq!(handled, Err(error));
            assert_eq!(server.output()[..5], [ALERT, 3, 3, 0, 2]);
        }
    }
    // Tiny records do not evade it.
    let (_, mut server) = new_pair(&any_configs(), limits);
    let mut hello = vec![1, 0, 0xff, 0xff];
    hello.resize(1_000, 0);
    let error = hello
        .iter()
        .enumerate()
        .find_map(|(number, byte)| {
            let handled = server.handle(&[HANDSHAKE, 3, 1, 0, 1, *byte]);
            handled.err().map(|error| (number, error))
        })
        .expect("a limit");
    assert_eq!(
        error,
        (166, TlsError::Violation(Violation::HandshakeTooLong))
    );
}

#[test]
fn a_malformed_record_in_the_handshake_is_refused() {
    let (mut client, mut server) = new_pair(&any_configs(), TlsLimits::SERVER);
    server.handle(&client.output()).expect("a hello");
    client.handle(&server.output()).expect("a flight");
    let error = server.handle(b"GET / HTTP/1.1").expect_err("no record");
    assert_eq!(error, TlsError::Violation(Violation::RecordType(b'G')));
    let alert = TlsError::PeerAlert(AlertDescription::DecodeError);
    assert_eq!(client.handle(&server.output()), Err(alert));
}
