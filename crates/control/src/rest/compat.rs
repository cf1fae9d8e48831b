//! `GET /tunnels`, with the same bytes as the original's answer.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use quictun_engine::report::{FlowReport, Side};
use quictun_wire::spice::Spice;
use serde::Serialize;

use super::go;
use super::object::object;
use super::sample::Sample;
use super::state::{RestApp, RestState};
use crate::snapshot::Detail;

/// The content type that Go's server guesses from the first bytes of JSON.
const SNIFFED: [(header::HeaderName, &str); 1] =
    [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];

/// The traffic that one side of a flow has sent.
struct SideTraffic<'a> {
    /// The address of the application if it is on this side of the tunnel, else empty.
    app: &'a str,
    bytes: u64,
    /// The rate, in bytes per second.
    rate: f64,
}

object! {
    /// One element of the answer. The order of the fields is the original's.
    #[serde(rename_all = "camelCase")]
    struct Tunnel<'a>,
    fn tunnel(
        state: &RestState,
        worker: usize,
        flow: &'a FlowReport,
        client: SideTraffic<'a>,
        server: SideTraffic<'a>,
        spice: Option<Spice>,
    ) {
        uuid: String = state.uuids.of(worker, flow.id),
        stream_id: u64 = flow.stream_id,
        endpoint: &'static str = state.side_name(),
        #[serde(skip_serializing_if = "str::is_empty")]
        client_app_addr: &'a str = client.app,
        #[serde(skip_serializing_if = "str::is_empty")]
        server_app_addr: &'a str = server.app,
        remote_endpoint_addr: String = flow.remote.to_string(),
        created_at: String = go::time_string(
            &state.clock.local(flow.opened),
            state.clock.since_start(flow.opened),
        ),
        server_total_bytes: u64 = server.bytes,
        client_total_bytes: u64 = client.bytes,
        server_send_rate: String = rate_text(server.rate),
        client_send_rate: String = rate_text(client.rate),
        protocol: &'static str = if spice.is_some() { "spice" } else { "" },
        protocol_properties: Option<SpiceProperties> =
            spice.map(|spice| properties(spice, state.compat_json)),
    }
}

object! {
    #[serde(rename_all = "camelCase")]
    struct SpiceProperties,
    fn properties(spice: Spice, compat_json: bool) {
        version: String = spice.version,
        session_id: String = spice.session_id,
        channel_type: &'static str = if compat_json {
            spice.channel_type.compat_name()
        } else {
            spice.channel_type.name()
        },
        #[serde(skip_serializing_if = "Option::is_none")]
        server_name: Option<String> = spice.server_name.filter(|name| !name.is_empty()),
        #[serde(rename = "serverUUID", skip_serializing_if = "Option::is_none")]
        server_uuid: Option<String> = spice.server_uuid,
    }
}

#[derive(Serialize)]
struct ErrorResponse {
    message: &'static str,
}

/// Handles every method. The original accepts GET only, and not even HEAD.
pub(super) async fn tunnels(method: Method, State(app): State<Arc<RestApp>>) -> Response {
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

/// Returns established flows, oldest first. Without flows it returns `null`, as Go writes a nil slice.
fn body(state: &RestState, sample: &Sample) -> Vec<u8> {
    let flows = sample.collected.flows().into_iter();
    let established = flows.filter(|(_, flow)| flow.established);
    let tunnels: Vec<_> = established
        .map(|(snapshot, flow)| shown(state, sample, snapshot.worker, flow))
        .collect();
    go::json(&(!tunnels.is_empty()).then_some(tunnels))
}

fn shown<'a>(
    state: &RestState,
    sample: &Sample,
    worker: usize,
    flow: &'a FlowReport,
) -> Tunnel<'a> {
    let rate = sample.rates.of(worker, flow);
    let sent = |app: &'a str, bytes, rate| SideTraffic { app, bytes, rate };
    let to_tunnel = |app| sent(app, flow.bytes_to_tunnel, rate.to_tunnel);
    let to_app = |app| sent(app, flow.bytes_to_app, rate.to_app);
    // Each side knows only the address of its own application, and counts bytes from the tunnel as sent by the other
    // one.
    let (client, server) = match state.side {
        Side::Client => (to_tunnel(&flow.client_app), to_app("")),
        Side::Server => (to_app(""), to_tunnel(&flow.server_app)),
    };
    tunnel(state, worker, flow, client, server, state.spice(flow))
}

/// Formats a rate. The original's kB has 1024 bytes.
fn rate_text(bytes_per_second: f64) -> String {
    format!("{:.2} kB/s", bytes_per_second / 1024.0)
}
