//! Keeps the certificate that programs without quictun see: from files, or from an authority.
//!
//! All of it runs in the control plane. Workers see a new certificate in the next handshake, because they share
//! [`PublicCertificates`].

mod expiry;
mod files;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use quictun_wire::alpn;
use tokio::sync::Notify;

use crate::acme::Acme;
use crate::settings::{CertificateSource, ServerSettings};
use files::WatchedFiles;
use quictun_control::rest::CertificateReports;
use quictun_trust::enrolment::Directory;
use quictun_trust::identity;
use quictun_trust::tls::PublicCertificates;

/// The duty to keep a certificate.
#[derive(Debug)]
pub(crate) enum CertificateDuty {
    Files(Box<WatchedFiles>),
    Acme(Box<Acme>),
}

impl CertificateDuty {
    /// Reads the present certificate and presents it. Call it while the process can open files and ports. `clients` is in
    /// the state directory.
    pub(crate) fn open(
        settings: &ServerSettings,
        clients: Option<&Directory>,
        public: &PublicCertificates,
        reports: &CertificateReports,
    ) -> Result<Option<Self>> {
        let (public, reports) = (public.clone(), reports.clone());
        Ok(match &settings.certificate {
            None => None,
            Some(CertificateSource::Files(files)) => {
                let watched = WatchedFiles::open(files, public, reports)?;
                Some(Self::Files(Box::new(watched)))
            }
            Some(CertificateSource::Acme(acme)) => {
                let clients = clients.context("a certificate by ACME needs a state directory")?;
                let acme = Acme::open(acme.clone(), clients.clone(), public, reports)?;
                Some(Self::Acme(Box::new(acme)))
            }
        })
    }

    /// Keeps the certificate. Never returns. `again` asks to look for a new one at once.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: what is on disk is complete.
    pub(crate) async fn run(self, again: Arc<Notify>) {
        match self {
            Self::Files(files) => files.run(&again).await,
            Self::Acme(acme) => acme.run(&again).await,
        }
    }
}

/// Returns the files that are read again while the server runs, each with the largest number of bytes.
pub(crate) fn watched(settings: &ServerSettings) -> Vec<(PathBuf, u64)> {
    match &settings.certificate {
        Some(CertificateSource::Files(files)) => [&files.cert, &files.key]
            .map(|path| (path.clone(), identity::MAX_PEM_FILE))
            .to_vec(),
        Some(CertificateSource::Acme(_)) | None => Vec::new(),
    }
}

/// Returns the protocols of authorities that TLS listeners select.
pub(crate) fn protocols(settings: &ServerSettings) -> Vec<Vec<u8>> {
    match &settings.certificate {
        Some(CertificateSource::Acme(_)) => vec![alpn::ACME.to_vec()],
        Some(CertificateSource::Files(_)) | None => Vec::new(),
    }
}
