//! Outages of a server: each cause is logged once, and its repetitions are counted.
//!
//! All workers of a client keep dialling. [`OutageLog::failed`] decides which of their failures becomes a log line: the
//! first of each cause, and then one that counts all since, after 10 s, 20 s, 40 s and so on. [`OutageLog::unanswered`]
//! lets one worker per outage ask the network for the reason if nothing has come back. [`OutageLog::connected`] ends
//! the outage, and so does [`OutageLog::answered`], unless the server itself refuses new connections. Nothing here
//! waits, and the clock is an argument.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use quictun_control::log::{Untrusted, printable};
use quictun_engine::LossReason;
use quictun_trust::limits::timestamp;

/// Time without an answer before a log line reports it. A handshake takes one round trip, and a lost packet of it is
/// sent again within a second.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(2);

/// Pause before a cause is logged again; it doubles from line to line.
const PAUSE: Duration = Duration::from_secs(10);

/// Limit of the doubling pause between two lines of a cause.
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// Limit of causes that are distinguished in one outage: those of a few addresses.
const CAUSES: usize = 8;

/// The cause of all attempts that got no answer at all.
pub(crate) const NO_ANSWER: &str = "no answer";

/// The causes that keep a client's workers from their server.
#[derive(Debug, Default)]
pub(crate) struct OutageLog {
    outage: Mutex<Outage>,
}

#[derive(Debug, Default)]
struct Outage {
    since: Option<Instant>,
    failures: u64,
    causes: Vec<Cause>,
    asked: bool,
}

#[derive(Debug)]
struct Cause {
    text: String,
    origin: Origin,
    pause: Duration,
    quiet_until: Instant,
}

/// The side that has made an attempt fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nothing came from the server: this host or the path has failed, or the server is silent.
    Path,
    /// The server has answered, but with a refusal or an error.
    Server,
}

impl Origin {
    pub(crate) fn of(reason: &LossReason) -> Self {
        match reason {
            LossReason::TimedOut
            | LossReason::Tcp(_)
            | LossReason::OutboundProxy(_)
            | LossReason::Resolve(_)
            | LossReason::Local(_) => Self::Path,
            _ => Self::Server,
        }
    }
}

/// The outage so far, for a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutageSummary {
    /// Number of failed attempts of all workers.
    pub(crate) failures: u64,
    /// Time since the first failed attempt or the first silence that was reported.
    pub(crate) lasts: Duration,
}

impl OutageLog {
    /// Notes a failed attempt. Returns the outage so far if a line is due.
    pub(crate) fn failed(
        &self,
        now: Instant,
        cause: &str,
        origin: Origin,
    ) -> Option<OutageSummary> {
        let mut outage = self.lock();
        outage.failures += 1;
        let lasts = outage.lasts(now);
        let failures = outage.failures;
        outage
            .is_due(now, cause, origin)
            .then_some(OutageSummary { failures, lasts })
    }

    /// Notes that nothing has come back for [`SILENCE_LIMIT`]. Returns `true` if this worker is to ask the network for
    /// the reason.
    pub(crate) fn unanswered(&self, now: Instant) -> bool {
        let mut outage = self.lock();
        let asked = std::mem::replace(&mut outage.asked, true);
        outage.since.get_or_insert(now);
        !asked && outage.is_due(now, NO_ANSWER, Origin::Path)
    }

    /// Returns the causes of the current outage in words, or `None` if there is no outage.
    pub(crate) fn cause(&self) -> Option<String> {
        let outage = self.lock();
        let causes = outage.causes.iter().map(|cause| cause.text.as_str());
        let causes: Vec<&str> = causes.collect();
        (!causes.is_empty()).then(|| causes.join(", "))
    }

    /// Returns whether the network was asked in the current outage.
    pub(crate) fn is_probed(&self) -> bool {
        self.lock().asked
    }

    /// Ends the outage, since the server has accepted a connection. Returns its summary if attempts have failed in it.
    pub(crate) fn connected(&self, now: Instant) -> Option<OutageSummary> {
        let mut outage = std::mem::take(&mut *self.lock());
        let lasts = outage.lasts(now);
        let failures = outage.failures;
        (failures > 0).then_some(OutageSummary { failures, lasts })
    }

    /// Notes that the server answers again on a connection that was silent. Forgets the causes that this refutes, and
    /// ends the outage if no other is left. Returns its summary if it has ended and log lines have reported it.
    pub(crate) fn answered(&self, now: Instant) -> Option<OutageSummary> {
        let mut outage = self.lock();
        outage.asked = false;
        outage.causes.retain(|cause| cause.origin == Origin::Server);
        if !outage.causes.is_empty() {
            return None;
        }
        let Outage {
            since, failures, ..
        } = std::mem::take(&mut *outage);
        let lasts = now.saturating_duration_since(since?);
        Some(OutageSummary { failures, lasts })
    }

    /// Forgets the outage, because the place has another server from now on.
    pub(crate) fn forget(&self) {
        *self.lock() = Outage::default();
    }

    fn lock(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage {
    fn lasts(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.since.get_or_insert(now))
    }

    fn is_due(&mut self, now: Instant, cause: &str, origin: Origin) -> bool {
        let Some(known) = self.causes.iter_mut().find(|known| known.text == cause) else {
            if self.causes.len() < CAUSES {
                self.causes.push(Cause {
                    text: cause.to_owned(),
                    origin,
                    pause: PAUSE,
                    quiet_until: now + PAUSE,
                });
                return true;
            }
            return false;
        };
        if now < known.quiet_until {
            return false;
        }
        known.pause = (2 * known.pause).min(PAUSE_MAX);
        known.quiet_until = now + known.pause;
        true
    }
}

/// Returns a cause in words, and advice on what to check. The words control no terminal, even if the other side has written
/// them.
pub(crate) fn explain(reason: &LossReason) -> (String, &'static str) {
    match reason {
        LossReason::TimedOut => (NO_ANSWER.to_owned(), CHECK_PATH),
        LossReason::Tcp(_) => (
            reason.to_string(),
            "does the server listen on TCP there (--listen-tls), and do firewalls let it through?",
        ),
        LossReason::OutboundProxy(why) => (
            why.clone(),
            "`quictun doctor SERVER` tests the way through the proxy; --via none leaves the proxy out",
        ),
        LossReason::Resolve(why) => (
            why.clone(),
            "is the name spelt right, and does this machine resolve it (`getent hosts NAME`)?",
        ),
        LossReason::Protocol(error) if error.is_refused_connection() => (
            "the server accepts no new connections".to_owned(),
            "is it being stopped or restarted, or has it as many as --max-connections allows?",
        ),
        LossReason::Protocol(error) if error.is_by_peer() => {
            (printable(&Untrusted(error).to_string()), CHECK_SERVER)
        }
        LossReason::Protocol(error) => of_handshake(&error.to_string()),
        other => (other.to_string(), "the server's log may say more"),
    }
}

/// Advice for attempts that get no answer.
pub(crate) const CHECK_PATH: &str =
    "does the server run there, and do firewalls on the way let its UDP port through?";

/// Advice for handshakes that fail.
const CHECK_SERVER: &str = "do --pin or --ca name this server, and is it one of quictun's?";

fn of_handshake(text: &str) -> (String, &'static str) {
    if let Some(ours) = of_verifier(text) {
        return (ours.to_owned(), "is this the server that is meant?");
    }
    if let Some(validity) = validity(text) {
        let check =
            "is this machine's clock right (`date`)? If it is, the server needs a new certificate";
        return (validity, check);
    }
    (printable(text), CHECK_SERVER)
}

/// Returns whether this side has refused the server's key.
pub(crate) fn is_other_key(reason: &LossReason) -> bool {
    matches!(reason, LossReason::Protocol(error)
        if !error.is_by_peer() && of_verifier(&error.to_string()).is_some())
}

/// Extracts the message of this program's certificate verifier. TLS passes it on as the debug text of an error within
/// two others.
fn of_verifier(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("Other(OtherError(")?;
    rest.strip_suffix("))")
}

/// Describes why a certificate is not valid now. The TLS library's text contains the present time, so each attempt would
/// count as another cause.
fn validity(text: &str) -> Option<String> {
    let of = |words: &str| {
        let (_, rest) = text.split_once(words)?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let seconds = rest[..end.unwrap_or(rest.len())].parse().ok()?;
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
        Some(timestamp(at))
    };
    let ended = of("certificate is not valid after ")
        .map(|at| format!("the server's certificate has expired: it was valid until {at}"));
    ended.or_else(|| {
        of("certificate is not valid before ")
            .map(|at| format!("the server's certificate is not valid before {at}"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quictun_engine::ProtocolError;
    use rustls::pki_types::UnixTime;
    use rustls::{CertificateError, Error, OtherError};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn logged(
        outages: &OutageLog,
        from: Instant,
        seconds: std::ops::Range<u32>,
    ) -> Vec<(u32, u64)> {
        let lines = seconds.filter_map(|second| {
            let so_far = outages.failed(from + second * SECOND, "refused", Origin::Server)?;
            Some((second, so_far.failures))
        });
        lines.collect()
    }

    #[test]
    fn a_cause_is_logged_at_once_and_then_ever_more_rarely_with_a_count() {
        let (outages, start) = (OutageLog::default(), Instant::now());
        let lines = logged(&outages, start, 0..200);
        assert_eq!(lines, [(0, 1), (10, 11), (30, 31), (70, 71), (150, 151)]);
    }

    #[test]
    fn another_cause_is_logged_at_once_and_only_a_few_are_distinguished() {
        let (outages, now) = (OutageLog::default(), Instant::now());
        let causes = (0..100).map(|number| format!("cause {number}"));
        let logged = causes.filter(|cause| outages.failed(now, cause, Origin::Server).is_some());
        assert_eq!(logged.count(), CAUSES);
    }

    #[test]
    fn one_worker_probes_once_in_each_outage_and_silence_is_not_logged_twice() {
        let (outages, start) = (OutageLog::default(), Instant::now());
        assert!(!outages.is_probed());
        assert!(outages.unanswered(start) && !outages.unanswered(start));
        assert!(outages.is_probed());
        let timed_out = |at| outages.failed(at, NO_ANSWER, Origin::Path);
        assert_eq!(timed_out(start + 8 * SECOND), None);
        let later = timed_out(start + 12 * SECOND);
        assert_eq!(later.map(|so_far| so_far.failures), Some(2));
        let end = outages.connected(start + 20 * SECOND);
        let lasts = 20 * SECOND;
        assert_eq!(end, Some(OutageSummary { failures: 2, lasts }));
        assert_eq!(outages.connected(start + 21 * SECOND), None);
        assert!(!outages.is_probed());
        assert!(outages.unanswered(start + 30 * SECOND));
    }

    #[test]
    fn an_outage_that_a_connection_has_survived_is_not_counted_in_the_next_one() {
        let (outages, start) = (OutageLog::default(), Instant::now());
        for outage in 0..3 {
            let start = start + outage * 100 * SECOND;
            assert!(outages.unanswered(start), "its own line");
            assert_eq!(
                outages.failed(start + SECOND, NO_ANSWER, Origin::Path),
                None
            );
            let unresolved = outages.failed(start + SECOND, "no such name", Origin::Path);
            assert_eq!(unresolved.map(|so_far| so_far.failures), Some(2));
            let (failures, lasts) = (2, 3 * SECOND);
            let end = outages.answered(start + 3 * SECOND);
            assert_eq!(end, Some(OutageSummary { failures, lasts }));
            assert_eq!(outages.cause(), None);
            assert_eq!(outages.answered(start + 4 * SECOND), None, "it has ended");
        }
    }

    #[test]
    fn a_server_that_refuses_new_connections_is_not_reported_anew_when_an_old_one_answers() {
        let (outages, start) = (OutageLog::default(), Instant::now());
        let refused = |at| outages.failed(at, "it accepts no more", Origin::Server);
        assert!(refused(start).is_some());
        assert!(outages.unanswered(start + SECOND));
        assert_eq!(outages.answered(start + 2 * SECOND), None);
        assert_eq!(outages.cause().as_deref(), Some("it accepts no more"));
        assert_eq!(refused(start + 3 * SECOND), None, "logged before");
        assert!(outages.unanswered(start + 4 * SECOND), "another silence");
    }

    #[test]
    fn only_an_answer_counts_as_the_refusal_of_a_server() {
        let resolve = LossReason::Resolve("no such name".to_owned());
        for reason in [LossReason::TimedOut, resolve] {
            assert_eq!(Origin::of(&reason), Origin::Path);
        }
        for reason in [LossReason::NotAuthorized, LossReason::Reset] {
            assert_eq!(Origin::of(&reason), Origin::Server);
        }
    }

    #[test]
    fn a_server_that_accepts_no_connections_is_not_suspected_of_a_wrong_key() {
        let refused = ProtocolError::by_peer(0x2, "aborted by peer: refused".to_owned());
        let (cause, check) = explain(&refused.into());
        assert_eq!(cause, "the server accepts no new connections");
        assert!(check.contains("restarted"), "{check}");
    }

    // Before the handshake has ended, every host on the path can write such a text.
    #[test]
    fn the_text_of_a_close_is_shown_as_that_of_another_and_controls_no_terminal() {
        let closed = |reason: &str| {
            ProtocolError::by_peer(0x1, format!("aborted by peer: an error: {reason}")).into()
        };
        let (cause, _) = explain(&closed(
            "\u{1b}]0;title\u{7}\nquictun: \u{202e}joined\u{9b}2J",
        ));
        assert!(
            cause.ends_with(r"\u{1b}]0;title\u{7}\nquictun: \u{202e}joined\u{9b}2J"),
            "{cause}"
        );
        let (long, _) = explain(&closed(&"x".repeat(1000)));
        assert!(long.len() < 300, "{long}");
        for forged in [
            "Other(OtherError(the key of the server was changed))",
            "invalid peer certificate: certificate is not valid after 1 (verification time 2)",
        ] {
            let (cause, check) = explain(&closed(forged));
            assert!(cause.starts_with("aborted by peer"), "{cause}");
            assert_eq!(check, CHECK_SERVER);
        }
    }

    #[test]
    fn a_certificate_out_of_date_is_one_cause_and_leads_to_the_clock() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let bound = at(1_798_447_648);
        let explained = |error| {
            let error = Error::InvalidCertificate(error);
            let text = format!("the cryptographic handshake failed: error 45: {error}");
            explain(&ProtocolError::here(text).into())
        };
        let expired = |seconds| {
            explained(CertificateError::ExpiredContext {
                time: at(seconds),
                not_after: bound,
            })
        };
        let early = explained(CertificateError::NotValidYetContext {
            time: at(1_700_000_000),
            not_before: bound,
        });
        let (cause, check) = expired(1_800_000_000);
        assert_eq!(
            cause,
            "the server's certificate has expired: it was valid until 2026-12-28T08:47:28Z"
        );
        assert!(check.contains("clock"), "{check}");
        assert_eq!(expired(1_800_000_001).0, cause);
        assert_eq!(
            early,
            (
                "the server's certificate is not valid before 2026-12-28T08:47:28Z".to_owned(),
                check
            )
        );
    }

    #[test]
    fn a_pin_mismatch_is_explained_in_the_words_of_the_verifier() {
        let found = quictun_trust::settings::Pin([7; 32]);
        let mismatch = quictun_trust::tls::PinMismatch { found };
        let ours = mismatch.to_string();
        let error = CertificateError::Other(OtherError(Arc::new(mismatch)));
        let text = Error::InvalidCertificate(error).to_string();
        assert_eq!(explain(&ProtocolError::here(text).into()).0, ours);
    }
}
