use proptest::prelude::*;

use super::*;

/// Encodes a client's link message for a channel: version 2.2, session 0x01020304 in wire order.
fn client(channel: u8) -> Vec<u8> {
    let mut bytes = b"REDQ".to_vec();
    bytes.extend_from_slice(&2u32.to_le_bytes());
    bytes.extend_from_slice(&2u32.to_le_bytes());
    bytes.extend_from_slice(&18u32.to_le_bytes());
    bytes.extend_from_slice(&[1, 2, 3, 4, channel, 0]);
    bytes
}

/// Encodes a server's link reply with a body of `size` bytes, a status, and messages.
fn server(size: usize, status: u32, messages: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = b"REDQ\x02\0\0\0\x02\0\0\0".to_vec();
    bytes.extend_from_slice(&u32::try_from(size).expect("small").to_le_bytes());
    bytes.extend(std::iter::repeat_n(0xee, size));
    bytes.extend_from_slice(&status.to_le_bytes());
    for (kind, payload) in messages {
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(payload.len()).expect("small").to_le_bytes());
        bytes.extend_from_slice(payload);
    }
    bytes
}

const INIT: (u16, &[u8]) = (103, &[0xde, 0xad, 0xbe, 0xef, 9, 9, 9, 9]);
const NAME: (u16, &[u8]) = (113, b"\x05\0\0\0vm-1\0");
const UUID: (u16, &[u8]) = (
    114,
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff],
);

fn classify_main(from_server: &[u8]) -> Spice {
    classify(&client(1), from_server).expect("SPICE")
}

#[test]
fn reads_the_main_channel_whole() {
    let spice = Spice {
        version: "2.2".to_owned(),
        session_id: "deadbeef".to_owned(),
        channel_type: MAIN,
        server_name: Some("vm-1".to_owned()),
        server_uuid: Some("00010203-0405-0607-0809-0a0b0c0d0eff".to_owned()),
    };
    assert_eq!(classify_main(&server(178, 0, &[INIT, NAME, UUID])), spice);
    assert_eq!(classify_main(&server(0, 0, &[UUID, NAME, INIT])), spice);
}

#[test]
fn takes_version_and_session_from_the_client() {
    let mut bytes = client(3);
    (bytes[4], bytes[8]) = (0x1f, 0x0a);
    let spice = classify(&bytes, &server(0, 0, &[INIT, NAME, UUID])).expect("SPICE");
    assert_eq!(spice.version, "1f.a");
    assert_eq!(spice.session_id, "01020304");
    // Only the main channel carries these messages.
    assert_eq!(
        (spice.channel_type, spice.server_name, spice.server_uuid),
        (Channel(3), None, None)
    );
}

#[test]
fn names_every_channel_and_keeps_the_two_misspellings() {
    let names = [
        "unknown",
        "main",
        "display",
        "inputs",
        "cursor",
        "playback",
        "record",
        "tunnel",
        "smartcard",
        "usbredir",
        "port",
        "webdav",
        "unknown",
    ];
    for (byte, name) in (0u8..).zip(names) {
        let channel = classify(&client(byte), &[]).expect("SPICE").channel_type;
        assert_eq!(channel.name(), name);
        let compat = match name {
            "webdav" => "webdev",
            "unknown" => "unknow",
            same => same,
        };
        assert_eq!(channel.compat_name(), compat);
    }
    assert_eq!(
        classify(&client(200), &[]).expect("SPICE").channel_type,
        Channel(200)
    );
}

#[test]
fn needs_21_bytes_and_the_magic() {
    let bytes = client(1);
    assert_eq!(classify(&bytes[..20], &[]), None);
    assert!(classify(&bytes[..21], &[]).is_some());
    assert_eq!(classify(b"", &[]), None);
    for at in 0..4 {
        let mut other = bytes.clone();
        other[at] ^= 0x20;
        assert_eq!(classify(&other, &[]), None);
    }
}

#[test]
fn looks_at_1024_bytes_and_no_more() {
    // Link header, body, status, then the UUID message: a header of 6 and a payload of 16 bytes.
    let body = |end: usize| end - 16 - 4 - 22;
    assert!(
        classify_main(&server(body(1024), 0, &[UUID]))
            .server_uuid
            .is_some()
    );
    assert!(
        classify_main(&server(body(1025), 0, &[UUID]))
            .server_uuid
            .is_none()
    );
}

#[test]
fn stops_at_a_failed_link_and_at_an_unknown_message() {
    assert_eq!(classify_main(&server(0, 7, &[NAME])).server_name, None);
    let spice = classify_main(&server(0, 0, &[UUID, (200, &[]), NAME]));
    assert!(spice.server_uuid.is_some() && spice.server_name.is_none());
}

#[test]
fn reads_nothing_more_after_all_three() {
    let spice = classify_main(&server(0, 0, &[INIT, NAME, UUID, (113, b"\x02\0\0\0x\0")]));
    assert_eq!(spice.server_name.as_deref(), Some("vm-1"));
}

// PROTOCOL SPICE-1.
#[test]
fn hostile_lengths_end_the_reading_without_a_panic() {
    let hostile: &[&[(u16, &[u8])]] = &[
        &[(113, &[0, 0, 0, 0])],
        &[(113, &[0, 0, 0, 0, b'x'])],
        &[(113, &[])],
        &[(113, &[1])],
        &[(113, &[6, 0, 0, 0, b'v', b'm', b'-', b'1'])],
        &[(113, &[0xff, 0xff, 0xff, 0xff, b'x'])],
        &[(103, &[1, 2, 3])],
        &[(114, &[0; 15])],
    ];
    for messages in hostile {
        let mut all = messages.to_vec();
        all.push(NAME);
        let spice = classify_main(&server(0, 0, &all));
        assert_eq!(
            (spice.server_name, spice.server_uuid),
            (None, None),
            "{messages:02x?}"
        );
        assert_eq!(spice.session_id, "01020304");
    }
}

#[test]
fn a_name_without_its_final_nul_is_cut_by_one_as_by_the_original() {
    assert_eq!(
        classify_main(&server(0, 0, &[(113, b"\x01\0\0\0")]))
            .server_name
            .as_deref(),
        Some("")
    );
    assert_eq!(
        classify_main(&server(0, 0, &[(113, b"\x03\0\0\0ab")]))
            .server_name
            .as_deref(),
        Some("ab")
    );
    assert_eq!(
        classify_main(&server(0, 0, &[(113, b"\x03\0\0\0a\xff\0")]))
            .server_name
            .as_deref(),
        Some("a\u{fffd}")
    );
}

// PROTOCOL SPICE-1.
#[test]
fn hostile_sizes_around_the_messages_are_survived() {
    let mut huge_link = server(0, 0, &[NAME]);
    huge_link[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(classify_main(&huge_link).server_name, None);

    let mut huge_message = server(0, 0, &[NAME]);
    huge_message[22..26].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(classify_main(&huge_message).server_name, None);
}

proptest! {
    #[test]
    fn no_input_panics(from_client: Vec<u8>, from_server: Vec<u8>) {
        let _ = classify(&from_client, &from_server);
    }

    #[test]
    fn no_server_panics(
        size in 0..64usize,
        messages in prop::collection::vec(
            (prop_oneof![Just(103u16), Just(113), Just(114), any::<u16>()], any::<Vec<u8>>()), 0..6),
        damage in prop::collection::vec((0..256usize, any::<u8>()), 0..4),
    ) {
        let messages: Vec<(u16, &[u8])> = messages.iter().map(|(kind, payload)| (*kind, payload.as_slice())).collect();
        let mut from_server = server(size, 0, &messages);
        for (at, byte) in damage {
            if let Some(target) = from_server.get_mut(at) {
                *target = byte;
            }
        }
        let from_client = client(1);
        let mut input = u16::try_from(from_client.len()).expect("short").to_be_bytes().to_vec();
        input.extend(from_client);
        input.extend(from_server);
        crate::check::spice_classify(&input);
    }
}
