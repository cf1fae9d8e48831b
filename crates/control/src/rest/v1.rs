//! `GET /v1/tunnels` and `GET /v1/connections`: what there is to know, with units in the names.
//!
//! Fields are only ever added to these. `docs/REST.md` explains each; a test holds the two together.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use quictun_engine::report::{ConnectionReport, FlowReport, Protocol};
use quictun_wire::spice::Spice;
use serde::Serialize;

use super::sample::Sample;
use super::{App, RestState};
use crate::snapshot::{Detail, WorkerSnapshot};

#[derive(Serialize)]
struct Tunnels<'a> {
    tunnels: Vec<Tunnel<'a>>,
    workers_silent: &'a [usize],
}

#[derive(Serialize)]
struct Tunnel<'a> {
    id: String,
    worker: usize,
    connection: u64,
    stream_id: u64,
    side: &'static str,
    remote: String,
    target: &'a str,
    client_app: Option<&'a str>,
    server_app: Option<&'a str>,
    opened_at: String,
    age_seconds: f64,
    established: bool,
    to_tunnel_bytes: u64,
    to_app_bytes: u64,
    to_tunnel_bytes_per_second: f64,
    to_app_bytes_per_second: f64,
    spice: Option<SpiceChannel>,
}

#[derive(Serialize)]
struct SpiceChannel {
    version: String,
    session_id: String,
    channel: &'static str,
    server_name: Option<String>,
    server_uuid: Option<String>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the interface")]
struct Connections<'a> {
    connections: Vec<Connection<'a>>,
    udp_sockets: Vec<UdpSocket>,
    workers_silent: &'a [usize],
}

#[derive(Serialize)]
struct Connection<'a> {
    id: u64,
    worker: usize,
    side: &'static str,
    remote: String,
    protocol: Option<&'static str>,
    peer: Option<&'a str>,
    opened_at: String,
    age_seconds: f64,
    unresponsive: bool,
    flows: usize,
    rtt_seconds: f64,
    congestion_control: &'static str,
    congestion_phase: &'static str,
    bandwidth_bytes_per_second: Option<u64>,
    min_rtt_seconds: Option<f64>,
    loss_floor: f64,
    loss_trust: f64,
    limited_by: &'static str,
    congestion_window_bytes: u64,
    in_flight_bytes: u64,
    pacing_bytes_per_second: Option<u64>,
    receive_window_bytes: u64,
    mtu_bytes: u16,
    sent_bytes: u64,
    received_bytes: u64,
    packets_sent: u64,
    packets_lost: u64,
    loss_ratio: f64,
    congestion_events: u64,
    datagrams_sent: u64,
    datagrams_repeated: u64,
    datagrams_received: u64,
    batches_sent: u64,
    datagrams_per_batch: f64,
    migrations: u64,
}

#[derive(Serialize)]
struct UdpSocket {
    worker: usize,
    receive_buffer_bytes: usize,
    send_buffer_bytes: usize,
    gso: bool,
    gro: bool,
    gso_fallbacks: u64,
    send_errors: u64,
    receive_drops: u64,
}

/// Every flow, oldest first.
pub(super) async fn tunnels(State(app): State<Arc<App>>) -> Response {
    let Some(sample) = app.sample(Detail::Flows).await else {
        return super::error::shutting_down();
    };
    let mut flows: Vec<_> = sample
        .collected
        .snapshots
        .iter()
        .flat_map(|snapshot| snapshot.flows.iter().map(move |flow| (snapshot, flow)))
        .collect();
    flows.sort_by_key(|(snapshot, flow)| (flow.opened, snapshot.worker, flow.id.0));
    let tunnels = flows
        .into_iter()
        .map(|(snapshot, flow)| tunnel(&app.state, &sample, snapshot, flow))
        .collect();
    Json(Tunnels {
        tunnels,
        workers_silent: &sample.collected.silent,
    })
    .into_response()
}

/// Every connection, oldest first, and the workers' sockets.
pub(super) async fn connections(State(app): State<Arc<App>>) -> Response {
    let Some(sample) = app.sample(Detail::Counters).await else {
        return super::error::shutting_down();
    };
    let snapshots = &sample.collected.snapshots;
    let mut reports: Vec<_> = snapshots
        .iter()
        .flat_map(|snapshot| {
            snapshot
                .connections
                .iter()
                .map(move |connection| (snapshot, connection))
        })
        .collect();
    reports.sort_by_key(|(snapshot, report)| (report.opened, snapshot.worker, report.id.0));
    let connections = reports
        .into_iter()
        .map(|(snapshot, report)| connection(&app.state, snapshot, report))
        .collect();
    let udp_sockets = snapshots.iter().map(udp_socket).collect();
    Json(Connections {
        connections,
        udp_sockets,
        workers_silent: &sample.collected.silent,
    })
    .into_response()
}

fn tunnel<'a>(
    state: &RestState,
    sample: &Sample,
    snapshot: &WorkerSnapshot,
    flow: &'a FlowReport,
) -> Tunnel<'a> {
    let rate = sample.rates.of(snapshot.worker, flow);
    Tunnel {
        id: state.uuids.of(snapshot.worker, flow.id),
        worker: snapshot.worker,
        connection: flow.connection.0,
        stream_id: flow.stream_id,
        side: super::side_name(state.side),
        remote: flow.remote.to_string(),
        target: &flow.token,
        client_app: known(&flow.client_app),
        server_app: known(&flow.server_app),
        opened_at: format!("{:.6}", state.clock.wall(flow.opened)),
        age_seconds: snapshot
            .taken
            .saturating_duration_since(flow.opened)
            .as_secs_f64(),
        established: flow.established,
        to_tunnel_bytes: flow.bytes_to_tunnel,
        to_app_bytes: flow.bytes_to_app,
        to_tunnel_bytes_per_second: rate.to_tunnel,
        to_app_bytes_per_second: rate.to_app,
        spice: super::spice(state.side, flow).map(spice_channel),
    }
}

fn spice_channel(spice: Spice) -> SpiceChannel {
    SpiceChannel {
        version: spice.version,
        session_id: spice.session_id,
        channel: spice.channel_type.name(),
        server_name: spice.server_name,
        server_uuid: spice.server_uuid,
    }
}

fn connection<'a>(
    state: &RestState,
    snapshot: &WorkerSnapshot,
    report: &'a ConnectionReport,
) -> Connection<'a> {
    let view = report.controller;
    Connection {
        id: report.id.0,
        worker: snapshot.worker,
        side: super::side_name(state.side),
        remote: report.remote.to_string(),
        protocol: report.protocol.map(Protocol::alpn),
        peer: report.peer.as_deref(),
        opened_at: format!("{:.6}", state.clock.wall(report.opened)),
        age_seconds: snapshot
            .taken
            .saturating_duration_since(report.opened)
            .as_secs_f64(),
        unresponsive: report.unresponsive,
        flows: report.flows,
        rtt_seconds: report.rtt.as_secs_f64(),
        congestion_control: view.mode,
        congestion_phase: view.phase,
        bandwidth_bytes_per_second: view.bandwidth_known(),
        min_rtt_seconds: view.min_rtt.map(|rtt| rtt.as_secs_f64()),
        loss_floor: view.loss_floor,
        loss_trust: view.trust,
        limited_by: report.limit.name(),
        congestion_window_bytes: report.congestion_window,
        in_flight_bytes: report.in_flight,
        pacing_bytes_per_second: report.pacing_bytes_per_s,
        receive_window_bytes: report.receive_window,
        mtu_bytes: report.mtu,
        sent_bytes: report.bytes_sent,
        received_bytes: report.bytes_received,
        packets_sent: report.packets_sent,
        packets_lost: report.packets_lost,
        loss_ratio: crate::metrics::ratio(report.packets_lost, report.packets_sent),
        congestion_events: report.congestion_events,
        datagrams_sent: report.datagrams_sent,
        datagrams_repeated: report.datagrams_repeated,
        datagrams_received: report.datagrams_received,
        batches_sent: report.batches_sent,
        datagrams_per_batch: crate::metrics::ratio(report.datagrams_sent, report.batches_sent),
        migrations: report.migrations,
    }
}

fn udp_socket(snapshot: &WorkerSnapshot) -> UdpSocket {
    let udp = snapshot.udp;
    UdpSocket {
        worker: snapshot.worker,
        receive_buffer_bytes: udp.recv_buffer,
        send_buffer_bytes: udp.send_buffer,
        gso: udp.gso,
        gro: udp.gro,
        gso_fallbacks: udp.gso_fallbacks,
        send_errors: udp.send_errors,
        receive_drops: udp.receive_drops,
    }
}

fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
