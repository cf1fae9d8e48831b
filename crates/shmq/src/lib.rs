//! Two rings, two payload arenas and two doorbells in memory that two mutually distrusting processes share.
//!
//! One process creates a region ([`Channel::create`]) and passes its descriptor ([`Channel::memory`]) to the other
//! process, which opens it ([`Channel::open`]). Each process writes [`Message`]s into its own ring and reads messages
//! from the peer's ring. A message is one cache line. Longer payloads lie in the sender's arena.
//!
//! A process with nothing to do sleeps on its doorbell. The peer notifies it only while it sleeps, because a process
//! that is awake polls the ring itself. `docs/IPC.md` describes the format, the states and the threat model.
//!
//! # Order of use
//!
//! 1. Call [`Channel::watch`] with a socket whose other end the peer holds. The channel detects the peer's death
//!    through this socket.
//! 2. Call [`Channel::push`] for each message and [`Channel::flush`] after each batch.
//! 3. Call [`Channel::pop`] until it returns `None`. Then call [`Channel::arm`]. If it returns true, sleep: call
//!    [`Channel::wait`], or wait for [`Channel::descriptor`] in epoll and then call [`Channel::wake_up`]. If it returns
//!    false, call [`Channel::disarm`] and continue.
//!
//! ```
//! use quictun_shmq::{Channel, Message, SleepMode};
//!
//! let mut here = Channel::create(1 << 16, 1)?;
//! // Normally, the descriptor is passed to another process.
//! let mut there = Channel::open(here.memory().try_clone_to_owned()?)?;
//!
//! let payload = here.reserve(5).expect("the arena has room");
//! here.write(&payload, 0, b"hello");
//! let message = Message::new(7).with_payload(payload.off(), payload.len());
//! assert!(here.push(message)?);
//! here.flush();
//!
//! let message = there.pop()?.expect("a message has arrived");
//! let payload = there.received(&message)?.expect("the message has a payload");
//! let mut bytes = [0; 5];
//! there.read(payload, 0, &mut bytes);
//! assert_eq!((message.op(), &bytes), (7, b"hello"));
//!
//! assert_eq!(there.pop()?, None);
//! assert!(there.arm(SleepMode::Futex), "nothing to do, so the process may sleep");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p quictun-shmq --example squares` shows two processes.
//!
//! # States
//!
//! ```text
//!  channel:   open ─► over: the peer closed it, its process ended, or it broke the rules
//!  doorbell:  running ─arm─► armed ─the peer flushes, or `disarm`─► running
//! ```
//!
//! Once a channel is over, [`Channel::pop`] still returns the messages that an honest peer sent before. Then it fails
//! with a [`ChannelError`], which says how the channel ended.
//!
//! # What it does not do
//!
//! A channel joins exactly two processes. It does not start the peer and does not pass descriptors to it. It does not
//! match answers with requests: the crate `quictun-ipc` has calls. Ring and arenas do not grow: [`Channel::push`]
//! returns false if the ring is full. The data in the memory is not encrypted.
//!
//! # What the peer can do
//!
//! No value that the peer writes into the region causes an out-of-bounds access or a panic. Indices are masked and
//! messages are copied before they are inspected. This process never holds a plain reference to memory that the peer
//! can write. Behaviour that an honest peer never shows is a [`Violation`] and ends the channel. The death of the peer
//! is always detected, at whatever point the peer died.

#![allow(
    clippy::inline_always,
    reason = "passing a message through memory would stall on cache lines that other cores hold: see `message`"
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
pub use arena::Allocation;
pub use channel::payload::PeerPayload;
pub use channel::{ArrivedMessage, Channel, Counters, FreeSlot};
pub use cycles::cycles;
pub use doorbell::SleepMode;
pub use layout::{ABI_VERSION, HeaderError, MAX_ARENA, PAGE, RegionSide, SLOTS};
pub use message::{INLINE, Message, MessageTooLong};
pub use region::RegionError;
pub use ring::BATCH;
pub use ring_pair::Interest;
pub use violation::{ChannelError, Violation};
