//! Tokens from a web service: `GET <url>?addr=<ip:port>` answers `{"token": "..."}`.
//!
//! The request runs on a thread that may block. The caller limits the number of concurrent requests. Proxies come from
//! the environment, and authorities for https from the system.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use serde_json::{Map, Value};
use thiserror::Error;
use ureq::Agent;
use ureq::http::{StatusCode, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::app_addr::AppAddr;

#[derive(Debug)]
pub(super) struct HttpSource {
    pub(super) url: String,
    agent: Agent,
    pub(super) deadline: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum UrlError {
    /// The URL has another scheme, or none.
    #[error("write http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")]
    Scheme,
    /// The URL is malformed: it has spaces, no host or the like.
    #[error("it is malformed: write special characters as %XX")]
    Malformed,
}

#[derive(Debug, Error)]
pub(crate) enum HttpError {
    /// No complete answer arrived within this many seconds.
    #[error("no answer within {0} s: is the service overloaded, or a firewall in between?")]
    Deadline(u64),
    #[error("the request failed")]
    Request(#[source] Box<ureq::Error>),
    #[error("the service answered {0}: only 200 carries a token")]
    Status(StatusCode),
    #[error("the answer is larger than {MAX_BODY} bytes: a token has at most 512")]
    TooLarge,
    #[error("the answer is not a JSON object: {{\"token\": \"...\"}} is expected")]
    NotJson(#[source] serde_json::Error),
    #[error("the answer has no text \"token\": {{\"token\": \"...\"}} is expected")]
    NoToken,
}

impl HttpSource {
    pub(super) fn new(url: &str) -> Result<Self, UrlError> {
        let roots = rustls_native_certs::load_native_certs().certs;
        let roots = roots
            .iter()
            .map(|root| Certificate::from_der(root).to_owned());
        Self::with(url, roots.collect::<Vec<_>>().into(), DEADLINE)
    }

    /// Makes a source with these authorities and this deadline.
    pub(super) fn with(url: &str, roots: RootCerts, deadline: Duration) -> Result<Self, UrlError> {
        let url = url.split('#').next().unwrap_or(url);
        let parsed: Uri = url.parse().map_err(|_| UrlError::Malformed)?;
        match parsed.scheme_str() {
            Some("http" | "https") => {}
            _ => return Err(UrlError::Scheme),
        }
        let host = parsed
            .host()
            .filter(|host| !host.is_empty())
            .ok_or(UrlError::Malformed)?;
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
            .root_certs(roots)
            .build();
        let mut config = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(deadline))
            .http_status_as_error(false)
            // No connection is reused: a service restarted between two flows must not make the second request fail.
            .max_idle_connections(0)
            .user_agent(concat!("quictun/", env!("CARGO_PKG_VERSION")));
        if is_this_machine(host) {
            config = config.proxy(None);
        }
        Ok(Self {
            url: url.to_owned(),
            agent: config.build().new_agent(),
            deadline,
        })
    }

    pub(super) fn token(&self, app: AppAddr) -> Result<String, HttpError> {
        let mut response = self
            .agent
            .get(url_for(&self.url, app))
            .call()
            .map_err(|e| self.failed(e))?;
        if response.status() != StatusCode::OK {
            return Err(HttpError::Status(response.status()));
        }
        // The reader treats a body that ends exactly at its limit as too long.
        let body = response
            .body_mut()
            .with_config()
            .limit(MAX_BODY + 1)
            .read_to_vec()
            .map_err(|e| self.failed(e))?;
        let mut answer: Map<String, Value> =
            serde_json::from_slice(&body).map_err(HttpError::NotJson)?;
        match answer.remove("token") {
            Some(Value::String(token)) => Ok(token),
            _ => Err(HttpError::NoToken),
        }
    }

    fn failed(&self, error: ureq::Error) -> HttpError {
        match error {
            ureq::Error::Timeout(_) => HttpError::Deadline(self.deadline.as_secs()),
            ureq::Error::BodyExceedsLimit(_) => HttpError::TooLarge,
            other => HttpError::Request(Box::new(other)),
        }
    }
}

/// Returns whether a host needs no proxy. Go's client also ignores `HTTP_PROXY` for these hosts.
fn is_this_machine(host: &str) -> bool {
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || literal.is_ok_and(|addr| addr.to_canonical().is_loopback())
}

/// Adds `addr` to the URL's query, unless the query has it already.
fn url_for(url: &str, app: AppAddr) -> String {
    let query = url.split_once('?').map(|(_, query)| query);
    let has_addr = |query: &str| {
        query
            .split('&')
            .any(|pair| pair.split('=').next() == Some("addr"))
    };
    let separator = match query {
        Some(query) if has_addr(query) => return url.to_owned(),
        Some("") => "",
        Some(query) if query.ends_with('&') => "",
        Some(_) => "&",
        None => "?",
    };
    // An address has only these characters that need escaping in a query. RFC 3986 section 3.4 allows ':', but Go's
    // encoder escapes it, and existing services were written for it.
    let addr = app
        .to_string()
        .replace(':', "%3A")
        .replace('[', "%5B")
        .replace(']', "%5D");
    format!("{url}{separator}addr={addr}")
}

/// Time limit of a request. The application waits for its connection meanwhile, and would give up after a longer time.
const DEADLINE: Duration = Duration::from_secs(5);

/// Maximum size of an answer, bytes: room for a token, its JSON and other fields.
const MAX_BODY: u64 = 64 * 1024;

#[cfg(test)]
mod tests;
