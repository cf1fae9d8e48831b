//! `GET /v1` and the answer to unknown paths: the list of resources.

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::error;

/// The JSON resources, and the subject of each.
const RESOURCES: [(&str, &str); 6] = [
    ("/v1/status", "the process as a whole"),
    ("/v1/tunnels", "open flows"),
    ("/v1/connections", "connections and UDP sockets"),
    ("/v1/bonds", "what outlives connections"),
    ("/v1/clients", "named clients: limits and use"),
    ("/v1/reload", "what a reload would change"),
];

#[derive(Serialize)]
struct Index {
    resources: Vec<Resource>,
}

#[derive(Serialize)]
struct Resource {
    path: &'static str,
    about: &'static str,
}

pub(super) async fn index() -> Response {
    let resources = RESOURCES.map(|(path, about)| Resource { path, about });
    Json(Index {
        resources: resources.into(),
    })
    .into_response()
}

pub(super) async fn not_found(uri: Uri) -> Response {
    let own = RESOURCES.map(|(path, _)| path).join(", ");
    let path = uri.path();
    if path == "/v1" || path.starts_with("/v1/") {
        return error::json(
            StatusCode::NOT_FOUND,
            &format!("not found: resources are {own}"),
        );
    }
    let text =
        format!("Not found. Resources: /tunnels, /v1, {own}, /metrics, /healthz and /readyz.\n");
    (StatusCode::NOT_FOUND, text).into_response()
}
