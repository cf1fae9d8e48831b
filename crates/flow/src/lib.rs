//! One bridged connection: a [`Socket`] (the application) on one side, a [`Stream`] (QUIC) on the other.
//!
//! A [`Flow`] moves bytes in both directions. It maps every way in which a TCP connection can end onto the stream, and
//! every way in which a stream can end onto the TCP connection. It has no clock, no descriptor and no QUIC library: it
//! sees only the two traits, so the same code runs over kernel sockets, in virtual time and under a fuzzer.
//!
//! # Order of use
//!
//! 1. Make an [`Inlet`] for the stream with [`Inlet::new`] and parse the stream's header from it. Then build the flow
//!    from a connected socket and the inlet with [`Flow::new`].
//! 2. Call [`Flow::handle_socket_ready`] whenever the socket may have become readable or writable, and
//!    [`Inlet::handle_readable`] whenever the stream may have become readable.
//! 3. Call [`Flow::pump_to_tunnel`] while there is budget, and [`Flow::pump_to_app`] while there is data. Each returns
//!    what it waits for.
//! 4. Call [`Flow::handle_stopped`] for `STOP_SENDING`, and [`Flow::handle_connection_lost`] when the connection ends.
//!    A flow with bytes to deliver continues without the connection, on a [`LostStream`].
//! 5. Call [`Flow::handle_socket_failed`] when the socket reports an error. Once [`Flow::has_failed`] returns true, call
//!    [`Flow::poll_reset`] after each pump and each confirmation of the peer.
//! 6. While [`Flow::is_parting`] returns true, call [`Flow::poll_parting`] at intervals.
//! 7. Once [`Flow::ending`] returns `Some`, the flow is over. Drop it: the socket closes with it.
//!
//! ```
//! use quictun_flow::{Ending, Flow, ReadBuffer, Socket, Stream, ToAppStop, ToTunnelStop};
//!
//! /// Moves the bytes of a flow whose socket and stream may be ready. Returns how the flow ended, once it has.
//! fn turn<S: Socket, T: Stream>(
//!     flow: &mut Flow<S>,
//!     stream: &mut T,
//!     buffer: &mut ReadBuffer,
//! ) -> Option<Ending> {
//!     flow.handle_socket_ready(true, true);
//!     let mut budget = 64 * 1024;
//!     if flow.pump_to_tunnel(stream, buffer, &mut budget) == ToTunnelStop::Budget {
//!         println!("more may follow when other flows have had their turn");
//!     }
//!     if flow.pump_to_app(stream) == ToAppStop::AppBlocked {
//!         println!("the rest follows when the socket is writable");
//!     }
//!     let confirmed = flow.unconfirmed_chunks() == 0;
//!     flow.poll_reset(stream, true, confirmed);
//!     flow.poll_parting(false);
//!     flow.ending()
//! }
//! ```
//!
//! `cargo run -p quictun-flow --example echo` shows a flow between an application and a stream in memory.
//!
//! # How one direction ends
//!
//! ```text
//!   application FIN ──► Finished (FIN on the stream; the other direction lives on)
//!   application RST ──► Closed   (STOP_SENDING, its last bytes, and RESET_STREAM once they are confirmed)
//!   RESET_STREAM    ──► Closed   (the application gets what has arrived, then a reset; never a FIN: a cut would look
//!                                 complete)
//!   STOP_SENDING    ──► Closed   (the application is no longer read; reset once the reverse ends)
//! ```
//!
//! The table is normative in PROTOCOL.md, with one test per row.
//!
//! # What it does not do
//!
//! A flow opens no sockets and no streams, and does not encrypt. It parses no requests: the caller takes the header off
//! the inlet. It has no timers: the caller limits the time for which a flow waits.
//!
//! # Many flows
//!
//! [`Flows`] keeps the flows of an engine, each as a [`FlowEntry`]. An entry exists from the request for a flow, or
//! from the first bytes of its stream, to the flow's last byte. [`Ids`] makes the ids, which contain the keys.
//!
//! # Memory
//!
//! An [`Account`] says how much memory a process may hold. [`window`] sizes receive windows from the free part of it. A
//! [`Backlog`] decides whether the peer of a flow should pause. [`PinnedBatches`] finds the flows whose data should be
//! copied. [`ControlStream`] tells the peer which bytes have arrived and which flows should pause.
//!
//! [`PieceQueue`] and [`ReceiveCredit`] are parts of streams for carriers whose frames arrive in order.
//!
//! # Rates
//!
//! An [`Allowance`] says what one client may use over all its connections. A [`Meter`] is one connection's share of the
//! client's rate. If the meter allows no bytes, the caller does not call [`Flow::pump_to_tunnel`], and
//! [`Flow::pump_to_app_within`] leaves the remaining bytes in the inlet.
#![forbid(unsafe_code)]

mod account;
mod allowance;
mod backlog;
mod bonded;
mod bucket;
mod close;
mod control;
mod deadlines;
mod flow;
mod flow_entry;
mod flows;
mod heads;
mod holding;
mod ids;
mod inlet;
mod message_detector;
mod meter;
mod piece_queue;
mod pinned;
mod read_buffer;
mod ready;
mod reassembly;
mod receive_credit;
mod report;
mod request;
mod retained;
mod salvage;
mod socket;
mod stream;
mod to_app;
mod to_tunnel;
mod wait_limit;

pub mod window;

#[cfg(test)]
mod tests;

pub use account::{Account, Lease};
pub use allowance::{Allowance, AllowanceLimits, ClientUsage, FlowPlace};
pub use backlog::{Backlog, OVERHEAD_MIN, ReceiveState};
pub use bonded::{BondMembership, DetachedState, SeenTiming};
pub use close::{Ending, LocalLimit};
pub use control::ControlStream;
pub use deadlines::{Deadlines, passed_asleep};
pub use flow::{Flow, ResumeError};
pub use flow_entry::{FlowEntry, FlowPhase, StreamKey};
pub use flows::Flows;
pub use heads::{HEAD_LEN, Heads};
pub use holding::Holding;
pub use ids::{
    BondKey, ClientKey, ConnectionId, ConnectionKey, FlowId, FlowKey, Ids, NEVER_A_CONNECTION,
    Side, StreamId,
};
pub use inlet::Inlet;
pub use message_detector::MessageDetector;
pub use meter::{FlowDirection, Meter};
pub use piece_queue::PieceQueue;
pub use pinned::{PinnedBatches, PinnedByFlow};
pub use read_buffer::ReadBuffer;
pub use reassembly::Reassembly;
pub use receive_credit::ReceiveCredit;
pub use report::{FlowReport, FlowSummary};
pub use request::FlowRequest;
pub use salvage::{Leg, Salvage};
pub use socket::Socket;
pub use stream::{LostStream, NoStream, ReadEnd, Stream, WriteEnd};
pub use to_app::ToAppStop;
pub use to_tunnel::ToTunnelStop;
