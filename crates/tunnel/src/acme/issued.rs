//! The checks of a certificate that an authority has issued, before it replaces the one in service.
//!
//! A certificate that is not valid yet passes: this machine's clock may be behind, and waiting is all that helps.

use std::time::SystemTime;

use quictun_trust::public_certificate::PublicCertificate;

use super::error::AcmeError;

/// Returns whether the certificate is for all these names.
pub(super) fn has_names(certificate: &PublicCertificate, names: &[String]) -> bool {
    missing(certificate, names).is_none()
}

/// Checks that programs accept the certificate now, under all these names.
pub(super) fn check(
    certificate: &PublicCertificate,
    names: &[String],
    now: SystemTime,
) -> Result<(), AcmeError> {
    if certificate.dates.not_after <= now {
        return Err(AcmeError::Expired(certificate.dates.last_day()));
    }
    match missing(certificate, names) {
        Some(name) => Err(AcmeError::NotNamed(name.clone())),
        None => Ok(()),
    }
}

fn missing<'a>(certificate: &PublicCertificate, names: &'a [String]) -> Option<&'a String> {
    let has = |name: &String| {
        certificate
            .names
            .iter()
            .any(|it| it.eq_ignore_ascii_case(name))
    };
    names.iter().find(|name| !has(name))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::super::schedule::FailureKind;
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// Returns a certificate for a.example and b.example, and these years.
    fn issued(years: (i32, i32)) -> PublicCertificate {
        let key = KeyPair::generate().expect("a key");
        let both = names(&["a.example", "b.example"]);
        let mut params = CertificateParams::new(both).expect("names");
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let certificate = params.self_signed(&key).expect("signed");
        PublicCertificate::from_pem(&certificate.pem(), &key.serialize_pem(), "test")
            .expect("whole")
    }

    #[test]
    fn a_certificate_that_has_expired_or_lacks_a_name_is_refused() {
        let now = SystemTime::now();
        let (good, old, early) = (
            issued((2020, 2100)),
            issued((2020, 2021)),
            issued((2100, 2101)),
        );
        let (one, both) = (names(&["b.example"]), names(&["A.example", "b.example"]));
        for wanted in [&one, &both] {
            assert!(check(&good, wanted, now).is_ok() && check(&early, wanted, now).is_ok());
        }
        let late = check(&good, &one, good.dates.not_after);
        assert!(matches!(late, Err(AcmeError::Expired(_))), "{late:?}");
        let other = names(&["b.example", "c.example"]);
        for (certificate, wanted, words) in [
            (&old, &both, "expired on 2021-01-01"),
            (&good, &other, "is not for c.example"),
        ] {
            let error = check(certificate, wanted, now).expect_err(words);
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.kind(), FailureKind::Refused);
        }
    }
}
