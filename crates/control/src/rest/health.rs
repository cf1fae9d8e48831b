//! `GET /healthz` and `GET /readyz`, for supervisors and load balancers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use quictun_engine::report::Side;
use serde::Serialize;

use super::sample::{DEADLINE, Sample};
use super::state::{RestApp, RestState};
use crate::snapshot::Detail;

#[derive(Serialize)]
struct HealthStatus {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Reports whether the process is alive: every worker answers in time.
pub(super) async fn healthz(State(app): State<Arc<RestApp>>) -> Response {
    let reason = match app.sample(Detail::Counters).await {
        Some(sample) => silence(&sample),
        None => Some("shutting down".to_owned()),
    };
    status(reason)
}

/// Reports whether the process can serve a new application.
pub(super) async fn readyz(State(app): State<Arc<RestApp>>) -> Response {
    let state = &app.state;
    let reason = match (state.readiness.missing(), state.side) {
        (None, Side::Client) => match app.sample(Detail::Counters).await {
            Some(sample) => not_ready(state, &sample),
            None => Some("shutting down".to_owned()),
        },
        (reason, _) => reason.map(str::to_owned),
    };
    status(reason)
}

/// Returns the reason why the process cannot serve a new application, or `None` if it can.
pub(super) fn not_ready(state: &RestState, sample: &Sample) -> Option<String> {
    let reason = match (state.readiness.missing(), state.side) {
        (None, Side::Client) if !usable_connection(sample) => {
            Some("no usable connection to the server")
        }
        (reason, _) => reason,
    };
    reason.map(str::to_owned)
}

fn silence(sample: &Sample) -> Option<String> {
    let silent = sample.collected.silent.iter();
    let silent: Vec<_> = silent.map(ToString::to_string).collect();
    let all = silent.len() + sample.collected.snapshots.len();
    (!silent.is_empty()).then(|| {
        let milliseconds = DEADLINE.as_millis();
        format!(
            "no answer within {milliseconds} ms from worker {} of {all}",
            silent.join(", ")
        )
    })
}

/// Returns true if a connection has finished its handshake, and its server knows this client and answers.
fn usable_connection(sample: &Sample) -> bool {
    sample.collected.connections().any(|connection| {
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
    (code, Json(HealthStatus { ok, reason })).into_response()
}
