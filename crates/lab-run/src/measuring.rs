//! A run as it was asked for.

use std::path::PathBuf;

use quictun_lab::{Scenario, Schedule, Selection};

use crate::remote::Asked;

/// What to measure.
#[derive(Debug)]
pub struct Measuring {
    /// As it was named.
    pub named: String,
    /// The scenario.
    pub scenario: Scenario,
    /// Which part of it.
    pub selection: Selection,
    /// What order and losses follow from.
    pub seed: u64,
    /// Where to write.
    pub out: Option<PathBuf>,
    /// All runs, in order.
    pub schedule: Schedule,
    /// `quictun lab crosscheck`: somebody else's emulator.
    pub emulator: Option<String>,
    /// The far end of a real path.
    pub remote: Option<Asked>,
}
