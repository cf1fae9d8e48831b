//! One measurement of calls, and one run of it.

use std::time::Duration;

use quictun_ipc::WaitPolicy;

use crate::kind::{Kind, Placement};
use crate::machine::ratio;

/// Calls under way where loads and modes are compared.
pub(crate) const LOADED: usize = 32;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) placement: Placement,
    pub(crate) policy: WaitPolicy,
    pub(crate) concurrency: usize,
    pub(crate) load: u32,
}

/// One run of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) calls: u64,
    pub(crate) ticks: u64,
    pub(crate) elapsed: Duration,
    pub(crate) to_server: u64,
    pub(crate) to_client: u64,
    pub(crate) client_cpu: Duration,
    pub(crate) server_cpu: Duration,
}

impl Sample {
    pub(crate) fn cycles(&self) -> f64 {
        ratio(self.ticks, self.calls)
    }
}
