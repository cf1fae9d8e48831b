//! Certificates from an authority, by ACME (RFC 8555).
//!
//! ```text
//! state directory: acme.json ─► open ─► the certificate is presented
//!                    ▲                                 │
//!                    │ keeper          schedule: wait ─┴─► order ─► the authority checks the names by TLS or HTTP
//!                    └──────────────────────────────────────────◄─ certificate, presented at once
//! ```
//!
//! Whatever fails, the old certificate stays in service, one log line says why, and the schedule has the next attempt.

mod error;
mod http;
mod http_check;
mod issued;
mod order;
mod schedule;
mod state;

use std::future::pending;
use std::io;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use instant_acme::{Account, AccountCredentials, Key, NewAccount};
use rustls::pki_types::PrivateKeyDer;
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::damaged_file;
use crate::disk_queue::STORE;
use crate::settings::AcmeSettings;
use error::AcmeError;
use http::AcmeHttp;
use http_check::{HttpAnswers, HttpListener};
use order::Check;
use quictun_control::rest::{CertificateReport, CertificateReports};
use quictun_trust::enrolment::{Directory, StateFile};
use quictun_trust::keeper::{self, ReadError};
use quictun_trust::public_certificate::PublicCertificate;
use quictun_trust::tls::PublicCertificates;
use schedule::{Schedule, ScheduleStep};
use state::{AcmeState, StoredCertificate};

/// Time limit of an attempt, which includes the authority's checks.
const ATTEMPT: Duration = Duration::from_mins(10);

/// Largest file with the state, bytes.
const STATE_MAX: u64 = 1 << 20;

/// A certificate that an authority issues and this process renews.
#[derive(Debug)]
pub(crate) struct Acme {
    settings: AcmeSettings,
    clients: Directory,
    public: PublicCertificates,
    reports: CertificateReports,
    http: AcmeHttp,
    check: Check,
    listener: Option<(HttpListener, HttpAnswers)>,
    state: AcmeState,
    current: Option<PublicCertificate>,
    schedule: Schedule,
    problem: Option<String>,
}

impl Acme {
    /// Reads the state, and presents the certificate in it. Call it while the process can open files and ports.
    pub(crate) fn open(
        settings: AcmeSettings,
        clients: Directory,
        public: PublicCertificates,
        reports: CertificateReports,
    ) -> Result<Self> {
        let made = clients.make_state();
        made.context(
            "cannot make the state directory, which keeps the account's key (--state-dir)",
        )?;
        let listener = settings.listen_http.map(HttpListener::bind).transpose()?;
        let listener = listener.map(|listener| (listener, HttpAnswers::default()));
        let check = match &listener {
            Some((_, answers)) => Check::Http(answers.clone()),
            None => Check::Tls(public.clone()),
        };
        let state = read_state(&clients)?;
        let mut acme = Self {
            settings,
            clients,
            public,
            reports,
            http: AcmeHttp::of_system(),
            check,
            listener,
            current: None,
            schedule: Schedule::new(None, jitter()),
            state,
            problem: None,
        };
        if acme.state.directory != acme.settings.directory {
            // An account belongs to one authority.
            acme.state.directory.clone_from(&acme.settings.directory);
            acme.state.account = None;
        }
        acme.present_stored();
        acme.report();
        Ok(acme)
    }

    /// Presents the certificate of the last run. One for other names, or of another authority, is presented until there is
    /// another.
    fn present_stored(&mut self) {
        let Some(stored) = self.state.certificate.clone() else {
            return;
        };
        match self.accept(&stored) {
            Ok(certificate) => {
                let is_wanted = stored.directory == self.settings.directory
                    && issued::has_names(&certificate, &self.settings.names);
                self.schedule = Schedule::new(is_wanted.then_some(certificate.dates), jitter());
                self.present(certificate);
            }
            Err(error) => {
                let cause = quictun_trust::error_chain(&error);
                warn!(target: "quictun", cause, "the stored certificate for programs without quictun cannot be used: another one is asked for");
            }
        }
    }

    fn accept(&self, stored: &StoredCertificate) -> Result<PublicCertificate, AcmeError> {
        let file = self.clients.state_file(StateFile::Acme);
        let named = file.display().to_string();
        Ok(PublicCertificate::from_pem(
            &stored.chain,
            &stored.key,
            &named,
        )?)
    }

    fn present(&mut self, certificate: PublicCertificate) {
        self.public.set(certificate.certified.clone());
        self.current = Some(certificate);
    }

    /// Keeps the certificate. Never returns. `again` makes the next attempt due if one has failed.
    pub(crate) async fn run(mut self, again: &Notify) {
        let listener = self.listener.take();
        let serving = async {
            if let Some((listener, answers)) = listener
                && let Err(cause) = listener.serve(answers).await
            {
                error!(target: "quictun", %cause, "cannot answer the authority's checks by HTTP");
            }
            pending::<()>().await;
        };
        tokio::select! {
            () = serving => {}
            () = self.keep(again) => {}
        }
    }

    async fn keep(&mut self, again: &Notify) {
        loop {
            match self.schedule.step(SystemTime::now()) {
                ScheduleStep::Wait(time) => {
                    if timeout(time, again.notified()).await.is_ok() {
                        self.schedule.hurry();
                    }
                }
                ScheduleStep::AskWindow => self.ask_window().await,
                ScheduleStep::Order => self.renew().await,
            }
            self.report();
        }
    }

    /// Makes an attempt, and logs its result.
    async fn renew(&mut self) {
        let attempt = timeout(ATTEMPT, self.attempt()).await;
        let result = attempt.unwrap_or(Err(AcmeError::Slow));
        let now = SystemTime::now();
        let asked = self.http.take_pause();
        match result {
            Ok(()) => self.problem = None,
            Err(error) => {
                self.schedule.fail(now, error.kind(), asked);
                let next = self.schedule.order_at().duration_since(now);
                let next_attempt_in_s = next.unwrap_or_default().as_secs();
                let names = self.settings.names.join(", ");
                let expires = self.current.as_ref().map(|it| it.dates.last_day());
                let cause = quictun_trust::error_chain(&error);
                warn!(target: "quictun", names, cause, next_attempt_in_s, expires, "no new certificate from the authority: what is in service stays");
                self.problem = Some(cause);
            }
        }
    }

    async fn attempt(&mut self) -> Result<(), AcmeError> {
        let stored = match self.order().await {
            // The authority may have lost its data. The account's key stays the same.
            Err(AcmeError::NoAccount) => {
                self.register_again().await?;
                self.order().await?
            }
            ordered => ordered?,
        };
        let certificate = self.accept(&stored)?;
        let now = SystemTime::now();
        issued::check(&certificate, &self.settings.names, now)?;
        self.schedule = Schedule::after_success(now, certificate.dates, jitter());
        self.state.certificate = Some(stored);
        let names = certificate.names.join(", ");
        let expires = certificate.dates.last_day();
        self.present(certificate);
        if let Err(cause) = self.store().await {
            let path = self.clients.state_file(StateFile::Acme);
            warn!(target: "quictun", path = %path.display(), %cause, "the new certificate cannot be stored: a restart would ask for another one, of which authorities issue few");
        }
        info!(target: "quictun", names, expires, "programs without quictun see a new certificate from the authority");
        Ok(())
    }

    async fn order(&mut self) -> Result<StoredCertificate, AcmeError> {
        let account = self.account().await?;
        let known = self.schedule.has_window() && !self.schedule.has_failed();
        let replaced = self.current.as_ref().filter(|_| known);
        let replaced = replaced.and_then(|current| current.renewal_id.as_ref());
        let names = &self.settings.names;
        let (chain, key) = order::order(&account, names, replaced, &self.check).await?;
        Ok(StoredCertificate {
            directory: self.settings.directory.clone(),
            chain,
            key,
        })
    }

    /// Returns the account. Makes one if there is none. Storing is tried before, so that no account is lost on a full disk.
    async fn account(&mut self) -> Result<Account, AcmeError> {
        let builder = Account::builder_with_http(Box::new(self.http.clone()));
        if let Some(known) = self.credentials() {
            return Ok(builder.from_credentials(known).await?);
        }
        self.store_account().await?;
        let contact = self.settings.contact.as_ref();
        let contact = contact.map(|address| format!("mailto:{address}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.settings.directory.clone();
        let (account, credentials) = builder.create(&new, directory, None).await?;
        self.keep_account(&credentials).await?;
        Ok(account)
    }

    /// Makes the authority know the account's key again.
    async fn register_again(&mut self) -> Result<(), AcmeError> {
        let Some(known) = self.credentials() else {
            return Ok(());
        };
        let key = known.private_key().clone_key();
        let made = Key::from_pkcs8_der(key.clone_key())?;
        let builder = Account::builder_with_http(Box::new(self.http.clone()));
        let pair = (made, PrivateKeyDer::Pkcs8(key));
        let directory = self.settings.directory.clone();
        let (_, credentials) = builder.create_from_key(pair, directory).await?;
        self.keep_account(&credentials).await
    }

    fn credentials(&self) -> Option<AccountCredentials> {
        serde_json::from_value(self.state.account.clone()?).ok()
    }

    async fn keep_account(&mut self, credentials: &AccountCredentials) -> Result<(), AcmeError> {
        let value = serde_json::to_value(credentials);
        self.state.account = Some(value.map_err(|error| AcmeError::Answer(error.to_string()))?);
        self.store_account().await
    }

    async fn store_account(&self) -> Result<(), AcmeError> {
        let path = || {
            self.clients
                .state_file(StateFile::Acme)
                .display()
                .to_string()
        };
        let stored = self.store().await;
        stored.map_err(|cause| AcmeError::Store(path(), cause))
    }

    async fn store(&self) -> io::Result<()> {
        let (clients, content) = (self.clients.clone(), self.state.encode());
        let stored = STORE.run(move || keeper::store(&clients, StateFile::Acme, &content));
        stored.await.unwrap_or_else(|error| Err(error.into()))
    }

    /// Asks the authority when it wants the certificate to be renewed. Most attempts need no answer, so a failure is silent.
    async fn ask_window(&mut self) {
        let window = timeout(ATTEMPT, self.window()).await;
        let window = window.unwrap_or(None);
        self.http.take_pause();
        self.schedule.set_window(SystemTime::now(), window);
    }

    async fn window(&self) -> Option<(SystemTime, SystemTime)> {
        let id = order::identifier(self.current.as_ref()?.renewal_id.as_ref()?);
        let builder = Account::builder_with_http(Box::new(self.http.clone()));
        let account = builder.from_credentials(self.credentials()?).await.ok()?;
        let (info, _) = account.renewal_info(&id).await.ok()?;
        let window = info.suggested_window;
        Some((window.start.into(), window.end.into()))
    }

    fn report(&self) {
        let current = self.current.as_ref();
        let next = self.schedule.order_at().max(SystemTime::now());
        self.reports.set(Some(CertificateReport {
            names: self.settings.names.clone(),
            expires: current.map(|current| current.dates.not_after),
            problem: self.problem.clone(),
            next_attempt: Some(next),
        }));
    }
}

/// Reads the state file. A damaged file is kept under another name.
fn read_state(clients: &Directory) -> Result<AcmeState> {
    let path = clients.state_file(StateFile::Acme);
    match keeper::read_entry(&path, STATE_MAX) {
        Ok(text) => Ok(AcmeState::decode(&text).unwrap_or_else(|| {
            let kept_as = damaged_file::set_aside(&path);
            error!(target: "quictun", path = %path.display(), kept_as, "the file with the account at the authority and its certificate is damaged: both are made anew");
            AcmeState::default()
        })),
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(AcmeState::default())
        }
        // Another account would hide the one that cannot be read.
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Returns a random number from 0 to 1.
fn jitter() -> f64 {
    let random = quictun_sys::random().unwrap_or_default();
    f64::from(random[0]) / f64::from(u8::MAX)
}

#[cfg(test)]
mod tests;
