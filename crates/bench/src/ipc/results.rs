//! Everything that was measured of calls.

use super::cell::Cell;
use super::idle::Idle;
use super::options::Options;
use super::{payload, syscalls};
use crate::machine::Machine;

/// What came of the runs.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    pub(crate) calls: u64,
    /// Per call: median, least, most.
    pub(crate) cycles: [f64; 3],
    /// Per call, of all runs.
    pub(crate) to_server: f64,
    pub(crate) to_client: f64,
    /// Per cent of a core, of all runs; nothing for baselines.
    pub(crate) cpu: Option<[f64; 2]>,
    /// Cycles that it takes at least.
    pub(crate) floor: f64,
}

/// Everything.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) wake_cost: u64,
    pub(crate) options: Options,
    pub(crate) rows: Vec<Row>,
    pub(crate) payloads: Vec<payload::Row>,
    /// Or why there are none.
    pub(crate) syscalls: Result<Vec<syscalls::Row>, String>,
    pub(crate) idle: Option<Idle>,
    /// Why they should not be believed.
    pub(crate) noise: Option<String>,
}
