//! The flags of the data path, which all programs share.

use std::path::PathBuf;
use std::time::Duration;

use quictun_link::units::Rate;
use quictun_trust::settings::Aead;
use quictun_tunnel::settings::{CarrierChoice, Congestion, TransportSettings};
use quictun_wire::target::Family;

use crate::fault::Fault;
use crate::layers::Layers;
use crate::options;
use crate::options::{InvalidValue, Maybe, One, Section};
use crate::values::{number, number_or_auto, path, size_between, time_between};

/// Lowest fixed rate, bytes per second. At a lower rate a handshake would miss its deadline.
const RATE_LEAST: u64 = 100_000 / 8;

/// Maximum number of workers: a connection id identifies its worker by one byte.
const MAX_WORKERS: usize = 256;

const HEADING: &str = "Data path";

pub(crate) static CLIENT: Section = Section {
    heading: HEADING,
    options: &[&CONNECTIONS],
};

pub(crate) static SERVER: Section = Section {
    heading: HEADING,
    options: &[&MAX_CONNECTIONS, &DIAL_TIMEOUT, &IP],
};

/// Flags of the carriers over TCP and of datagrams, which only the programs of the native protocol have.
pub(crate) static CARRIERS_OF_CLIENT: Section = Section {
    heading: HEADING,
    options: &[&CARRIER, &TCP_CONGESTION, &DATAGRAM_IDLE],
};

pub(crate) static CARRIERS_OF_SERVER: Section = Section {
    heading: HEADING,
    options: &[&TCP_CONGESTION, &DATAGRAM_IDLE],
};

pub(crate) static BOTH: Section = Section {
    heading: HEADING,
    options: &[
        &WORKERS,
        &CONGESTION,
        &IDLE_TIMEOUT,
        &KEEP_ALIVE,
        &BOND_TTL,
        &MEMORY_BUDGET,
        &MAX_FLOWS,
        &UDP_BUFFER,
        &MAX_UDP_PAYLOAD,
        &GSO,
        &DRAIN,
        &AEAD,
        &KEY_LOG,
        &QLOG_DIR,
    ],
};

options! {
    pub(crate) CONNECTIONS: One<Option<usize>> = "connections" "N", by |text| number_or_auto(text, 1..=1024), default "auto", key "transport.connections";
        "Connections to the server; auto: one per core"
    MAX_CONNECTIONS: One<usize> = "max-connections" "N", by |text| number(text, 1..=10_000_000), default "10000", key "transport.max_connections";
        "Maximum number of connections at a time"
    pub(crate) DIAL_TIMEOUT: One<Duration> = "dial-timeout" "DURATION", by |text| time_between(text, "100ms", "1h"), default "10s", key "transport.dial_timeout";
        "Time limit for connecting to a target"
    pub(crate) IP: One<Family> = "ip" "4|6|auto", choice &[("auto", Family::Any), ("4", Family::V4), ("6", Family::V6)], default "auto", key "transport.ip", reloads true;
        "Connect to targets by IPv4 or by IPv6 only; auto: by the family that answers first"
    pub(crate) WORKERS: One<Option<usize>> = "workers" "N", by |text| number_or_auto(text, 1..=MAX_WORKERS), default "auto", key "transport.workers";
        "Worker threads; auto: one per core"
    pub(crate) CARRIER: One<CarrierChoice> = "carrier" "auto|quic|tls", choice &[("auto", CarrierChoice::Auto), ("quic", CarrierChoice::Quic), ("tls", CarrierChoice::Tls)], default "auto", key "transport.carrier";
        "Connect by QUIC, or by TLS over TCP; auto: by QUIC, and by TLS as long as QUIC does not pass"
    TCP_CONGESTION: One<Option<String>> = "tcp-congestion" "NAME", by tcp_congestion, words &["auto"], default "auto", key "transport.tcp_congestion";
        "The system's congestion control of TCP connections that carry flows; auto: bbr if the system has it"
    DATAGRAM_IDLE: One<Duration> = "datagram-idle" "DURATION", by |text| time_between(text, "1s", "24h"), default "120s", key "transport.datagram_idle", reloads true;
        "Silence after which a flow of datagrams ends; at most 17s if the target's port is 53, and 10s if it is 123 or 3478 and the target has answered"
    CONGESTION: One<Congestion> = "congestion" "NAME", by congestion, words &["auto", "cubic", "newreno", "background", "fixed:"], default "auto", key "transport.congestion", reloads true;
        "auto, cubic, newreno, background or fixed:RATE"
    IDLE_TIMEOUT: One<Duration> = "idle-timeout" "DURATION", by |text| time_between(text, "1s", "1h"), default "60s", key "transport.idle_timeout", reloads true;
        "Silence after which a connection counts as dead"
    KEEP_ALIVE: One<Duration> = "keep-alive" "DURATION", by |text| time_between(text, "100ms", "1h"), default "2s", key "transport.keep_alive", reloads true;
        "Silence after which a keep-alive is sent to the peer"
    BOND_TTL: One<Option<Duration>> = "bond-ttl" "DURATION", by bond_ttl, words &["auto"], default "auto", key "transport.bond_ttl";
        "Time that a flow waits for a new connection after the loss of its own; auto: 30m (60s if the server knows no clients); 0s: flows end with their connection. If either process dies, its flows are reset in any case"
    MEMORY_BUDGET: One<Option<u64>> = "memory-budget" "SIZE", by memory_budget, words &["auto"], default "auto", key "transport.memory_budget";
        "Memory for the buffered data of all flows together; auto: half of what the control group or the machine has, at most 1 GiB"
    MAX_FLOWS: One<u32> = "max-flows" "N", by |text| number(text, 1..=10_000_000), default "16384", key "transport.max_flows";
        "Maximum number of open flows from the peer on one connection"
    UDP_BUFFER: One<u64> = "udp-buffer" "SIZE", by |text| size_between(text, "16KiB", "1GiB"), default "8MiB", key "transport.udp_buffer";
        "Requested size of UDP socket buffers; the granted size is logged"
    MAX_UDP_PAYLOAD: One<Option<u16>> = "max-udp-payload" "BYTES", by |text| number_or_auto(text, 1200..=65_527), default "auto", key "transport.max_udp_payload";
        "Largest UDP payload to try; auto: the most that the interface allows"
    GSO: One<bool> = "gso" "on|off", choice &[("on", true), ("off", false)], default "on", key "transport.gso";
        "UDP segmentation offload"
    DRAIN: One<Duration> = "drain" "DURATION", by |text| time_between(text, "0s", "1h"), default "10s", key "transport.drain", reloads true;
        "Time for open flows to end after SIGTERM"
    AEAD: One<Aead> = "aead" "LIBRARY", choice &[("auto", Aead::Auto), ("ring", Aead::Ring), ("aws-lc", Aead::AwsLc)], default "auto", key "transport.aead";
        "Library that encrypts packets and TLS records; auto: the faster one, as measured at start"
    KEY_LOG: Maybe<PathBuf> = "key-log" "FILE", by path, key "transport.key_log";
        "Append TLS secrets to FILE for Wireshark (unsafe)"
    QLOG_DIR: Maybe<PathBuf> = "qlog-dir" "DIR", by path, key "transport.qlog_dir";
        "Write a qlog file of every connection to DIR, at most 1 GiB in total"
}

/// Reads the settings of the data path. Settings of the other side only keep their default.
pub(crate) fn settings(layers: &Layers<'_>) -> Result<TransportSettings, Fault> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let idle_timeout = layers.get(&IDLE_TIMEOUT)?;
    let keep_alive = layers.get(&KEEP_ALIVE)?;
    if keep_alive >= idle_timeout {
        let why =
            "must be shorter than idle-timeout, or a quiet connection is taken for a dead one";
        return Err(layers.fault(&KEEP_ALIVE, why));
    }
    Ok(TransportSettings {
        workers: layers.get(&WORKERS)?.unwrap_or(cores.min(MAX_WORKERS)),
        connections: layers.get(&CONNECTIONS)?.unwrap_or(cores),
        carrier: layers.get(&CARRIER)?,
        tcp_congestion: layers.get(&TCP_CONGESTION)?,
        congestion: layers.get(&CONGESTION)?,
        idle_timeout,
        keep_alive,
        datagram_idle: layers.get(&DATAGRAM_IDLE)?,
        bond_ttl: layers.get(&BOND_TTL)?,
        memory_budget: layers.get(&MEMORY_BUDGET)?,
        max_flows: layers.get(&MAX_FLOWS)?,
        max_connections: layers.get(&MAX_CONNECTIONS)?,
        udp_buffer: usize::try_from(layers.get(&UDP_BUFFER)?).unwrap_or(1 << 30),
        max_udp_payload: layers.get(&MAX_UDP_PAYLOAD)?,
        gso: layers.get(&GSO)?,
        drain: layers.get(&DRAIN)?,
        aead: layers.get(&AEAD)?,
        key_log: layers.get(&KEY_LOG)?,
        qlog_dir: layers.get(&QLOG_DIR)?,
    })
}

fn bond_ttl(text: &str) -> Result<Option<Duration>, InvalidValue> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    time_between(text, "0s", "24h").map(Some)
}

fn memory_budget(text: &str) -> Result<Option<u64>, InvalidValue> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    size_between(text, "1MiB", "1TiB").map(Some)
}

/// Parses the name of a congestion controller, with the rate of a fixed one.
fn tcp_congestion(text: &str) -> Result<Option<String>, InvalidValue> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match text {
        "auto" => Ok(None),
        // The kernel's limit is 15 bytes.
        _ if (1..16).contains(&text.len()) && text.bytes().all(is_name) => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(format!(
            "{text:?} is no congestion control: `sysctl net.ipv4.tcp_available_congestion_control` lists those of this system"
        ))?,
    }
}

fn congestion(text: &str) -> Result<Congestion, InvalidValue> {
    let word = text.to_ascii_lowercase();
    match word.as_str() {
        "auto" => Ok(Congestion::Auto),
        "cubic" => Ok(Congestion::Cubic),
        "newreno" => Ok(Congestion::NewReno),
        "background" => Ok(Congestion::Background),
        _ => {
            let rate = word.starts_with("fixed:").then(|| text[6..].parse());
            let Rate(rate) = rate.ok_or_else(|| {
                format!(
                    "unknown value {text:?}: choose auto, cubic, newreno, background or fixed:RATE"
                )
            })??;
            if rate < RATE_LEAST {
                Err("a fixed rate must be 100kbit or more")?;
            }
            Ok(Congestion::Fixed(rate))
        }
    }
}
