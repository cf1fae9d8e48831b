//! Verification of servers by clients.

use rustls::CertificateError;

use super::*;

fn pinned(pins: &[Pin]) -> Arc<ClientConfig> {
    client(&ServerTrust::Pins(pins.to_vec()))
}

// PROTOCOL TLS-1 (no SNI for an address), TLS-2.
#[test]
fn pinned_key_is_accepted_under_any_name() {
    let own = identity::ephemeral().expect("made");
    for name in ["example.net", "localhost", "192.0.2.1", "2001:db8::1"] {
        handshake(&pinned(&[own.pin]), &server(&own), name).both();
    }
    handshake(
        &pinned(&[Pin([0; 32]), own.pin]),
        &server(&own),
        "example.net",
    )
    .both();
}

// PROTOCOL TLS-2.
#[test]
fn other_key_than_the_pinned_is_refused_and_named() {
    let (own, other) = (
        identity::ephemeral().expect("made"),
        identity::ephemeral().expect("made"),
    );
    let outcome = handshake(&pinned(&[other.pin]), &server(&own), "example.net");
    assert!(outcome.server.is_err());
    let error = outcome.client_refuses();
    let rustls::Error::InvalidCertificate(CertificateError::Other(cause)) = &error else {
        panic!("{error:?}");
    };
    let cause = cause.0.downcast_ref::<PinMismatch>().expect("the reason");
    assert_eq!(*cause, PinMismatch { found: own.pin });
    assert!(error.to_string().contains(&own.pin.to_string()), "{error}");
}

// PROTOCOL TLS-2.
#[test]
fn pinned_certificate_without_its_key_is_refused() {
    let (own, thief) = (
        identity::ephemeral().expect("made"),
        identity::ephemeral().expect("made"),
    );
    let key = any_supported_type(&thief.key).expect("a key");
    let impostor = server_showing(own.chain.clone(), key);
    let error = handshake(&pinned(&[own.pin]), &impostor, "example.net").client_refuses();
    assert_eq!(error, CertificateError::BadSignature.into());

    // The same impostor passes a client that trusts any server, so the check above is what stopped it.
    handshake(&client(&ServerTrust::Insecure), &impostor, "example.net").both();
}

// PROTOCOL TLS-2.
#[test]
fn pinned_expired_certificate_is_accepted() {
    let pki = Pki::new();
    let mut params = CertificateParams::new(vec!["other.example".to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2001, 1, 2);
    let files = pki.issue_with(&pki.authority("ca"), "old", &params);
    let own = identity::load_files(&files).expect("a pair");
    handshake(&pinned(&[own.pin]), &server(&own), "example.net").both();
}

// PROTOCOL TLS-4, HAZARD-2.
#[test]
fn insecure_client_accepts_the_original_server() {
    let original = server_showing(vec![original_certificate()], Arc::new(NoiseSigner));
    for name in ["example.net", "192.0.2.1"] {
        handshake(&client(&ServerTrust::Insecure), &original, name).both();
    }
    handshake(
        &client(&ServerTrust::Insecure),
        &server(&identity::ephemeral().expect("made")),
        "example.net",
    )
    .both();
}

// PROTOCOL TLS-4, HAZARD-2.
#[test]
fn only_the_insecure_client_accepts_the_original_server() {
    let pki = Pki::new();
    let original = server_showing(vec![original_certificate()], Arc::new(NoiseSigner));
    let pin = identity::pin_of(&original_certificate()).expect("a pin");
    // The key is the pinned one, but the client cannot verify that the server holds it.
    handshake(&pinned(&[pin]), &original, "example.net").client_refuses();

    let ca = pki.authority("ca").file;
    handshake(
        &client(&ServerTrust::Authorities(Some(ca))),
        &original,
        "example.net",
    )
    .client_refuses();
}

#[test]
fn no_pin_at_all_is_an_error() {
    let none = ServerTrust::Pins(Vec::new());
    let error =
        client_config(&none, &ClientIdentity::default(), Offer::Both, None).expect_err("no pin");
    assert!(matches!(error, TlsError::NoPins));
}
