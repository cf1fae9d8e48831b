//! Reads, writes and calls of 1 to 32 connections (B4 to B7): what it is worth to an application to reach its network
//! stack asynchronously.
//!
//! ```text
//!  clients ══ TUN device, or memory ══ the stack, a process of its own ◄── calls ── the application, in this process
//! ```
//!
//! As in the original, clients send messages of a byte, or take them, or both in turns; the application receives and sends
//! them one by one. Asynchronously its connections are coroutines that share one channel, and the stack answers when it
//! can. Synchronously each is a thread with a way of its own, and the stack goes round them without ever going
//! to sleep. Clients and application have the first core, the stack the same or the second. The stack is the product's, and
//! so are the calls and the shared memory of either kind; what ties them together is made for this.

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
pub(crate) use row::Row;
pub(crate) use server::run as serve;
pub(crate) use setup::{Grid, Mode, Polling, Setup, WireKind};
