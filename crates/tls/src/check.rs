//! Properties of what a peer sends, which panic if they are violated, and the ends of a connection for tests.
//!
//! The fuzz targets in `fuzz/` call these functions, and so do the tests that replay the committed corpora. Not part of
//! the crate's interface.

use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};

use crate::{PLAINTEXT_MAX, SendBuffer, TlsError, TlsLimits, TlsStream};

/// The name in the server's certificate.
pub const NAME: &str = "server.test";

/// The protocol of both configurations.
pub const ALPN: &[u8] = b"test/1";

/// One end of a connection, with the bytes that have arrived at it.
#[derive(Debug)]
pub struct End {
    /// The connection under test.
    pub tls: TlsStream,
    /// Bytes that have arrived and were not handled.
    pub received: BytesMut,
    /// Plaintext that has arrived.
    pub plaintext: Vec<u8>,
}

impl End {
    /// Makes an end that has received nothing.
    pub fn new(tls: TlsStream) -> Self {
        Self {
            tls,
            received: BytesMut::new(),
            plaintext: Vec::new(),
        }
    }

    /// Handles bytes that arrive.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        self.received.extend_from_slice(bytes);
        while let Some(plaintext) = self.tls.poll_received(&mut self.received)? {
            assert!(!plaintext.is_empty() && plaintext.len() <= PLAINTEXT_MAX);
            self.plaintext.extend_from_slice(&plaintext);
        }
        Ok(())
    }

    /// Returns the bytes that are to be sent.
    pub fn output(&mut self) -> Vec<u8> {
        let mut out = SendBuffer::new();
        assert_eq!(self.tls.poll_transmit(&mut out), !out.is_empty());
        out.as_slice().to_vec()
    }

    /// Seals `data` in records of at most `len` bytes.
    pub fn seal(&mut self, data: &[u8], len: usize) -> Result<Vec<u8>, TlsError> {
        let mut out = SendBuffer::new();
        for chunk in data.chunks(len) {
            self.tls.seal(&mut out, |slot| {
                slot[..chunk.len()].copy_from_slice(chunk);
                chunk.len()
            })?;
        }
        Ok(out.as_slice().to_vec())
    }

    /// Seals a `KeyUpdate`, and changes the key.
    pub fn update_key(&mut self) -> Vec<u8> {
        let mut out = SendBuffer::new();
        self.tls.forge_key_update(&mut out);
        out.as_slice().to_vec()
    }

    /// Seals a record with this inner plaintext: content, its type, and padding (RFC 8446 section 5.2).
    pub fn forge(&mut self, inner: &[u8]) -> Vec<u8> {
        let mut out = SendBuffer::new();
        self.tls.forge(inner, &mut out);
        out.as_slice().to_vec()
    }
}

/// Returns the configurations of a client and a server that trust each other.
pub fn configs(suites: &[SupportedCipherSuite]) -> (ClientConfig, ServerConfig) {
    static CERTIFICATE: OnceLock<(CertificateDer<'static>, PrivateKeyDer<'static>)> =
        OnceLock::new();
    let (certificate, key) = CERTIFICATE.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let key = made.signing_key.serialize_der();
        let key = PrivateKeyDer::try_from(key).expect("a key");
        (made.cert.der().clone(), key)
    });
    let provider = Arc::new(CryptoProvider {
        cipher_suites: suites.to_vec(),
        ..aws_lc_rs::default_provider()
    });
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("suites of TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![ALPN.to_vec()];
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("suites of TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.clone_key())
        .expect("a key for the certificate");
    server.alpn_protocols = vec![ALPN.to_vec()];
    (client, server)
}

/// Returns the name of the server as rustls takes it.
pub fn server_name() -> ServerName<'static> {
    NAME.try_into().expect("a name")
}

/// Returns both ends of a new connection, the client first.
pub fn new_pair((client, server): &(ClientConfig, ServerConfig), limits: TlsLimits) -> (End, End) {
    let client = TlsStream::client(client, server_name(), limits).expect("a client");
    let server = TlsStream::server(server, limits).expect("a server");
    (End::new(client), End::new(server))
}

/// Returns both ends after the handshake.
pub fn established_pair(configs: &(ClientConfig, ServerConfig), limits: TlsLimits) -> (End, End) {
    let (mut client, mut server) = new_pair(configs, limits);
    pump(&mut client, &mut server).expect("a handshake");
    assert!(client.tls.is_established() && server.tls.is_established());
    (client, server)
}

/// Carries what each end sends to the other end, until neither sends.
pub fn pump(client: &mut End, server: &mut End) -> Result<(), TlsError> {
    loop {
        let (up, down) = (client.output(), server.output());
        if up.is_empty() && down.is_empty() {
            return Ok(());
        }
        server.handle(&up)?;
        client.handle(&down)?;
    }
}

/// Changes what arrives in a handshake, or replaces it.
///
/// The first byte chooses the end, and whether the other bytes replace the first flight of its peer, or change all
/// flights in groups of three: a position and a mask.
pub fn handshake(bytes: &[u8]) {
    let Some((&[mode], bytes)) = bytes.split_first_chunk() else {
        return;
    };
    let (mut client, mut server) = new_pair(default_configs(), TlsLimits::SERVER);
    let (victim, peer) = if mode & 1 == 0 {
        (&mut client, &mut server)
    } else {
        (&mut server, &mut client)
    };
    if mode & 2 == 0 {
        expect_stable(victim, bytes);
        return;
    }
    for _flight in 0..4 {
        let said = victim.output();
        if peer.handle(&said).is_err() {
            return;
        }
        let mut flight = peer.output();
        for change in bytes.chunks_exact(3) {
            let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
            if let Some(byte) = flight.get_mut(at) {
                *byte ^= change[2];
            }
        }
        if !expect_stable(victim, &flight) {
            return;
        }
    }
}

/// Sends forged records to an established end. The first byte chooses the end. Each group begins with its kind and a
/// length, and the bytes follow.
pub fn records(bytes: &[u8]) {
    let Some((&[mode], mut bytes)) = bytes.split_first_chunk() else {
        return;
    };
    let (mut client, mut server) = established_pair(default_configs(), TlsLimits::SERVER);
    let (victim, peer) = if mode & 1 == 0 {
        (&mut client, &mut server)
    } else {
        (&mut server, &mut client)
    };
    let (mut sent, mut has_forged) = (Vec::new(), false);
    while let Some((&[kind, len], rest)) = bytes.split_first_chunk() {
        let (body, rest) = rest.split_at(rest.len().min(len.into()));
        bytes = rest;
        has_forged |= kind % 4 < 2;
        let flight = match kind % 4 {
            0 => body.to_vec(),
            1 => peer.forge(body),
            2 => peer.update_key(),
            _ => {
                sent.extend_from_slice(body);
                peer.seal(body, PLAINTEXT_MAX).expect("an open direction")
            }
        };
        if !expect_stable(victim, &flight) {
            break;
        }
        assert!(has_forged || victim.plaintext == sent);
    }
}

/// Handles bytes, and returns false after an error, which must stay the same.
fn expect_stable(end: &mut End, bytes: &[u8]) -> bool {
    let Err(error) = end.handle(bytes) else {
        return true;
    };
    assert!(end.output().len() < PLAINTEXT_MAX, "an alert is short");
    assert!(end.output().is_empty());
    assert_eq!(end.handle(b"more"), Err(error.clone()));
    assert_eq!(end.tls.handle_end(), Err(error.clone()));
    assert_eq!(end.seal(b"data", 4), Err(error));
    false
}

fn default_configs() -> &'static (ClientConfig, ServerConfig) {
    static CONFIGS: OnceLock<(ClientConfig, ServerConfig)> = OnceLock::new();
    CONFIGS.get_or_init(|| configs(aws_lc_rs::DEFAULT_CIPHER_SUITES))
}
