//! What is measured, by the names that scenarios, `run.json` and reports share.

/// One kind of figure.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// As scenarios and `run.json` name it: the unit stands last.
    pub id: &'static str,
    /// As reports call it.
    pub label: &'static str,
    /// As reports write it.
    pub unit: &'static str,
    /// Which way is good.
    pub better: Better,
}

/// Which way is good, and what it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A rate: more is faster.
    HigherIsFaster,
    /// A time: less is faster.
    LowerIsFaster,
    /// A cost: less is cheaper.
    LowerIsCheaper,
    /// Neither.
    Neither,
}

impl Metric {
    /// The one of this name.
    pub fn find(id: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.id == id)
    }

    /// Label and unit.
    pub fn title(&self) -> String {
        if self.unit.is_empty() {
            self.label.to_owned()
        } else {
            format!("{} ({})", self.label, self.unit)
        }
    }
}

const fn metric(
    id: &'static str,
    label: &'static str,
    unit: &'static str,
    better: Better,
) -> Metric {
    Metric {
        id,
        label,
        unit,
        better,
    }
}

use Better::{HigherIsFaster, LowerIsCheaper, LowerIsFaster, Neither};

/// All there are.
pub static METRICS: &[Metric] = &[
    metric("receiver_mbit_per_s", "receiver", "Mbit/s", HigherIsFaster),
    metric("sender_mbit_per_s", "sender", "Mbit/s", HigherIsFaster),
    metric("receiver_mb_per_s", "receiver", "MB/s", HigherIsFaster),
    metric(
        "background_up_mbit_per_s",
        "stream beside it, up",
        "Mbit/s",
        HigherIsFaster,
    ),
    metric(
        "background_down_mbit_per_s",
        "stream beside it, down",
        "Mbit/s",
        HigherIsFaster,
    ),
    metric("transfer_s", "whole transfer", "s", LowerIsFaster),
    metric("first_ms", "first answer", "ms", LowerIsFaster),
    metric("total_ms", "all of them", "ms", LowerIsFaster),
    metric("transactions_per_s", "transactions", "1/s", HigherIsFaster),
    metric("latency_min_us", "least latency", "us", LowerIsFaster),
    metric("latency_mean_us", "mean latency", "us", LowerIsFaster),
    metric("latency_p50_us", "latency p50", "us", LowerIsFaster),
    metric("latency_p90_us", "latency p90", "us", LowerIsFaster),
    metric("latency_p99_us", "latency p99", "us", LowerIsFaster),
    metric("latency_p99_9_us", "latency p99.9", "us", LowerIsFaster),
    metric("latency_max_us", "most latency", "us", LowerIsFaster),
    metric(
        "latency_variance_us2",
        "variance of latency",
        "us^2",
        LowerIsFaster,
    ),
    metric(
        "cpu_s_per_gb",
        "CPU of all programs",
        "s/GB",
        LowerIsCheaper,
    ),
    metric(
        "tunnel_cpu_s_per_gb",
        "CPU of the tunnel",
        "s/GB",
        LowerIsCheaper,
    ),
    metric(
        "cpu_us_per_transaction",
        "CPU of a transaction",
        "us",
        LowerIsCheaper,
    ),
    metric(
        "cpu_ksoftirqd_percent",
        "CPU (ksoftirqd)",
        "% of a core",
        LowerIsCheaper,
    ),
    metric(
        "cpu_client_percent",
        "CPU (client)",
        "% of a core",
        LowerIsCheaper,
    ),
    metric(
        "cpu_server_percent",
        "CPU (server)",
        "% of a core",
        LowerIsCheaper,
    ),
    metric(
        "cpu_tunnel_client_percent",
        "CPU (tunnel's client)",
        "% of a core",
        LowerIsCheaper,
    ),
    metric(
        "cpu_tunnel_server_percent",
        "CPU (tunnel's server)",
        "% of a core",
        LowerIsCheaper,
    ),
    metric(
        "rtt_us",
        "round trip as the sender sees it",
        "us",
        LowerIsFaster,
    ),
    metric(
        "lost_share",
        "lost, as the sender sees it",
        "share",
        Neither,
    ),
    metric("mtu_bytes", "packet size found", "bytes", Neither),
    metric("packets_per_frame", "packets of a frame", "", Neither),
    metric("segments_per_send", "packets of a send call", "", Neither),
    metric("big_frames_up", "frames above 64 kB, up", "", Neither),
    metric("big_frames_down", "frames above 64 kB, down", "", Neither),
    metric("frame_bytes_up", "mean frame, up", "bytes", Neither),
    metric("frame_bytes_down", "mean frame, down", "bytes", Neither),
    metric(
        "tcp_resent_near",
        "TCP segments sent again here",
        "",
        Neither,
    ),
    metric(
        "tcp_resent_far",
        "TCP segments sent again there",
        "",
        Neither,
    ),
    metric(
        "udp_overflows_near",
        "datagrams without room here",
        "",
        Neither,
    ),
    metric(
        "udp_overflows_far",
        "datagrams without room there",
        "",
        Neither,
    ),
    metric("unanswered", "due and not answered", "", LowerIsFaster),
];
