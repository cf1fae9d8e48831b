//! Rings and doorbells with the model checker's atomics. The tests run the same source through all interleavings and
//! through all values that the memory model allows a load to return.
//!
//! A lost wake-up appears as a deadlock, which the checker reports. The models are small on purpose: two processes,
//! rings of one to four slots, two or three messages.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the models use only a part of the included modules"
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
