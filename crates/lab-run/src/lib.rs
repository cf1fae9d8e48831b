//! The commands `quictun lab` and `quictun link`.
//!
//! `quictun-lab` defines what is measured and how it is judged. This crate parses the command line (`command`,
//! [`flags`]), starts programs (`arm`), measures cells (`cell`), combines them to a run ([`run`]), and reads and
//! writes files (`results`). `agent` is the far end of a real path, `remote` the near end. [`link`] emulates a
//! link around a command, and compares emulated links with simulated ones.

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
pub use remote::RemoteOptions;
pub use run::RunSettings;

/// The name of the command in error messages.
pub const PROGRAM: &str = "quictun lab";
