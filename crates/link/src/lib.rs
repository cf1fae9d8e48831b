//! One direction of a link: *(packet, now, seed) → delivered at t, marked, or dropped*.
//!
//! A [`Link`] holds no packets and reads no clock. It is told when a packet of some length enters and
//! answers at once when the packet, and perhaps a copy of it, comes out at the other end. The caller
//! keeps the packet until then: in an event queue where time is virtual, in a timer wheel where it is
//! real.
//!
//! # Order of use
//!
//! 1. Describe the link with a [`LinkConfig`]; fields that are left at their default do nothing.
//! 2. [`Link::new`] with a seed and the time that scheduled outages count from.
//! 3. [`Link::send`] for every packet, at times that never go back.
//! 4. [`Link::counters`] tells what became of them.
//!
//! # What happens to a packet, in order
//!
//! ```text
//!  mtu ─► queue (drop-tail, bytes) ─► transmission (rate) ─► outage ─► loss ─► delay + jitter ─► out
//!                                                                                │
//!                                                        duplicate, reorder ◄────┘
//! ```
//!
//! A packet that is lost has used the link; a packet that is dropped by the queue has not. Jitter keeps
//! the order; only the packets picked for reordering come late, and those behind them do not wait.
//!
//! # Randomness
//!
//! The fate of packet *i* depends on the seed and on *i* only, never on how many draws others took: two
//! runs that differ in one packet's length still lose the same packets.
#![forbid(unsafe_code)]

mod config;
mod counters;
mod draw;
mod link;
mod packet;
#[cfg(test)]
mod tests;

pub use config::{LinkConfig, Outage, Queue, Reorder};
pub use counters::Counters;
pub use link::Link;
pub use packet::{DropReason, Fate, Packet};
