use proptest::prelude::*;

use super::*;

/// Returns a block that begins with `bytes`.
fn block(bytes: &[u8]) -> [u8; TOKEN_LEN] {
    let mut block = [0; TOKEN_LEN];
    block[..bytes.len()].copy_from_slice(bytes);
    block
}

#[test]
fn pads_with_nul_to_512_bytes() {
    let packed = pack("tcp:127.0.0.1:22").expect("packs");
    assert_eq!(packed.len(), 512);
    assert_eq!(&packed[..16], b"tcp:127.0.0.1:22");
    assert!(packed[16..].iter().all(|byte| *byte == 0));
}

// PROTOCOL TOKEN-1.
#[test]
fn takes_512_bytes_and_refuses_513_instead_of_cutting() {
    let full = "x".repeat(512);
    assert_eq!(unpack(&pack(&full).expect("at the limit")), Some(full));
    assert_eq!(pack(&"x".repeat(513)), Err(PackError::TooLong { len: 513 }));
    // The limit counts bytes, not characters.
    assert_eq!(pack(&"é".repeat(257)), Err(PackError::TooLong { len: 514 }));
}

// PROTOCOL TOKEN-1.
#[test]
fn refuses_tokens_that_cannot_be_restored() {
    assert_eq!(pack(""), Err(PackError::Empty));
    assert_eq!(pack("tcp:a\0b:22"), Err(PackError::Nul));
}

// PROTOCOL TOKEN-2.
#[test]
fn drops_every_nul_as_the_original_does() {
    assert_eq!(
        unpack(&block(b"\0tcp:\0\0a:22")),
        Some("tcp:a:22".to_owned())
    );
    let mut last = block(b"tcp:a:2");
    last[TOKEN_LEN - 1] = b'2';
    assert_eq!(unpack(&last), Some("tcp:a:22".to_owned()));
}

// PROTOCOL TOKEN-2.
#[test]
fn refuses_a_block_without_text() {
    for bytes in [&b""[..], b"tcp:\xff\xfe:22", &[0xff; TOKEN_LEN]] {
        assert_eq!(unpack(&block(bytes)), None, "{bytes:02x?}");
    }
}

proptest! {
    #[test]
    fn round_trip(token in "[^\0]{1,128}") {
        prop_assert_eq!(unpack(&pack(&token).expect("packs")), Some(token));
    }

    #[test]
    fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..=TOKEN_LEN)) {
        crate::check::token_unpack(&bytes);
    }

    #[test]
    fn no_token_panics(token: String) {
        if let Ok(packed) = pack(&token) {
            prop_assert_eq!(unpack(&packed), Some(token));
        } else {
            prop_assert!(token.is_empty() || token.contains('\0') || token.len() > TOKEN_LEN);
        }
    }
}
