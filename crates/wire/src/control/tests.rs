use super::*;
use proptest::prelude::*;

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn whole(bytes: &[u8]) -> Frame {
    match Frame::decode(bytes) {
        Ok(Decoded::Done { frame, consumed }) if consumed == bytes.len() => frame,
        other => panic!("{bytes:02x?}: {other:?}"),
    }
}

#[test]
fn frames_are_written_as_the_protocol_says() {
    let seen = Frame::Seen(vec![Seen { flow: 4, next: 101 }]);
    for (frame, bytes) in [
        (Frame::Hello { proof: None }, &[0x07, 0x00][..]),
        (Frame::HelloAck, &[0x08, 0x00]),
        (seen, &[0x10, 0x03, 0x04, 0x40, 0x65]),
        (
            Frame::Gone(vec![Gone { flow: 8, code: 1 }]),
            &[0x11, 0x02, 0x08, 0x01],
        ),
        (Frame::Hold(vec![4, 8]), &[0x13, 0x02, 0x04, 0x08]),
        (Frame::Go(vec![4]), &[0x14, 0x01, 0x04]),
    ] {
        assert_eq!(encoded(&frame), bytes);
        assert_eq!(whole(bytes), frame);
    }
    let proof = encoded(&Frame::Hello {
        proof: Some([7; PROOF_LEN]),
    });
    assert_eq!(proof[..4], [0x07, 0x22, 0x02, 0x20]);
}

#[test]
fn a_control_stream_is_known_by_its_first_frame() {
    assert_eq!(begins(&[]), None);
    assert_eq!(begins(&[0x07]), Some(true));
    assert_eq!(begins(&[0x01]), Some(false));
    // A longer form of the same number.
    assert_eq!(begins(&[0x40]), None);
    assert_eq!(begins(&[0x40, 0x07]), Some(true));
}

// PROTOCOL CONTROL-3.
#[test]
fn frames_of_unknown_types_are_skipped_whole() {
    assert_eq!(whole(&[0x15, 0x02, 9, 9]), Frame::Unknown { kind: 0x15 });
    assert_eq!(whole(&[0x12, 0x00]), Frame::Unknown { kind: 0x12 });
}

// PROTOCOL CONTROL-4: at the limit, and one above.
#[test]
fn limits_are_kept() {
    let most: Vec<u64> = (0..MAX_FLOWS as u64).collect();
    assert_eq!(
        whole(&encoded(&Frame::Hold(most.clone()))),
        Frame::Hold(most.clone())
    );
    let mut more = most;
    more.push(0);
    assert_eq!(Frame::decode(&encoded(&Frame::Hold(more))), Err(Malformed));
    assert_eq!(Frame::decode(&[0x10, 0x00]), Err(Malformed));
    let mut longest = vec![0x15];
    put_bytes(&[0; MAX_BODY], &mut longest);
    assert_eq!(whole(&longest), Frame::Unknown { kind: 0x15 });
    assert!(longest.len() <= MAX_FRAME);
    // Refused before the body is there.
    let mut too_long = vec![0x15];
    varint::encode(MAX_BODY as u64 + 1, &mut too_long);
    assert_eq!(Frame::decode(&too_long), Err(Malformed));
}

#[test]
fn bodies_that_end_inside_a_number_are_refused() {
    for bytes in [&[0x10, 0x01, 0x04][..], &[0x13, 0x01, 0x40]] {
        assert_eq!(Frame::decode(bytes), Err(Malformed));
    }
    // Four bytes of body make two numbers; three, one and a half.
    assert!(Frame::decode(&[0x10, 0x03, 0x04, 0x40, 0x40]).is_ok());
    // A critical option that is not known.
    assert_eq!(Frame::decode(&[0x07, 0x02, 0x03, 0x00]), Err(Malformed));
    assert_eq!(whole(&[0x08, 0x02, 0x04, 0x00]), Frame::HelloAck);
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let number = 0..=varint::MAX;
    let seen = (number.clone(), number.clone()).prop_map(|(flow, next)| Seen { flow, next });
    let gone = (number.clone(), number.clone()).prop_map(|(flow, code)| Gone { flow, code });
    prop_oneof![
        proptest::option::of(any::<[u8; PROOF_LEN]>()).prop_map(|proof| Frame::Hello { proof }),
        Just(Frame::HelloAck),
        proptest::collection::vec(seen, 1..=MAX_FLOWS).prop_map(Frame::Seen),
        proptest::collection::vec(gone, 1..=MAX_FLOWS).prop_map(Frame::Gone),
        proptest::collection::vec(number.clone(), 1..=MAX_FLOWS).prop_map(Frame::Hold),
        proptest::collection::vec(number, 1..=MAX_FLOWS).prop_map(Frame::Go),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_a_part_of_it_is_too_little(frame in any_frame()) {
        let bytes = encoded(&frame);
        prop_assert!(bytes.len() <= MAX_FRAME);
        for cut in 0..bytes.len() {
            prop_assert_eq!(Frame::decode(&bytes[..cut]), Ok(Decoded::Need));
        }
        prop_assert_eq!(whole(&bytes), frame);
    }

    #[test]
    fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        crate::check::control(&bytes);
    }
}
