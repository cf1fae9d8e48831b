use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::error::TransportCode;

fn encoded(frame: &Frame) -> Bytes {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out.freeze()
}

/// Decodes all frames of a payload.
fn decoded(payload: &[u8]) -> Result<Vec<Frame>, Violation> {
    let mut input = Bytes::copy_from_slice(payload);
    let mut frames = Vec::new();
    while let Some(frame) = Frame::decode(&mut input)? {
        frames.push(frame);
    }
    Ok(frames)
}

fn code_of(payload: &[u8]) -> TransportCode {
    decoded(payload).expect_err("malformed").code
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let int = prop_oneof![0..=varint::MAX, 0..100_u64, Just(varint::MAX)].boxed();
    let count = (0..=STREAMS_MAX).boxed();
    let pair = (int.clone(), int.clone());
    prop_oneof![
        (
            pair.clone(),
            int.clone(),
            proptest::option::of(0..=u64::MAX)
        )
            .prop_map(|((stream, code), final_size, part)| Frame::ResetStream {
                stream,
                code,
                final_size,
                reliable_size: part.map(|part| part.min(final_size)),
            }),
        pair.clone()
            .prop_map(|(stream, code)| Frame::StopSending { stream, code }),
        (pair.clone(), any::<bool>(), any_bytes()).prop_map(|((stream, offset), fin, data)| {
            Frame::Stream {
                stream,
                offset: offset.min(varint::MAX - data.len() as u64),
                fin,
                data,
            }
        }),
        int.clone().prop_map(Frame::MaxData),
        pair.clone()
            .prop_map(|(stream, limit)| Frame::MaxStreamData { stream, limit }),
        (any::<bool>(), count.clone()).prop_map(|(bidirectional, limit)| Frame::MaxStreams {
            bidirectional,
            limit
        }),
        int.clone().prop_map(Frame::DataBlocked),
        pair.clone()
            .prop_map(|(stream, limit)| Frame::StreamDataBlocked { stream, limit }),
        (any::<bool>(), count).prop_map(|(bidirectional, limit)| Frame::StreamsBlocked {
            bidirectional,
            limit
        }),
        (any::<bool>(), int.clone(), any_bytes()).prop_map(|(application, code, reason)| {
            Frame::ConnectionClose {
                application,
                code,
                reason,
            }
        }),
        any_bytes().prop_map(|data| {
            let frame_len = 1 + varint_len(data.len() as u64) + data.len();
            Frame::Datagram { data, frame_len }
        }),
        any_bytes().prop_map(Frame::TransportParameters),
        (int, any::<bool>()).prop_map(|(sequence, response)| Frame::Ping { sequence, response }),
    ]
}

proptest! {
    #[test]
    fn a_frame_survives_its_encoding(frame in any_frame()) {
        let bytes = encoded(&frame);
        prop_assert!(bytes.len() <= frame.len_max());
        prop_assert_eq!(decoded(&bytes), Ok(vec![frame]));
    }

    #[test]
    fn a_frame_that_is_cut_is_an_encoding_error(frame in any_frame()) {
        let bytes = encoded(&frame);
        for cut in 1..bytes.len() {
            prop_assert_eq!(code_of(&bytes[..cut]), TransportCode::FRAME_ENCODING_ERROR);
        }
    }

    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _result = decoded(&bytes);
    }
}

#[test]
fn frames_have_the_numbers_of_the_draft() {
    let parameters = encoded(&Frame::TransportParameters(Bytes::new()));
    assert_eq!(parameters, b"\xffQS0\r\n\r\n\0".as_slice());
    let ping = Frame::Ping {
        sequence: 5,
        response: false,
    };
    assert_eq!(
        encoded(&ping),
        [0xf4, 0x8c, 0x67, 0x52, 0x9e, 0xf8, 0xc7, 0xbd, 5].as_slice()
    );
    let response = Frame::Ping {
        sequence: 5,
        response: true,
    };
    assert_eq!(encoded(&response)[7], 0xbe);
}

#[test]
fn frames_without_a_length_end_with_the_record() {
    let stream = Frame::Stream {
        stream: 4,
        offset: 0,
        fin: true,
        data: Bytes::from_static(b"abc"),
    };
    assert_eq!(decoded(b"\x09\x04abc"), Ok(vec![stream]));
    let datagram = Frame::Datagram {
        data: Bytes::from_static(b"abc"),
        frame_len: 4,
    };
    assert_eq!(decoded(b"\x30abc"), Ok(vec![datagram]));
}

#[test]
fn padding_is_one_frame_whatever_its_length() {
    assert_eq!(
        decoded(&[0, 0, 0, 0x10, 7, 0]),
        Ok(vec![Frame::Padding, Frame::MaxData(7), Frame::Padding])
    );
}

#[test]
fn prohibited_and_unknown_frames_are_encoding_errors() {
    let prohibited = [0x01, 0x02, 0x03, 0x06, 0x07, 0x18, 0x19, 0x1a, 0x1b, 0x1e];
    for kind in prohibited.into_iter().chain([0x1f, 0x25, 0x32, 0x3f]) {
        let zeros = [kind, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            code_of(&zeros),
            TransportCode::FRAME_ENCODING_ERROR,
            "{kind:#x}"
        );
    }
}

#[test]
fn a_type_in_a_longer_form_than_needed_is_a_violation() {
    assert_eq!(code_of(&[0x40, 0x10, 7]), TransportCode::PROTOCOL_VIOLATION);
    assert_eq!(
        code_of(&[0x80, 0, 0, 0x00]),
        TransportCode::PROTOCOL_VIOLATION
    );
    assert_eq!(decoded(&[0x10, 0x40, 7]), Ok(vec![Frame::MaxData(7)]));
}

#[test]
fn values_are_checked_at_their_limits() {
    let streams = |limit| {
        encoded(&Frame::MaxStreams {
            bidirectional: true,
            limit,
        })
    };
    assert!(decoded(&streams(STREAMS_MAX)).is_ok());
    assert_eq!(
        code_of(&streams(STREAMS_MAX + 1)),
        TransportCode::FRAME_ENCODING_ERROR
    );
    let stream = |offset| {
        encoded(&Frame::Stream {
            stream: 0,
            offset,
            fin: false,
            data: Bytes::from_static(b"a"),
        })
    };
    assert!(decoded(&stream(varint::MAX - 1)).is_ok());
    assert_eq!(
        code_of(&stream(varint::MAX)),
        TransportCode::FRAME_ENCODING_ERROR
    );
    let reset = |size| {
        encoded(&Frame::ResetStream {
            stream: 0,
            code: 0,
            final_size: 5,
            reliable_size: Some(size),
        })
    };
    assert!(decoded(&reset(5)).is_ok());
    assert_eq!(code_of(&reset(6)), TransportCode::FRAME_ENCODING_ERROR);
}
