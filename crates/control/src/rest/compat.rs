//! `GET /tunnels`, byte for byte as the original answers it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use quictun_engine::report::{FlowReport, Side};
use quictun_wire::spice::Spice;
use serde::Serialize;

use super::sample::{Rate, Sample};
use super::{App, RestState, go};
use crate::snapshot::Detail;

/// What Go's server finds when it looks at the first bytes of JSON.
const SNIFFED: [(header::HeaderName, &str); 1] =
    [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];

/// One element of the answer. The order of the fields is the original's.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tunnel<'a> {
    uuid: String,
    stream_id: u64,
    endpoint: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    client_app_addr: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    server_app_addr: &'a str,
    remote_endpoint_addr: String,
    created_at: String,
    server_total_bytes: u64,
    client_total_bytes: u64,
    server_send_rate: String,
    client_send_rate: String,
    protocol: &'static str,
    protocol_properties: Option<SpiceProperties>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpiceProperties {
    version: String,
    session_id: String,
    channel_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_name: Option<String>,
    #[serde(rename = "serverUUID", skip_serializing_if = "Option::is_none")]
    server_uuid: Option<String>,
}

#[derive(Serialize)]
struct ErrorResponse {
    message: &'static str,
}

/// The handler, for every method: the original knows GET only, and not even HEAD.
pub(super) async fn tunnels(method: Method, State(app): State<Arc<App>>) -> Response {
    if method != Method::GET {
        let message = ErrorResponse {
            message: "Please use GET request method",
        };
        return (StatusCode::METHOD_NOT_ALLOWED, SNIFFED, go::json(&message)).into_response();
    }
    match app.sample(Detail::Flows).await {
        Some(sample) => (SNIFFED, body(&app.state, &sample)).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Established flows, oldest first; `null` where there are none, as Go writes an empty list that nobody made.
fn body(state: &RestState, sample: &Sample) -> Vec<u8> {
    let mut flows: Vec<_> = super::flows(sample)
        .filter(|(_, flow)| flow.established)
        .collect();
    flows.sort_by_key(|(worker, flow)| (flow.opened, *worker, flow.id.0));
    let tunnels: Vec<_> = flows
        .into_iter()
        .map(|(worker, flow)| tunnel(state, worker, flow, sample.rates.of(worker, flow)))
        .collect();
    go::json(&(!tunnels.is_empty()).then_some(tunnels))
}

fn tunnel<'a>(state: &RestState, worker: usize, flow: &'a FlowReport, rate: Rate) -> Tunnel<'a> {
    // Each side names the application that is its own, and counts what comes from the other as the other's.
    let (client_app_addr, server_app_addr, client, server) = match state.side {
        Side::Client => (
            flow.client_app.as_str(),
            "",
            (flow.bytes_to_tunnel, rate.to_tunnel),
            (flow.bytes_to_app, rate.to_app),
        ),
        Side::Server => (
            "",
            flow.server_app.as_str(),
            (flow.bytes_to_app, rate.to_app),
            (flow.bytes_to_tunnel, rate.to_tunnel),
        ),
    };
    let spice = super::spice(state.side, flow);
    Tunnel {
        uuid: state.uuids.of(worker, flow.id),
        stream_id: flow.stream_id,
        endpoint: super::side_name(state.side),
        client_app_addr,
        server_app_addr,
        remote_endpoint_addr: flow.remote.to_string(),
        created_at: go::time_string(
            &state.clock.local(flow.opened),
            state.clock.since_start(flow.opened),
        ),
        server_total_bytes: server.0,
        client_total_bytes: client.0,
        server_send_rate: rate_text(server.1),
        client_send_rate: rate_text(client.1),
        protocol: if spice.is_some() { "spice" } else { "" },
        protocol_properties: spice.map(|spice| properties(spice, state.compat_json)),
    }
}

/// The original's kB has 1024 bytes.
fn rate_text(bytes_per_second: f64) -> String {
    format!("{:.2} kB/s", bytes_per_second / 1024.0)
}

fn properties(spice: Spice, compat_json: bool) -> SpiceProperties {
    let channel = spice.channel_type;
    SpiceProperties {
        version: spice.version,
        session_id: spice.session_id,
        channel_type: if compat_json {
            channel.compat_name()
        } else {
            channel.name()
        },
        server_name: spice.server_name.filter(|name| !name.is_empty()),
        server_uuid: spice.server_uuid,
    }
}
