//! Two rings, a payload arena and two doorbells in memory that two processes share and neither trusts.
//!
//! One process makes a region ([`Channel::create`]) and gives its descriptor ([`Channel::memory`]) to the other, which opens
//! it ([`Channel::open`]). Each writes [`Item`]s into a ring of its own and reads those of the other's; an item is a cache
//! line, and longer payloads lie in the writer's arena. A process that finds nothing to do sleeps on its doorbell, and
//! is woken only then: while it is awake it is not notified, since it looks by itself. The format, the states and the threat
//! model are in `docs/IPC.md`.
//!
//! # Order of use
//!
//! 1. [`Channel::watch`] with a socket whose other end the peer holds: how its death is noticed.
//! 2. [`Channel::push`] items; [`Channel::flush`] after each batch.
//! 3. [`Channel::pop`] until there is nothing. Then [`Channel::arm`], and only where that says true [`Channel::wait`], or
//!    epoll for the [`Channel::descriptor`] and then [`Channel::disarm`].
//!
//! ```
//! use quictun_shmq::{Channel, Item, Sleep};
//!
//! let mut here = Channel::create(1 << 16, 1)?;
//! // As a rule the descriptor goes to another process.
//! let mut there = Channel::open(here.memory().try_clone_to_owned()?)?;
//!
//! let payload = here.reserve(5).expect("room for a few bytes");
//! here.write(&payload, 0, b"hello");
//! let item = Item { cid: 7, off: payload.off(), len: payload.len(), ..Item::default() };
//! assert!(here.push(&item)?);
//! here.flush();
//!
//! let item = there.pop()?.expect("an item");
//! let payload = there.received(&item)?.expect("a payload");
//! let mut bytes = [0; 5];
//! there.read(payload, 0, &mut bytes);
//! assert_eq!((item.cid, &bytes), (7, b"hello"));
//!
//! assert_eq!(there.pop()?, None);
//! assert!(there.arm(Sleep::Futex), "nothing to do: it may wait");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the peer can do
//!
//! Whatever it writes into the region, nothing is read or written outside it and nothing panics: indices are masked,
//! items are copied before they are looked at, and nobody has a plain reference to memory that the peer writes. What no
//! honest peer does is a [`Violation`], and the channel's end. A peer that dies is noticed, wherever it died.

#![allow(
    clippy::inline_always,
    reason = "an item that is passed through memory instead waits there for other cores: see `line`"
)]

mod arena;
mod atomic;
mod bytes;
mod channel;
pub mod check;
mod cycles;
mod doorbell;
mod item;
mod layout;
mod life;
mod line;
#[cfg(test)]
mod model;
mod party;
mod region;
mod ring;
mod slot;
mod violation;

pub use arena::Reserved;
pub use channel::{Alarm, Arrived, Channel, ChannelError, Counters, Received, Room};
pub use cycles::cycles;
pub use doorbell::Sleep;
pub use item::{INLINE, Item};
pub use layout::{ABI_VERSION, HeaderError, MAX_ARENA, PAGE, SLOTS, Side};
pub use line::Line;
pub use party::Wants;
pub use region::RegionError;
pub use ring::BATCH;
pub use violation::Violation;
