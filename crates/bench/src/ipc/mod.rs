//! Calls between two processes, asynchronous and synchronous, on one core and on two.

mod action;
mod asynchronous;
mod cell;
mod chart;
mod flags;
mod idle;
mod measure;
mod options;
mod payload;
pub(crate) mod peer;
mod published;
mod report;
mod results;
mod serve;
pub(crate) mod synchronous;
mod syscalls;

pub use action::Action;
pub(crate) use action::run;
pub(crate) use flags::{PROGRAM, command, parse};
pub use options::{Options, Part, Section};
