//! The data path's flags, the same for all programs.

use std::path::PathBuf;
use std::time::Duration;

use quictun_link::units::Rate;
use quictun_tunnel::settings::{Congestion, TransportSettings};

use crate::fault::Fault;
use crate::layers::Layers;
use crate::options::{Opt, Section};
use crate::units::{parse_duration, parse_size};

/// Which end of the tunnel a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Dials.
    Client,
    /// Is dialled.
    Server,
}

const HEADING: &str = "Data path";

/// Slower than this a handshake does not fit into its deadline.
const RATE_LEAST: u64 = 100_000 / 8;

/// A worker is named by one byte of its connection ids.
const MAX_WORKERS: usize = 256;

/// Flags that only clients have.
pub static CLIENT: Section = Section {
    heading: HEADING,
    options: &[Opt::one(
        "connections",
        "N",
        "auto",
        "QUIC connections kept to the server; auto: one per core",
    )
    .key("transport.connections")],
};

/// Flags that only servers have.
pub static SERVER: Section = Section {
    heading: HEADING,
    options: &[
        Opt::one(
            "max-connections",
            "N",
            "10000",
            "QUIC connections accepted at once",
        )
        .key("transport.max_connections"),
        Opt::one(
            "dial-timeout",
            "DURATION",
            "10s",
            "How long connecting to a target may take",
        )
        .key("transport.dial_timeout"),
    ],
};

/// Flags that both ends have.
pub static BOTH: Section = Section {
    heading: HEADING,
    options: &[
        Opt::one("workers", "N", "auto", "Worker threads; auto: one per core")
            .key("transport.workers"),
        Opt::one(
            "congestion",
            "NAME",
            "auto",
            "auto, cubic, newreno, background or fixed:RATE",
        )
        .choices(&["auto", "cubic", "newreno", "background", "fixed:"])
        .key("transport.congestion"),
        Opt::one(
            "idle-timeout",
            "DURATION",
            "60s",
            "A connection silent for this long is dead",
        )
        .key("transport.idle_timeout"),
        Opt::one(
            "keep-alive",
            "DURATION",
            "2s",
            "Silence after which the peer is asked for a sign of life",
        )
        .key("transport.keep_alive"),
        Opt::one(
            "memory-budget",
            "SIZE",
            "1GiB",
            "Memory for buffered data, all flows together",
        )
        .key("transport.memory_budget"),
        Opt::one(
            "max-flows",
            "N",
            "16384",
            "Flows that the peer may have open on one connection",
        )
        .key("transport.max_flows"),
        Opt::one(
            "udp-buffer",
            "SIZE",
            "8MiB",
            "Wanted UDP socket buffers; what the system grants is logged",
        )
        .key("transport.udp_buffer"),
        Opt::one(
            "max-udp-payload",
            "BYTES",
            "auto",
            "Largest UDP payload tried; auto: what the interface takes",
        )
        .key("transport.max_udp_payload"),
        Opt::one("gso", "on|off", "on", "UDP segmentation offload")
            .choices(&["on", "off"])
            .key("transport.gso"),
        Opt::one(
            "drain",
            "DURATION",
            "10s",
            "Time that open flows are given to end after SIGTERM",
        )
        .key("transport.drain"),
        Opt::one(
            "key-log",
            "FILE",
            "",
            "Append TLS secrets to FILE for Wireshark (unsafe)",
        )
        .key("transport.key_log"),
        Opt::one(
            "qlog-dir",
            "DIR",
            "",
            "Record every connection there as qlog, at most 1 GiB in all",
        )
        .key("transport.qlog_dir"),
    ],
};

/// Reads the data path's settings of one side.
pub fn settings(layers: &Layers<'_>, side: Side) -> Result<TransportSettings, Fault> {
    let defaults = TransportSettings::default();
    let workers = layers
        .number_or_auto("workers", 1..=MAX_WORKERS)?
        .unwrap_or(defaults.workers.min(MAX_WORKERS));
    let connections = match side {
        Side::Client => layers
            .number_or_auto("connections", 1..=1024)?
            .unwrap_or(defaults.connections),
        Side::Server => defaults.connections,
    };
    let max_connections = match side {
        Side::Server => layers.number("max-connections", 1..=10_000_000)?,
        Side::Client => defaults.max_connections,
    };
    let idle_timeout = duration(layers, "idle-timeout", "1s", "1h")?;
    let keep_alive = duration(layers, "keep-alive", "100ms", "1h")?;
    if keep_alive >= idle_timeout {
        let why =
            "must be shorter than idle-timeout, or a quiet connection is taken for a dead one";
        return Err(layers.fault("keep-alive", why));
    }
    Ok(TransportSettings {
        workers,
        connections,
        congestion: layers.value("congestion", congestion)?,
        idle_timeout,
        keep_alive,
        memory_budget: size(layers, "memory-budget", "1MiB", "1TiB")?,
        max_flows: layers.number("max-flows", 1..=10_000_000)?,
        max_connections,
        udp_buffer: usize::try_from(size(layers, "udp-buffer", "16KiB", "1GiB")?)
            .unwrap_or(1 << 30),
        max_udp_payload: layers.number_or_auto("max-udp-payload", 1200..=65_527)?,
        gso: layers.choice("gso", &[("on", true), ("off", false)])?,
        drain: duration(layers, "drain", "0s", "1h")?,
        key_log: layers.text("key-log").map(PathBuf::from),
        qlog_dir: layers.text("qlog-dir").map(PathBuf::from),
    })
}

/// Reads a duration between two others.
pub fn duration(
    layers: &Layers<'_>,
    name: &str,
    lowest: &str,
    highest: &str,
) -> Result<Duration, Fault> {
    let limit = |text| parse_duration(text).expect("invariant: limits are durations");
    let duration = layers.value(name, parse_duration)?;
    if duration < limit(lowest) || duration > limit(highest) {
        return Err(layers.fault(name, format!("must lie between {lowest} and {highest}")));
    }
    Ok(duration)
}

/// The name of a congestion controller, and the rate of a fixed one.
fn congestion(text: &str) -> Result<Congestion, String> {
    let word = text.to_ascii_lowercase();
    match word.as_str() {
        "auto" => Ok(Congestion::Auto),
        "cubic" => Ok(Congestion::Cubic),
        "newreno" => Ok(Congestion::NewReno),
        "background" => Ok(Congestion::Background),
        _ => {
            let rate = text
                .get(..6)
                .filter(|head| head.eq_ignore_ascii_case("fixed:"));
            let rate = rate.map(|_| text[6..].parse::<Rate>()).ok_or_else(|| {
                format!(
                    "unknown value {text:?}: choose auto, cubic, newreno, background or fixed:RATE"
                )
            })?;
            match rate {
                Ok(Rate(rate)) if rate >= RATE_LEAST => Ok(Congestion::Fixed(rate)),
                Ok(_) => Err("a fixed rate must be 100kbit or more".to_owned()),
                Err(why) => Err(why.to_string()),
            }
        }
    }
}

fn size(layers: &Layers<'_>, name: &str, lowest: &str, highest: &str) -> Result<u64, Fault> {
    let limit = |text| parse_size(text).expect("invariant: limits are sizes");
    let size = layers.value(name, parse_size)?;
    if size < limit(lowest) || size > limit(highest) {
        return Err(layers.fault(name, format!("must lie between {lowest} and {highest}")));
    }
    Ok(size)
}
