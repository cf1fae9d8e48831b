//! The exporter of TLS (RFC 8446 section 7.5).
//!
//! rustls' connections without buffers do not export. Its key log does contain the exporter's secret, so each connection
//! has a key log of its own, which passes everything on to the configured one.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::crypto::tls13::OkmBlock;
use rustls::{KeyLog, SupportedCipherSuite};

/// The secret of a connection's exporter, once the TLS library has derived it.
pub(crate) struct ExporterSecret {
    secret: OnceLock<OkmBlock>,
    key_log: Arc<dyn KeyLog>,
}

impl ExporterSecret {
    pub(crate) fn new(key_log: Arc<dyn KeyLog>) -> Arc<Self> {
        Arc::new(Self {
            secret: OnceLock::new(),
            key_log,
        })
    }

    /// Returns the value for a label and an empty context.
    pub(crate) fn export(&self, suite: SupportedCipherSuite, label: &[u8]) -> Option<[u8; 32]> {
        let suite = suite.tls13()?;
        let empty_hash = suite.common.hash_provider.hash(b"");
        let empty_hash = empty_hash.as_ref();
        let hkdf = suite.hkdf_provider;
        let mut value = [0; 32];

        let info = hkdf_label(empty_hash.len(), label, empty_hash)?;
        let derived = hkdf
            .expander_for_okm(self.secret.get()?)
            .expand_block(&[&info]);
        let info = hkdf_label(value.len(), b"exporter", empty_hash)?;
        let expander = hkdf.expander_for_okm(&derived);
        expander.expand_slice(&[&info], &mut value).ok()?;
        Some(value)
    }
}

impl KeyLog for ExporterSecret {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if label == LABEL && secret.len() <= OkmBlock::MAX_LEN {
            self.secret.get_or_init(|| OkmBlock::new(secret));
        }
        if self.key_log.will_log(label) {
            self.key_log.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == LABEL || self.key_log.will_log(label)
    }
}

impl fmt::Debug for ExporterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExporterSecret").finish_non_exhaustive()
    }
}

/// Encodes an `HkdfLabel` (RFC 8446 section 7.1).
fn hkdf_label(len: usize, label: &[u8], context: &[u8]) -> Option<Vec<u8>> {
    const PREFIX: &[u8] = b"tls13 ";
    let mut info = u16::try_from(len).ok()?.to_be_bytes().to_vec();
    info.push(u8::try_from(PREFIX.len() + label.len()).ok()?);
    info.extend_from_slice(PREFIX);
    info.extend_from_slice(label);
    info.push(u8::try_from(context.len()).ok()?);
    info.extend_from_slice(context);
    Some(info)
}

/// The name of the exporter's secret in key logs.
const LABEL: &str = "EXPORTER_SECRET";
