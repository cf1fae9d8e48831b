//! `GET /healthz` and `GET /readyz`, for supervisors and load balancers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use quictun_engine::report::Side;
use serde::Serialize;

use super::sample::{DEADLINE, Sample};
use super::{App, RestState};
use crate::snapshot::Detail;

/// What the program says of itself. Each flag stands alone, so no memory order hangs on them.
#[derive(Debug, Default)]
pub struct Readiness {
    listening: AtomicBool,
    draining: AtomicBool,
}

impl Readiness {
    /// All listeners are bound.
    pub fn set_listening(&self) {
        self.listening.store(true, Ordering::Relaxed);
    }

    /// Nothing new is taken any more.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn missing(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Relaxed) {
            Some("draining: open flows are being finished")
        } else if self.listening.load(Ordering::Relaxed) {
            None
        } else {
            Some("not listening yet")
        }
    }
}

#[derive(Serialize)]
struct Status {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Whether the process lives: every worker answers.
pub(super) async fn healthz(State(app): State<Arc<App>>) -> Response {
    let reason = match app.sample(Detail::Counters).await {
        Some(sample) => silence(&sample),
        None => Some("shutting down".to_owned()),
    };
    status(reason)
}

/// Whether the process can be of use to someone who comes now.
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let state = &app.state;
    let reason = match (state.readiness.missing(), state.side) {
        (Some(reason), _) => Some(reason.to_owned()),
        (None, Side::Server) => None,
        (None, Side::Client) => match app.sample(Detail::Counters).await {
            Some(sample) => not_ready(state, &sample),
            None => Some("shutting down".to_owned()),
        },
    };
    status(reason)
}

/// Why the process is of no use to someone who comes now.
pub(super) fn not_ready(state: &RestState, sample: &Sample) -> Option<String> {
    let reason = match (state.readiness.missing(), state.side) {
        (Some(reason), _) => Some(reason),
        (None, Side::Client) if !usable_connection(sample) => {
            Some("no usable connection to the server")
        }
        (None, _) => None,
    };
    reason.map(str::to_owned)
}

fn silence(sample: &Sample) -> Option<String> {
    let silent: Vec<_> = sample
        .collected
        .silent
        .iter()
        .map(ToString::to_string)
        .collect();
    let all = silent.len() + sample.collected.snapshots.len();
    (!silent.is_empty()).then(|| {
        let milliseconds = DEADLINE.as_millis();
        format!(
            "no answer within {milliseconds} ms from worker {} of {all}",
            silent.join(", ")
        )
    })
}

/// Usable: the handshake is done, and the server knows this client and answers.
fn usable_connection(sample: &Sample) -> bool {
    let snapshots = sample.collected.snapshots.iter();
    snapshots
        .flat_map(|snapshot| &snapshot.connections)
        .any(|connection| {
            connection.protocol.is_some() && connection.admitted && !connection.unresponsive
        })
}

fn status(reason: Option<String>) -> Response {
    let ok = reason.is_none();
    let code = if ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, Json(Status { ok, reason })).into_response()
}
