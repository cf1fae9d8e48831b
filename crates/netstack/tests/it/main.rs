//! The stack against another TCP and against hostile senders, in virtual time.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod datagrams;
mod flood;
mod fuzz;
mod life;
mod memory;
mod offload;
mod peer;
mod raw;
mod refusals;
mod service;
mod simulation;
mod transfer;
