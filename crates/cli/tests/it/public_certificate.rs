//! The certificate that programs without quictun see: one source, and terms that are accepted.

use quictun_tunnel::settings::{AcmeSettings, CertificateSource};

use crate::test_inputs::{TestInputs, fault};

fn inputs() -> TestInputs {
    TestInputs::default()
        .file("web.crt", "")
        .file("web.key", "")
}

#[test]
fn the_certificate_is_in_files_or_from_an_authority() {
    let source = |line: &str| {
        let server = inputs().native_server(&format!("server --https-proxy {line}"));
        server.expect("a server").settings.certificate
    };
    assert_eq!(source(""), None);
    let files = source("--https-cert web.crt --https-key web.key");
    assert!(
        matches!(files, Some(CertificateSource::Files(_))),
        "{files:?}"
    );
    let acme = source(
        "--acme WEB.example.org --acme www.example.org --acme web.example.org --acme-accept-terms --acme-http 80",
    );
    let expected = AcmeSettings {
        names: vec!["web.example.org".to_owned(), "www.example.org".to_owned()],
        directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
        contact: None,
        listen_http: Some("[::]:80".parse().expect("an address")),
    };
    assert_eq!(acme, Some(CertificateSource::Acme(expected)));
}

#[test]
fn what_is_missing_or_contradicts_is_said_with_the_next_step() {
    let names: Vec<String> = (0..26)
        .map(|n| format!("--acme n{n}.example.org"))
        .collect();
    for (line, words) in [
        ("--https-cert web.crt", "add https-key"),
        ("--https-key web.key", "add https-cert"),
        (
            "--https-cert gone.crt --https-key web.key",
            "cannot read gone.crt",
        ),
        (
            "--https-cert web.crt --https-key web.key --acme web.example.org",
            "contradicts https-cert",
        ),
        ("--acme web.example.org", "unless you accept its terms"),
        ("--acme localhost --acme-accept-terms", "not a host name"),
        ("--acme *.example.org --acme-accept-terms", "by DNS only"),
        ("--acme-contact ops@example.org", "add --acme NAME"),
        ("--acme-http 80", "add --acme NAME"),
        (
            "--acme-directory http://authority.example/",
            "https://HOST/PATH",
        ),
        (&names.join(" "), "at most 25 names"),
        (
            "--https-cert web.crt --https-key web.key",
            "only programs that use the server as an HTTPS proxy",
        ),
        (
            "--acme web.example.org --acme-accept-terms",
            "only programs that use the server as an HTTPS proxy",
        ),
    ] {
        let (message, _) = fault(inputs().native(&format!("server {line}")));
        assert!(message.contains(words), "{line}: {message}");
    }
}
