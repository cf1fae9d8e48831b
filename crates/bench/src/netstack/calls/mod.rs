//! Reads, writes and calls of 1 to 32 connections (B4 to B7): the benefit of reaching the network stack asynchronously.
//!
//! ```text
//!  clients ══ TUN device, or memory ══ the stack, a process of its own ◄── calls ── the application, in this process
//! ```
//!
//! As in the original, clients send one-byte messages, or receive them, or do both in turns. The application receives
//! and sends the messages one by one. In the asynchronous case, its connections are coroutines that share one channel,
//! and the stack answers when it can. In the synchronous case, each connection is a thread with its own channel or
//! socket, and the stack polls them in turn and never sleeps. Clients and application run on the first core, the stack
//! runs on the same core or on the second. The stack, the calls and the shared memory of both kinds are the product's;
//! only the code that connects them is made for this benchmark.

mod application;
mod clients;
mod host;
mod measure;
mod published;
pub(crate) mod report;
mod row;
mod server;
mod setup;
mod sockets;
mod wire;

pub(crate) use measure::measure;
pub(crate) use row::ConnectionRow;
pub(crate) use server::run as serve;
pub(crate) use setup::{Grid, Mode, Polling, Setup, WireKind};
