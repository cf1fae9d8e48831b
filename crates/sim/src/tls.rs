//! Throw-away credentials: a self-signed server and a client that trusts exactly this server.
//!
//! All sizes are fixed (Ed25519, a serial number of one byte, no tickets), so that datagrams have the same lengths
//! in every run.

use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The name on the certificate.
pub const SERVER_NAME: &str = "server.test";

struct Credentials {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// One key pair per process: making one takes longer than most runs.
fn credentials() -> &'static Credentials {
    static CREDENTIALS: OnceLock<Credentials> = OnceLock::new();
    CREDENTIALS.get_or_init(|| {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)
            .expect("invariant: Ed25519 is supported");
        let mut parameters = rcgen::CertificateParams::new(vec![SERVER_NAME.to_owned()])
            .expect("invariant: the name is a DNS name");
        parameters.serial_number = Some(rcgen::SerialNumber::from(1));
        let certificate = parameters
            .self_signed(&key)
            .expect("invariant: the parameters are complete");
        Credentials {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der())
                .expect("invariant: rcgen writes PKCS#8"),
        }
    })
}

/// How a client agrees on keys. The shares of each group have one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// X25519: the `ClientHello` fits one datagram.
    Classical,
    /// X25519MLKEM768, with X25519 as the fall-back: the `ClientHello` takes two.
    PostQuantum,
}

fn provider(exchange: Exchange) -> Arc<CryptoProvider> {
    use aws_lc_rs::kx_group::{X25519, X25519MLKEM768};
    Arc::new(CryptoProvider {
        kx_groups: match exchange {
            Exchange::Classical => vec![X25519],
            Exchange::PostQuantum => vec![X25519MLKEM768, X25519],
        },
        ..aws_lc_rs::default_provider()
    })
}

/// A server that offers `protocols` (ALPN), and takes what a client prefers for the exchange of keys.
pub(crate) fn server(protocols: &[&[u8]]) -> Arc<ServerConfig> {
    let credentials = credentials();
    let mut config = ServerConfig::builder_with_provider(provider(Exchange::PostQuantum))
        .with_protocol_versions(&[&TLS13])
        .expect("invariant: the provider has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(
            vec![credentials.certificate.clone()],
            credentials.key.clone_key(),
        )
        .expect("invariant: key and certificate belong together");
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// A client that offers `protocols` (ALPN) and trusts the server of [`server`] only.
pub(crate) fn client(protocols: &[&[u8]], exchange: Exchange) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(credentials().certificate.clone())
        .expect("invariant: the certificate is well-formed");
    let mut config = ClientConfig::builder_with_provider(provider(exchange))
        .with_protocol_versions(&[&TLS13])
        .expect("invariant: the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}
