use proptest::prelude::*;

use super::*;

fn header(sequence: u64, index: u8, count: u8) -> DatagramHeader {
    let fragment = Fragment {
        sequence,
        index,
        count,
    };
    DatagramHeader {
        quarter_stream_id: 11,
        by_server: false,
        fragment: Some(fragment),
    }
}

fn encoded(header: DatagramHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

// PROTOCOL UDP-3.
#[test]
fn a_whole_datagram_has_the_form_of_rfc_9298() {
    let whole = DatagramHeader {
        quarter_stream_id: 11,
        by_server: false,
        fragment: None,
    };
    assert_eq!(encoded(whole, b"query"), b"\x0b\x00query");
    assert_eq!(
        DatagramHeader::decode(b"\x0b\x00query"),
        Some((whole, &b"query"[..]))
    );
    // An empty datagram is a datagram.
    assert_eq!(DatagramHeader::decode(b"\x0b\x00"), Some((whole, &b""[..])));
}

// PROTOCOL UDP-4.
#[test]
fn a_fragment_has_its_place_in_front() {
    let third = header(300, 2, 64);
    assert_eq!(encoded(third, b"x"), b"\x0b\x02\x41\x2c\x02\x40x");
    assert_eq!(
        DatagramHeader::decode(b"\x0b\x02\x41\x2c\x02\x40x"),
        Some((third, &b"x"[..]))
    );
}

// PROTOCOL UDP-3: odd contexts.
#[test]
fn a_stream_of_the_server_has_contexts_of_its_own() {
    let whole = DatagramHeader {
        quarter_stream_id: 11,
        by_server: true,
        fragment: None,
    };
    assert_eq!(encoded(whole, b"query"), b"\x0b\x01query");
    let third = DatagramHeader {
        by_server: true,
        ..header(300, 2, 64)
    };
    assert_eq!(encoded(third, b"x"), b"\x0b\x03\x41\x2c\x02\x40x");
    for header in [whole, third] {
        let bytes = encoded(header, b"x");
        assert_eq!(DatagramHeader::decode(&bytes), Some((header, &b"x"[..])));
    }
}

// PROTOCOL UDP-5: at the limits, and one beyond.
#[test]
fn an_impossible_frame_is_dropped() {
    for (index, count) in [(0, 2), (1, 2), (63, 64)] {
        let bytes = encoded(header(0, index, count), b"x");
        assert!(DatagramHeader::decode(&bytes).is_some(), "{index} {count}");
    }
    for (index, count) in [(0, 0), (0, 1), (2, 2), (64, 64), (0, 65), (255, 255)] {
        let bytes = encoded(header(0, index, count), b"x");
        assert_eq!(DatagramHeader::decode(&bytes), None, "{index} of {count}");
    }
    // A fragment without a byte, an unknown context, and frames that end in the header.
    for bytes in [
        &b"\x0b\x02\x00\x00\x02"[..],
        b"\x0b\x03\x00\x00\x02",
        b"\x0b\x04x",
        b"\x0b\x05x",
        b"\x0b\x02\x00\x01",
        b"\x0b",
        b"",
    ] {
        assert_eq!(DatagramHeader::decode(bytes), None, "{bytes:02x?}");
    }
    let longest = [b"\x0b\x00", &vec![7; MAX_PAYLOAD][..]].concat();
    assert!(DatagramHeader::decode(&longest).is_some());
    let longer = [&longest[..], b"x"].concat();
    assert_eq!(DatagramHeader::decode(&longer), None);
}

#[test]
fn a_payload_is_split_evenly_into_at_most_64_fragments() {
    assert_eq!(split(1200, 1150), Some((2, 600)));
    assert_eq!(split(3001, 1000), Some((4, 751)));
    assert_eq!(split(MAX_PAYLOAD, 1024), Some((64, 1024)));
    assert_eq!(split(MAX_PAYLOAD, 1023), None);
    assert_eq!(split(1, 0), None);
    assert_eq!(split(0, 100), None);
}

proptest! {
    #[test]
    fn fragments_of_a_payload_are_the_payload(len in 2usize..MAX_PAYLOAD, room in 1usize..20_000) {
        let payload: Vec<u8> = (0..len).map(|at| at.to_le_bytes()[0]).collect();
        if let Some((count, part)) = split(len, room.min(len - 1)) {
            let parts: Vec<&[u8]> = payload.chunks(part).collect();
            prop_assert_eq!(parts.len(), usize::from(count));
            prop_assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= room));
            prop_assert_eq!(parts.concat(), payload);
        }
    }

    #[test]
    fn decoding_keeps_its_promises(bytes: Vec<u8>) {
        crate::check::datagram(&bytes);
    }
}
