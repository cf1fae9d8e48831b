//! `quictun lab` at work: scenarios measured, and their reports written.
//!
//! `quictun-lab` says what is measured and how it is judged. Here programs are started ([`arm`]), a cell is measured
//! ([`cell`]), a run is made of them ([`run`]), and files are read and written ([`results`]). [`agent`] is the far end of
//! a real path, [`remote`] the near one.

#![forbid(unsafe_code)]

mod agent;
mod arm;
mod cell;
mod client;
mod environment;
mod exit;
mod figures;
mod foreign;
mod generator;
pub mod link;
mod measuring;
mod observer;
mod past;
mod processors;
mod profile;
pub mod program;
mod remote;
mod results;
mod run;
mod symbols;
mod tally;
pub mod tunnel;

pub use agent::{Agent, run as serve};
pub use exit::Fault;
pub use measuring::Measuring;
pub use past::{compare, report};
pub use processors::HostThreads;
pub use remote::Asked;
pub use run::{Outcome, run};
