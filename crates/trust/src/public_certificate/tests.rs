//! Certificates of throw-away authorities.

use std::fs;
use std::time::Duration;

use proptest::prelude::*;
use rcgen::{BasicConstraints, Certificate, IsCa, Issuer, date_time_ymd};
use tempfile::TempDir;

use super::*;

/// An authority below a root, and a directory for the files of servers.
struct Pki {
    directory: TempDir,
    root: Certificate,
    intermediate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params
}

impl Pki {
    fn new() -> Self {
        let (root_key, key) = (key(), key());
        let root_params = authority("root");
        let root = root_params.self_signed(&root_key).expect("a root");
        let root_issuer = Issuer::new(root_params, root_key);
        let params = authority("intermediate");
        let intermediate = params.signed_by(&key, &root_issuer).expect("signed");
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            root,
            intermediate,
            issuer: Issuer::new(params, key),
        }
    }

    /// Issues a certificate for `name` from 2026 to the end of this year, with a new key.
    fn issue(&self, name: &str, last_year: i32) -> (Certificate, KeyPair) {
        let key = key();
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2026, 1, 2);
        params.not_after = date_time_ymd(last_year, 12, 31);
        params.use_authority_key_identifier_extension = true;
        (params.signed_by(&key, &self.issuer).expect("signed"), key)
    }

    fn files(&self, chain: &[&Certificate], key: &KeyPair) -> CertificateFiles {
        let chain: String = chain.iter().map(|certificate| certificate.pem()).collect();
        let files = CertificateFiles {
            cert: self.directory.path().join("web.crt"),
            key: self.directory.path().join("web.key"),
        };
        fs::write(&files.cert, chain).expect("written");
        fs::write(&files.key, key.serialize_pem()).expect("written");
        files
    }
}

/// Returns the time at this number of days since 1970.
fn at(days: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(24 * days)
}

/// Days from 1970 to 2 January 2026, and to 31 December 2027.
const FIRST: u64 = 20_455;
const LAST: u64 = 21_183;

#[test]
fn a_chain_in_order_is_accepted_with_and_without_its_root() {
    let pki = Pki::new();
    let (leaf, key) = pki.issue("web.example", 2027);
    for chain in [
        &[&leaf][..],
        &[&leaf, &pki.intermediate],
        &[&leaf, &pki.intermediate, &pki.root],
    ] {
        let files = pki.files(chain, &key);
        let loaded = PublicCertificate::load(&files).expect("in order");
        assert_eq!(loaded.names, ["web.example"]);
        assert_eq!(loaded.certified.cert.len(), chain.len());
        assert_eq!(loaded.dates.not_before, at(FIRST));
        assert_eq!(loaded.dates.not_after, at(LAST));
        let id = loaded.renewal_id.expect("the issuer is named");
        assert_eq!(id.authority_key.len(), 20);
        assert!(!id.serial.is_empty());
    }
}

#[test]
fn each_wrong_pair_has_its_sentence() {
    let pki = Pki::new();
    let (leaf, leaf_key) = pki.issue("web.example", 2027);
    let (other, other_key) = pki.issue("other.example", 2027);
    let stranger = Pki::new();
    let why = |chain: &[&Certificate], key: &KeyPair| {
        let error = PublicCertificate::load(&pki.files(chain, key)).expect_err("refused");
        crate::error_chain(&error)
    };
    for (chain, key, words) in [
        (&[&leaf, &pki.root][..], &leaf_key, "are not a chain"),
        (
            &[&leaf, &stranger.intermediate],
            &leaf_key,
            "are not a chain",
        ),
        (&[&leaf, &other], &leaf_key, "are not a chain"),
        (&[&leaf], &other_key, "does not belong to the certificate"),
        (&[&pki.intermediate, &leaf], &leaf_key, "does not belong"),
        (&[], &leaf_key, "contains no certificate"),
    ] {
        let text = why(chain, key);
        assert!(text.contains(words), "{text}");
    }
    let nameless = authority("nameless").self_signed(&other_key);
    let text = why(&[&nameless.expect("a certificate")], &other_key);
    assert!(text.contains("names no host"), "{text}");
    let files = pki.files(&[&leaf], &leaf_key);
    fs::remove_file(&files.key).expect("removed");
    let error = PublicCertificate::load(&files).expect_err("no key");
    assert!(error.to_string().contains("cannot read"), "{error}");
}

// RFC 5280 section 4.1.2.5: the last second of 9999 stands for no expiry.
#[test]
fn a_certificate_without_an_expiry_is_valid() {
    let pki = Pki::new();
    let (leaf, key) = pki.issue("web.example", 9999);
    let files = pki.files(&[&leaf, &pki.intermediate], &key);
    let loaded = PublicCertificate::load(&files).expect("in order");
    loaded.check_dates(&files, at(300 * 366)).expect("valid");
}

#[test]
fn dates_are_wrong_before_the_first_and_after_the_last_second_only() {
    let pki = Pki::new();
    let (leaf, key) = pki.issue("web.example", 2027);
    let files = pki.files(&[&leaf, &pki.intermediate], &key);
    let loaded = PublicCertificate::load(&files).expect("in order");
    let second = Duration::from_secs(1);
    let check = |now| loaded.check_dates(&files, now);
    check(at(FIRST)).expect("the first second");
    check(at(LAST)).expect("the last second");
    let late = check(at(LAST) + second).expect_err("late");
    assert!(late.to_string().contains("expired on 2027-12-31"), "{late}");
    let early = check(at(FIRST) - second).expect_err("early");
    assert!(
        early.to_string().contains("is not valid before 2026-01-02"),
        "{early}"
    );
}

#[test]
fn a_request_and_its_key_belong_together() {
    let names = ["web.example".to_owned(), "www.web.example".to_owned()];
    let made = CertificateRequest::new(&names).expect("a request");
    assert!(made.key.contains("PRIVATE KEY"));
    assert!(!made.request.is_empty());
    assert!(!format!("{made:?}").contains("PRIVATE"));
}

#[test]
fn a_certificate_for_a_check_has_the_digest_in_a_critical_extension() {
    let made = challenge_certificate("web.example", &[7; 32]).expect("a certificate");
    // The object 1.3.6.1.5.5.7.1.31, `true`, and octets with octets of the digest.
    let wanted = [
        &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f][..],
        &[0x01, 0x01, 0xff, 0x04, 0x22, 0x04, 0x20],
        &[7; 32],
    ]
    .concat();
    let der = &made.cert[0];
    assert!(der.windows(wanted.len()).any(|window| window == wanted));
}

proptest! {
    #[test]
    fn a_damaged_certificate_is_refused_or_read_without_a_panic(
        at in 0..400_usize,
        byte in any::<u8>(),
        cut in 0..500_usize,
    ) {
        let made = challenge_certificate("web.example", &[7; 32]).expect("a certificate");
        let mut der = made.cert[0].to_vec();
        prop_assert!(fields::Fields::of(&der).is_some());
        let length = der.len();
        der[at % length] = byte;
        fields::Fields::of(&der);
        der.truncate(cut);
        prop_assert!(fields::Fields::of(&der).is_none() || cut >= length);
    }
}
