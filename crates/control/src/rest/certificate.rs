//! The certificate that programs without quictun see, as `/v1/status` and the metrics show it.

use std::time::SystemTime;

use jiff::Timestamp;

use super::object::object;
use crate::shown::ShownValue;

/// The latest report, if there is a certificate or is to be one.
pub type CertificateReports = ShownValue<Option<CertificateReport>>;

/// The state of the certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateReport {
    /// The host names of the certificate, or those that it is to have.
    pub names: Vec<String>,
    /// The last second of the certificate, or `None` if there is none yet.
    pub expires: Option<SystemTime>,
    /// The reason why there is no newer certificate, if one was to be there.
    pub problem: Option<String>,
    /// The time of the next attempt to get one, if an authority issues it.
    pub next_attempt: Option<SystemTime>,
}

object! {
    pub(super) struct Certificate,
    pub(super) fn certificate(report: CertificateReport) {
        names: Vec<String> = report.names,
        expires_at: Option<String> = report.expires.and_then(text),
        problem: Option<String> = report.problem,
        next_attempt_at: Option<String> = report.next_attempt.and_then(text),
    }
}

fn text(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    Some(format!("{time:.0}"))
}
