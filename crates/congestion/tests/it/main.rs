//! Integration tests that run controllers alone, in virtual time, on emulated links of many kinds.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of bytes and packets in a model that has a million of them"
)]

mod accidents;
mod bbr;
mod cell;
mod changes;
mod ensemble;
mod event_queue;
mod fairness;
mod fixed;
mod floors;
mod gated;
mod grid;
mod jitter;
mod kernel;
mod links;
mod named;
mod plots;
mod probe;
mod random;
mod resume;
mod rivals;
mod simulation;
mod sleeps;
mod start;
