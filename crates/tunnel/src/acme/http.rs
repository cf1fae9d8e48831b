//! HTTP requests to the authority, for the ACME library: by the client that token plugins use, on threads that may block.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use jiff::fmt::rfc2822;
use rustls::crypto::aws_lc_rs;
use thiserror::Error as ThisError;
use ureq::Agent;
use ureq::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ureq::http::request::Parts;
use ureq::http::{HeaderValue, Method, Request, Response, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::lookup_threads;

/// Time limit of a request. Authorities answer within a second or two, or say that the client is to ask again.
const DEADLINE: Duration = Duration::from_secs(30);

/// Largest answer, bytes. Chains of certificates have 10 kB.
const BODY_MAX: u64 = 1 << 20;

/// Longest pause within an attempt that the authority can ask for, seconds.
const PAUSE_MAX_S: u64 = 60;

type Answer = Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>>;

/// The client. All clones share the latest wish for a pause.
#[derive(Clone, Debug)]
pub(super) struct AcmeHttp {
    agent: Agent,
    /// The time before which the authority does not want to be asked again.
    not_before: Arc<Mutex<Option<SystemTime>>>,
}

/// The reason why there is no answer of an authority.
#[derive(Debug, ThisError)]
pub(super) enum HttpFailure {
    #[error("no answer from {0} within {limit} s", limit = DEADLINE.as_secs())]
    Deadline(String),
    #[error(
        "{0} cannot be reached: check --acme-directory, the DNS server, and firewalls for outgoing connections"
    )]
    Request(String, #[source] Box<ureq::Error>),
    #[error("{0} answered {1}: it is overloaded, or its limit is used up, so only waiting helps")]
    Busy(String, StatusCode),
    #[error("{0} answered {1}, and not as an ACME server: check --acme-directory")]
    Status(String, StatusCode),
    #[error("there can be no more threads: check the limit of the service")]
    NoThread,
}

impl AcmeHttp {
    /// Makes a client that trusts these authorities, and goes through the proxy of the environment if there is one.
    pub(super) fn new(roots: RootCerts) -> Self {
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
            .root_certs(roots)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .https_only(true)
            .timeout_global(Some(DEADLINE))
            .http_status_as_error(false)
            .max_idle_connections(1)
            .build();
        Self {
            agent: config.new_agent(),
            not_before: Arc::default(),
        }
    }

    /// Makes a client that trusts the system's authorities.
    pub(super) fn of_system() -> Self {
        let roots = rustls_native_certs::load_native_certs().certs;
        let roots = roots
            .iter()
            .map(|root| Certificate::from_der(root).to_owned());
        Self::new(roots.collect::<Vec<_>>().into())
    }

    /// Takes the time before which the authority does not want to be asked again.
    pub(super) fn take_pause(&self) -> Option<SystemTime> {
        self.pause().take()
    }

    fn pause(&self) -> std::sync::MutexGuard<'_, Option<SystemTime>> {
        // The value is replaced as a whole.
        self.not_before
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a request, and reads the whole answer.
    fn call(&self, parts: Parts, body: Vec<u8>) -> Result<Response<Bytes>, HttpFailure> {
        let host = parts.uri.host().unwrap_or_default().to_owned();
        // The library looks at the status of answers to signed requests only.
        let is_signed = parts.method == Method::POST;
        let failed = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => HttpFailure::Deadline(host.clone()),
            other => HttpFailure::Request(host.clone(), Box::new(other)),
        };
        let sent = if body.is_empty() {
            self.agent.run(Request::from_parts(parts, ()))
        } else {
            self.agent.run(Request::from_parts(parts, body))
        };
        let (mut head, mut body) = sent.map_err(failed)?.into_parts();
        let body = body.with_config().limit(BODY_MAX).read_to_vec();
        let body = Bytes::from(body.map_err(failed)?);
        self.note_pause(&mut head);
        match head.status {
            status if status.is_success() || is_signed && is_json(&head) => {
                Ok(Response::from_parts(head, body))
            }
            status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
                Err(HttpFailure::Busy(host, status))
            }
            status => Err(HttpFailure::Status(host, status)),
        }
    }

    /// Notes the pause that a refusal asks for. The library, which waits between its questions, sees a bounded one.
    fn note_pause(&self, head: &mut ureq::http::response::Parts) {
        let Some(wanted) = head.headers.remove(RETRY_AFTER) else {
            return;
        };
        let now = SystemTime::now();
        let Some(pause) = wanted.to_str().ok().and_then(|text| pause_of(text, now)) else {
            return;
        };
        if !head.status.is_success() {
            *self.pause() = now.checked_add(pause);
        }
        let bounded = HeaderValue::from(pause.as_secs().min(PAUSE_MAX_S));
        head.headers.insert(RETRY_AFTER, bounded);
    }
}

impl HttpClient for AcmeHttp {
    fn request(&self, request: Request<BodyWrapper<Bytes>>) -> Answer {
        let http = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // Only a response has a way to its bytes.
            let mut body = BytesResponse::from(Response::new(body)).body;
            let body = body.into_bytes().await.map_err(Error::Other)?;
            // These threads read a list of name servers that has replaced another one.
            let called = lookup_threads::run(move || http.call(parts, body.to_vec())).await;
            let called = called.unwrap_or(Err(HttpFailure::NoThread));
            let (parts, body) = called
                .map_err(|failure| Error::Other(Box::new(failure)))?
                .into_parts();
            Ok(BytesResponse {
                parts,
                body: Box::new(body),
            })
        })
    }
}

/// Returns whether an answer is a problem document (RFC 9457), or JSON at least.
fn is_json(head: &ureq::http::response::Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.contains("json"))
}

/// Returns the pause of a `Retry-After` field: seconds, or a date (RFC 9110 section 10.2.3).
fn pause_of(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = rfc2822::parse(text).ok()?;
    let date = SystemTime::from(date.timestamp());
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_number_of_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        for (text, pause) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("", None),
        ] {
            let pause = pause.map(Duration::from_secs);
            assert_eq!(pause_of(text, now), pause, "{text}");
        }
    }

    #[test]
    fn the_library_sees_bounded_pauses_and_only_refusals_are_noted() {
        let http = AcmeHttp::new(Vec::new().into());
        for (status, given, bounded, noted) in [
            (429, "86400", Some("60"), true),
            (503, "5", Some("5"), true),
            (200, "86400", Some("60"), false),
            (429, "18446744073709551615", None, false),
        ] {
            let answer = Response::builder().status(status);
            let answer = answer.header(RETRY_AFTER, given).body(());
            let mut head = answer.expect("an answer").into_parts().0;
            http.note_pause(&mut head);
            let seen = head.headers.get(RETRY_AFTER);
            let seen = seen.map(|value| value.to_str().expect("digits"));
            assert_eq!(seen, bounded, "{given}");
            assert_eq!(http.take_pause().is_some(), noted, "{status} {given}");
            assert!(http.take_pause().is_none(), "it is taken once");
        }
    }
}
