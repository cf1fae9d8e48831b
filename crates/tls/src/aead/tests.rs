use rustls::crypto::cipher::{AeadKey, Iv};

use super::*;

/// The client's key for application data in RFC 8448 section 3.
const KEY: &str = "17422dda596ed5d9acd890e3c63f5051";
const IV: &str = "5b78923dee08579033e523d9";

/// The client's record with the bytes 0 to 49 in RFC 8448 section 3.
const RECORD: &str = "1703030043\
    a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5\
    b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb2169\
    4915e4";

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| {
            let pair = str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("hex")
        })
        .collect()
}

/// Returns the key of RFC 8448.
fn key() -> RecordKey {
    let mut iv = [0; NONCE];
    iv.copy_from_slice(&hex(IV));
    // A key for AES-128 cannot be made outside rustls, so the cipher is replaced.
    let (key, iv) = (AeadKey::from([0; 32]), Iv::from(iv));
    let secrets = ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv };
    let key = UnboundKey::new(&AES_128_GCM, &hex(KEY)).expect("a key");
    RecordKey {
        cipher: LessSafeKey::new(key),
        ..RecordKey::new((0, &secrets)).expect("a key")
    }
}

#[test]
fn the_record_of_rfc_8448_is_sealed_and_opened() {
    let data: Vec<u8> = (0..50).collect();
    let mut record = SendBuffer::new();
    let fill = |slot: &mut [u8]| {
        slot[..50].copy_from_slice(&data);
        50
    };
    let sealed = key().seal(&mut record, ContentType::ApplicationData, fill);
    assert_eq!(sealed, Ok(50));
    assert_eq!(record.as_slice(), hex(RECORD));
    let mut record = hex(RECORD);
    let opened = key().open(&mut record);
    assert_eq!(opened, Ok((ContentType::ApplicationData, 50)));
    assert_eq!(record[HEADER..][..50], data);
}

/// Seals an inner plaintext of this length, of which the last byte is a content type.
fn sealed(key: &RecordKey, len: usize) -> Vec<u8> {
    let mut inner = vec![1; len];
    inner[len - 1] = ContentType::ApplicationData.into();
    let nonce = Nonce::assume_unique_for_key(key.nonce());
    let head = header(len + TAG);
    let cipher = &key.cipher;
    cipher
        .seal_in_place_append_tag(nonce, Aad::from(head), &mut inner)
        .expect("short");
    [&head[..], &inner].concat()
}

#[test]
fn an_inner_plaintext_has_a_limit() {
    let mut key = key();
    let mut record = sealed(&key, PLAINTEXT_MAX + 1);
    let opened = key.open(&mut record);
    assert_eq!(opened, Ok((ContentType::ApplicationData, PLAINTEXT_MAX)));
    let mut record = sealed(&key, PLAINTEXT_MAX + 2);
    assert_eq!(key.open(&mut record), Err(Violation::RecordTooLong));
}

#[test]
#[should_panic(expected = "more than its slot")]
fn a_caller_that_claims_more_than_the_slot_is_stopped() {
    let mut key = key();
    let claim = |slot: &mut [u8]| slot.len() + 1;
    drop(key.seal(&mut SendBuffer::new(), ContentType::ApplicationData, claim));
}
