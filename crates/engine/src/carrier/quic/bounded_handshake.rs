//! Limits the bytes of TLS handshakes that a server reads from a client.
//!
//! The TLS library keeps a client's certificates, and the buffer in which they arrived, as long as the connection. A
//! chain of 60 kB took 120 KiB. The limit acts before the library sees the bytes beyond it (PROTOCOL AUTH-10).

use std::any::Any;
use std::sync::Arc;

use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};

/// Limit for the bytes that a client sends in its handshake. A `ClientHello` with ML-KEM has 1.8 kB, and a chain of three
/// certificates with RSA keys of 4096 bits 6 kB.
const BYTES_MAX: usize = 16 * 1024;

/// A TLS configuration whose sessions read few bytes.
pub(super) struct BoundedConfig(pub(super) Arc<dyn ServerConfig>);

struct BoundedSession {
    inner: Box<dyn Session>,
    left: usize,
}

impl ServerConfig for BoundedConfig {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.0.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        Box::new(BoundedSession {
            inner: self.0.clone().start_session(version, params),
            left: BYTES_MAX,
        })
    }
}

impl Session for BoundedSession {
    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let Some(left) = self.left.checked_sub(buf.len()) else {
            return Err(TransportError {
                code: TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
                frame: None,
                reason: "the handshake is too long: are all certificates of the chain needed?"
                    .to_owned(),
            });
        };
        self.left = left;
        self.inner.read_handshake(buf)
    }

    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.inner.write_handshake(buf)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.inner.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::crypto::rustls::QuicServerConfig;
    use rustls::server::ResolvesServerCertUsingSni;

    use super::*;

    // PROTOCOL AUTH-10: at the limit, and one above it.
    #[test]
    fn a_handshake_is_refused_at_its_limit_before_the_tls_library_sees_the_rest() {
        let tls = rustls::ServerConfig::builder_with_provider(
            rustls::crypto::aws_lc_rs::default_provider().into(),
        )
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider supports TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let quic = QuicServerConfig::try_from(tls).expect("a suite for QUIC");
        let config = Arc::new(BoundedConfig(Arc::new(quic)));
        let nothing = TransportParameters::read(Side::Server, &mut &[][..]).expect("no parameters");
        let mut session = config.start_session(1, &nothing);
        // A `ClientHello` that announces 64 KiB.
        let mut hello = vec![0; BYTES_MAX];
        hello[..4].copy_from_slice(&[1, 0, 0xff, 0xff]);
        assert_eq!(session.read_handshake(&hello), Ok(false));
        let error = session.read_handshake(&[0]).expect_err("one more");
        assert_eq!(error.code, TransportErrorCode::CRYPTO_BUFFER_EXCEEDED);
    }
}
