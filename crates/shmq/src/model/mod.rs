//! Rings and doorbells with the model checker's atomics: the same source, all interleavings, and all values that the
//! memory model lets a load return.
//!
//! A lost wake-up shows as a deadlock, which the checker reports. The models are small on purpose: two processes, rings of
//! one or two slots, two or three messages.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the models use a part of what they are given"
)]
#![allow(clippy::duplicate_mod, reason = "the same source over other atomics")]

mod atomic;
#[path = "../doorbell.rs"]
mod doorbell;
#[path = "../ring.rs"]
mod ring;
#[path = "../ring_pair.rs"]
mod ring_pair;
mod slot;
mod tests;
