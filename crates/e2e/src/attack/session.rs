//! TLS sessions that tamper with packets, between the QUIC library, which keeps the connection valid, and the cipher.
//!
//! The library writes a packet and passes its plaintext to the packet key. The key replaces some frames before
//! encryption, and the library believes that they were sent. For received packets, the key reports a decryption failure
//! if the packet is to be missed: the packet and its retransmissions are never acknowledged.
//!
//! Arbitrary frames travel as the content of DATAGRAM frames (RFC 9221). The session makes the library believe that the
//! server accepts these. The key turns the DATAGRAM header into PADDING, so that the server reads the content as
//! frames.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use quictun_trust::identity;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use super::frame;

/// The changes made to packets.
#[derive(Clone, Debug, Default)]
pub struct Tamper {
    /// STREAM frames with one of these bytes are never sent, on any stream. The caller must make the library send these
    /// bytes in separate frames.
    pub withhold: Range<u64>,
    /// Packets with a STREAM frame that carries one of these bytes are treated as never received.
    pub miss: Range<u64>,
    /// True if packets are searched for content made by [`disguised`].
    pub frames: bool,
}

/// Returns the TLS configuration of hostile clients that offer this protocol (ALPN), show certificates of `chain` bytes,
/// and trust any server. The server's initial connection-level credit in bytes is stored in `granted`.
///
/// # Errors
///
/// Fails if the TLS library lacks a feature that QUIC needs.
pub fn client_config(
    protocol: &[u8],
    chain: usize,
    tamper: Tamper,
    granted: Arc<AtomicU64>,
) -> Result<Arc<dyn ClientConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = if chain == 0 {
        config.with_no_client_auth()
    } else {
        let own = identity::ephemeral()?;
        let leaf = own.chain.first().context("no certificate")?.clone();
        let count = (chain / leaf.len()).max(1);
        config.with_client_auth_cert(vec![leaf; count], own.key.clone_key())?
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    let inner = Arc::new(QuicClientConfig::try_from(config)?);
    Ok(Arc::new(HostileConfig {
        inner,
        tamper: Arc::new(tamper),
        granted,
    }))
}

/// Returns the content of a DATAGRAM frame that arrives as these frames instead.
pub fn disguised(frames: &[u8]) -> Bytes {
    let mut content = BytesMut::with_capacity(MARK.len() + frames.len());
    content.extend_from_slice(MARK);
    content.extend_from_slice(frames);
    // From 64 bytes on, the frame's length takes two bytes, so its header has a constant size.
    content.resize(content.len().max(LEAST), 0);
    content.freeze()
}

/// The number of bytes that [`disguised`] adds in front.
pub const DISGUISE: usize = MARK.len();

/// Marks the content of a disguised DATAGRAM frame. The mark occurs nowhere else, because attackers send zeros and
/// targets.
const MARK: &[u8; 16] = b"\xf1frames-inside\xf1\xf2";

/// The shortest content whose length takes two bytes.
const LEAST: usize = 64;

/// The size of type and length of a DATAGRAM frame with at least [`LEAST`] bytes.
const HEADER: usize = 3;

/// The id of the transport parameter `initial_max_data` (RFC 9000 section 18.2).
const INITIAL_MAX_DATA: u64 = 0x04;

/// The encoded transport parameter `max_datagram_frame_size` with value 65535.
const TAKES_DATAGRAMS: [u8; 6] = [0x20, 0x04, 0x80, 0x00, 0xff, 0xff];

struct HostileConfig {
    inner: Arc<QuicClientConfig>,
    tamper: Arc<Tamper>,
    granted: Arc<AtomicU64>,
}

impl ClientConfig for HostileConfig {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = self
            .inner
            .clone()
            .start_session(version, server_name, params)?;
        Ok(Box::new(TamperingSession {
            inner,
            tamper: self.tamper.clone(),
            granted: self.granted.clone(),
        }))
    }
}

struct TamperingSession {
    inner: Box<dyn Session>,
    tamper: Arc<Tamper>,
    granted: Arc<AtomicU64>,
}

impl TamperingSession {
    fn pair(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let wrap = |inner| -> Box<dyn PacketKey> {
            Box::new(TamperingKey {
                inner,
                tamper: self.tamper.clone(),
            })
        };
        KeyPair {
            local: wrap(keys.local),
            remote: wrap(keys.remote),
        }
    }
}

impl Session for TamperingSession {
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

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(said) = self.inner.transport_parameters()? else {
            return Ok(None);
        };
        let mut text = Vec::new();
        said.write(&mut text);
        if let Some(most) = parameter(&text, INITIAL_MAX_DATA) {
            self.granted.store(most, Ordering::Relaxed);
        }
        text.extend_from_slice(&TAKES_DATAGRAMS);
        // An error means that the server already announced DATAGRAM support: nothing needs to be added.
        let amended = TransportParameters::read(Side::Client, &mut &text[..]);
        Ok(Some(amended.unwrap_or(said)))
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.inner.write_handshake(buf)?;
        Some(Keys {
            header: keys.header,
            packet: self.pair(keys.packet),
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_1rtt_keys()?;
        Some(self.pair(keys))
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

struct TamperingKey {
    inner: Box<dyn PacketKey>,
    tamper: Arc<Tamper>,
}

/// Returns true if a packet has a short header, as packets of established connections do (RFC 9000 section 17.3).
fn is_short(header: &[u8]) -> bool {
    header.first().is_some_and(|first| first & 0x80 == 0)
}

impl PacketKey for TamperingKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        if is_short(buf) {
            let end = buf.len() - self.inner.tag_len();
            let payload = &mut buf[header_len..end];
            if self.tamper.frames {
                undisguise(payload);
            }
            withhold(payload, &self.tamper.withhold);
        }
        self.inner.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)?;
        let miss = &self.tamper.miss;
        let missed = !miss.is_empty()
            && is_short(header)
            && frame::stream_frames(payload)
                .iter()
                .any(|frame| frame.touches(miss));
        if missed { Err(CryptoError) } else { Ok(()) }
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

/// Turns the header and the mark of each disguised DATAGRAM frame into PADDING.
fn undisguise(payload: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = payload[from..]
        .windows(MARK.len())
        .position(|window| window == MARK)
    {
        let mark = from + at;
        from = mark + MARK.len();
        payload[mark.saturating_sub(HEADER)..from].fill(0);
    }
}

/// Turns each STREAM frame with one of these bytes into a PING and PADDING. The peer acknowledges the packet, so the
/// library does not send the frame again.
fn withhold(payload: &mut [u8], bytes: &Range<u64>) {
    if bytes.is_empty() {
        return;
    }
    for frame in frame::stream_frames(payload) {
        if frame.touches(bytes) {
            payload[frame.at.clone()].fill(0);
            payload[frame.at.start] = frame::PING;
        }
    }
}

/// Returns the value of an integer transport parameter.
fn parameter(mut text: &[u8], wanted: u64) -> Option<u64> {
    loop {
        let name = frame::take_varint(&mut text)?;
        let length = usize::try_from(frame::take_varint(&mut text)?).ok()?;
        let (mut value, rest) = text.split_at_checked(length)?;
        if name == wanted {
            return frame::take_varint(&mut value);
        }
        text = rest;
    }
}

/// Accepts any certificate, because the server's identity does not matter here.
#[derive(Debug)]
pub(super) struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC uses TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = aws_lc_rs::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disguised_frames_arrive_unchanged() {
        let mut frames = Vec::new();
        frame::put_stream(&mut frames, 8, 5, b"x", false);
        let content = disguised(&frames);
        // A PING, then a DATAGRAM frame with a length of two bytes.
        let mut payload = vec![frame::PING, 0x31, 0x40];
        payload.push(u8::try_from(content.len()).expect("the content is shorter than 256 bytes"));
        payload.extend_from_slice(&content);
        undisguise(&mut payload);
        let found = frame::stream_frames(&payload);
        assert_eq!((found.len(), found[0].offset, found[0].len), (1, 5, 1));
        assert!(!payload.contains(&0x31), "{payload:?}");
    }

    #[test]
    fn a_transport_parameter_is_found_after_others() {
        let text = [0x01, 0x02, 0x40, 0x01, 0x04, 0x04, 0x80, 0x20, 0x00, 0x00];
        assert_eq!(parameter(&text, INITIAL_MAX_DATA), Some(2 << 20));
        assert_eq!(parameter(&text, 0x05), None);
    }

    #[test]
    fn a_withheld_frame_becomes_a_ping() {
        let mut payload = Vec::new();
        frame::put_stream(&mut payload, 0, 0, b"a", false);
        frame::put_stream(&mut payload, 0, 1, b"bc", false);
        withhold(&mut payload, &(0..1));
        assert_eq!(payload[0], frame::PING);
        let found = frame::stream_frames(&payload);
        assert_eq!((found.len(), found[0].offset), (1, 1));
    }
}
