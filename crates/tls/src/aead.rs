//! The key of one direction: seals and opens records in place (RFC 8446 section 5.2).
//!
//! The suite of the handshake belongs to a library, which seals the records. rustls offers it for the packets of QUIC, whose
//! nonces are made in the same way (RFC 9001 section 5.3), so a record is a packet whose header is that of the record.

use std::fmt;

use rustls::quic::PacketKey;
use rustls::{ConnectionTrafficSecrets, ContentType, Error, SupportedCipherSuite};

use crate::error::Violation;
use crate::record::{HEADER, PLAINTEXT_MAX, TAG, TYPE, header};
use crate::send_buffer::SendBuffer;

/// A key, and the number of records that it has sealed or opened.
pub(crate) struct RecordKey {
    cipher: Box<dyn PacketKey>,
    sequence: u64,
}

impl RecordKey {
    /// Makes the key of `secrets`. `sequence` is the number of records under this key so far.
    pub(crate) fn new(
        suite: SupportedCipherSuite,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, Error> {
        let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
        else {
            return Err(unsupported());
        };
        let algorithm = suite.tls13().and_then(|suite| suite.quic);
        let cipher = algorithm.ok_or_else(unsupported)?.packet_key(key, iv);
        Ok(Self { cipher, sequence })
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
        let sealed = self.cipher.encrypt_in_place(self.sequence, head, body)?;
        tag.copy_from_slice(sealed.as_ref());
        self.sequence += 1;
        out.commit(HEADER + len + TYPE + TAG);
        Ok(len)
    }

    /// Opens a record with its header in place. Returns its content type and the length of the plaintext, which begins
    /// after the header.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<(ContentType, usize), Violation> {
        let (head, body) = record
            .split_at_mut_checked(HEADER)
            .ok_or(Violation::BadRecordMac)?;
        let opened = self.cipher.decrypt_in_place(self.sequence, head, body);
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
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = f.debug_struct("RecordKey");
        key.field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

fn unsupported() -> Error {
    Error::General("no cipher for the negotiated suite".to_owned())
}

#[cfg(test)]
mod tests;
