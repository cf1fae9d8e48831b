//! Two rings, a payload arena and two doorbells in memory that two processes share and neither trusts.
//!
//! One process makes a region ([`Channel::create`]) and gives its descriptor ([`Channel::memory`]) to the other, which opens
//! it ([`Channel::open`]). Each writes [`Message`]s into a ring of its own and reads those of the other's; a message is a cache
//! line, and longer payloads lie in the writer's arena. A process that finds nothing to do sleeps on its doorbell, and
//! is woken only then: while it is awake it is not notified, since it looks by itself. The format, the states and the threat
//! model are in `docs/IPC.md`.
//!
//! # Order of use
//!
//! 1. [`Channel::watch`] with a socket whose other end the peer holds: how its death is noticed.
//! 2. [`Channel::push`] messages; [`Channel::flush`] after each batch.
//! 3. [`Channel::pop`] until there is nothing. Then [`Channel::arm`], and only where that says true [`Channel::wait`], or
//!    epoll for the [`Channel::descriptor`] and then [`Channel::disarm`].
//!
//! ```
//! use quictun_shmq::{Channel, Message, Sleep};
//!
//! let mut here = Channel::create(1 << 16, 1)?;
//! // As a rule the descriptor goes to another process.
//! let mut there = Channel::open(here.memory().try_clone_to_owned()?)?;
//!
//! let payload = here.reserve(5).expect("room for a few bytes");
//! here.write(&payload, 0, b"hello");
//! let message = Message::new(7).with_payload(payload.off(), payload.len());
//! assert!(here.push(message)?);
//! here.flush();
//!
//! let message = there.pop()?.expect("a message");
//! let payload = there.received(&message)?.expect("a payload");
//! let mut bytes = [0; 5];
//! there.read(payload, 0, &mut bytes);
//! assert_eq!((message.op(), &bytes), (7, b"hello"));
//!
//! assert_eq!(there.pop()?, None);
//! assert!(there.arm(Sleep::Futex), "nothing to do: it may wait");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the peer can do
//!
//! Whatever it writes into the region, nothing is read or written outside it and nothing panics: indices are masked,
//! messages are copied before they are looked at, and nobody has a plain reference to memory that the peer writes. What no
//! honest peer does is a [`Violation`], and the channel's end. A peer that dies is noticed, wherever it died.

#![allow(
    clippy::inline_always,
    reason = "a message that is passed through memory instead waits there for other cores: see `message`"
)]

mod alarm;
mod arena;
mod atomic;
mod bytes;
mod channel;
mod cycles;
mod doorbell;
mod layout;
mod message;
#[cfg(test)]
mod model;
mod peer_watch;
mod region;
mod ring;
mod ring_pair;
mod slot;
mod violation;

pub use alarm::Alarm;
pub use arena::Reserved;
pub use channel::payload::Received;
pub use channel::{Arrived, Channel, Counters, Room};
pub use cycles::cycles;
pub use doorbell::Sleep;
pub use layout::{ABI_VERSION, HeaderError, MAX_ARENA, PAGE, SLOTS, Side};
pub use message::{INLINE, Message, MessageTooLong};
pub use region::RegionError;
pub use ring::BATCH;
pub use ring_pair::Wants;
pub use violation::{ChannelError, Violation};
