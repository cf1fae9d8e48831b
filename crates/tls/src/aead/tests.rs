use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::{aws_lc_rs, ring};

use super::*;

/// The first record with the bytes 0 to 49 under the key with the bytes 0 to 31 and the client's nonce in RFC 8448
/// section 3, by OpenSSL: `AESGCM(bytes(range(32))).encrypt(iv, bytes(range(50)) + b"\x17", header)` in Python.
const IV: &str = "5b78923dee08579033e523d9";
const RECORD: &str = "1703030043\
    126d8c2ecd27ff721dcf4d6f813be8d8f217cf890b1ce873de66d5f5c74b5fec\
    7a637a68943af928c6ef7a41970fc5df265e6296ab07e9d69a122b8107c44ee3\
    064e3e";

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| {
            let pair = str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("hex")
        })
        .collect()
}

/// Returns the key of [`RECORD`], by ring and by aws-lc.
fn keys() -> [RecordKey; 2] {
    let ring = ring::cipher_suite::TLS13_AES_256_GCM_SHA384;
    let aws_lc = aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384;
    [ring, aws_lc].map(|suite| {
        let mut key = [0; 32];
        (0..).zip(&mut key).for_each(|(value, byte)| *byte = value);
        let iv: [u8; 12] = hex(IV).try_into().expect("the length of a nonce");
        let (key, iv) = (AeadKey::from(key), Iv::from(iv));
        let secrets = ConnectionTrafficSecrets::Aes256Gcm { key, iv };
        RecordKey::new(suite, (0, secrets)).expect("a key")
    })
}

#[test]
fn both_libraries_seal_and_open_a_known_record() {
    let data: Vec<u8> = (0..50).collect();
    for mut key in keys() {
        let mut record = SendBuffer::new();
        let fill = |slot: &mut [u8]| {
            slot[..50].copy_from_slice(&data);
            50
        };
        let sealed = key.seal(&mut record, ContentType::ApplicationData, fill);
        assert_eq!(sealed, Ok(50));
        assert_eq!(record.as_slice(), hex(RECORD));
    }
    for mut key in keys() {
        let mut record = hex(RECORD);
        let opened = key.open(&mut record);
        assert_eq!(opened, Ok((ContentType::ApplicationData, 50)));
        assert_eq!(record[HEADER..][..50], data);
    }
}

/// Seals an inner plaintext of this length, of which the last byte is a content type.
fn sealed(key: &RecordKey, len: usize) -> Vec<u8> {
    let mut inner = vec![1; len];
    inner[len - 1] = ContentType::ApplicationData.into();
    let head = header(len + TAG);
    let tag = key.cipher.encrypt_in_place(key.sequence, &head, &mut inner);
    [&head[..], &inner, tag.expect("short").as_ref()].concat()
}

#[test]
fn an_inner_plaintext_has_a_limit() {
    for mut key in keys() {
        let mut record = sealed(&key, PLAINTEXT_MAX + 1);
        let opened = key.open(&mut record);
        assert_eq!(opened, Ok((ContentType::ApplicationData, PLAINTEXT_MAX)));
        let mut record = sealed(&key, PLAINTEXT_MAX + 2);
        assert_eq!(key.open(&mut record), Err(Violation::RecordTooLong));
    }
}

#[test]
#[should_panic(expected = "more than its slot")]
fn a_caller_that_claims_more_than_the_slot_is_stopped() {
    let [mut key, _] = keys();
    let claim = |slot: &mut [u8]| slot.len() + 1;
    drop(key.seal(&mut SendBuffer::new(), ContentType::ApplicationData, claim));
}
