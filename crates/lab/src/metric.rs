//! Metrics, with the names that scenarios, `run.json` and reports share.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::writing::has_larger_unit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    HigherIsFaster,
    LowerIsFaster,
    LowerIsCheaper,
    Neither,
}

/// Defines [`Metric`]. Each line holds the variant, its id in scenarios and `run.json`, its label and unit in reports,
/// and the direction that is better. The id ends with the unit.
macro_rules! metrics {
    ($($name:ident: $id:literal, $label:literal, $unit:literal, $better:ident;)*) => {
        /// A measured quantity. Reports list metrics in this order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Metric {
            $(#[doc = concat!("`", $id, "`: ", $label, ".")] #[serde(rename = $id)] $name,)*
        }

        impl Metric {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            const fn row(self) -> (&'static str, &'static str, &'static str, Better) {
                match self {
                    $(Self::$name => ($id, $label, $unit, Better::$better),)*
                }
            }
        }
    };
}

metrics! {
    ReceiverMbitPerS: "receiver_mbit_per_s", "receiver", "Mbit/s", HigherIsFaster;
    SenderMbitPerS: "sender_mbit_per_s", "sender", "Mbit/s", HigherIsFaster;
    ReceiverMbPerS: "receiver_mb_per_s", "receiver", "MB/s", HigherIsFaster;
    BackgroundUpMbitPerS: "background_up_mbit_per_s", "stream beside it, up", "Mbit/s", HigherIsFaster;
    BackgroundDownMbitPerS: "background_down_mbit_per_s", "stream beside it, down", "Mbit/s", HigherIsFaster;
    RivalMbitPerS: "rival_mbit_per_s", "TCP that shares the link", "Mbit/s", Neither;
    SharePercent: "share_percent", "share, beside that TCP", "%", Neither;
    TransferS: "transfer_s", "whole transfer", "s", LowerIsFaster;
    FirstMs: "first_ms", "first answer", "ms", LowerIsFaster;
    TotalMs: "total_ms", "all of them", "ms", LowerIsFaster;
    TransactionsPerS: "transactions_per_s", "transactions", "1/s", HigherIsFaster;
    LatencyMinUs: "latency_min_us", "least latency", "us", LowerIsFaster;
    LatencyMeanUs: "latency_mean_us", "mean latency", "us", LowerIsFaster;
    LatencyP50Us: "latency_p50_us", "latency p50", "us", LowerIsFaster;
    LatencyP90Us: "latency_p90_us", "latency p90", "us", LowerIsFaster;
    LatencyP99Us: "latency_p99_us", "latency p99", "us", LowerIsFaster;
    LatencyP999Us: "latency_p99_9_us", "latency p99.9", "us", LowerIsFaster;
    LatencyMaxUs: "latency_max_us", "most latency", "us", LowerIsFaster;
    LatencyVarianceUs2: "latency_variance_us2", "variance of latency", "us^2", LowerIsFaster;
    CpuSPerGb: "cpu_s_per_gb", "CPU of all programs", "s/GB", LowerIsCheaper;
    TunnelCpuSPerGb: "tunnel_cpu_s_per_gb", "CPU of the tunnel", "s/GB", LowerIsCheaper;
    CpuUsPerTransaction: "cpu_us_per_transaction", "CPU of a transaction", "us", LowerIsCheaper;
    CpuKsoftirqdPercent: "cpu_ksoftirqd_percent", "CPU (ksoftirqd)", "% of a core", LowerIsCheaper;
    CpuClientPercent: "cpu_client_percent", "CPU (client)", "% of a core", LowerIsCheaper;
    CpuServerPercent: "cpu_server_percent", "CPU (server)", "% of a core", LowerIsCheaper;
    CpuTunnelClientPercent: "cpu_tunnel_client_percent", "CPU (tunnel's client)", "% of a core", LowerIsCheaper;
    CpuTunnelServerPercent: "cpu_tunnel_server_percent", "CPU (tunnel's server)", "% of a core", LowerIsCheaper;
    RttUs: "rtt_us", "round trip as the sender sees it", "us", LowerIsFaster;
    LostShare: "lost_share", "lost, as the sender sees it", "share", Neither;
    MtuBytes: "mtu_bytes", "packet size found", "bytes", Neither;
    PacketsPerFrame: "packets_per_frame", "packets of a frame", "", Neither;
    SegmentsPerSend: "segments_per_send", "packets of a send call", "", Neither;
    BigFramesUp: "big_frames_up", "frames above 64 kB, up", "", Neither;
    BigFramesDown: "big_frames_down", "frames above 64 kB, down", "", Neither;
    FrameBytesUp: "frame_bytes_up", "mean frame, up", "bytes", Neither;
    FrameBytesDown: "frame_bytes_down", "mean frame, down", "bytes", Neither;
    TcpResentNear: "tcp_resent_near", "TCP segments sent again here", "", Neither;
    TcpResentFar: "tcp_resent_far", "TCP segments sent again there", "", Neither;
    UdpOverflowsNear: "udp_overflows_near", "datagrams without room here", "", Neither;
    UdpOverflowsFar: "udp_overflows_far", "datagrams without room there", "", Neither;
    Unanswered: "unanswered", "due and not answered", "", LowerIsFaster;
}

impl Metric {
    pub(crate) fn find(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|metric| metric.id() == id)
    }

    /// Returns the metric's name in scenarios and `run.json`.
    pub(crate) const fn id(self) -> &'static str {
        self.row().0
    }

    /// Returns the metric's name in reports.
    pub(crate) const fn label(self) -> &'static str {
        self.row().1
    }

    /// Returns the metric's unit in reports. Empty for a count.
    pub(crate) const fn unit(self) -> &'static str {
        self.row().2
    }

    pub(crate) const fn better(self) -> Better {
        self.row().3
    }

    /// Returns the unit that each cell of a table shows, because it depends on the figure. Empty if all cells have the
    /// unit of their heading.
    pub(crate) fn unit_in_cells(self) -> &'static str {
        if has_larger_unit(self.unit()) {
            self.unit()
        } else {
            ""
        }
    }

    /// Returns the heading of the metric's cells in a table.
    pub(crate) fn heading(self) -> String {
        match self.unit_in_cells() {
            "" => self.title(),
            _ => self.label().to_owned(),
        }
    }

    /// Returns the label with the unit.
    pub fn title(self) -> String {
        match self.row() {
            (_, label, "", _) => label.to_owned(),
            (_, label, unit, _) => format!("{label} ({unit})"),
        }
    }
}

/// Deserializes figures by id, and drops metrics that this version does not know.
pub(crate) fn known<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<Metric, f64>, D::Error> {
    let all = BTreeMap::<String, f64>::deserialize(from)?;
    let known = all
        .into_iter()
        .filter_map(|(id, value)| Some((Metric::find(&id)?, value)));
    Ok(known.collect())
}
