//! `quictun bench`: the cost of this product's parts on this machine.
//!
//! `netstack` measures the user-space network stack. `ipc` measures calls between two processes, asynchronous and
//! synchronous, on one core and on two. Both show the published figures beside their results. This process is the
//! client of a measurement; the server is a second process of the same program. [`parse`] reads the command line, and
//! [`run`] measures and returns the text to print.

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
pub use flags::InvalidHelperFlag;
