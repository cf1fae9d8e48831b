use proptest::prelude::*;

use super::*;

fn bytes_of(kind: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::encode(kind, &mut out);
    put_bytes(body, &mut out);
    out
}

/// Encodes a body of `numbers` and these options.
fn body(numbers: &[u64], options: &[(u64, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for &number in numbers {
        varint::encode(number, &mut body);
    }
    for (option, value) in options {
        varint::encode(*option, &mut body);
        put_bytes(value, &mut body);
    }
    body
}

/// Encodes MOVE and `MOVE_ACK` with these options.
fn with_options(options: &[(u64, &[u8])]) -> (Vec<u8>, Vec<u8>) {
    (
        bytes_of(TYPE_MOVE, &body(&[4, 1, 9], options)),
        bytes_of(TYPE_MOVE_ACK, &body(&[9], options)),
    )
}

const MOVE: Move = Move {
    flow: 4,
    leg: 1,
    next: 9,
};

const MOVE_ACK: MoveAck = MoveAck { next: 9 };

#[expect(clippy::unnecessary_wraps, reason = "compared with results")]
fn done<T>(frame: T, consumed: usize) -> Result<Decoded<T>, FlowCode> {
    Ok(Decoded::Done { frame, consumed })
}

#[test]
fn frames_byte_for_byte() {
    let sent = Move {
        flow: 4,
        leg: 1,
        next: 300,
    };
    let mut bytes = Vec::new();
    sent.encode(&mut bytes);
    assert_eq!(bytes, [0x05, 0x04, 0x04, 0x01, 0x41, 0x2c]);
    bytes.extend(b"data");
    assert_eq!(Move::decode(&bytes), done(sent, 6));

    let mut bytes = Vec::new();
    MoveAck { next: 300 }.encode(&mut bytes);
    assert_eq!(bytes, [0x06, 0x02, 0x41, 0x2c]);
    bytes.extend(b"data");
    assert_eq!(MoveAck::decode(&bytes), done(MoveAck { next: 300 }, 4));
}

#[test]
fn a_stream_that_moves_a_flow_is_known_by_its_first_frame() {
    assert_eq!(begins(&[]), None);
    assert_eq!(begins(&[0x05]), Some(true));
    for other in [0x01, 0x06, 0x07] {
        assert_eq!(begins(&[other]), Some(false));
    }
    // A longer form of the same number.
    assert_eq!(begins(&[0x40]), None);
    assert_eq!(begins(&[0x40, 0x05]), Some(true));
}

// PROTOCOL OPEN-9, BOND-10.
#[test]
fn numbers_may_be_longer_than_needed() {
    let bytes = [0x40, 0x05, 0x40, 0x04, 0x40, 0x04, 0x01, 0x09];
    assert_eq!(Move::decode(&bytes), done(MOVE, 8));
}

// PROTOCOL OPEN-10, BOND-10.
#[test]
fn wrong_type_is_found_in_the_first_byte() {
    assert_eq!(Move::decode(&[0x01]), Err(FlowCode::BadOpen));
    assert_eq!(MoveAck::decode(&[0x02]), Err(FlowCode::BadOpen));
}

// PROTOCOL BOND-10: at the limit, and one above.
#[test]
fn body_lengths_at_and_after_the_limit() {
    // The filler's type and the length of its value take three bytes.
    let filled = |numbers: usize, len: usize| vec![0; len - numbers - 3];
    let (most, _) = with_options(&[(0x10, &filled(3, MAX_BODY))]);
    assert_eq!(Move::decode(&most), done(MOVE, most.len()));
    assert_eq!(most.len(), 3 + MAX_BODY);
    let (_, most) = with_options(&[(0x10, &filled(1, MAX_BODY))]);
    assert_eq!(MoveAck::decode(&most), done(MOVE_ACK, most.len()));
    assert_eq!(most.len(), 3 + MAX_BODY);

    let (more, _) = with_options(&[(0x10, &filled(3, MAX_BODY + 1))]);
    assert_eq!(Move::decode(&more), Err(FlowCode::BadOpen));
    // The length is refused as soon as it arrives.
    assert_eq!(Move::decode(&more[..3]), Err(FlowCode::BadOpen));
    let (_, more) = with_options(&[(0x10, &filled(1, MAX_BODY + 1))]);
    assert_eq!(MoveAck::decode(&more), Err(FlowCode::BadOpen));
    assert_eq!(MoveAck::decode(&more[..3]), Err(FlowCode::BadOpen));
}

// PROTOCOL OPEN-8, BOND-10.
#[test]
fn a_body_that_ends_early_is_refused() {
    // The body ends in a number, or in an option's type, length or value.
    let ends: [&[u8]; 4] = [&[0x80], &[0x40], &[0x10], &[0x10, 2, 0]];
    for end in ends {
        let moved = [&[4, 1, 9][..], end].concat();
        let refused = Err(FlowCode::BadOpen);
        assert_eq!(Move::decode(&bytes_of(TYPE_MOVE, &moved)), refused);
        let ack = bytes_of(TYPE_MOVE_ACK, &[&[9][..], end].concat());
        assert_eq!(MoveAck::decode(&ack), Err(FlowCode::BadOpen));
    }
    for numbers in [&[][..], &[4], &[4, 1], &[4, 1, 0x40]] {
        let refused = Err(FlowCode::BadOpen);
        assert_eq!(Move::decode(&bytes_of(TYPE_MOVE, numbers)), refused);
    }
    let ack = bytes_of(TYPE_MOVE_ACK, &[]);
    assert_eq!(MoveAck::decode(&ack), Err(FlowCode::BadOpen));
}

// PROTOCOL OPTION-1.
#[test]
fn unknown_options_are_skipped_unless_critical() {
    let (moved, ack) = with_options(&[(0x02, b"future"), (0x02, b"again"), (0x4000, b"")]);
    assert_eq!(Move::decode(&moved), done(MOVE, moved.len()));
    assert_eq!(MoveAck::decode(&ack), done(MOVE_ACK, ack.len()));
    for option in [0x01, 0x03, 0x4001, varint::MAX] {
        let (moved, ack) = with_options(&[(option, b"x")]);
        assert_eq!(Move::decode(&moved), Err(FlowCode::Unsupported));
        assert_eq!(MoveAck::decode(&ack), Err(FlowCode::Unsupported));
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..200_u64, 0..=varint::MAX]
}

proptest! {
    #[test]
    fn an_encoded_frame_decodes_and_a_part_of_it_is_too_little(
        (flow, leg, next) in (number(), number(), number()),
        rest: Vec<u8>,
    ) {
        let moved = Move { flow, leg, next };
        let mut bytes = Vec::new();
        moved.encode(&mut bytes);
        let consumed = bytes.len();
        prop_assert!(consumed <= MAX_MOVE_FRAME);
        for cut in 0..consumed {
            prop_assert_eq!(Move::decode(&bytes[..cut]), Ok(Decoded::Need));
        }
        bytes.extend(&rest);
        prop_assert_eq!(Move::decode(&bytes), done(moved, consumed));

        let ack = MoveAck { next };
        let mut bytes = Vec::new();
        ack.encode(&mut bytes);
        let consumed = bytes.len();
        prop_assert!(consumed <= MAX_MOVE_ACK_FRAME);
        for cut in 0..consumed {
            prop_assert_eq!(MoveAck::decode(&bytes[..cut]), Ok(Decoded::Need));
        }
        bytes.extend(&rest);
        prop_assert_eq!(MoveAck::decode(&bytes), done(ack, consumed));
    }

    #[test]
    fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::check::move_decode(&body);
        crate::check::move_ack_decode(&body);
        crate::check::move_decode(&bytes_of(TYPE_MOVE, &body));
        crate::check::move_ack_decode(&bytes_of(TYPE_MOVE_ACK, &body));
    }
}
