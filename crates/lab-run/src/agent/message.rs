//! What is said between `quictun lab run --remote` and an agent.

use std::collections::BTreeMap;

use quictun_lab::Process;
use serde::{Deserialize, Serialize};

/// Rises when a message changes its meaning.
pub(crate) const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ask {
    /// What machine it is on. The first question.
    Facts {
        version: u32,
    },
    /// Nothing: how long is the way?
    Ping,
    Start(Start),
    /// What they used of the processors between two moments, in microseconds before now.
    Usage {
        from_us: u64,
        until_us: u64,
    },
    Stop,
}

/// Programs of an arm at the far end. Only those are started that belong to a measurement, with flags that are known.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// `tcp`, `tls`, `quic` or `udp` of `quictun perf`; `iperf3`.
    pub(crate) traffic: String,
    pub(crate) tunnel: bool,
    /// Further flags of the server; of the tunnel's where there is one.
    pub(crate) flags: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Facts(BTreeMap<String, String>),
    Pong,
    Started(Started),
    Usage(Used),
    Stopped(Counters),
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Started {
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
pub(crate) struct Used {
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
