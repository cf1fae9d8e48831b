//! What is said between `quictun lab run --remote` and an agent.

use std::collections::BTreeMap;

use quictun_lab::Process;
use serde::{Deserialize, Serialize};

/// Rises when a message changes its meaning.
pub(in crate::lab) const VERSION: u32 = 1;

/// What is asked of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::lab) enum Ask {
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
pub(in crate::lab) struct Start {
    /// `tcp`, `tls`, `quic` or `udp` of `quictun perf`; `iperf3`.
    pub(in crate::lab) traffic: String,
    /// Through a tunnel.
    pub(in crate::lab) tunnel: bool,
    /// Further flags of the server; of the tunnel's where there is one.
    pub(in crate::lab) flags: Vec<String>,
}

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::lab) enum Answer {
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
pub(in crate::lab) struct Started {
    /// The generator's server.
    pub(in crate::lab) port: u16,
    /// The tunnel's.
    pub(in crate::lab) tunnel: Option<TunnelEntry>,
}

/// What a client of the tunnel needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::lab) struct TunnelEntry {
    pub(in crate::lab) port: u16,
    pub(in crate::lab) pin: String,
    pub(in crate::lab) psk: String,
    /// What it leads to.
    pub(in crate::lab) target: String,
}

/// Shares of the far processors.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::lab) struct Used {
    pub(in crate::lab) processes: Vec<Process>,
    pub(in crate::lab) idle: f64,
    pub(in crate::lab) steal: f64,
    #[serde(default)]
    pub(in crate::lab) hidden: bool,
}

/// What a kernel counted while an arm was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::lab) struct Counters {
    /// TCP segments sent again.
    pub(in crate::lab) tcp_resent: u64,
    /// Datagrams that found the buffer of their socket full.
    pub(in crate::lab) udp_overflows: u64,
}
