//! The list of metrics, and how each is read.

use prometheus_client::registry::Unit;
use quictun_engine::report::{ConnectionReport, Protocol, Totals};

use super::{Kind, Metric, Point, Value, View, exact, ratio};
use quictun_io::udp_port::UdpSocketReport;

/// Every metric, in the order in which they are written.
pub(super) static METRICS: &[Metric] = &[
    Metric {
        name: "quictun_build",
        kind: Kind::Info,
        unit: None,
        help: "Version and side of this process",
        read: |view| {
            let labels = vec![("version", env!("CARGO_PKG_VERSION")), ("side", view.side)];
            vec![Point {
                labels,
                value: Value::Whole(1),
            }]
        },
    },
    Metric {
        name: "quictun_start_time",
        kind: Kind::Gauge,
        unit: Some(Unit::Seconds),
        help: "When this process started, in seconds since 1970",
        read: |view| real(view.started.as_duration().as_secs_f64()),
    },
    Metric {
        name: "quictun_workers",
        kind: Kind::Gauge,
        unit: None,
        help: "Worker threads, by whether they answered this scrape in time",
        read: |view| {
            let (answering, silent) = (view.collected.snapshots.len(), view.collected.silent.len());
            by(
                "state",
                [("answering", answering as u64), ("silent", silent as u64)],
            )
        },
    },
    Metric {
        name: "quictun_connections",
        kind: Kind::Gauge,
        unit: None,
        help: "Open connections, by protocol; handshake: none agreed on yet",
        read: |view| {
            let count = |wanted| {
                connections(view)
                    .filter(|report| report.protocol == wanted)
                    .count() as u64
            };
            let protocols = [Protocol::Native, Protocol::Compat];
            let [native, compat] =
                protocols.map(|protocol| (protocol.alpn(), count(Some(protocol))));
            by("protocol", [native, compat, ("handshake", count(None))])
        },
    },
    Metric {
        name: "quictun_connections_unresponsive",
        kind: Kind::Gauge,
        unit: None,
        help: "Open connections whose peer has stopped answering",
        read: |view| {
            whole(
                connections(view)
                    .filter(|report| report.unresponsive)
                    .count() as u64,
            )
        },
    },
    Metric {
        name: "quictun_connections_opened",
        kind: Kind::Counter,
        unit: None,
        help: "Connections begun (client) or accepted (server)",
        read: |view| total(view, |totals| totals.connections_opened),
    },
    Metric {
        name: "quictun_connections_closed",
        kind: Kind::Counter,
        unit: None,
        help: "Connections that ended, for any reason",
        read: |view| total(view, |totals| totals.connections_closed),
    },
    Metric {
        name: "quictun_connections_lost",
        kind: Kind::Counter,
        unit: None,
        help: "Connections that ended with an error or a time-out",
        read: |view| total(view, |totals| totals.connections_lost),
    },
    Metric {
        name: "quictun_handshakes_failed",
        kind: Kind::Counter,
        unit: None,
        help: "Handshakes refused or failed",
        read: |view| total(view, |totals| totals.handshakes_failed),
    },
    Metric {
        name: "quictun_flows",
        kind: Kind::Gauge,
        unit: None,
        help: "Open flows",
        read: |view| whole(connections(view).map(|report| report.flows as u64).sum()),
    },
    Metric {
        name: "quictun_flows_opened",
        kind: Kind::Counter,
        unit: None,
        help: "Flows opened (client) or accepted (server)",
        read: |view| total(view, |totals| totals.flows_opened),
    },
    Metric {
        name: "quictun_flows_ended",
        kind: Kind::Counter,
        unit: None,
        help: "Flows that ended: both directions finished, reset, or refused by the far side or the local dial",
        read: |view| {
            let finished = ("finished", sum(view, |totals| totals.flows_finished));
            let reset = ("reset", sum(view, |totals| totals.flows_reset));
            let refused = ("refused", sum(view, |totals| totals.flows_refused));
            by("outcome", [finished, reset, refused])
        },
    },
    Metric {
        name: "quictun_flow",
        kind: Kind::Counter,
        unit: Some(Unit::Bytes),
        help: "Bytes from local applications into the tunnel, and from the tunnel to local applications",
        read: |view| {
            let into = sum(view, |totals| totals.bytes_to_tunnel);
            by(
                "direction",
                [
                    ("to_tunnel", into),
                    ("to_app", sum(view, |totals| totals.bytes_to_app)),
                ],
            )
        },
    },
    Metric {
        name: "quictun_udp_datagrams",
        kind: Kind::Counter,
        unit: None,
        help: "UDP datagrams",
        read: |view| {
            let sent = sum(view, |totals| totals.datagrams_sent);
            by(
                "direction",
                [
                    ("sent", sent),
                    ("received", sum(view, |totals| totals.datagrams_received)),
                ],
            )
        },
    },
    Metric {
        name: "quictun_udp_batches_sent",
        kind: Kind::Counter,
        unit: None,
        help: "System calls that sent datagrams; one sends a whole batch where segmentation offload (GSO) works",
        read: |view| total(view, |totals| totals.batches_sent),
    },
    Metric {
        name: "quictun_udp_datagrams_per_batch",
        kind: Kind::Gauge,
        unit: None,
        help: "Mean GSO batch size since the start; divide the rates of the two counters for the present one",
        read: |view| {
            let datagrams = sum(view, |totals| totals.datagrams_sent);
            real(ratio(datagrams, sum(view, |totals| totals.batches_sent)))
        },
    },
    Metric {
        name: "quictun_udp_offload_sockets",
        kind: Kind::Gauge,
        unit: None,
        help: "UDP sockets on which an offload is in use: gso for sending, gro for receiving",
        read: |view| {
            let count = |read: fn(&UdpSocketReport) -> bool| {
                sockets(view).filter(|udp| read(udp)).count() as u64
            };
            by(
                "offload",
                [("gso", count(|udp| udp.gso)), ("gro", count(|udp| udp.gro))],
            )
        },
    },
    Metric {
        name: "quictun_udp_gso_fallbacks",
        kind: Kind::Counter,
        unit: None,
        help: "Batches sent again in single datagrams because the kernel refused segmentation",
        read: |view| whole(sockets(view).map(|udp| udp.gso_fallbacks).sum()),
    },
    Metric {
        name: "quictun_udp_send_errors",
        kind: Kind::Counter,
        unit: None,
        help: "Send calls that failed for other reasons than a full buffer or segmentation",
        read: |view| whole(sockets(view).map(|udp| udp.send_errors).sum()),
    },
    Metric {
        name: "quictun_udp_receive_drops",
        kind: Kind::Counter,
        unit: None,
        help: "Datagrams that the kernel dropped because a receive buffer was full",
        read: |view| whole(sockets(view).map(|udp| udp.receive_drops).sum()),
    },
    Metric {
        name: "quictun_udp_buffer",
        kind: Kind::Gauge,
        unit: Some(Unit::Bytes),
        help: "Smallest socket buffer granted to a worker",
        read: |view| {
            let smallest = |read: fn(&UdpSocketReport) -> usize| {
                sockets(view).map(read).min().unwrap_or(0) as u64
            };
            by(
                "direction",
                [
                    ("send", smallest(|udp| udp.send_buffer)),
                    ("receive", smallest(|udp| udp.recv_buffer)),
                ],
            )
        },
    },
    Metric {
        name: "quictun_connection_rtt",
        kind: Kind::Gauge,
        unit: Some(Unit::Seconds),
        help: "Smoothed round-trip time over the open connections",
        read: |view| spread(view, |report| report.rtt.as_secs_f64()),
    },
    Metric {
        name: "quictun_connection_congestion_window",
        kind: Kind::Gauge,
        unit: Some(Unit::Bytes),
        help: "Congestion window over the open connections",
        read: |view| spread(view, |report| exact(report.congestion_window)),
    },
    Metric {
        name: "quictun_connection_mtu",
        kind: Kind::Gauge,
        unit: Some(Unit::Bytes),
        help: "UDP payload size in use over the open connections",
        read: |view| spread(view, |report| report.mtu.into()),
    },
    Metric {
        name: "quictun_connection_loss_ratio",
        kind: Kind::Gauge,
        unit: None,
        help: "Packets declared lost of all packets sent on the connections that are open",
        read: |view| {
            let lost = connections(view).map(|report| report.packets_lost).sum();
            real(ratio(
                lost,
                connections(view).map(|report| report.packets_sent).sum(),
            ))
        },
    },
];

fn connections<'a>(view: &View<'a>) -> impl Iterator<Item = &'a ConnectionReport> {
    view.collected
        .snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.connections)
}

fn sockets<'a>(view: &View<'a>) -> impl Iterator<Item = &'a UdpSocketReport> {
    view.counters.iter().map(|counters| &counters.udp)
}

fn sum(view: &View<'_>, read: fn(&Totals) -> u64) -> u64 {
    view.counters
        .iter()
        .map(|counters| read(&counters.totals))
        .sum()
}

fn total(view: &View<'_>, read: fn(&Totals) -> u64) -> Vec<Point> {
    whole(sum(view, read))
}

fn whole(value: u64) -> Vec<Point> {
    vec![Point {
        labels: Vec::new(),
        value: Value::Whole(value),
    }]
}

fn real(value: f64) -> Vec<Point> {
    vec![Point {
        labels: Vec::new(),
        value: Value::Real(value),
    }]
}

fn by<const N: usize>(label: &'static str, values: [(&'static str, u64); N]) -> Vec<Point> {
    values
        .map(|(name, value)| Point {
            labels: vec![(label, name)],
            value: Value::Whole(value),
        })
        .into()
}

/// Smallest, median and largest over the open connections; nothing where there are none.
fn spread(view: &View<'_>, read: fn(&ConnectionReport) -> f64) -> Vec<Point> {
    let mut values: Vec<f64> = connections(view).map(read).collect();
    values.sort_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
        return Vec::new();
    };
    let stats = [
        ("min", min),
        ("median", values[values.len() / 2]),
        ("max", max),
    ];
    stats
        .map(|(stat, value)| Point {
            labels: vec![("stat", stat)],
            value: Value::Real(value),
        })
        .into()
}
