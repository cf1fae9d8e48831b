//! `quictun lab` and `quictun link` at work.
//!
//! `quictun-lab` says what is measured and how it is judged. Here the command line is read ([`command`], [`flags`]),
//! programs are started ([`arm`]), a cell is measured ([`cell`]), a run is made of them ([`run`]), and files are read and
//! written ([`results`]). [`agent`] is the far end of a real path, [`remote`] the near one. [`link`] emulates a link
//! around a command, and compares emulated links with simulated ones.

#![forbid(unsafe_code)]

mod agent;
mod arm;
mod cell;
mod client;
mod command;
mod environment;
mod figures;
pub mod flags;
mod foreign;
mod generator;
pub mod link;
mod past;
mod processors;
mod profile;
mod program;
mod progress;
mod remote;
mod results;
mod run;
mod symbols;
mod tally;
pub mod tunnel;

pub use agent::Agent;
pub use command::{Action, parse, run};
pub use remote::Asked;
pub use run::Measuring;

/// The command that errors are reported for.
pub const PROGRAM: &str = "quictun lab";
