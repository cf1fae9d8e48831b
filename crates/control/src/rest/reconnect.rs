//! `POST /v1/reconnect`: a client replaces its connections.
//!
//! No other request changes anything. A browser sends POST for any page, so this one needs a header that no form can
//! set. A script may send it to another site only after a preflight request, which is refused.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::error;
use super::state::RestApp;
use crate::snapshot::Detail;

/// Name of the required header. Its value does not matter.
const HEADER: &str = "quictun-request";

/// Shortest time between two replacements. Otherwise a client of the interface could keep all connections young.
const AGAIN: Duration = Duration::from_secs(1);

/// Makes every worker replace its connections, without blocking.
pub type ReplaceConnections = Box<dyn Fn() + Send + Sync>;

pub(super) struct Reconnect {
    replace: ReplaceConnections,
    latest: Mutex<Option<Instant>>,
}

impl Reconnect {
    pub(super) fn new(replace: ReplaceConnections) -> Self {
        Self {
            replace,
            latest: Mutex::default(),
        }
    }

    /// Replaces the connections and returns true, unless that was done less than a second ago.
    fn replace_at(&self, now: Instant) -> bool {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.is_some_and(|at| now.saturating_duration_since(at) < AGAIN) {
            return false;
        }
        *latest = Some(now);
        (self.replace)();
        true
    }
}

impl fmt::Debug for Reconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnect").finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct ReconnectAnswer {
    connections: usize,
}

pub(super) async fn reconnect(State(app): State<Arc<RestApp>>, headers: HeaderMap) -> Response {
    let Some(reconnect) = &app.state.reconnect else {
        let text = "a server does not dial: only a client can replace its connections";
        return error::json(StatusCode::NOT_FOUND, text);
    };
    if !headers.contains_key(HEADER) {
        let text = "this request changes state: it needs the header Quictun-Request, which no page of another site can send";
        return error::json(StatusCode::FORBIDDEN, text);
    }
    let Some(sample) = app.sample(Detail::Counters).await else {
        return error::shutting_down();
    };
    if !reconnect.replace_at(Instant::now()) {
        let text = "connections were replaced less than a second ago: try again later";
        return error::json(StatusCode::TOO_MANY_REQUESTS, text);
    }
    let connections = sample.collected.connections();
    let connections = connections.filter(|report| report.protocol.is_some());
    Json(ReconnectAnswer {
        connections: connections.count(),
    })
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_per_second_is_passed_on() {
        let asked = Arc::<Mutex<usize>>::default();
        let counted = asked.clone();
        let reconnect = Reconnect::new(Box::new(move || *counted.lock().expect("one thread") += 1));
        let now = Instant::now();
        let nanosecond = Duration::from_nanos(1);
        let asks = [now, now + AGAIN.saturating_sub(nanosecond), now + AGAIN];
        assert_eq!(asks.map(|at| reconnect.replace_at(at)), [true, false, true]);
        assert_eq!(*asked.lock().expect("one thread"), 2);
    }
}
