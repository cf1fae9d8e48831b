use proptest::prelude::*;

use super::*;

fn encoded(parameters: &TransportParameters) -> Vec<u8> {
    let mut out = Vec::new();
    parameters.encode(&mut out);
    out
}

/// Encodes one parameter with a value of any form.
fn one(id: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, id);
    put_varint(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

fn integer_of(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, value);
    out
}

#[track_caller]
fn assert_invalid(bytes: &[u8]) {
    let violation = TransportParameters::decode(bytes).expect_err("invalid");
    assert_eq!(violation.code, TransportCode::TRANSPORT_PARAMETER_ERROR);
}

proptest! {
    #[test]
    fn parameters_survive_their_encoding(
        values in proptest::array::uniform6(0..=varint::MAX),
        reset_stream_at in any::<bool>(),
    ) {
        let parameters = TransportParameters {
            max_idle_timeout: Duration::from_millis(values[0]),
            initial_max_data: values[1],
            initial_max_stream_data_bidi_local: values[2],
            initial_max_stream_data_bidi_remote: values[3],
            initial_max_streams_bidi: values[4].min(STREAMS_MAX),
            max_datagram_frame_size: values[5],
            reset_stream_at,
        };
        prop_assert_eq!(TransportParameters::decode(&encoded(&parameters)), Ok(parameters));
    }

    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _result = TransportParameters::decode(&bytes);
    }
}

#[test]
fn absent_parameters_have_their_defaults() {
    assert_eq!(
        TransportParameters::decode(&[]),
        Ok(TransportParameters::default())
    );
}

#[test]
fn prohibited_parameters_are_errors() {
    for id in [0x00, 0x02, 0x03, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10] {
        assert_invalid(&one(id, &[1]));
    }
}

#[test]
fn unknown_parameters_are_ignored() {
    let unknown = [one(27, b"grease"), one(0x11, &[]), one(1 << 40, &[0; 100])].concat();
    assert_eq!(
        TransportParameters::decode(&unknown),
        Ok(TransportParameters::default())
    );
}

#[test]
fn parameters_that_occur_twice_are_errors() {
    assert_invalid(&[one(0x04, &[1]), one(0x04, &[1])].concat());
    let size = one(MAX_RECORD_SIZE, &integer_of(20_000));
    assert!(TransportParameters::decode(&size).is_ok());
    assert_invalid(&[size.clone(), size].concat());
}

#[test]
fn values_are_checked_at_their_limits() {
    assert!(TransportParameters::decode(&one(MAX_RECORD_SIZE, &integer_of(16_382))).is_ok());
    assert_invalid(&one(MAX_RECORD_SIZE, &integer_of(16_381)));
    for id in [INITIAL_MAX_STREAMS_BIDI, INITIAL_MAX_STREAMS_UNI] {
        assert!(TransportParameters::decode(&one(id, &integer_of(STREAMS_MAX))).is_ok());
        assert_invalid(&one(id, &integer_of(STREAMS_MAX + 1)));
    }
    assert_invalid(&one(RESET_STREAM_AT, &[0]));
    // Longer and shorter than one integer.
    assert_invalid(&one(INITIAL_MAX_DATA, &[1, 1]));
    assert_invalid(&one(INITIAL_MAX_DATA, &[]));
    assert_invalid(&one(INITIAL_MAX_DATA, &[0x40]));
}

#[test]
fn parameters_that_are_cut_are_errors() {
    let whole = one(0x04, &integer_of(1 << 20));
    for cut in 1..whole.len() {
        assert_invalid(&whole[..cut]);
    }
}
