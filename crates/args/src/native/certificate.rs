//! The certificate that programs without quictun see: its flags, and the source that follows from them.

use std::net::SocketAddr;
use std::path::PathBuf;

use quictun_tunnel::settings::{AcmeSettings, CertificateSource};

use crate::address::parse_listen_or_port;
use crate::fault::Fault;
use crate::layers::Layers;
use crate::options;
use crate::options::{InvalidValue, Many, Maybe, One, Section, Switch};
use crate::values::{path, switch};

/// Most names of one certificate. Authorities permit 25 to 100.
const NAMES_MAX: usize = 25;

/// Longest name, and longest part of it (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

pub(super) static CERTIFICATE: Section = Section {
    heading: "Certificate for programs without quictun",
    options: &[
        &HTTPS_CERT,
        &HTTPS_KEY,
        &ACME,
        &ACME_ACCEPT_TERMS,
        &ACME_DIRECTORY,
        &ACME_CONTACT,
        &ACME_HTTP,
    ],
};

options! {
    pub(super) HTTPS_CERT: Maybe<PathBuf> = "https-cert" "FILE", by path, key "https.cert";
        "Certificate chain that programs see which use the HTTPS proxy, PEM; read again when it changes. Clients of quictun see that of --cert"
    pub(super) HTTPS_KEY: Maybe<PathBuf> = "https-key" "FILE", by path, key "https.key";
        "Private key of --https-cert, PEM"
    pub(super) ACME: Many<String> = "acme" "NAME", by host_name, key "https.acme";
        "Host name for which an authority issues the certificate instead, and renews it (ACME); repeatable. TCP port 443 of the name must lead to the TLS port"
    pub(super) ACME_ACCEPT_TERMS: Switch = "acme-accept-terms" "BOOL", by switch, key "https.acme_accept_terms";
        "Accept the terms of the authority of --acme"
    pub(super) ACME_DIRECTORY: One<String> = "acme-directory" "URL", by https_url, default "https://acme-v02.api.letsencrypt.org/directory", key "https.acme_directory";
        "Directory of the authority"
    pub(super) ACME_CONTACT: Maybe<String> = "acme-contact" "MAIL", by mail, key "https.acme_contact";
        "Address to which the authority may send mails"
    pub(super) ACME_HTTP: Maybe<SocketAddr> = "acme-http" "ADDR", by parse_listen_or_port, key "https.acme_http";
        "TCP address, or a port alone, on which the authority checks the names by HTTP instead; port 80 of the names must lead to it"
}

/// Parses a host name that can be in a certificate.
fn host_name(text: &str) -> Result<String, InvalidValue> {
    let bad = |why: &str| Err(format!("{text:?} is not a host name: {why}").into());
    if text.starts_with('*') {
        return bad(
            "authorities check a wildcard by DNS only, which is not supported; name each host",
        );
    }
    if text.parse::<std::net::IpAddr>().is_ok() {
        return bad("an address has no certificate; give a name such as web.example.org");
    }
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = text.len() <= NAME_MAX && text.contains('.') && text.split('.').all(is_label);
    if !is_name {
        return bad("give one such as web.example.org, in letters, digits and '-'");
    }
    Ok(text.to_ascii_lowercase())
}

fn https_url(text: &str) -> Result<String, InvalidValue> {
    let host = text.strip_prefix("https://").filter(|rest| {
        let plain = rest.bytes().all(|byte| byte.is_ascii_graphic());
        plain && !rest.is_empty() && !rest.starts_with('/')
    });
    match host {
        Some(_) => Ok(text.to_owned()),
        None => {
            Err(format!("{text:?} is not the URL of a directory: write https://HOST/PATH").into())
        }
    }
}

fn mail(text: &str) -> Result<String, InvalidValue> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    match text.split_once('@') {
        Some((user, host)) if is_plain && !user.is_empty() && !host.is_empty() => {
            Ok(text.to_owned())
        }
        _ => Err(format!("{text:?} is not the address of a mailbox: write USER@HOST").into()),
    }
}

/// Reads the source of the certificate, which only programs that use the HTTPS proxy see.
pub(super) fn certificate(
    layers: &Layers<'_>,
    https_proxy: bool,
) -> Result<Option<CertificateSource>, Fault> {
    let source = source(layers)?;
    let option: &dyn options::Flag = match &source {
        Some(_) if https_proxy => return Ok(source),
        None => return Ok(None),
        Some(CertificateSource::Files(_)) => &HTTPS_CERT,
        Some(CertificateSource::Acme(_)) => &ACME,
    };
    let why = "only programs that use the server as an HTTPS proxy see this certificate";
    Err(layers.fault(option, why).next("--https-proxy"))
}

fn source(layers: &Layers<'_>) -> Result<Option<CertificateSource>, Fault> {
    let files = layers.certificate((&HTTPS_CERT, "https-cert"), (&HTTPS_KEY, "https-key"))?;
    let (directory, contact) = (layers.get(&ACME_DIRECTORY)?, layers.get(&ACME_CONTACT)?);
    let listen_http = layers.get(&ACME_HTTP)?;
    let mut names: Vec<String> = Vec::new();
    for name in layers.get(&ACME)? {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        for option in [&ACME_CONTACT as &dyn options::Flag, &ACME_HTTP] {
            if layers.is_given(option) {
                return Err(layers.fault(option, "needs a host name: add --acme NAME"));
            }
        }
        return Ok(files.map(CertificateSource::Files));
    }
    if files.is_some() {
        let why = "contradicts https-cert: an authority issues the certificate, or files have it; keep one of them";
        return Err(layers.fault(&ACME, why));
    }
    if names.len() > NAMES_MAX {
        return Err(layers.fault(&ACME, format!("at most {NAMES_MAX} names")));
    }
    if !layers.get(&ACME_ACCEPT_TERMS)? {
        let fault = layers.fault(
            &ACME,
            "the authority issues nothing unless you accept its terms",
        );
        return Err(fault.next(
            "--acme-accept-terms, after reading them (of Let's Encrypt: https://letsencrypt.org/repository)",
        ));
    }
    Ok(Some(CertificateSource::Acme(AcmeSettings {
        names,
        directory,
        contact,
        listen_http,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_urls_and_mails_are_plain() {
        for good in ["web.example.org", "a-b.c1.example", "WEB.example"] {
            assert_eq!(host_name(good).expect(good), good.to_ascii_lowercase());
        }
        let long = format!("{}.example", "x".repeat(LABEL_MAX + 1));
        for bad in [
            "",
            "web",
            "*.example.org",
            "192.0.2.1",
            "::1",
            "a..b",
            "-a.example",
            "a_b.example",
            "ä.example",
            &long,
        ] {
            assert!(host_name(bad).is_err(), "{bad}");
        }
        assert!(https_url("https://127.0.0.1:14000/dir").is_ok());
        for bad in [
            "",
            "https://",
            "http://authority/",
            "https:///x",
            "https://a b",
        ] {
            assert!(https_url(bad).is_err(), "{bad}");
        }
        assert!(mail("ops@example.org").is_ok());
        for bad in ["ops", "@x", "ops@", "a b@c"] {
            assert!(mail(bad).is_err(), "{bad}");
        }
    }
}
