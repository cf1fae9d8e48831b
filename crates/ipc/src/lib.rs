//! Calls between two processes: coroutines over shared rings that notify the peer only while it sleeps.
//!
//! A client and a server process share a region of `quictun_shmq`, which they set up over a socket ([`connect`],
//! [`accept`]). On each side, an [`Executor`] runs coroutines in one thread. The client's coroutines use
//! `call(..).await`; the server's coroutines use `recv().await` and `reply`. A call costs two cache lines while the
//! other side is awake. A side that sleeps has to be woken, but only once for all calls made by then. The more calls
//! are under way, the less each of them costs. `docs/IPC.md` describes the format, the states and the threat model.
//!
//! ```
//! use std::time::Duration;
//! use quictun_ipc::{Client, Message, Server, WaitPolicy, accept, connect, sockets};
//!
//! let (here, there) = sockets()?;
//! // Normally, the server is another process.
//! let server = std::thread::spawn(move || {
//!     let channel = accept(there, Duration::from_secs(10))?;
//!     let (server, mut executor) = Server::new(channel, WaitPolicy::Hybrid);
//!     executor.spawner().spawn(1, async move {
//!         while let Ok(request) = server.recv().await {
//!             let sum = request.message().bytes().iter().map(|byte| u64::from(*byte)).sum();
//!             if server.reply(request, Message::new(0).with_arg(sum)).await.is_err() {
//!                 break;
//!             }
//!         }
//!     });
//!     executor.run();
//!     Ok::<_, quictun_ipc::HandshakeError>(())
//! });
//!
//! let channel = connect(here, 0, 1, Duration::from_secs(10))?;
//! let (client, mut executor) = Client::new(channel, WaitPolicy::Hybrid);
//! executor.spawner().spawn(1, async move {
//!     let message = Message::new(1).with_bytes(&[1, 2, 3]).expect("three bytes fit inline");
//!     let answer = client.call(message).await.expect("the server answers");
//!     assert_eq!(answer.arg(), 6);
//! });
//! executor.run();
//! drop(executor);
//! server.join().expect("the server thread")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Order of use
//!
//! 1. Set up a channel with [`connect`] or [`accept`], and create a [`Client`] or a [`Server`] on it.
//! 2. Start coroutines with [`Spawner::spawn`]; coroutines can start further ones.
//! 3. Call [`Executor::run`], which returns when all of them have ended. If the peer is gone, every call and every
//!    `recv` fails.
//!
//! `cargo run -p quictun-ipc --example sum` shows a client and a server in two processes.
//!
//! # States of a call
//!
//! ```text
//!  waits for a place ─► sent ─► answered              `call` returns the answer
//!          └──────────────┴───► the channel is over   `call` fails with the reason
//! ```
//!
//! # What it does not do
//!
//! An executor serves one channel. At most [`MAX_CALLS`] calls are under way at a time; further calls wait. Calls go
//! from the client to the server; calls in both directions need two channels. A call allocates no memory, and has no
//! deadline: it waits until the server answers or is gone. The crate does not encode values: a message has an
//! operation, a number and up to 32 bytes, and a longer payload lies in the arena.

#![forbid(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "passing a message through memory would stall on cache lines that other cores hold: see `Message`"
)]

mod bridge;
mod calls;
mod client;
mod executor;
mod handshake;
mod message;
mod pace;
mod schedule;
mod server;
mod silence_limit;
mod stream;
mod wait;
mod waiters;

pub use bridge::Advance;
pub use calls::MAX_CALLS;
pub use client::{Call, Client};
pub use executor::{Executor, IdleCounters, MAX_COROUTINES, Spawner};
pub use handshake::{HandshakeError, accept, connect, sockets};
pub use message::LAST;
pub use quictun_shmq::{
    Allocation, Channel, ChannelError, Counters, Message, MessageTooLong, PeerPayload, Violation,
    cycles,
};
pub use schedule::PRIORITIES;
pub use server::{Recv, Reply, Request, Server};
pub use stream::{Items, MAX_AHEAD};
pub use wait::{WaitPolicy, wake_cost};
