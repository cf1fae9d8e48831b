//! Servers whose certificate an authority has signed, and files that contain no usable authority.

use rustls::CertificateError;

use super::*;

fn trusting(ca: PathBuf) -> Arc<ClientConfig> {
    client(&ServerTrust::Authorities(Some(ca)))
}

// PROTOCOL TLS-3.
#[test]
fn server_of_the_authority_is_accepted_under_its_name() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let named = server_from(&pki.issue(&ca, "vm.example"));
    handshake(&trusting(ca.file.clone()), &named, "vm.example").both();
    let error = handshake(&trusting(ca.file.clone()), &named, "other.example").client_refuses();
    assert!(
        matches!(
            error,
            rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })
        ),
        "{error:?}"
    );

    let numbered = server_from(&pki.issue(&ca, "192.0.2.7"));
    handshake(&trusting(ca.file.clone()), &numbered, "192.0.2.7").both();
    handshake(&trusting(ca.file), &numbered, "192.0.2.8").client_refuses();
}

// PROTOCOL TLS-3.
#[test]
fn server_of_another_authority_is_refused() {
    let pki = Pki::new();
    let (ca, other) = (pki.authority("ca"), pki.authority("other"));
    let own = server_from(&pki.issue(&ca, "vm.example"));
    let error = handshake(&trusting(other.file), &own, "vm.example").client_refuses();
    assert_eq!(error, CertificateError::UnknownIssuer.into());
}

// PROTOCOL TLS-3.
#[test]
fn expired_server_is_refused() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let mut params = CertificateParams::new(vec!["vm.example".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(2001, 1, 2);
    let own = server_from(&pki.issue_with(&ca, "old", &params));
    let error = handshake(&trusting(ca.file), &own, "vm.example").client_refuses();
    assert!(matches!(
        error,
        rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { .. })
    ));
}

#[test]
fn self_signed_server_certificate_works_as_its_own_authority() {
    let pki = Pki::new();
    let (files, _) = pki.alone("vm.example");
    handshake(
        &trusting(files.cert.clone()),
        &server_from(&files),
        "vm.example",
    )
    .both();
}

/// Returns the error that both sides give for these authorities.
fn refused(ca: &Path) -> AuthoritiesError {
    let trust = ServerTrust::Authorities(Some(ca.to_owned()));
    let client = client_config(&trust, &ClientIdentity::default(), Offer::Both, None);
    let own = identity::ephemeral().expect("made");
    for policy in [
        ClientCertPolicy::Required(ca.to_owned()),
        ClientCertPolicy::Known {
            ca: ca.to_owned(),
            pins: vec![own.pin],
        },
    ] {
        let server = server_config(&own, &policy, None);
        assert!(
            matches!(server, Err(TlsError::Authorities(_))),
            "{server:?}"
        );
    }
    match client {
        Err(TlsError::Authorities(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn authorities_that_are_missing_or_empty_are_an_error() {
    let pki = Pki::new();
    let missing = refused(&pki.path("missing.pem"));
    assert!(
        matches!(missing, AuthoritiesError::Read { .. }),
        "{missing:?}"
    );
    assert!(missing.to_string().contains("missing.pem"));

    let empty = refused(&pki.write("empty.pem", ""));
    assert!(matches!(empty, AuthoritiesError::Empty { .. }), "{empty:?}");

    // Neither a key nor plain text is an authority.
    let key = KeyPair::generate().expect("a key").serialize_pem();
    assert!(matches!(
        refused(&pki.write("key.pem", &key)),
        AuthoritiesError::Empty { .. }
    ));
    assert!(matches!(
        refused(&pki.write("text.pem", "hello\n")),
        AuthoritiesError::Empty { .. }
    ));

    let cut = refused(&pki.write("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n"));
    assert!(matches!(cut, AuthoritiesError::Pem { .. }), "{cut:?}");

    let good = fs::read_to_string(pki.authority("ca").file).expect("PEM");
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let second = refused(&pki.write("second.pem", &(good + nonsense)));
    assert!(
        matches!(second, AuthoritiesError::Unusable(_, 2, _)),
        "{second:?}"
    );

    assert!(matches!(
        refused(pki.dir.path()),
        AuthoritiesError::Read { .. }
    ));
}
