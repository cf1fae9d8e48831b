//! Calls between two processes: coroutines over shared rings, notified only while they sleep.
//!
//! A client and a server process share a region of `quictun_shmq`, set up over a socket ([`connect`], [`accept`]). On each
//! side an [`Executor`] runs coroutines in one thread: those of the client `call(..).await`, those of the server
//! `recv().await` and `reply`. A call that is made while the other side is awake costs two cache lines; only where it
//! sleeps does it have to be woken, once for all that were made by then. So the more calls are under way, the less each costs.
//! Format, states and threat model are in `docs/IPC.md`.
//!
//! ```
//! use std::time::Duration;
//! use quictun_ipc::{Client, Message, Server, WaitPolicy, accept, connect, sockets};
//!
//! let (here, there) = sockets()?;
//! // As a rule another process.
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
//!     let message = Message::new(1).with_bytes(&[1, 2, 3]).expect("three bytes are few");
//!     let answer = client.call(message).await.expect("an answer");
//!     assert_eq!(answer.arg(), 6);
//! });
//! executor.run();
//! drop(executor);
//! server.join().expect("the server")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Order of use
//!
//! 1. [`connect`] or [`accept`]; [`Client::new`] or [`Server::new`].
//! 2. [`Spawner::spawn`] coroutines, also from coroutines.
//! 3. [`Executor::run`], until all of them have ended. Where the peer is gone every call and every `recv` ends with an error.
//!
//! # Limits
//!
//! An executor serves one channel. [`MAX_CALLS`] calls are under way at a time, further ones wait. Calls go from the client to
//! the server; for both directions there are two channels. Nothing is allocated per call.

#![forbid(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "a message that is passed through memory instead waits there for other cores: see `Message`"
)]

mod bridge;
mod calls;
mod client;
mod executor;
mod handshake;
mod message;
mod pace;
mod patience;
mod schedule;
mod server;
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
    Channel, ChannelError, Counters, Message, MessageTooLong, Received, Reserved, Violation, cycles,
};
pub use schedule::PRIORITIES;
pub use server::{Recv, Reply, Request, Server};
pub use stream::{Items, MAX_AHEAD};
pub use wait::{WaitPolicy, wake_cost};
