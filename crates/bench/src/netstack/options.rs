//! What to measure of the stack, and how.

use std::path::PathBuf;
use std::time::Duration;

use super::calls::{Mode, Polling, WireKind};

/// How to measure and to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bulk flows and echoes.
    pub bulk: bool,
    /// What an application does through calls.
    pub modes: Vec<Mode>,
    /// Many flows.
    pub crowd: usize,
    /// Bulk flows at a time.
    pub flows: Vec<usize>,
    /// Connections of an application at a time.
    pub connections: Vec<usize>,
    /// What is behind the stack.
    pub wires: Vec<WireKind>,
    /// When its packets go out.
    pub pollings: Vec<Polling>,
    /// Bytes of an application's messages.
    pub bytes: Vec<usize>,
    /// Runs of each, of which the median counts.
    pub repeats: usize,
    /// Time of each run.
    pub run: Duration,
    /// Print JSON.
    pub json: bool,
    /// Where to draw the figure.
    pub svg: Option<PathBuf>,
    /// Also on a machine that is busy.
    pub force: bool,
}
