//! A TCP/IP stack that terminates flows of other programs: packets in, packets out, and sockets by handle.
//!
//! A [`Stack`] is the far end of a TUN device. When a program of this host connects to any address and port, over IPv4
//! or IPv6, the stack answers in place of the target. The user of the stack carries the bytes on. smoltcp implements
//! TCP itself. The stack does no I/O and has no clock: it takes frames and `now`, and returns frames and a deadline.
//!
//! # Order of use
//!
//! 1. Create a stack with [`Stack::new`] and a [`Config`].
//! 2. When the device has frames, pass a few of them to [`Stack::handle_frame`].
//! 3. Call [`Stack::poll_event`] until it returns `None`. Answer [`Event::Offered`] with [`Stack::accept`], and only
//!    then does the program get an answer; or with [`Stack::refuse`], and the program sees a refused connection.
//! 4. Call [`Stack::read`], [`Stack::write`], [`Stack::finish`] and [`Stack::reset`] as needed.
//! 5. Call [`Stack::poll_transmit`] until it returns `None`, and write each frame to the device. If the device accepts
//!    no more, keep the frame and stop calling.
//! 6. Wait for the device, or until [`Stack::next_timeout`], which is the time to call [`Stack::handle_timeout`]. Then
//!    continue with step 2.
//!
//! ```
//! use std::time::Instant;
//!
//! use quictun_netstack::{Config, Event, FRAME_MAX, FlowError, Stack};
//!
//! /// A turn of a loop: frames of the device go in, and frames for the device come out.
//! fn turn(
//!     stack: &mut Stack,
//!     now: Instant,
//!     arrived: Vec<Vec<u8>>,
//!     frame: &mut [u8; FRAME_MAX],
//!     mut write: impl FnMut(&[u8]),
//! ) -> Result<(), FlowError> {
//!     for mut frame in arrived {
//!         stack.handle_frame(now, &mut frame);
//!     }
//!     stack.handle_timeout(now);
//!     while let Some(event) = stack.poll_event() {
//!         match event {
//!             Event::Offered { flow, target, .. } if target.port() == 80 => stack.accept(now, flow)?,
//!             Event::Offered { flow, .. } => stack.refuse(flow)?,
//!             other => println!("{other:?}"),
//!         }
//!     }
//!     while let Some(length) = stack.poll_transmit(now, frame) {
//!         write(&frame[..length]);
//!     }
//!     Ok(())
//! }
//!
//! let mut stack = Stack::new(Config::default(), 1, Instant::now())?;
//! let frame: Result<Box<[u8; FRAME_MAX]>, _> = vec![0; FRAME_MAX].try_into();
//! turn(&mut stack, Instant::now(), Vec::new(), &mut frame.expect("the length is right"), |_| {})?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p quictun-netstack --example echo` shows a stack and a program in memory. The example `tun_echo` is a
//! TCP echo on a TUN device, and needs root.
//!
//! # Frames
//!
//! A frame is an IP packet behind ten bytes of [`Offload`], which describes the work left to the receiver of the frame.
//! Super-packets of up to 64 KiB arrive whole and leave whole, with the size of the segments to split them into.
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
//! Only a flow that is awake has a socket with buffers. The buffers are small at first, and become large once the flow
//! has shown a use for them. All buffers come from one pool with a limit. A sleeping flow takes some 300 bytes. The
//! application sees a single TCP connection throughout, because the stack translates sequence numbers and windows.
//!
//! # Datagrams
//!
//! [`Stack::poll_datagram`] returns the UDP datagrams that programs send, whatever their addresses. They are whole: the stack
//! joins the fragments of those that are longer than a packet of the device. [`Stack::send_datagram`] sends answers.
//! [`Stack::refuse_datagram`] tells a program by an ICMP error that there will be none. A user that polls no datagrams
//! loses them beyond a limit.
//!
//! # What it does not do
//!
//! The stack makes no device and opens no sockets: the caller carries the bytes to the target. It connects to no
//! program: only programs open flows. It answers no ICMP echo requests, and refuses fragments of TCP.
//!
//! # Cost
//!
//! Every flow has a socket set of its own, which is looked up by addresses and ports in a hash table. Deadlines are
//! kept in a heap that is updated only when a deadline moves closer. The cost of a packet therefore does not depend on
//! the number of flows.
#![forbid(unsafe_code)]

mod attachment;
#[cfg(any(test, feature = "check"))]
pub mod check;
mod checksum;
mod config;
mod counters;
mod craft;
mod datagram;
mod event;
mod flow;
mod fragments;
mod inbound;
mod interface;
mod offload;
mod operate;
mod outbound;
mod reset;
mod segment;
mod socket_pool;
mod stack;
mod timers;
mod wire_state;

pub use config::{Config, ConfigError, MAX_PACKET};
pub use counters::Counters;
pub use datagram::Datagram;
pub use event::{Event, FlowEnding, FlowError, StackFlowId, StackRead};
pub use offload::{Checksum, FRAME_MAX, HEADER, Offload, Segmentation};
pub use stack::{Stack, StackUsage};
