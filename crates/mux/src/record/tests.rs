use proptest::prelude::*;

use super::*;
use crate::error::TransportCode;

/// Returns the payloads of the records in these pieces.
fn records<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Bytes>, Violation> {
    let mut reader = RecordReader::default();
    let mut records = Vec::new();
    for piece in pieces {
        let mut input = Bytes::copy_from_slice(piece);
        while let Some(record) = reader.next(&mut input)? {
            records.push(record);
        }
        assert!(input.is_empty());
    }
    Ok(records)
}

fn code_of(bytes: &[u8]) -> TransportCode {
    records([bytes]).expect_err("malformed").code
}

/// Returns a record with a prefix of two bytes.
fn record(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a short payload");
    [&(TWO_BYTES | length).to_be_bytes(), payload].concat()
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 0..8),
        cuts in proptest::collection::vec(1..100_usize, 0..30),
    ) {
        let bytes: Vec<u8> = payloads.iter().flat_map(|payload| record(payload)).collect();
        let mut rest = bytes.as_slice();
        let mut pieces = Vec::new();
        for cut in cuts {
            let (piece, more) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        pieces.push(rest);
        prop_assert_eq!(records(pieces), Ok(payloads.iter().map(|p| Bytes::from(p.clone())).collect()));
        prop_assert_eq!(records(bytes.chunks(1)), Ok(payloads.into_iter().map(Bytes::from).collect()));
    }
}

#[test]
fn a_whole_record_is_not_copied() {
    let mut input = Bytes::from(record(&[7; 100]));
    let start = input.as_ptr();
    let payload = RecordReader::default().next(&mut input);
    let payload = payload.expect("well-formed").expect("a record");
    assert_eq!(payload.as_ptr(), start.wrapping_add(PREFIX));
}

#[test]
fn the_length_is_checked_at_its_limits_before_the_payload_arrives() {
    let longest = varint_of(RECORD_PAYLOAD_MAX);
    assert_eq!(records([longest.as_slice()]), Ok(vec![]));
    let longer = varint_of(RECORD_PAYLOAD_MAX + 1);
    assert_eq!(code_of(&longer), TransportCode::FRAME_ENCODING_ERROR);
    assert_eq!(code_of(&[0xff; 8]), TransportCode::FRAME_ENCODING_ERROR);
    assert_eq!(code_of(&[0]), TransportCode::PROTOCOL_VIOLATION);
    assert_eq!(code_of(&[0x40, 0]), TransportCode::PROTOCOL_VIOLATION);
}

#[test]
fn a_prefix_may_be_longer_than_needed() {
    assert_eq!(
        records([&[0xc0, 0, 0, 0, 0, 0, 0, 2, 8, 9][..]]),
        Ok(vec![Bytes::from_static(&[8, 9])])
    );
}

#[test]
fn a_record_arrives_byte_by_byte() {
    let mut reader = RecordReader::default();
    let whole = record(&[1, 2, 3]);
    for (index, byte) in whole[..whole.len() - 1].iter().enumerate() {
        let read = reader.next(&mut Bytes::copy_from_slice(&[*byte]));
        assert_eq!(read, Ok(None));
        assert!(reader.held() > index, "{}", reader.held());
    }
    let read = reader.next(&mut Bytes::from_static(&[3]));
    assert_eq!(read, Ok(Some(Bytes::from_static(&[1, 2, 3]))));
    assert_eq!(reader.held(), 0);
}

#[test]
fn a_record_fills_its_slot_and_no_more() {
    let mut slot = vec![0; RECORD_MAX + 100];
    let mut writer = RecordWriter::new(&mut slot);
    assert!(writer.is_empty());
    assert_eq!(writer.room(), RECORD_PAYLOAD_MAX);
    let datagram = |length: usize| Frame::Datagram {
        data: vec![0; length].into(),
        frame_len: 0,
    };
    assert!(!writer.put(&datagram(RECORD_PAYLOAD_MAX - 2)));
    assert!(writer.put(&datagram(RECORD_PAYLOAD_MAX - 3)));
    assert_eq!(writer.room(), 0);
    assert!(!writer.put(&Frame::Padding));
    assert_eq!(writer.finish(), RECORD_MAX);
    assert_eq!(slot[..2], [0x7f, 0xfe]);
    assert_eq!(RecordWriter::new(&mut slot).finish(), 0);
}

fn varint_of(value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    varint::encode(value as u64, &mut out);
    out
}
