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
//!    Whenever the stream may have: [`Flow::handle_stream_readable`].
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
#![forbid(unsafe_code)]

mod close;
mod flow;
mod inlet;
mod read_buffer;
mod ready;
mod reassembly;
mod socket;
mod stream;
mod to_app;
mod to_tunnel;

#[cfg(test)]
mod tests;

pub use close::Ending;
pub use flow::{Flow, HEAD_LEN, Heads};
pub use inlet::Inlet;
pub use read_buffer::ReadBuffer;
pub use reassembly::Reassembly;
pub use socket::Socket;
pub use stream::{LostStream, ReadEnd, Stream, WriteEnd};
pub use to_app::Drained;
pub use to_tunnel::Pumped;
