//! The certificate that programs without quictun see, as `/v1/status` and the metrics show it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use jiff::Timestamp;

use super::object::object;

/// A report that the process replaces and the interface shows. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct CertificateReports(Arc<Mutex<Option<CertificateReport>>>);

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

impl CertificateReports {
    /// Replaces the report that the interface shows.
    pub fn set(&self, report: CertificateReport) {
        // The report is replaced as a whole.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    /// Returns the latest report, if there is a certificate or is to be one.
    pub fn get(&self) -> Option<CertificateReport> {
        let report = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        report.clone()
    }
}

object! {
    pub(super) struct Certificate,
    fn certificate(report: CertificateReport) {
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

impl From<CertificateReport> for Certificate {
    fn from(report: CertificateReport) -> Self {
        certificate(report)
    }
}
