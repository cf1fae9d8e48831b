//! The messages between `quictun lab run --remote` and an agent.

use std::collections::BTreeMap;

use quictun_lab::Process;
use serde::{Deserialize, Serialize};

/// Version of the protocol. The number rises when a message changes its meaning.
pub(crate) const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Asks for facts about the agent's machine. This is the first message.
    Facts {
        version: u32,
    },
    /// Measures the round-trip time.
    Ping,
    Start(StartRequest),
    /// Asks for the processor time of the programs between two moments, in microseconds before now.
    Usage {
        from_us: u64,
        until_us: u64,
    },
    Stop,
}

/// A request to start the far programs of an arm. The agent starts only programs that belong to measurements, with
/// known flags.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartRequest {
    /// The transport of `quictun perf`, which is `tcp`, `tls`, `quic` or `udp`; or `iperf3`.
    pub(crate) traffic: String,
    pub(crate) tunnel: bool,
    /// Additional flags for the tunnel's server, or for the generator's server if there is no tunnel.
    pub(crate) flags: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Response {
    Facts(BTreeMap<String, String>),
    Pong,
    Started(StartedServer),
    Usage(UsageReport),
    Stopped(Counters),
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartedServer {
    pub(crate) port: u16,
    pub(crate) tunnel: Option<TunnelEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TunnelEntry {
    pub(crate) port: u16,
    pub(crate) pin: String,
    pub(crate) psk: String,
    pub(crate) target: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct UsageReport {
    pub(crate) processes: Vec<Process>,
    pub(crate) idle: f64,
    pub(crate) steal: f64,
    #[serde(default)]
    pub(crate) hidden: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) tcp_resent: u64,
    pub(crate) udp_overflows: u64,
}
