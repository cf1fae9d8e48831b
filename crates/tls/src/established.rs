//! A connection whose handshake is complete: records, alerts and keys.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use rustls::pki_types::CertificateDer;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, ExtractedSecrets, SupportedCipherSuite,
};

use crate::aead::RecordKey;
use crate::error::{TlsError, Violation};
use crate::exporter::ExporterSecret;
use crate::limits::IDLE_MAX;
use crate::post_handshake::{KEY_UPDATE_MESSAGE, Kernel, Messages};
use crate::record::{HEADER, protected_len};
use crate::send_buffer::SendBuffer;

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) facts: Facts,
    kernel: Kernel,
    sealing: RecordKey,
    opening: RecordKey,
    /// Number of records that one key may seal, the `KeyUpdate` included.
    records_per_key: u64,
    messages: Messages,
    /// Number of records and messages since the last one with data.
    idle: u32,
    owes_key_update: bool,
    sending: Sending,
    peer_closed: bool,
}

/// The facts that the handshake has established.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) suite: SupportedCipherSuite,
    pub(crate) exporter: Arc<ExporterSecret>,
    pub(crate) certificates: Option<Vec<CertificateDer<'static>>>,
    pub(crate) alpn: Option<Vec<u8>>,
}

/// The state of the sending direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Open,
    /// `close_notify` is to be sent.
    Closing,
    Closed,
}

impl Established {
    pub(crate) fn new(
        kernel: Kernel,
        secrets: ExtractedSecrets,
        facts: Facts,
        records_per_key: u64,
    ) -> Result<Self, TlsError> {
        let key = |secrets| RecordKey::new(facts.suite, secrets).map_err(TlsError::Local);
        let (sealing, opening) = (key(secrets.tx)?, key(secrets.rx)?);
        let suite = facts.suite.tls13();
        let suite_limit = suite.map_or(0, |suite| suite.common.confidentiality_limit);
        Ok(Self {
            sealing,
            opening,
            facts,
            kernel,
            records_per_key: records_per_key.min(suite_limit),
            messages: Messages::default(),
            idle: 0,
            owes_key_update: false,
            sending: Sending::Open,
            peer_closed: false,
        })
    }

    pub(crate) fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Takes records off the front of `received` until one has data, which is returned.
    pub(crate) fn poll_received(
        &mut self,
        received: &mut BytesMut,
    ) -> Result<Option<Bytes>, TlsError> {
        loop {
            if self.peer_closed {
                received.clear();
                return Ok(None);
            }
            let Some(len) = protected_len(received)? else {
                return Ok(None);
            };
            if received.len() < len {
                return Ok(None);
            }
            let mut record = received.split_to(len);
            let (content, len) = self.opening.open(&mut record)?;
            record.truncate(HEADER + len);
            record.advance(HEADER);
            if self.messages.is_partial() && content != ContentType::Handshake {
                return Err(Violation::Interrupted.into());
            }
            match content {
                ContentType::ApplicationData if record.is_empty() => self.count_idle(1)?,
                ContentType::ApplicationData => {
                    self.idle = 0;
                    return Ok(Some(record.freeze()));
                }
                ContentType::Handshake => self.handle_messages(&record)?,
                ContentType::Alert => self.handle_alert(&record)?,
                other => return Err(Violation::Content(other.into()).into()),
            }
        }
    }

    fn handle_messages(&mut self, content: &[u8]) -> Result<(), TlsError> {
        let outcome = self.messages.handle(content, &mut self.kernel)?;
        self.count_idle(outcome.messages.max(1))?;
        if let Some(requested) = outcome.key_update {
            let secrets = self.kernel.update_receiving().map_err(TlsError::Local)?;
            self.opening = self.next_key(secrets)?;
            // One answer serves all requests that arrive before it is sent (RFC 8446 section 4.6.3).
            self.owes_key_update |= requested;
        }
        Ok(())
    }

    fn handle_alert(&mut self, content: &[u8]) -> Result<(), TlsError> {
        let &[_level, alert] = content else {
            return Err(Violation::Alert.into());
        };
        // The level does not count (RFC 8446 section 6).
        match AlertDescription::from(alert) {
            AlertDescription::CloseNotify => {
                self.peer_closed = true;
                Ok(())
            }
            AlertDescription::UserCanceled => self.count_idle(1),
            alert => Err(TlsError::PeerAlert(alert)),
        }
    }

    fn count_idle(&mut self, count: u32) -> Result<(), TlsError> {
        self.idle = self.idle.saturating_add(count);
        if self.idle > IDLE_MAX {
            return Err(Violation::Idle.into());
        }
        Ok(())
    }

    /// Appends a record with the plaintext that `fill` writes.
    pub(crate) fn seal(
        &mut self,
        out: &mut SendBuffer,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, TlsError> {
        self.flush(out)?;
        if self.sending == Sending::Closed {
            return Ok(0);
        }
        // The KeyUpdate is the last record under its key.
        if self.sealing.records() + 1 >= self.records_per_key {
            self.update_key(out)?;
        }
        let sealed = self.sealing.seal(out, ContentType::ApplicationData, fill);
        sealed.map_err(TlsError::Local)
    }

    /// Appends the records that are due: a `KeyUpdate`, `close_notify`.
    pub(crate) fn flush(&mut self, out: &mut SendBuffer) -> Result<(), TlsError> {
        if self.sending == Sending::Closed {
            return Ok(());
        }
        if self.owes_key_update {
            self.update_key(out)?;
        }
        if self.sending == Sending::Closing {
            self.seal_alert(AlertDescription::CloseNotify, out)?;
        }
        Ok(())
    }

    pub(crate) fn update_key(&mut self, out: &mut SendBuffer) -> Result<(), TlsError> {
        self.owes_key_update = false;
        self.seal_whole(ContentType::Handshake, &KEY_UPDATE_MESSAGE, out)?;
        let secrets = self.kernel.update_sending().map_err(TlsError::Local)?;
        self.sealing = self.next_key(secrets)?;
        Ok(())
    }

    fn next_key(&self, secrets: (u64, ConnectionTrafficSecrets)) -> Result<RecordKey, TlsError> {
        RecordKey::new(self.facts.suite, secrets).map_err(TlsError::Local)
    }

    /// Seals the last record of this side: an alert.
    pub(crate) fn seal_alert(
        &mut self,
        alert: AlertDescription,
        out: &mut SendBuffer,
    ) -> Result<(), TlsError> {
        if self.sending == Sending::Closed {
            return Ok(());
        }
        self.sending = Sending::Closed;
        let level = match alert {
            AlertDescription::CloseNotify => WARNING,
            _ => FATAL,
        };
        self.seal_whole(ContentType::Alert, &[level, alert.into()], out)
    }

    pub(crate) fn seal_whole(
        &mut self,
        content: ContentType,
        plaintext: &[u8],
        out: &mut SendBuffer,
    ) -> Result<(), TlsError> {
        let fill = |slot: &mut [u8]| {
            slot[..plaintext.len()].copy_from_slice(plaintext);
            plaintext.len()
        };
        let sealed = self.sealing.seal(out, content, fill);
        sealed.map(|_| ()).map_err(TlsError::Local)
    }

    /// Asks for `close_notify` after the records sealed so far.
    pub(crate) fn close(&mut self) {
        if self.sending == Sending::Open {
            self.sending = Sending::Closing;
        }
    }
}

/// The levels of alerts.
const WARNING: u8 = 1;
const FATAL: u8 = 2;
