//! Creates, keeps, loads and refuses keys on a real file system.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use rustls::pki_types::UnixTime;
use tempfile::TempDir;

use super::*;
use crate::keeper::ReadError;

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode() & 0o7777
}

fn files_of(dir: &Path, stem: &str) -> CertificateFiles {
    CertificateFiles {
        cert: dir.join(format!("{stem}.crt")),
        key: dir.join(format!("{stem}.key")),
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().display().to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn key_and_pin_persist_across_runs() {
    let dir = directory();
    let state = dir.path().join("deep/state");
    let (first, made) = load_or_generate(&state, "server").expect("made");
    assert!(made);
    let key = fs::read(state.join("server.key")).expect("a key");

    for _ in 0..3 {
        let (again, made) = load_or_generate(&state, "server").expect("loaded");
        assert!(!made);
        assert_eq!(again.pin, first.pin);
        assert_eq!(again.chain, first.chain);
    }
    assert_eq!(fs::read(state.join("server.key")).expect("a key"), key);
}

#[test]
fn generated_files_are_private_and_complete() {
    let dir = directory();
    let state = dir.path().join("state");
    let pin = generate(&state, "client-1").expect("made");

    assert_eq!(mode(&state), 0o700);
    assert_eq!(mode(&state.join("client-1.key")), 0o600);
    assert_eq!(mode(&state.join("client-1.crt")), 0o644);
    assert_eq!(names(&state), ["client-1.crt", "client-1.key"]);
    let identity = load_files(&files_of(&state, "client-1")).expect("a pair");
    assert_eq!(identity.pin, pin);
    assert_eq!(identity.warning, None);
}

#[test]
fn generated_certificate_is_p256_for_its_name_and_a_hundred_years() {
    let dir = directory();
    generate(dir.path(), "server").expect("made");
    let identity = load_files(&files_of(dir.path(), "server")).expect("a pair");
    let cert = &identity.chain[0];
    let parsed = webpki::EndEntityCert::try_from(cert).expect("a certificate");

    assert_eq!(parsed.valid_dns_names().collect::<Vec<_>>(), ["server"]);
    let spki = parsed.subject_public_key_info();
    let p256_key_len = 91; // RFC 5480: the only curve whose SubjectPublicKeyInfo has this length.
    assert_eq!(spki.len(), p256_key_len);

    // The certificate is its own trust anchor, so only the dates remain to be verified.
    let anchor = webpki::anchor_from_trusted_cert(cert).expect("an anchor");
    let valid_at = |time: UnixTime| {
        parsed
            .verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                std::slice::from_ref(&anchor),
                &[],
                time,
                webpki::KeyUsage::server_auth(),
                None,
                None,
            )
            .is_ok()
    };
    let day = std::time::Duration::from_hours(24);
    let now = std::time::Duration::from_secs(UnixTime::now().as_secs());
    assert!(valid_at(UnixTime::since_unix_epoch(now)));
    assert!(valid_at(UnixTime::since_unix_epoch(now + day * 36_522)));
    assert!(!valid_at(UnixTime::since_unix_epoch(now + day * 36_530)));
    let before = now.saturating_sub(day * 3);
    assert!(!valid_at(UnixTime::since_unix_epoch(before)));
}

#[test]
fn generate_never_overwrites() {
    let dir = directory();
    generate(dir.path(), "client").expect("made");
    let before = fs::read(dir.path().join("client.key")).expect("a key");
    let again = generate(dir.path(), "client");
    assert!(
        matches!(again, Err(IdentityError::Exists { .. })),
        "{again:?}"
    );
    assert_eq!(
        fs::read(dir.path().join("client.key")).expect("a key"),
        before
    );

    fs::write(dir.path().join("other.key"), "mine").expect("written");
    let again = generate(dir.path(), "other");
    assert!(matches!(again, Err(IdentityError::Exists(path)) if path.ends_with("other.key")));
    assert_eq!(
        fs::read(dir.path().join("other.key")).expect("a key"),
        b"mine"
    );
    assert_eq!(names(dir.path()), ["client.crt", "client.key", "other.key"]);
}

#[test]
fn stems_that_lead_elsewhere_are_refused() {
    let dir = directory();
    let longest = "a".repeat(MAX_STEM);
    assert!(generate(dir.path(), &longest).is_ok());
    for stem in [
        "",
        "../x",
        "a/b",
        ".hidden",
        "-x",
        "a b",
        "ä",
        "a\0",
        &format!("{longest}a"),
    ] {
        let refused = generate(dir.path(), stem);
        assert!(
            matches!(refused, Err(IdentityError::BadStem { .. })),
            "{stem:?}: {refused:?}"
        );
    }
}

#[test]
fn lost_certificate_is_made_again_from_the_key() {
    let dir = directory();
    let (first, _) = load_or_generate(dir.path(), "server").expect("made");
    fs::remove_file(dir.path().join("server.crt")).expect("removed");

    let (again, made) = load_or_generate(dir.path(), "server").expect("completed");
    assert!(!made);
    assert_eq!(again.pin, first.pin);
    assert!(dir.path().join("server.crt").exists());
}

#[test]
fn lost_key_is_an_error_and_not_a_new_identity() {
    let dir = directory();
    load_or_generate(dir.path(), "server").expect("made");
    fs::remove_file(dir.path().join("server.key")).expect("removed");

    let error = load_or_generate(dir.path(), "server").expect_err("orphaned certificate");
    assert!(matches!(error, IdentityError::KeyGone { .. }));
    assert!(!error.is_unusable_directory());
    assert!(
        error
            .to_string()
            .contains("restore the key, or remove the certificate")
    );
    assert_eq!(names(dir.path()), ["server.crt"]);
}

#[test]
fn processes_that_start_together_agree_on_one_identity() {
    let dir = directory();
    let mut pins: Vec<Pin> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| load_or_generate(dir.path(), "server")))
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().expect("no panic").expect("an identity").0.pin)
            .collect()
    });
    pins.dedup();
    assert_eq!(pins.len(), 1);
    assert_eq!(names(dir.path()), ["server.crt", "server.key"]);
}

#[test]
fn an_unusable_directory_is_distinguished_from_a_broken_identity() {
    let dir = directory();
    let file = dir.path().join("file");
    fs::write(&file, "").expect("written");
    let error = load_or_generate(&file.join("state"), "server").expect_err("below a file");
    assert!(error.is_unusable_directory(), "{error:?}");

    fs::write(dir.path().join("server.key"), "garbage").expect("written");
    fs::write(dir.path().join("server.crt"), "garbage").expect("written");
    let error = load_or_generate(dir.path(), "server").expect_err("broken");
    assert!(!error.is_unusable_directory(), "{error:?}");
}

#[test]
fn ephemeral_identities_are_complete_and_differ() {
    let (one, two) = (ephemeral().expect("made"), ephemeral().expect("made"));
    assert_eq!(pin_of(&one.chain[0]).expect("a pin"), one.pin);
    assert_ne!(one.pin, two.pin);
    assert!(any_supported_type(&one.key).is_ok());
}

#[test]
fn pin_is_the_hash_that_openssl_computes() {
    // openssl x509 -inform der -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary
    // | basenc --base64url
    let cert =
        CertificateDer::from(include_bytes!("../../tests/fixtures/rsa1024.crt.der").as_slice());
    let pin = pin_of(&cert).expect("a pin");
    assert_eq!(
        pin.to_string(),
        "sha256:_5wcPvgsb-TDf2HMlBqWHcgS4SvMeeJcq2NzYxlgQDg"
    );

    assert!(pin_of(&CertificateDer::from(vec![])).is_err());
    assert!(pin_of(&CertificateDer::from(vec![0x30, 0x80, 0x01])).is_err());
}

/// Returns the error of `load_files` for a pair of which one or both files were replaced.
fn load_error(cert: Option<&str>, key: Option<&str>) -> String {
    let dir = directory();
    generate(dir.path(), "x").expect("made");
    let files = files_of(dir.path(), "x");
    for (file, content) in [(&files.cert, cert), (&files.key, key)] {
        if let Some(content) = content {
            fs::write(file, content).expect("written");
        }
    }
    let error = load_files(&files).expect_err("a broken pair");
    error
        .to_string()
        .replace(&dir.path().display().to_string(), "DIR")
}

#[test]
fn broken_files_are_refused_with_the_file_and_the_fault() {
    let other = KeyPair::generate().expect("a key").serialize_pem();
    assert_eq!(
        load_error(None, Some(&other)),
        "the key DIR/x.key does not belong to the certificate DIR/x.crt: give the pair that was made together"
    );
    assert_eq!(
        load_error(Some(""), None),
        "DIR/x.crt contains no certificate: a PEM block '-----BEGIN CERTIFICATE-----' is needed"
    );
    // The files are swapped.
    assert!(load_error(Some(&other), None).starts_with("DIR/x.crt contains no certificate"));
    assert_eq!(
        load_error(None, Some("# nothing\n")),
        "DIR/x.key contains no private key: a PEM block '-----BEGIN PRIVATE KEY-----' is needed"
    );
    assert_eq!(
        load_error(None, Some("-----BEGIN PRIVATE KEY-----\nAAAA\n")),
        "DIR/x.key contains damaged PEM text"
    );
    assert!(
        load_error(
            None,
            Some(
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
            )
        )
        .starts_with(
            "the key in DIR/x.key is encrypted: write it out without a passphrase (openssl pkey"
        )
    );
    assert!(
        load_error(
            None,
            Some("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
        )
        .starts_with("the key in DIR/x.key cannot be used: use ECDSA")
    );
    assert_eq!(
        load_error(
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            None
        ),
        "the first certificate in DIR/x.crt cannot be used"
    );
    assert_eq!(
        load_error(Some(&"x".repeat((1 << 20) + 1)), None),
        "cannot read DIR/x.crt"
    );

    let missing = CertificateFiles {
        cert: "/nonexistent/a".into(),
        key: "/nonexistent/b".into(),
    };
    let error = load_files(&missing).expect_err("no file");
    assert_eq!(error.to_string(), "cannot read /nonexistent/a");
    assert!(matches!(error, IdentityError::Read(_, ReadError::Io(_))));
}

#[test]
fn key_open_to_everyone_is_a_warning_only() {
    let dir = directory();
    generate(dir.path(), "x").expect("made");
    let files = files_of(dir.path(), "x");
    for (mode, warned) in [(0o700, false), (0o750, false), (0o755, true), (0o702, true)] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).expect("set");
        let warning = wide_permissions(dir.path());
        let expected = format!("(mode {mode:04o}): `chmod 700 {}`", dir.path().display());
        assert_eq!(
            warning.is_some_and(|said| said.ends_with(&expected)),
            warned
        );
    }
    for (mode, warned) in [(0o600, false), (0o640, false), (0o644, true), (0o602, true)] {
        fs::set_permissions(&files.key, fs::Permissions::from_mode(mode)).expect("set");
        let identity = load_files(&files).expect("a pair");
        assert_eq!(identity.warning.is_some(), warned, "{mode:o}");
        if let Some(warning) = &identity.warning {
            assert!(
                warning.contains(&format!("(mode {mode:04o}): `chmod 600 ")),
                "{warning}"
            );
        }
    }
}

#[test]
fn debug_output_hides_the_key() {
    let identity = ephemeral().expect("made");
    let text = format!("{identity:?}");
    assert!(
        text.contains(&identity.pin.to_string()) && !text.contains("key"),
        "{text}"
    );
}

#[test]
fn psk_is_made_once_and_kept() {
    let dir = directory();
    let path = dir.path().join("state/client.psk");
    ensure_psk(&path).expect("made");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&dir.path().join("state")), 0o700);
    let line = fs::read_to_string(&path).expect("text");
    let text = line.strip_suffix('\n').expect("a newline");
    assert_eq!(
        BASE64_URL_SAFE_NO_PAD
            .decode(text)
            .expect("base64url")
            .len(),
        32
    );

    ensure_psk(&path).expect("kept");
    assert_eq!(fs::read_to_string(&path).expect("text"), line);
    crate::psk::load_secret(&path).expect("a secret that can be used");

    let other = dir.path().join("state/other.psk");
    ensure_psk(&other).expect("made");
    assert_ne!(fs::read_to_string(&other).expect("text"), line);

    fs::write(&other, "mine").expect("written");
    ensure_psk(&other).expect("kept");
    assert_eq!(fs::read_to_string(&other).expect("text"), "mine");
}

#[test]
fn an_rsa_key_of_1024_bits_is_refused() {
    use base64::prelude::BASE64_STANDARD;
    let armour = |label: &str, der: &[u8]| {
        format!(
            "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
            BASE64_STANDARD.encode(der)
        )
    };
    let cert = armour(
        "CERTIFICATE",
        include_bytes!("../../tests/fixtures/rsa1024.crt.der"),
    );
    let key = armour(
        "PRIVATE KEY",
        include_bytes!("../../tests/fixtures/rsa1024.key.der"),
    );
    assert_eq!(
        load_error(Some(&cert), Some(&key)),
        "the key in DIR/x.key cannot be used: use ECDSA (P-256, P-384, P-521), Ed25519, or RSA of 2048 bits or more"
    );
}

#[test]
fn files_are_shared_with_the_group_of_a_directory_that_only_root_can_write_to() {
    const GROUP: u32 = 12_345;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("client.key");
    let state = || {
        let metadata = fs::metadata(&file).expect("there");
        (metadata.gid(), metadata.mode() & 0o777)
    };
    assert!(write_new(&file, b"secret").expect("written"));
    let private = state();
    let share = || share_with_group(dir.path(), &[&file]).expect("readable");
    if !rustix::process::geteuid().is_root() {
        assert!(!share());
        let test = "identity::tests::files_are_shared_with_the_group_of_a_directory_that_only_root_can_write_to";
        return quictun_skip::skipped(test, "only root can give a directory to a group");
    }
    assert!(!share(), "the group of root");
    for (mode, shared) in [(0o775, false), (0o755, true)] {
        std::os::unix::fs::chown(dir.path(), None, Some(GROUP)).expect("root may");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).expect("root may");
        assert_eq!(share(), shared, "{mode:o}");
        let expected = if shared { (GROUP, 0o640) } else { private };
        assert_eq!(state(), expected, "{mode:o}");
    }
}
