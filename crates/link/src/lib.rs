//! Emulates one direction of a link: *(packet, now, seed) → delivered at t, marked, or dropped*.
//!
//! A [`Link`] holds no packets and reads no clock. The caller reports that a packet of some length enters. The link
//! answers at once when the packet, and perhaps a copy of it, comes out at the other end. The caller keeps the packet
//! until then: in an event queue if time is virtual, in a timer wheel if time is real.
//!
//! # Order of use
//!
//! 1. Describe the link with a [`LinkConfig`]. Fields left at their default have no effect. [`units`], [`overhead`] and
//!    [`Trace`] parse the notation that people use for the values; [`NamedLink`] provides whole links, such as `lte`;
//!    [`LinkConfig::check`] rejects invalid configurations.
//! 2. Call [`Link::new`] with a seed and with the time from which outages and changes count.
//! 3. Call [`Link::send`] for every packet, at times that never go back.
//! 4. Read [`Link::counters`] and [`Link::waits`] for the results.
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use quictun_link::units::Rate;
//! use quictun_link::{DropReason, Fate, Link, LinkConfig, Queue, overhead};
//!
//! let config = LinkConfig {
//!     rate: Some("600mbit".parse::<Rate>()?.0),
//!     overhead: overhead::ETHERNET,
//!     delay: Duration::from_millis(10),
//!     queue: Queue::Packets(2),
//!     ..LinkConfig::default()
//! };
//! config.check()?;
//! let start = Instant::now();
//! let mut link = Link::new(config, 1, start);
//! for packet in 1..=2 {
//!     let at = start + Duration::from_millis(10) + Duration::from_nanos(20_507) * packet;
//!     assert!(matches!(link.send(start, 1500), Fate::Delivered { at: out, .. } if out == at));
//! }
//! assert_eq!(link.send(start, 1500), Fate::Dropped(DropReason::QueueFull));
//! assert_eq!(link.counters().to_string(), "3 sent, 2 delivered; dropped: 1 queue full");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What happens to a packet, in order
//!
//! ```text
//!  in ─► mtu ─► loss ─► policer ─► queue ─► CoDel ─► transmission ─► outage ─► loss ─► delay ─► out
//!              Entry      token   drop-tail, at the   rate, changes           Exit       + jitter
//!            random or    bucket   bytes or  head of   or trace;             (default)      │
//!              burst               packets  the queue  counts waits                         │
//!                                       marks CE ◄────────┘     duplicate, reorder ◄─ stall ◄─┘
//! ```
//!
//! Loss applies at one of two places, chosen by [`LossAt`]. A packet dropped before the transmission leaves its
//! transmission time to the next packet; a packet lost after it has used the link. `CoDel` decides when the packet
//! leaves the queue. In a FIFO the departure time follows from the packets ahead, so it is known when the packet
//! enters. Jitter keeps the order. Only the packets picked for reordering come late, and the packets behind them do not
//! wait.
//!
//! # What it does not do
//!
//! A link has one direction: emulate a path there and back with two of them. It sees the lengths of packets but not
//! their bytes, so it neither corrupts nor fragments any. It does not distinguish flows, so all share its queue. It
//! sends nothing and starts no timer: `emu` emulates links in real time, and `sim` in virtual time. Apart from the
//! changes and outages of its configuration, a link has no states.
//!
//! `cargo run -p quictun-link --example lossy_pipe` shows a pipe in memory.
//!
//! # Randomness
//!
//! The random events of packet *i* depend only on the seed and on *i*, never on the number of draws made for other
//! packets. Two runs that differ in one packet's length therefore still lose the same packets. All arithmetic uses
//! integers or exactly rounded operations, so every machine gives the same fates, with and without optimisation.
#![forbid(unsafe_code)]

mod bursts;
#[cfg(any(test, feature = "check"))]
pub mod check;
mod codel;
mod config;
mod counters;
mod draw;
mod link;
mod log_histogram;
pub mod named;
pub mod overhead;
mod packet;
mod policer;
#[cfg(test)]
mod tests;
mod timed_value;
mod trace;
mod transmit_queue;
mod transmitter;
pub mod units;

pub use bursts::GilbertElliott;
pub use config::error::{ConfigError, MAX_CHANGES, MAX_DELAY};
pub use config::{
    Change, Codel, LinkConfig, LossAt, Outage, Policer, Queue, Reorder, Setting, Stall,
};
pub use counters::Counters;
pub use link::Link;
pub use log_histogram::LogHistogram;
pub use named::{NamedLink, Overrides};
pub use packet::{DropReason, Fate, Packet};
pub use trace::{MAX_OPPORTUNITIES, OPPORTUNITY_BYTES, Trace, TraceError};

/// Converts a duration to nanoseconds, and saturates at 64 bits (more than 500 years).
fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
