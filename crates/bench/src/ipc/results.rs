//! The results of all measurements of calls.

use std::time::Duration;

use quictun_ipc::WaitPolicy;

use super::flags::Options;
use super::idle::IdleResult;
use super::{payload, syscalls};
use crate::kind::{Kind, Placement};
use crate::machine::{Machine, ratio};

/// Calls in flight when loads and modes are compared.
pub(crate) const LOADED: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallCell {
    pub(crate) kind: Kind,
    pub(crate) placement: Placement,
    pub(crate) policy: WaitPolicy,
    pub(crate) concurrency: usize,
    pub(crate) load: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallSample {
    pub(crate) calls: u64,
    pub(crate) ticks: u64,
    pub(crate) elapsed: Duration,
    pub(crate) to_server: u64,
    pub(crate) to_client: u64,
    pub(crate) client_cpu: Duration,
    pub(crate) server_cpu: Duration,
}

impl CallSample {
    pub(crate) fn cycles(&self) -> f64 {
        ratio(self.ticks, self.calls)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CallRow {
    pub(crate) cell: CallCell,
    pub(crate) calls: u64,
    /// Cycles per call: median, minimum, maximum.
    pub(crate) cycles: [f64; 3],
    /// Notifications per call over all runs.
    pub(crate) to_server: f64,
    pub(crate) to_client: f64,
    /// Per cent of a core over all runs, of client and server; `None` for baselines.
    pub(crate) cpu: Option<[f64; 2]>,
    pub(crate) floor: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) wake_cost: u64,
    pub(crate) options: Options,
    pub(crate) rows: Vec<CallRow>,
    pub(crate) payloads: Vec<payload::PayloadRow>,
    /// The rows, or the reason why there are none.
    pub(crate) syscalls: Result<Vec<syscalls::SyscallRow>, String>,
    pub(crate) idle: Option<IdleResult>,
    pub(crate) noise: Option<String>,
}
