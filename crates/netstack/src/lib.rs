//! A TCP/IP stack for the flows of others: packets in, packets out, sockets by handle.
//!
//! A [`Stack`] sits at the far end of a TUN device. Whatever address and port a program of this host
//! connects to, the stack answers in its place, IPv4 and IPv6, and whoever uses the stack carries the bytes on. The TCP
//! itself is smoltcp's. No I/O, no clock: frames and `now` come in, frames and a deadline come out.
//!
//! # Order of use
//!
//! 1. [`Stack::new`] with a [`Config`].
//! 2. Whenever the device has frames: [`Stack::handle_frame`] for a few of them.
//! 3. [`Stack::poll_event`] until there is none. [`Event::Offered`] is answered with [`Stack::accept`], and only
//!    then does the program hear anything; or with [`Stack::refuse`], and it sees a connection refused.
//! 4. [`Stack::read`], [`Stack::write`], [`Stack::finish`], [`Stack::reset`] as one pleases.
//! 5. [`Stack::poll_transmit`] until there is nothing, each frame to the device. Who cannot write now keeps the
//!    frame and stops asking.
//! 6. Wait for the device, or until [`Stack::next_timeout`] for [`Stack::handle_timeout`], and begin again at 2.
//!
//! # Frames
//!
//! A frame is an IP packet behind ten bytes of [`Offload`]: what the device did not yet do to it, or is to do.
//! Super-packets of up to 64 KiB come in unsplit and go out unsplit, with the size to cut them to.
//!
//! # A flow's life
//!
//! ```text
//!           offer_timeout, refuse, reset by the application
//!         ┌──────────────────────────────────────────────► gone
//!  SYN    │
//!  ──► Offered ─accept─► Awake ◄──────────── Asleep       both finished,      linger
//!                          │    traffic, write   ▲        everything read
//!                          ├─────────────────────┘   ┌───────────────────► Lingering ──► gone
//!                          │  idle_after, nothing    │
//!                          └─under way───────────────┘  also from Awake: reset, open_timeout, stall_timeout
//! ```
//!
//! Only a flow that is awake has a socket with buffers, small ones at first and large ones once it has
//! shown a use for them; all come from one pool with a limit. A flow that sleeps is some 300 bytes. What the application
//! sees is one TCP connection throughout: sequence numbers and windows are translated.
//!
//! # Datagrams
//!
//! UDP goes nowhere, except to one port where [`Config::datagram_port`] says so: [`Stack::poll_datagram`] gives what
//! programs send there, [`Stack::send_datagram`] answers.
//!
//! # Cost
//!
//! Every flow has a set of sockets of its own, found by addresses and ports in a hash table; deadlines
//! move in a heap that is told of the nearer ones only. So a packet costs the same whatever the number of flows.
#![forbid(unsafe_code)]

mod attachment;
#[cfg(any(test, feature = "check"))]
#[path = "../tests/support/check.rs"]
pub mod check;
mod checksum;
mod config;
mod counters;
mod craft;
mod datagram;
mod event;
mod flow;
mod inbound;
mod interface;
mod offload;
mod operate;
mod outbound;
mod segment;
mod socket_pool;
mod stack;
mod timers;
mod wire_state;

pub use config::{Config, ConfigError, MAX_PACKET};
pub use counters::Counters;
pub use datagram::Datagram;
pub use event::{Ending, Event, FlowError, FlowId, Read};
pub use offload::{Checksum, FRAME_MAX, HEADER, Offload, Segmentation};
pub use stack::{Stack, Usage};
