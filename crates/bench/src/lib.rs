//! `quictun bench`: what this product's parts cost on this machine.
//!
//! [`netstack`] measures the user-space network stack, [`ipc`] calls between two processes, asynchronous and synchronous,
//! on one core and on two; both are shown beside the published figures. This process is the client of a measurement, the
//! same program once more its server. [`parse`] reads the command line, [`run`] measures and returns the text to print.

#![forbid(unsafe_code)]

mod action;
mod flags;
mod ipc;
mod kind;
mod machine;
mod netstack;
mod spread;
mod words;

pub use action::{Action, command, parse, run};
pub use flags::OnlyForItself;
