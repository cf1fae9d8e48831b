//! Throw-away credentials: a self-signed server certificate, and a client that trusts only this certificate.
//!
//! All sizes are fixed (Ed25519, a serial number of one byte, no tickets), so that datagrams have the same lengths in
//! every run.

use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The server name in the certificate.
pub const SERVER_NAME: &str = "server.test";

struct TestCredentials {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// Returns the key pair of all servers, or that of `others` which no client trusts. There are only two in a process,
/// because generating one takes longer than most runs.
fn credentials(others: bool) -> &'static TestCredentials {
    static CREDENTIALS: [OnceLock<TestCredentials>; 2] = [OnceLock::new(), OnceLock::new()];
    CREDENTIALS[usize::from(others)].get_or_init(|| {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)
            .expect("invariant: Ed25519 is supported");
        let mut parameters = rcgen::CertificateParams::new(vec![SERVER_NAME.to_owned()])
            .expect("invariant: the name is a DNS name");
        parameters.serial_number = Some(rcgen::SerialNumber::from(1));
        let certificate = parameters
            .self_signed(&key)
            .expect("invariant: the parameters are complete");
        TestCredentials {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der())
                .expect("invariant: rcgen writes PKCS#8"),
        }
    })
}

/// The key exchange that a client offers. All key shares of a group have the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferedKeyExchange {
    /// X25519: the `ClientHello` fits into one datagram.
    Classical,
    /// X25519MLKEM768, with X25519 as the fallback: the `ClientHello` takes two datagrams.
    PostQuantum,
}

fn provider(exchange: OfferedKeyExchange) -> Arc<CryptoProvider> {
    use aws_lc_rs::kx_group::{X25519, X25519MLKEM768};
    Arc::new(CryptoProvider {
        kx_groups: match exchange {
            OfferedKeyExchange::Classical => vec![X25519],
            OfferedKeyExchange::PostQuantum => vec![X25519MLKEM768, X25519],
        },
        ..aws_lc_rs::default_provider()
    })
}

/// Returns the configuration of a server that offers `protocols` (ALPN) and accepts both key exchanges.
pub(crate) fn server(protocols: &[&[u8]]) -> Arc<ServerConfig> {
    server_with(credentials(false), protocols)
}

/// Returns the configuration of a server that no client trusts.
pub(crate) fn impostor(protocols: &[&[u8]]) -> Arc<ServerConfig> {
    server_with(credentials(true), protocols)
}

fn server_with(credentials: &TestCredentials, protocols: &[&[u8]]) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider(OfferedKeyExchange::PostQuantum))
        .with_protocol_versions(&[&TLS13])
        .expect("invariant: the provider supports TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(
            vec![credentials.certificate.clone()],
            credentials.key.clone_key(),
        )
        .expect("invariant: the certificate is for this key");
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// Returns the configuration of a client that offers `protocols` (ALPN) and trusts only the server of [`server`].
pub(crate) fn client(protocols: &[&[u8]], exchange: OfferedKeyExchange) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(credentials(false).certificate.clone())
        .expect("invariant: the certificate is well-formed");
    let mut config = ClientConfig::builder_with_provider(provider(exchange))
        .with_protocol_versions(&[&TLS13])
        .expect("invariant: the provider supports TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}
