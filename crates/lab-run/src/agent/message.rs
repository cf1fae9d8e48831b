//! What is said between `quictun lab run --remote` and an agent.

use std::collections::BTreeMap;

use quictun_lab::Process;
use serde::{Deserialize, Serialize};

/// Rises when a message changes its meaning.
pub(crate) const VERSION: u32 = 1;

/// What is asked of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ask {
    /// What machine it is on. The first question.
    Facts { version: u32 },
    /// Nothing: how long is the way?
    Ping,
    /// Start the programs of an arm.
    Start(Start),
    /// What they used of the processors between two moments, in microseconds before now.
    Usage { from_us: u64, until_us: u64 },
    /// End them.
    Stop,
}

/// Programs of an arm at the far end. Only those are started that belong to a measurement, with flags that are known.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// `tcp`, `tls`, `quic` or `udp` of `quictun perf`; `iperf3`.
    pub(crate) traffic: String,
    /// Through a tunnel.
    pub(crate) tunnel: bool,
    /// Further flags of the server; of the tunnel's where there is one.
    pub(crate) flags: Vec<String>,
}

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// What machine it is on.
    Facts(BTreeMap<String, String>),
    /// To a ping.
    Pong,
    /// They run.
    Started(Started),
    /// What they used.
    Usage(Used),
    /// They have ended.
    Stopped(Counters),
    /// No, and why not.
    Refused(String),
}

/// Where the programs of an arm listen.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Started {
    /// The generator's server.
    pub(crate) port: u16,
    /// The tunnel's.
    pub(crate) tunnel: Option<TunnelEntry>,
}

/// What a client of the tunnel needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TunnelEntry {
    pub(crate) port: u16,
    pub(crate) pin: String,
    pub(crate) psk: String,
    /// What it leads to.
    pub(crate) target: String,
}

/// Shares of the far processors.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) processes: Vec<Process>,
    pub(crate) idle: f64,
    pub(crate) steal: f64,
    #[serde(default)]
    pub(crate) hidden: bool,
}

/// What a kernel counted while an arm was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// TCP segments sent again.
    pub(crate) tcp_resent: u64,
    /// Datagrams that found the buffer of their socket full.
    pub(crate) udp_overflows: u64,
}
