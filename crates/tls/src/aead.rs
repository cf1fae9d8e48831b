//! The key of one direction: seals and opens records in place (RFC 8446 section 5.2).
//!
//! aws-lc seals them, whichever library the suite of the handshake belongs to. The libraries differ little for packets,
//! but aws-lc has instructions for long records: it takes two thirds of ring's time for 16 KiB.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::{ConnectionTrafficSecrets, ContentType, Error};
use zeroize::Zeroizing;

use crate::error::Violation;
use crate::record::{HEADER, PLAINTEXT_MAX, TAG, TYPE, header};
use crate::send_buffer::SendBuffer;

/// A key, and the number of records that it has sealed or opened.
#[derive(Debug)]
pub(crate) struct RecordKey {
    cipher: LessSafeKey,
    iv: Zeroizing<[u8; NONCE]>,
    sequence: u64,
}

impl RecordKey {
    /// Makes the key of `secrets`. `sequence` is the number of records under this key so far.
    pub(crate) fn new(
        (sequence, secrets): (u64, &ConnectionTrafficSecrets),
    ) -> Result<Self, Error> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(unsupported()),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| unsupported())?;
        let cipher = LessSafeKey::new(key);
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
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self
            .cipher
            .seal_in_place_separate_tag(nonce, Aad::from(&*head), body);
        tag.copy_from_slice(sealed.map_err(|_| Error::EncryptError)?.as_ref());
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
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.cipher.open_in_place(nonce, Aad::from(&*head), body);
        let inner = opened.map_err(|_| Violation::BadRecordMac)?;
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

fn unsupported() -> Error {
    Error::General("no cipher for the negotiated suite".to_owned())
}

const NONCE: usize = 12;

#[cfg(test)]
mod tests;
