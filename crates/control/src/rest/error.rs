//! Error answers of quictun's own resources: JSON with one sentence.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
}

pub(super) fn json(status: StatusCode, error: &str) -> Response {
    (status, Json(ErrorBody { error })).into_response()
}

pub(super) fn shutting_down() -> Response {
    json(StatusCode::SERVICE_UNAVAILABLE, "shutting down")
}

/// Answers a request whose method is not POST.
pub(super) async fn not_post() -> Response {
    json(StatusCode::METHOD_NOT_ALLOWED, "only POST is allowed here")
}

/// Answers a request whose method is not GET.
pub(super) async fn method() -> Response {
    json(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed here")
}
