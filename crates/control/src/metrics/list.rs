//! The list of metrics, and the functions that read them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use quictun_engine::report::{
    CarrierKind, ClientTotals, ClientUsage, ConnectionReport, DurationHistograms, Histogram,
    Protocol, QuicState, Totals,
};

use super::clients::{self, ClientFigures};
use crate::rest::sample::WorkerCounters;
use crate::snapshot::CollectedSnapshots;
use quictun_io::udp_port::UdpSocketReport;

pub(crate) struct MetricsView<'a> {
    pub(crate) side: &'static str,
    pub(crate) started: Timestamp,
    pub(crate) collected: &'a CollectedSnapshots,
    /// The latest known counters of all workers, from which counter metrics are computed.
    pub(crate) counters: &'a [WorkerCounters],
    /// The last second of the certificate that programs without quictun see, if there is one.
    pub(crate) certificate_expires: Option<SystemTime>,
}

pub(super) struct Metric {
    /// The name, without the suffixes for unit and kind.
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) unit: Option<&'static str>,
    /// A sentence without its full stop.
    pub(super) help: &'static str,
    pub(super) read: fn(&MetricsView<'_>) -> Vec<MetricPoint>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

/// One value, and the labels that distinguish it from the other values of the metric.
#[derive(Debug)]
pub(super) struct MetricPoint {
    pub(super) labels: Vec<(&'static str, Cow<'static, str>)>,
    pub(super) value: PointValue,
}

#[derive(Clone, Debug)]
pub(super) enum PointValue {
    Whole(u64),
    Real(f64),
    Times(Box<Histogram>),
}

impl Metric {
    /// Returns the name of the metric family: with the unit, but without the suffix for the kind.
    pub(super) fn family(&self) -> String {
        match self.unit {
            Some(unit) => format!("{}_{unit}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// Returns the name that queries use.
    pub(super) fn full_name(&self) -> String {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge | MetricKind::Histogram => "",
            MetricKind::Info => "_info",
        };
        self.family() + suffix
    }
}

type ReadClient = fn(&ClientTotals) -> u64;

macro_rules! unit {
    () => {
        None
    };
    ($unit:literal) => {
        Some($unit)
    };
}

/// Defines the list: for each metric its kind, name, unit if it has one, meaning, and the function that reads it.
macro_rules! metrics {
    ($($kind:ident $name:literal $(($unit:literal))?: $help:literal => $read:expr;)*) => {
        pub(super) static METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            unit: unit!($($unit)?),
            help: $help,
            read: $read,
        }),*];
    };
}

metrics! {
    Info "quictun_build": "Version and side of this process"
        => |view| {
            let labels = [("version", env!("CARGO_PKG_VERSION")), ("side", view.side)];
            let labels = labels.map(|(label, value)| (label, value.into()));
            vec![point(labels, PointValue::Whole(1))]
        };
    Gauge "quictun_start_time" ("seconds"): "When this process started, in seconds since 1970"
        => |view| real(view.started.as_duration().as_secs_f64());
    Gauge "quictun_certificate_expiry_time" ("seconds"): "Last second of the certificate that programs without quictun see, in seconds since 1970; absent without one"
        => |view| {
            let since = view.certificate_expires.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            since.map_or_else(Vec::new, |since| real(since.as_secs_f64()))
        };
    Gauge "quictun_workers": "Worker threads, by whether they answered this scrape in time"
        => |view| {
            let answering = ("answering", view.collected.snapshots.len() as u64);
            let silent = ("silent", view.collected.silent.len() as u64);
            by("state", [answering, silent])
        };
    Gauge "quictun_connections": "Open connections, by protocol; handshake: no protocol agreed on yet"
        => |view| {
            let count = |wanted| {
                let all = view.collected.connections();
                all.filter(|report| report.protocol == wanted).count() as u64
            };
            let protocols = [
                Protocol::Native,
                Protocol::Compat,
                Protocol::Http,
                Protocol::Http2,
            ];
            let [native, compat, http, http2] =
                protocols.map(|protocol| (protocol.alpn(), count(Some(protocol))));
            let handshake = ("handshake", count(None));
            by("protocol", [native, compat, http, http2, handshake])
        };
    Gauge "quictun_connections_over_tls": "Open connections by TLS over TCP; the others are by QUIC"
        => |view| {
            let all = view.collected.connections();
            whole(all.filter(|report| report.carrier == CarrierKind::Tls).count() as u64)
        };
    Gauge "quictun_servers_quic_blocked": "Servers of a client to which QUIC does not pass, as far as its workers know"
        => |view| {
            let snapshots = view.collected.snapshots.iter();
            let servers = snapshots.flat_map(|snapshot| snapshot.servers.iter().enumerate());
            let blocked = servers.filter(|(_, server)| server.quic == QuicState::Blocked);
            let blocked: BTreeSet<usize> = blocked.map(|(index, _)| index).collect();
            whole(blocked.len() as u64)
        };
    Gauge "quictun_connections_unresponsive": "Open connections whose peer has stopped answering"
        => |view| {
            let all = view.collected.connections();
            whole(all.filter(|report| report.unresponsive).count() as u64)
        };
    Counter "quictun_connections_opened": "Connections begun (client) or accepted (server)"
        => |view| total(view, |totals| totals.connections_opened);
    Counter "quictun_connections_closed": "Connections that ended, for any reason"
        => |view| total(view, |totals| totals.connections_closed);
    Counter "quictun_connections_lost": "Connections that ended with an error or a time-out, or that the peer closed while flows were open"
        => |view| total(view, |totals| totals.connections_lost);
    Counter "quictun_handshakes_failed": "Handshakes refused or failed"
        => |view| total(view, |totals| totals.handshakes_failed);
    Gauge "quictun_flows": "Open flows, with those that wait for another connection"
        => |view| whole(view.collected.flow_count() as u64);
    Gauge "quictun_flows_detached": "Open flows that have lost their connection and wait for another one"
        => |view| whole(view.collected.detached_count() as u64);
    Gauge "quictun_flows_kept" ("bytes"): "Bytes that flows keep until the peer has them, to be sent again after a move"
        => |view| whole(view.collected.retained());
    Gauge "quictun_bonds": "Bonds: state that client and server keep for each other between connections"
        => |view| whole(view.collected.bonds().count() as u64);
    Counter "quictun_bonds_refused": "Server: bonds that clients asked for and did not get: unknown, of another client, or above the limit"
        => |view| total(view, |totals| totals.bonds_refused);
    Counter "quictun_flows_moved": "Moves of flows to another connection"
        => |view| total(view, |totals| totals.flows_moved);
    Counter "quictun_flow_moves_refused": "Server: moves that clients asked for and that were impossible: the flow has ended, or missing bytes are no longer kept"
        => |view| total(view, |totals| totals.moves_refused);
    Counter "quictun_flow_datagrams_dropped": "Datagrams that this side has dropped: in flows that have ended, too old, too many, beyond a rate, or incomplete; without a flow, at once"
        => |view| total(view, |totals| totals.flow_datagrams_dropped);
    Histogram "quictun_flow_move" ("seconds"): "Time without progress of flows that have moved: from the first datagram that the old connection left unanswered until the flow continues"
        => |view| times(view, |times| &times.moves);
    Counter "quictun_flows_opened": "Flows opened (client) or accepted (server)"
        => |view| total(view, |totals| totals.flows_opened);
    Counter "quictun_flows_ended": "Flows that ended: both directions finished, reset, or refused by the far side or the local dial"
        => |view| {
            let finished = ("finished", sum(view, |totals| totals.flows_finished));
            let reset = ("reset", sum(view, |totals| totals.flows_reset));
            let refused = ("refused", sum(view, |totals| totals.flows_refused));
            by("outcome", [finished, reset, refused])
        };
    Histogram "quictun_flow_first_byte" ("seconds"): "Time from a flow's beginning to the first byte that its target sends back; client: until the application has it; server: until it is on its way to the client"
        => |view| times(view, |times| &times.first_byte);
    Histogram "quictun_flow_duration" ("seconds"): "Time from the beginning to the end of flows that both sides had agreed on, counted when they end"
        => |view| times(view, |times| &times.life);
    Counter "quictun_flow" ("bytes"): "Bytes from local applications into the tunnel, and from the tunnel to local applications"
        => |view| {
            let into = ("to_tunnel", sum(view, |totals| totals.bytes_to_tunnel));
            let out = ("to_app", sum(view, |totals| totals.bytes_to_app));
            by("direction", [into, out])
        };
    Gauge "quictun_client_connections": "Server: open connections of each named client"
        => |view| of_clients(view, |client| client.connections);
    Gauge "quictun_client_flows": "Server: open flows of each named client"
        => |view| of_clients(view, |client| client.flows);
    Gauge "quictun_client_flows_detached": "Server: flows of each named client that wait for another connection"
        => |view| of_clients(view, |client| client.detached);
    Counter "quictun_client_flows_moved": "Server: moves of flows of each named client to another connection"
        => |view| of_clients(view, |client| client.totals.flows_moved);
    Counter "quictun_client_flows_ended": "Server: flows of each named client that ended, as in quictun_flows_ended_total"
        => |view| {
            of_clients_by(view, "outcome", [
                ("finished", |totals| totals.flows_finished),
                ("reset", |totals| totals.flows_reset),
                ("refused", |totals| totals.flows_refused),
            ])
        };
    Counter "quictun_client_flow" ("bytes"): "Server: bytes of each named client: to_app from the client to its targets, to_tunnel from the targets to the client"
        => |view| {
            of_clients_by(view, "direction", [
                ("to_tunnel", |totals| totals.bytes_to_tunnel),
                ("to_app", |totals| totals.bytes_to_app),
            ])
        };
    Gauge "quictun_client_quota" ("bytes"): "Server: bytes that each named client with a quota may move in a calendar month (UTC), both directions together"
        => |view| of_clients_with(view, |usage| usage.limits.quota);
    Gauge "quictun_client_quota_used" ("bytes"): "Server: bytes that each named client with a quota has moved in this month"
        => |view| of_clients_with(view, |usage| usage.limits.quota.map(|_| usage.used));
    Counter "quictun_packets_sent": "QUIC packets sent"
        => |view| total(view, |totals| totals.packets_sent);
    Counter "quictun_packets_lost": "QUIC packets declared lost"
        => |view| total(view, |totals| totals.packets_lost);
    Histogram "quictun_rtt" ("seconds"): "Smoothed round-trip times of connections: each counts at most once a second, when something has arrived on it"
        => |view| times(view, |times| &times.rtt);
    Counter "quictun_udp_datagrams": "UDP datagrams"
        => |view| {
            let sent = ("sent", sum(view, |totals| totals.datagrams_sent));
            let received = ("received", sum(view, |totals| totals.datagrams_received));
            by("direction", [sent, received])
        };
    Counter "quictun_udp_batches_sent": "System calls that sent datagrams; one sends a whole batch if segmentation offload (GSO) works"
        => |view| total(view, |totals| totals.batches_sent);
    Gauge "quictun_udp_datagrams_per_batch": "Mean GSO batch size since the start; divide the rates of the two counters for the current mean"
        => |view| {
            let datagrams = sum(view, |totals| totals.datagrams_sent);
            real(ratio(datagrams, sum(view, |totals| totals.batches_sent)))
        };
    Gauge "quictun_udp_offload_sockets": "UDP sockets on which an offload is in use: gso for sending, gro for receiving"
        => |view| {
            let count = |read: fn(&UdpSocketReport) -> bool| {
                sockets(view).filter(|udp| read(udp)).count() as u64
            };
            let (gso, gro) = (count(|udp| udp.gso), count(|udp| udp.gro));
            by("offload", [("gso", gso), ("gro", gro)])
        };
    Counter "quictun_udp_gso_fallbacks": "Batches sent again in single datagrams because the kernel refused segmentation"
        => |view| whole(sockets(view).map(|udp| udp.gso_fallbacks).sum());
    Counter "quictun_udp_send_errors": "Send calls that failed for other reasons than a full buffer or segmentation"
        => |view| whole(sockets(view).map(|udp| udp.send_errors).sum());
    Counter "quictun_udp_receive_drops": "Datagrams that the kernel dropped because a receive buffer was full"
        => |view| whole(sockets(view).map(|udp| udp.receive_drops).sum());
    Gauge "quictun_udp_buffer" ("bytes"): "Smallest socket buffer granted to a worker"
        => |view| {
            let smallest = |read: fn(&UdpSocketReport) -> usize| {
                sockets(view).map(read).min().unwrap_or(0) as u64
            };
            let send = ("send", smallest(|udp| udp.send_buffer));
            let receive = ("receive", smallest(|udp| udp.recv_buffer));
            by("direction", [send, receive])
        };
    Gauge "quictun_connection_rtt" ("seconds"): "Smoothed round-trip time over the open connections whose handshake is done"
        => |view| spread(view, |report| Some(report.rtt.as_secs_f64()));
    Gauge "quictun_connection_congestion_window" ("bytes"): "Congestion window over the open connections whose handshake is done"
        => |view| spread(view, |report| report.congestion_window.map(exact));
    Gauge "quictun_connection_mtu" ("bytes"): "UDP payload size in use over the open connections whose handshake is done"
        => |view| spread(view, |report| report.mtu.map(f64::from));
    Gauge "quictun_connection_loss_ratio": "Share of the packets that were declared lost, on the connections that are open"
        => |view| {
            let sum =
                |read: fn(&ConnectionReport) -> u64| view.collected.connections().map(read).sum();
            real(ratio(sum(|it| it.packets_lost), sum(|it| it.packets_sent)))
        };
}

fn sockets<'a>(view: &MetricsView<'a>) -> impl Iterator<Item = &'a UdpSocketReport> {
    view.counters.iter().map(|counters| &counters.udp)
}

fn sum(view: &MetricsView<'_>, read: fn(&Totals) -> u64) -> u64 {
    view.counters
        .iter()
        .map(|counters| read(&counters.totals))
        .sum()
}

fn total(view: &MetricsView<'_>, read: fn(&Totals) -> u64) -> Vec<MetricPoint> {
    whole(sum(view, read))
}

/// Sums a histogram over all workers.
fn times(view: &MetricsView<'_>, read: fn(&DurationHistograms) -> &Histogram) -> Vec<MetricPoint> {
    let mut sum = *read(&DurationHistograms::default());
    for counters in view.counters {
        sum.add(read(&counters.totals.times));
    }
    vec![point([], PointValue::Times(Box::new(sum)))]
}

fn of_clients(view: &MetricsView<'_>, read: fn(&ClientFigures) -> u64) -> Vec<MetricPoint> {
    let clients = clients::of(view);
    let points = clients.iter().map(|(name, client)| {
        let label = ("client", Cow::Owned((*name).to_owned()));
        point([label], PointValue::Whole(read(client)))
    });
    points.collect()
}

/// Reads a value of each client for which it is known.
fn of_clients_with(
    view: &MetricsView<'_>,
    read: fn(&ClientUsage) -> Option<u64>,
) -> Vec<MetricPoint> {
    let clients = clients::of(view);
    let points = clients.iter().filter_map(|(name, client)| {
        let value = read(client.usage.as_ref()?)?;
        let label = ("client", Cow::Owned((*name).to_owned()));
        Some(point([label], PointValue::Whole(value)))
    });
    points.collect()
}

fn of_clients_by<const N: usize>(
    view: &MetricsView<'_>,
    label: &'static str,
    values: [(&'static str, ReadClient); N],
) -> Vec<MetricPoint> {
    let clients = clients::of(view);
    let points = clients.iter().flat_map(|(name, client)| {
        values.map(|(value, read)| {
            let of = ("client", Cow::Owned((*name).to_owned()));
            let labels = [of, (label, value.into())];
            point(labels, PointValue::Whole(read(&client.totals)))
        })
    });
    points.collect()
}

fn point<const N: usize>(
    labels: [(&'static str, Cow<'static, str>); N],
    value: PointValue,
) -> MetricPoint {
    MetricPoint {
        labels: labels.into(),
        value,
    }
}

fn whole(value: u64) -> Vec<MetricPoint> {
    vec![point([], PointValue::Whole(value))]
}

fn real(value: f64) -> Vec<MetricPoint> {
    vec![point([], PointValue::Real(value))]
}

fn by<const N: usize>(label: &'static str, values: [(&'static str, u64); N]) -> Vec<MetricPoint> {
    values
        .map(|(name, value)| point([(label, name.into())], PointValue::Whole(value)))
        .into()
}

/// Returns the smallest, median and largest value over the connections whose handshake is done, or nothing if there are
/// none. Connections in their handshake have measured nothing yet, and would show initial values: 333 ms or 1200 bytes.
fn spread(view: &MetricsView<'_>, read: fn(&ConnectionReport) -> Option<f64>) -> Vec<MetricPoint> {
    let connections = view.collected.connections();
    let connected = connections.filter(|report| report.protocol.is_some());
    let mut values: Vec<f64> = connected.filter_map(read).collect();
    values.sort_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
        return Vec::new();
    };
    let median = values[values.len() / 2];
    [("min", min), ("median", median), ("max", max)]
        .map(|(stat, value)| point([("stat", stat.into())], PointValue::Real(value)))
        .into()
}

/// Returns `part / whole`, or 0 if `whole` is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        exact(part) / exact(whole)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are 64-bit floats by their format"
)]
fn exact(value: u64) -> f64 {
    value as f64
}
