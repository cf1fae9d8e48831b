//! The key of one direction: seals and opens records in place (RFC 8446 section 5.2).

use std::ptr;

use aws_lc_rs::aead as aws_lc;
use ring::aead as ring;
use rustls::crypto::ring::cipher_suite;
use rustls::{ConnectionTrafficSecrets, ContentType, Error, SupportedCipherSuite};
use zeroize::Zeroizing;

use crate::error::Violation;
use crate::record::{HEADER, PLAINTEXT_MAX, TAG, TYPE, header};
use crate::send_buffer::SendBuffer;

/// A key, and the number of records that it has sealed or opened.
#[derive(Debug)]
pub(crate) struct RecordKey {
    cipher: RecordCipher,
    iv: Zeroizing<[u8; NONCE]>,
    sequence: u64,
}

/// A cipher by one of the two libraries.
#[derive(Debug)]
enum RecordCipher {
    Ring(Box<ring::LessSafeKey>),
    AwsLc(aws_lc::LessSafeKey),
}

impl RecordKey {
    /// Makes the key of `secrets` with the library to which `suite` belongs. `sequence` is the number of records under
    /// this key so far.
    pub(crate) fn new(
        suite: SupportedCipherSuite,
        (sequence, secrets): (u64, &ConnectionTrafficSecrets),
    ) -> Result<Self, Error> {
        let (in_ring, in_aws_lc, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                (&ring::AES_128_GCM, &aws_lc::AES_128_GCM, key, iv)
            }
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
                (&ring::AES_256_GCM, &aws_lc::AES_256_GCM, key, iv)
            }
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (
                &ring::CHACHA20_POLY1305,
                &aws_lc::CHACHA20_POLY1305,
                key,
                iv,
            ),
            _ => return Err(unsupported()),
        };
        let key = key.as_ref();
        let cipher = if is_of_ring(suite) {
            let key = ring::UnboundKey::new(in_ring, key).map_err(|_| unsupported())?;
            RecordCipher::Ring(Box::new(ring::LessSafeKey::new(key)))
        } else {
            let key = aws_lc::UnboundKey::new(in_aws_lc, key).map_err(|_| unsupported())?;
            RecordCipher::AwsLc(aws_lc::LessSafeKey::new(key))
        };
        let iv = iv.as_ref().try_into().map_err(|_| unsupported())?;
        Ok(Self {
            cipher,
            iv: Zeroizing::new(iv),
            sequence,
        })
    }

    /// Returns the number of records under this key.
    pub(crate) fn records(&self) -> u64 {
        self.sequence
    }

    /// Appends a record to `out`, whose plaintext `fill` writes. Returns the length of the plaintext. If it is 0,
    /// nothing is appended.
    pub(crate) fn seal(
        &mut self,
        out: &mut SendBuffer,
        content: ContentType,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, Error> {
        let slot = out.slot(HEADER + PLAINTEXT_MAX + TYPE + TAG);
        let (head, slot) = slot.split_at_mut(HEADER);
        let len = fill(&mut slot[..PLAINTEXT_MAX]);
        assert!(len <= PLAINTEXT_MAX, "fill has written more than its slot");
        if len == 0 {
            return Ok(0);
        }
        slot[len] = content.into();
        let (body, tag) = slot[..len + TYPE + TAG].split_at_mut(len + TYPE);
        head.copy_from_slice(&header(body.len() + TAG));
        let nonce = self.nonce();
        let sealed = match &self.cipher {
            RecordCipher::Ring(key) => {
                let nonce = ring::Nonce::assume_unique_for_key(nonce);
                let aad = ring::Aad::from(&*head);
                let sealed = key.seal_in_place_separate_tag(nonce, aad, body);
                sealed
                    .map(|sealed| tag.copy_from_slice(sealed.as_ref()))
                    .ok()
            }
            RecordCipher::AwsLc(key) => {
                let nonce = aws_lc::Nonce::assume_unique_for_key(nonce);
                let aad = aws_lc::Aad::from(&*head);
                let sealed = key.seal_in_place_separate_tag(nonce, aad, body);
                sealed
                    .map(|sealed| tag.copy_from_slice(sealed.as_ref()))
                    .ok()
            }
        };
        sealed.ok_or(Error::EncryptError)?;
        self.sequence += 1;
        out.commit(HEADER + len + TYPE + TAG);
        Ok(len)
    }

    /// Opens a record with its header in place. Returns its content type and the length of the plaintext, which begins
    /// after the header.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<(ContentType, usize), Violation> {
        let nonce = self.nonce();
        let (head, body) = record
            .split_at_mut_checked(HEADER)
            .ok_or(Violation::BadRecordMac)?;
        let opened = match &self.cipher {
            RecordCipher::Ring(key) => {
                let nonce = ring::Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, ring::Aad::from(&*head), body).ok()
            }
            RecordCipher::AwsLc(key) => {
                let nonce = aws_lc::Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, aws_lc::Aad::from(&*head), body)
                    .ok()
            }
        };
        let inner = opened.ok_or(Violation::BadRecordMac)?;
        if inner.len() > PLAINTEXT_MAX + TYPE {
            return Err(Violation::RecordTooLong);
        }
        let len = inner
            .iter()
            .rposition(|byte| *byte != 0)
            .ok_or(Violation::NoContentType)?;
        self.sequence += 1;
        Ok((inner[len].into(), len))
    }

    fn nonce(&self) -> [u8; NONCE] {
        let mut nonce = *self.iv;
        let counter = self.sequence.to_be_bytes();
        let low = &mut nonce[NONCE - counter.len()..];
        low.iter_mut()
            .zip(counter)
            .for_each(|(to, from)| *to ^= from);
        nonce
    }
}

/// Returns whether the configuration has taken this suite from ring.
fn is_of_ring(suite: SupportedCipherSuite) -> bool {
    let of_ring = [
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    // Suites of both libraries are equal, so only their addresses differ.
    let same = |other: SupportedCipherSuite| {
        let pair = suite.tls13().zip(other.tls13());
        pair.is_some_and(|(one, other)| ptr::eq(one, other))
    };
    of_ring.into_iter().any(same)
}

fn unsupported() -> Error {
    Error::General("no cipher for the negotiated suite".to_owned())
}

const NONCE: usize = 12;

#[cfg(test)]
mod tests;
