//! `GET /v1/tunnels`, `/v1/connections` and `/v1/bonds`: all known values, with units in the names.
//!
//! Fields may be added, but are never removed or changed. `docs/REST.md` explains each field, and a test compares the
//! two.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use quictun_engine::report::{BondReport, ConnectionReport, FlowReport, Protocol};
use quictun_wire::spice::Spice;
use serde::Serialize;

use super::clock::seconds;
use super::error;
use super::object::object;
use super::sample::FlowRate;
use super::state::{RestApp, RestState};
use crate::snapshot::{Detail, WorkerSnapshot};

#[derive(Serialize)]
struct Tunnels<'a> {
    tunnels: Vec<Tunnel<'a>>,
    workers_silent: &'a [usize],
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the interface")]
struct Connections<'a> {
    connections: Vec<Connection<'a>>,
    udp_sockets: Vec<UdpSocket>,
    workers_silent: &'a [usize],
}

#[derive(Serialize)]
struct Bonds<'a> {
    bonds: Vec<Bond<'a>>,
    workers_silent: &'a [usize],
}

pub(super) async fn tunnels(State(app): State<Arc<RestApp>>) -> Response {
    let Some(sample) = app.sample(Detail::Flows).await else {
        return error::shutting_down();
    };
    let flows = sample.collected.flows().into_iter();
    Json(Tunnels {
        tunnels: flows
            .map(|(snapshot, flow)| {
                let rate = sample.rates.of(snapshot.worker, flow);
                tunnel(&app.state, snapshot, flow, rate)
            })
            .collect(),
        workers_silent: &sample.collected.silent,
    })
    .into_response()
}

pub(super) async fn connections(State(app): State<Arc<RestApp>>) -> Response {
    let Some(sample) = app.sample(Detail::Counters).await else {
        return error::shutting_down();
    };
    let snapshots = &sample.collected.snapshots;
    let reports = snapshots.iter().flat_map(|snapshot| {
        let reports = snapshot.connections.iter();
        reports.map(move |report| (snapshot, report))
    });
    let mut reports: Vec<_> = reports.collect();
    reports.sort_by_key(|(snapshot, report)| (report.opened, snapshot.worker, report.id.0));
    Json(Connections {
        connections: reports
            .into_iter()
            .map(|(snapshot, report)| connection(&app.state, snapshot, report))
            .collect(),
        udp_sockets: snapshots.iter().map(udp_socket).collect(),
        workers_silent: &sample.collected.silent,
    })
    .into_response()
}

pub(super) async fn bonds(State(app): State<Arc<RestApp>>) -> Response {
    let Some(sample) = app.sample(Detail::Counters).await else {
        return error::shutting_down();
    };
    let state = &app.state;
    let reports = sample.collected.snapshots.iter().flat_map(|snapshot| {
        let reports = snapshot.bonds.iter();
        reports.map(move |report| bond(state, snapshot, report))
    });
    Json(Bonds {
        bonds: reports.collect(),
        workers_silent: &sample.collected.silent,
    })
    .into_response()
}

fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

object! {
    struct Tunnel<'a>,
    fn tunnel(state: &RestState, snapshot: &WorkerSnapshot, flow: &'a FlowReport, rate: FlowRate) {
        id: String = state.uuids.of(snapshot.worker, flow.id),
        worker: usize = snapshot.worker,
        connection: u64 = flow.connection.0,
        stream_id: u64 = flow.stream_id,
        side: &'static str = state.side_name(),
        remote: String = flow.remote.to_string(),
        target: &'a str = &flow.token,
        client_app: Option<&'a str> = known(&flow.client_app),
        server_app: Option<&'a str> = known(&flow.server_app),
        opened_at: String = format!("{:.6}", state.clock.wall(flow.opened)),
        age_seconds: f64 = seconds(snapshot.age(flow.opened)),
        established: bool = flow.established,
        reverse: bool = flow.incoming,
        detached_seconds: Option<f64> = flow.detached_since.map(|since| seconds(snapshot.age(since))),
        to_tunnel_bytes: u64 = flow.bytes_to_tunnel,
        to_app_bytes: u64 = flow.bytes_to_app,
        to_tunnel_bytes_per_second: f64 = rate.to_tunnel,
        to_app_bytes_per_second: f64 = rate.to_app,
        spice: Option<SpiceChannel> = state.spice(flow).map(spice_channel),
    }
}

object! {
    struct SpiceChannel,
    fn spice_channel(spice: Spice) {
        version: String = spice.version,
        session_id: String = spice.session_id,
        channel: &'static str = spice.channel_type.name(),
        server_name: Option<String> = spice.server_name,
        server_uuid: Option<String> = spice.server_uuid,
    }
}

object! {
    struct Connection<'a>,
    fn connection(state: &RestState, snapshot: &WorkerSnapshot, report: &'a ConnectionReport) {
        id: u64 = report.id.0,
        worker: usize = snapshot.worker,
        side: &'static str = state.side_name(),
        remote: String = report.remote.to_string(),
        carrier: &'static str = report.carrier.name(),
        protocol: Option<&'static str> = report.protocol.map(Protocol::alpn),
        peer: Option<&'a str> = report.peer.as_deref(),
        bond: Option<String> = report.bond.map(|bond| bond.to_string()),
        opened_at: String = format!("{:.6}", state.clock.wall(report.opened)),
        age_seconds: f64 = seconds(snapshot.age(report.opened)),
        unresponsive: bool = report.unresponsive,
        flows: usize = report.flows,
        rtt_seconds: f64 = report.rtt.as_secs_f64(),
        congestion_control: &'static str = report.controller.mode,
        congestion_phase: &'static str = report.controller.phase,
        bandwidth_bytes_per_second: Option<u64> = report.controller.bandwidth_known(),
        min_rtt_seconds: Option<f64> = report.controller.min_rtt.map(|rtt| rtt.as_secs_f64()),
        loss_floor: f64 = report.controller.loss_floor,
        loss_trust: f64 = report.controller.trust,
        limited_by: &'static str = report.limit.name(),
        congestion_window_bytes: Option<u64> = report.congestion_window,
        in_flight_bytes: u64 = report.in_flight,
        pacing_bytes_per_second: Option<u64> = report.pacing_bytes_per_s,
        receive_window_bytes: u64 = report.receive_window,
        mtu_bytes: Option<u16> = report.mtu,
        sent_bytes: u64 = report.bytes_sent,
        received_bytes: u64 = report.bytes_received,
        packets_sent: u64 = report.packets_sent,
        packets_lost: u64 = report.packets_lost,
        loss_ratio: f64 = crate::metrics::ratio(report.packets_lost, report.packets_sent),
        congestion_events: u64 = report.congestion_events,
        datagrams_sent: u64 = report.datagrams_sent,
        datagrams_repeated: u64 = report.datagrams_repeated,
        datagrams_received: u64 = report.datagrams_received,
        batches_sent: u64 = report.batches_sent,
        datagrams_per_batch: f64 = crate::metrics::ratio(report.datagrams_sent, report.batches_sent),
        migrations: u64 = report.migrations,
    }
}

object! {
    struct Bond<'a>,
    fn bond(state: &RestState, snapshot: &WorkerSnapshot, report: &'a BondReport) {
        id: String = report.id.to_string(),
        worker: usize = snapshot.worker,
        side: &'static str = state.side_name(),
        client: Option<&'a str> = report.client.as_deref(),
        connections: usize = report.connections,
        flows: usize = report.flows,
        detached_flows: usize = report.detached,
        kept_bytes: u64 = report.retained,
        alone_seconds: Option<f64> = report.alone_since.map(|since| seconds(snapshot.age(since))),
    }
}

object! {
    struct UdpSocket,
    fn udp_socket(snapshot: &WorkerSnapshot) {
        worker: usize = snapshot.worker,
        receive_buffer_bytes: usize = snapshot.udp.recv_buffer,
        send_buffer_bytes: usize = snapshot.udp.send_buffer,
        gso: bool = snapshot.udp.gso,
        gro: bool = snapshot.udp.gro,
        gso_fallbacks: u64 = snapshot.udp.gso_fallbacks,
        send_errors: u64 = snapshot.udp.send_errors,
        receive_drops: u64 = snapshot.udp.receive_drops,
    }
}
