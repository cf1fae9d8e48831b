//! One bridged connection: a [`Socket`] (the application) on one side, a [`Stream`] (QUIC) on the other.
//!
//! A [`Flow`] moves bytes both ways and maps every way in which a TCP connection can end onto the
//! stream and back. It owns no clock, no descriptor and no QUIC library: the two traits are all it
//! sees, so the same code runs over kernel sockets, in virtual time and under a fuzzer.
//!
//! # Order of use
//!
//! 1. [`Inlet::new`] for the stream, whose header is read from it; [`Flow::new`] around it and a connected socket.
//! 2. Whenever the socket may have become readable or writable: [`Flow::handle_socket_ready`].
//!    Whenever the stream may have: [`Inlet::handle_readable`].
//! 3. [`Flow::pump_to_tunnel`] while there is budget, [`Flow::pump_to_app`] while there is data; each
//!    says what it waits for.
//! 4. [`Flow::handle_stopped`] for `STOP_SENDING`. [`Flow::handle_connection_lost`] for the end of the
//!    connection: a flow whose bytes have arrived whole goes on without it, with a [`LostStream`].
//! 5. While [`Flow::is_parting`], [`Flow::poll_parting`] now and then.
//! 6. When [`Flow::ending`] is no longer `None` the flow is over: drop it, the socket closes with it.
//!
//! # How one direction ends
//!
//! ```text
//!   application FIN ──► Finished (FIN on the stream; the other direction lives on)
//!   application RST ──► Closed   (RESET_STREAM and STOP_SENDING with AppReset)
//!   RESET_STREAM    ──► Closed   (the application is reset; never a FIN: a cut would look complete)
//!   STOP_SENDING    ──► Closed   (the application is no longer read; reset once the reverse ends)
//! ```
//!
//! The table is normative in PROTOCOL.md, with one test per row.
//!
//! # Many flows
//!
//! [`Flows`] keeps the flows of an engine, each as a [`FlowEntry`]: from the wish for one, or the first bytes of its stream,
//! to the last byte. Ids and keys are those of [`Ids`].
//!
//! # Memory
//!
//! An [`Account`] says how much a process may hold. [`window`] makes receive windows from what is free of it, a [`Backlog`]
//! judges whether the peer of a flow should rest, [`Pinned`] finds flows whose data is to be copied, and [`Control`] tells
//! peers what has arrived and which flows are to rest.
//!
//! # Rates
//!
//! An [`Allowance`] says what one client may use over all its connections; a [`Meter`] is one connection's part of its rate.
//! A flow whose connection has nothing left is not read: [`Flow::pump_to_tunnel`] is not called, and
//! [`Flow::pump_to_app_within`] leaves the rest where it is.
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
mod meter;
mod pinned;
mod read_buffer;
mod ready;
mod reassembly;
mod report;
mod retained;
mod salvage;
mod socket;
mod stream;
mod tally;
mod to_app;
mod to_tunnel;

pub mod window;

#[cfg(test)]
mod tests;

pub use account::{Account, Lease};
pub use allowance::{Allowance, FlowPlace, Limits, Usage};
pub use backlog::{Backlog, OVERHEAD_MIN, Stand};
pub use bonded::{Bonded, Detached, Tell};
pub use close::Ending;
pub use control::Control;
pub use deadlines::Deadlines;
pub use flow::{BadNumber, Flow};
pub use flow_entry::{FlowEntry, Lane, Phase};
pub use flows::Flows;
pub use heads::{HEAD_LEN, Heads};
pub use holding::Holding;
pub use ids::{BondKey, ClientKey, ConnectionId, ConnectionKey, FlowId, FlowKey, Ids};
pub use inlet::Inlet;
pub use meter::{Meter, Way};
pub use pinned::{Kept, Pinned};
pub use read_buffer::ReadBuffer;
pub use reassembly::Reassembly;
pub use report::{FlowReport, FlowSummary};
pub use salvage::{Carried, Salvage};
pub use socket::Socket;
pub use stream::{LostStream, NoStream, ReadEnd, Stream, WriteEnd};
pub use tally::Tally;
pub use to_app::Drained;
pub use to_tunnel::Pumped;
