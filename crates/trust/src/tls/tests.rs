//! Runs real handshakes in memory, between configurations made from settings.

mod authorities;
mod clients;
mod negotiation;
mod public;
mod servers;

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{
    ClientConnection, ConnectionCommon, ServerConnection, SignatureAlgorithm, SignatureScheme,
};
use tempfile::TempDir;

use super::*;
use crate::settings::CertificateFiles;

/// The result of a handshake at each side.
struct HandshakeResult {
    client: Result<ClientConnection, rustls::Error>,
    server: Result<ServerConnection, rustls::Error>,
}

impl HandshakeResult {
    #[track_caller]
    fn both(self) -> (ClientConnection, ServerConnection) {
        (
            self.client.expect("the client accepts"),
            self.server.expect("the server accepts"),
        )
    }

    #[track_caller]
    fn client_refuses(self) -> rustls::Error {
        self.client.expect_err("the client refuses")
    }

    #[track_caller]
    fn server_refuses(self) -> rustls::Error {
        self.server.expect_err("the server refuses")
    }
}

/// Carries bytes in both directions until both sides are silent.
fn handshake(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    name: &str,
) -> HandshakeResult {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(client.clone(), name).expect("a client");
    let mut server = ServerConnection::new(server.clone()).expect("a server");
    let (mut client_end, mut server_end) = (Ok(()), Ok(()));
    while client.wants_write() || server.wants_write() {
        carry(&mut client, &mut server, &mut server_end);
        carry(&mut server, &mut client, &mut client_end);
    }
    HandshakeResult {
        client: client_end.map(|()| client),
        server: server_end.map(|()| server),
    }
}

fn carry<F, T>(
    from: &mut ConnectionCommon<F>,
    to: &mut ConnectionCommon<T>,
    end: &mut Result<(), rustls::Error>,
) {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).expect("written to memory");
    }
    let mut bytes = bytes.as_slice();
    while end.is_ok() && !bytes.is_empty() {
        to.read_tls(&mut bytes).expect("read from memory");
        *end = to.process_new_packets().map(|_| ());
    }
}

/// A directory for keys and certificates.
struct Pki {
    dir: TempDir,
}

/// A certificate authority whose certificate is in a file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Pki {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        fs::write(self.path(name), content).expect("written");
        self.path(name)
    }

    fn authority(&self, name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let cert = params.self_signed(&key).expect("a certificate");
        let file = self.write(&format!("{name}.pem"), &cert.pem());
        Authority {
            issuer: Issuer::new(params, key),
            file,
        }
    }

    /// Issues a pair for `name` from an authority, and writes it to files.
    fn issue(&self, by: &Authority, name: &str) -> CertificateFiles {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        self.issue_with(by, name, &params)
    }

    fn issue_with(
        &self,
        by: &Authority,
        stem: &str,
        params: &CertificateParams,
    ) -> CertificateFiles {
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &by.issuer).expect("a certificate");
        CertificateFiles {
            cert: self.write(&format!("{stem}.crt"), &cert.pem()),
            key: self.write(&format!("{stem}.key"), &key.serialize_pem()),
        }
    }

    /// Generates a self-signed pair, and writes it to files.
    fn alone(&self, stem: &str) -> (CertificateFiles, Pin) {
        let pin = identity::generate(self.dir.path(), stem).expect("made");
        let cert = self.path(&format!("{stem}.crt"));
        (
            CertificateFiles {
                cert,
                key: self.path(&format!("{stem}.key")),
            },
            pin,
        )
    }
}

fn client_config(
    trust: &ServerTrust,
    identity: &ClientIdentity,
    offer: Offer,
    key_log: Option<&Path>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let shared = SharedConfig::open(key_log, Aead::AwsLc)?;
    Ok(client_configs(trust, identity, offer, &shared)?.0)
}

fn server_config(
    identity: &Identity,
    clients: &ClientCertPolicy,
    key_log: Option<&Path>,
) -> Result<Arc<ServerConfig>, TlsError> {
    server_with(
        identity,
        clients,
        PROTOCOLS,
        &SharedConfig::open(key_log, Aead::AwsLc)?,
    )
}

fn client(trust: &ServerTrust) -> Arc<ClientConfig> {
    client_with(trust, None)
}

fn client_with(trust: &ServerTrust, certificate: Option<&CertificateFiles>) -> Arc<ClientConfig> {
    let identity = ClientIdentity {
        certificate: certificate.cloned(),
        psk_file: None,
    };
    client_config(trust, &identity, Offer::Both, None).expect("a configuration")
}

fn server(identity: &Identity) -> Arc<ServerConfig> {
    server_config(identity, &ClientCertPolicy::NotRequested, None).expect("a configuration")
}

fn server_from(files: &CertificateFiles) -> Arc<ServerConfig> {
    server(&identity::load_files(files).expect("a pair"))
}

/// Returns the configuration of a server that presents this certificate, although it may not hold its key.
fn server_showing(
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
) -> Arc<ServerConfig> {
    let mut config = (*server(&identity::ephemeral().expect("made"))).clone();
    config.cert_resolver = Arc::new(CertificateResolver(Arc::new(CertifiedKey::new(chain, key))));
    Arc::new(config)
}

#[derive(Debug)]
struct CertificateResolver(Arc<CertifiedKey>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// A key that signs with noise as long as an RSA-1024 signature.
#[derive(Debug)]
struct NoiseSigner;

impl SigningKey for NoiseSigner {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        // Go chooses this scheme for a key of this size.
        offered
            .contains(&SignatureScheme::RSA_PSS_SHA256)
            .then(|| Box::new(NoiseSigner) as Box<dyn Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

impl Signer for NoiseSigner {
    fn sign(&self, _message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(vec![0x5a; 128])
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::RSA_PSS_SHA256
    }
}

/// Returns the certificate of the original server: RSA-1024, valid in the first second of the year 1.
fn original_certificate() -> CertificateDer<'static> {
    CertificateDer::from(include_bytes!("../../tests/fixtures/rsa1024.crt.der").as_slice())
}
