use proptest::prelude::*;

use super::*;

fn encoded(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    encode(value, &mut out);
    out
}

#[test]
fn vectors_of_rfc_9000_appendix_a_1() {
    let vectors: [(&[u8], u64); 4] = [
        (
            &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
            151_288_809_941_952_652,
        ),
        (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
        (&[0x7b, 0xbd], 15_293),
        (&[0x25], 37),
    ];
    for (bytes, value) in vectors {
        assert_eq!(decode(bytes), Some((value, &[][..])));
        assert_eq!(encoded(value), bytes);
    }
}

#[test]
fn accepts_a_longer_form_than_needed() {
    assert_eq!(decode(&[0x40, 0x25, 0xaa]), Some((37, &[0xaa][..])));
    assert_eq!(decode(&[0xc0, 0, 0, 0, 0, 0, 0, 37]), Some((37, &[][..])));
}

#[test]
fn takes_the_shortest_form_on_both_sides_of_each_boundary() {
    let lengths = [
        (0, 1),
        (0x3f, 1),
        (0x40, 2),
        (0x3fff, 2),
        (0x4000, 4),
        (0x3fff_ffff, 4),
        (0x4000_0000, 8),
        (MAX, 8),
    ];
    for (value, length) in lengths {
        assert_eq!(encoded(value).len(), length, "{value:#x}");
    }
}

#[test]
fn a_value_above_62_bits_is_written_as_the_largest() {
    for value in [MAX + 1, u64::MAX] {
        assert_eq!(encoded(value), encoded(MAX));
    }
}

#[test]
fn asks_for_more_of_a_cut_integer() {
    for bytes in [&[][..], &[0x40], &[0x80, 0, 0], &[0xff, 1, 2, 3, 4, 5, 6]] {
        assert_eq!(decode(bytes), None, "{bytes:02x?}");
    }
}

proptest! {
    #[test]
    fn round_trip(value in 0..=MAX, rest: Vec<u8>) {
        let mut bytes = encoded(value);
        bytes.extend_from_slice(&rest);
        prop_assert_eq!(decode(&bytes), Some((value, &rest[..])));
    }

    #[test]
    fn no_input_panics(bytes: Vec<u8>) {
        crate::check::varint(&bytes);
    }
}
