//! A certificate in files that another program renews.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::expiry::ExpiryWarnings;
use crate::disk_queue::FILES;
use quictun_control::rest::{CertificateReport, CertificateReports};
use quictun_trust::identity;
use quictun_trust::public_certificate::PublicCertificate;
use quictun_trust::settings::CertificateFiles;
use quictun_trust::tls::PublicCertificates;

/// Time between two looks at the files: short beside the time for which a certificate overlaps with the next one.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The files, and what was found in them.
#[derive(Debug)]
pub(crate) struct WatchedFiles {
    files: CertificateFiles,
    public: PublicCertificates,
    reports: CertificateReports,
    current: PublicCertificate,
    /// Why the files' present content is not used.
    problem: Option<String>,
    warnings: ExpiryWarnings,
}

/// The meaning of the files' content for the certificate in service.
#[derive(Debug)]
enum Found {
    Same,
    Another(Box<PublicCertificate>),
    Bad(String),
}

impl WatchedFiles {
    pub(super) fn open(
        files: &CertificateFiles,
        public: PublicCertificates,
        reports: CertificateReports,
    ) -> Result<Self> {
        let current = PublicCertificate::load(files)?;
        identity::warn_of_wide([&*files.key]);
        // The tunnel does not depend on this certificate, so a late one does not keep the server from starting.
        if let Err(error) = current.check_dates(files, SystemTime::now()) {
            warn!(target: "quictun", "{error}; until then, programs without quictun refuse this server");
        }
        public.set(current.certified.clone());
        let watched = Self {
            files: files.clone(),
            public,
            reports,
            current,
            problem: None,
            warnings: ExpiryWarnings::default(),
        };
        watched.report();
        Ok(watched)
    }

    /// Looks at the files now and then, and when `again` asks for it. Never returns.
    pub(super) async fn run(mut self, again: &Notify) {
        loop {
            let asked = tokio::time::timeout(LOOK_EVERY, again.notified())
                .await
                .is_ok();
            let files = self.files.clone();
            // An error is a panic, which has a log line of its own.
            if let Ok(read) = FILES.run(move || PublicCertificate::load(&files)).await {
                let read = read.map_err(|error| quictun_trust::error_chain(&error));
                self.follow(SystemTime::now(), read, asked);
            }
        }
    }

    /// Takes what the files contain now. `asked` tells that a person waits for the result.
    fn follow(&mut self, now: SystemTime, read: Result<PublicCertificate, String>, asked: bool) {
        match self.judge(now, read) {
            Found::Same => self.problem = None,
            Found::Another(new) => {
                info!(target: "quictun", names = new.names.join(", "), expires = new.dates.last_day(), "programs without quictun see a new certificate");
                self.public.set(new.certified.clone());
                (self.current, self.problem) = (*new, None);
                self.warnings = ExpiryWarnings::default();
            }
            Found::Bad(cause) => {
                if asked || self.problem.as_ref() != Some(&cause) {
                    warn!(target: "quictun", cause, expires = self.current.dates.last_day(), "the new certificate for programs without quictun is not used: the old one stays in service");
                }
                self.problem = Some(cause);
            }
        }
        if self.warnings.take(now, &self.current.dates) {
            let left_h = self.current.dates.left(now).as_secs() / 3600;
            warn!(target: "quictun", file = %self.files.cert.display(), expires = self.current.dates.last_day(), left_h, "the certificate for programs without quictun is about to expire, or has expired: renew it");
        }
        self.report();
    }

    fn judge(&self, now: SystemTime, read: Result<PublicCertificate, String>) -> Found {
        let new = match read {
            Ok(new) if new.is_same(&self.current) => return Found::Same,
            Ok(new) => new,
            Err(cause) => return Found::Bad(cause),
        };
        match new.check_dates(&self.files, now) {
            Ok(()) => Found::Another(Box::new(new)),
            Err(error) => Found::Bad(error.to_string()),
        }
    }

    fn report(&self) {
        self.reports.set(Some(CertificateReport {
            names: self.current.names.clone(),
            expires: Some(self.current.dates.not_after),
            problem: self.problem.clone(),
            next_attempt: None,
        }));
    }
}

#[cfg(test)]
mod tests;
