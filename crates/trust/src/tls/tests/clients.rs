//! Tests of the client certificates that a server accepts.

use rustls::CertificateError;
use rustls::client::ResolvesClientCert;

use super::*;
use crate::settings::{ClientLimits, Guard, NamedClient};

const ANYONE: ServerTrust = ServerTrust::Insecure;

fn asking(policy: &ClientCertPolicy) -> Arc<ServerConfig> {
    server_config(&identity::ephemeral().expect("made"), policy, None).expect("a configuration")
}

fn attempt(policy: &ClientCertPolicy, certificate: Option<&CertificateFiles>) -> HandshakeResult {
    handshake(
        &client_with(&ANYONE, certificate),
        &asking(policy),
        "example.net",
    )
}

/// Connects a client, and returns the pin that the server saw, if any.
#[track_caller]
fn seen(outcome: HandshakeResult) -> Option<Pin> {
    let (_, server) = outcome.both();
    server
        .peer_certificates()
        .map(|certs| identity::pin_of(&certs[0]).expect("a pin"))
}

#[test]
fn certificate_that_is_not_requested_is_not_sent() {
    let pki = Pki::new();
    let (own, _) = pki.alone("laptop");
    assert_eq!(
        seen(attempt(&ClientCertPolicy::NotRequested, Some(&own))),
        None
    );
}

#[test]
fn client_certificates_are_really_required() {
    let pki = Pki::new();
    let (ca, other) = (pki.authority("ca"), pki.authority("other"));
    let policy = ClientCertPolicy::Required(ca.file.clone());

    let absent = attempt(&policy, None).server_refuses();
    assert_eq!(absent, rustls::Error::NoCertificatesPresented);
    let stranger = attempt(&policy, Some(&pki.issue(&other, "stranger"))).server_refuses();
    assert_eq!(stranger, CertificateError::UnknownIssuer.into());
    attempt(&policy, Some(&pki.alone("alone").0)).server_refuses();

    let own = pki.issue(&ca, "laptop");
    let pin = identity::load_files(&own).expect("a pair").pin;
    assert_eq!(seen(attempt(&policy, Some(&own))), Some(pin));
}

#[test]
fn any_certificate_is_accepted_where_the_key_decides_later() {
    let pki = Pki::new();
    let (own, pin) = pki.alone("laptop");
    assert_eq!(seen(attempt(&ClientCertPolicy::Any, Some(&own))), Some(pin));
    assert_eq!(seen(attempt(&ClientCertPolicy::Any, None)), None);
}

#[test]
fn authorities_and_pins_accept_each_their_own() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let (pinned, pin) = pki.alone("pinned");
    let policy = ClientCertPolicy::Known {
        ca: ca.file.clone(),
        pins: vec![pin],
    };

    assert_eq!(seen(attempt(&policy, None)), None);
    assert_eq!(seen(attempt(&policy, Some(&pinned))), Some(pin));
    assert!(seen(attempt(&policy, Some(&pki.issue(&ca, "laptop")))).is_some());
}

// PROTOCOL JOIN-1: only the certificate's key counts, which an invitation may make known.
#[test]
fn a_certificate_that_a_client_has_issued_for_itself_shows_its_key_only() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let policy = ClientCertPolicy::Known {
        ca: ca.file.clone(),
        pins: vec![],
    };
    let (alone, pin) = pki.alone("stranger");
    assert_eq!(seen(attempt(&policy, Some(&alone))), Some(pin));
    let other = pki.authority("other");
    attempt(&policy, Some(&pki.issue(&other, "guest"))).server_refuses();
}

// PROTOCOL TLS-5.
#[test]
fn certificate_without_its_key_is_refused() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let own = identity::load_files(&pki.issue(&ca, "laptop")).expect("a pair");
    let thief = identity::ephemeral().expect("made");
    let key = any_supported_type(&thief.key).expect("a key");
    let mut config = (*client(&ANYONE)).clone();
    config.client_auth_cert_resolver = Arc::new(StolenCertificate(Arc::new(CertifiedKey::new(
        own.chain.clone(),
        key,
    ))));
    let config = Arc::new(config);

    for policy in [
        ClientCertPolicy::Any,
        ClientCertPolicy::Required(ca.file.clone()),
        ClientCertPolicy::Known {
            ca: ca.file.clone(),
            pins: vec![own.pin],
        },
    ] {
        let error = handshake(&config, &asking(&policy), "example.net").server_refuses();
        assert_eq!(error, CertificateError::BadSignature.into(), "{policy:?}");
    }
}

#[derive(Debug)]
struct StolenCertificate(Arc<CertifiedKey>);

impl ResolvesClientCert for StolenCertificate {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[test]
fn unusable_client_certificate_is_an_error_before_any_connection() {
    let pki = Pki::new();
    let (own, _) = pki.alone("laptop");
    let (other, _) = pki.alone("other");
    let mixed = CertificateFiles {
        cert: own.cert,
        key: other.key,
    };
    let identity = ClientIdentity {
        certificate: Some(mixed),
        psk_file: None,
    };
    let error = client_config(&ANYONE, &identity, Offer::Both, None).expect_err("a mixed pair");
    assert!(
        matches!(error, TlsError::Identity(IdentityError::Mismatch { .. })),
        "{error:?}"
    );
}

#[test]
fn rsa_1024_client_key_is_refused_with_any_authority() {
    let mut config = (*client(&ANYONE)).clone();
    let shown = CertifiedKey::new(vec![original_certificate()], Arc::new(NoiseSigner));
    config.client_auth_cert_resolver = Arc::new(StolenCertificate(Arc::new(shown)));
    let outcome = handshake(
        &Arc::new(config),
        &asking(&ClientCertPolicy::Any),
        "example.net",
    );
    let error = outcome.server_refuses();
    assert!(
        matches!(error, rustls::Error::InvalidCertificate(_)),
        "{error:?}"
    );
}

#[test]
fn access_settings_decide_which_certificate_is_requested() {
    let ca = PathBuf::from("/ca.pem");
    let guard = Guard::default();
    assert_eq!(
        ClientCertPolicy::of(&Access::Open { ca: None, guard }),
        ClientCertPolicy::NotRequested
    );
    assert_eq!(
        ClientCertPolicy::of(&Access::Open {
            ca: Some(ca.clone()),
            guard
        }),
        ClientCertPolicy::Required(ca.clone())
    );
    let named = |name: &str, proofs| NamedClient {
        name: name.to_owned(),
        proofs,
        allow: vec![],
        listen: Vec::new(),
        limits: ClientLimits::default(),
        names_sources: false,
    };
    let clients = vec![
        named(
            "a",
            vec![
                ClientProof::PskFile("/psk".into()),
                ClientProof::Pin(Pin([1; 32])),
            ],
        ),
        named(
            "b",
            vec![ClientProof::CertificateName, ClientProof::Pin(Pin([2; 32]))],
        ),
    ];
    assert_eq!(
        ClientCertPolicy::of(&Access::Named {
            clients: clients.clone(),
            ca: None
        }),
        ClientCertPolicy::Any
    );
    assert_eq!(
        ClientCertPolicy::of(&Access::Named {
            clients,
            ca: Some(ca.clone())
        }),
        ClientCertPolicy::Known {
            ca,
            pins: vec![Pin([1; 32]), Pin([2; 32])]
        }
    );
}
