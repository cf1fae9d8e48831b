//! QMux: the streams and datagrams of QUIC over one ordered, reliable stream of bytes, such as TLS over TCP.
//!
//! A [`Mux`] is one side of a connection, without IO. It takes bytes that have arrived and the current time, and it
//! writes records for the transport. The transport, and its encryption, are the caller's. Both sides understand
//! draft-ietf-quic-qmux-02 only; the name of the application's protocol in ALPN has to tell QMux, with the draft, from
//! QUIC (section 8.1).
//!
//! # Order of calls
//!
//! Every method that takes `now` must be given a time that never goes back.
//!
//! * inputs: [`Mux::handle_bytes`],
//! * commands: [`Mux::open`], [`Mux::accept`], [`Mux::write`], [`Mux::finish`], [`Mux::reset`],
//!   [`Mux::read`], [`Mux::stop`], [`Mux::prefer`], [`Mux::send_datagram`], [`Mux::ping`], [`Mux::close`], and those that
//!   give credit: [`Mux::set_window`], [`Mux::grant_streams`], [`Mux::set_kept`].
//!
//! After them the caller drains the outputs: [`Mux::poll_event`] until it returns `None`, and [`Mux::poll_transmit`] until
//! it returns 0 or the transport takes no more. There are no timers. The caller reads from the transport even while
//! applications do not read: credit limits the data that waits here (section 6).
//!
//! ```
//! use std::time::Instant;
//!
//! use bytes::Bytes;
//! use quictun_flow::{ReadEnd, Side, WriteEnd};
//! use quictun_mux::{Config, Event, Mux, RECORD_MAX};
//!
//! /// Carries what one side writes to the other side.
//! fn carry(now: Instant, from: &mut Mux, to: &mut Mux) {
//!     let mut slot = [0; RECORD_MAX];
//!     loop {
//!         let length = from.poll_transmit(now, &mut slot);
//!         if length == 0 {
//!             return;
//!         }
//!         to.handle_bytes(now, Bytes::copy_from_slice(&slot[..length]));
//!     }
//! }
//!
//! let now = Instant::now();
//! let mut client = Mux::new(Side::Client, Config::default());
//! let mut server = Mux::new(Side::Server, Config::default());
//! carry(now, &mut server, &mut client);
//! assert_eq!(client.poll_event(), Some(Event::Connected));
//!
//! let stream = client.open().expect("the server permits streams");
//! assert_eq!(client.write(stream, &mut Bytes::from("hello")), WriteEnd::Taken);
//! client.finish(stream);
//! carry(now, &mut client, &mut server);
//! assert_eq!(server.accept(), Some(stream));
//! let mut received = Vec::new();
//! let end = server.read(stream, 100, &mut |_, bytes| received.extend_from_slice(&bytes));
//! assert_eq!((received.as_slice(), end), (&b"hello"[..], ReadEnd::Finished));
//! ```
//!
//! # Acknowledgements
//!
//! QMux has none: bytes that were written to the transport count as acknowledged (section 4). A caller that must know what
//! the peer's application has received needs an exchange of its own.
//!
//! # Credit
//!
//! A peer may send the [`Config::window`] beyond the bytes that were read, and the [`Config::stream_window`] on each
//! stream. A new limit is announced once half of a window is used, and at once if the window grows. Streams that end early
//! give their credit back.
//!
//! # A hostile peer
//!
//! The peer can make this side hold, at most:
//!
//! * the window, in pieces of at least 1 KiB, each of which keeps the memory of the input it lies in. Shorter pieces are
//!   copied together,
//! * a record that has arrived in part, and a mebibyte of datagrams, if they are permitted. Each keeps the memory of the input
//!   it lies in until it is polled,
//! * the state of the streams that it may open, and a bounded number of flags and events for each.
//!
//! Answers are flags as well: however many pings, stops or notices of blocked streams arrive between two calls of
//! [`Mux::poll_transmit`], one frame of a kind leaves for each stream or for the connection. A stream that has ended leaves
//! nothing behind. All other rules of RFC 9000 and of the draft that the peer breaks end the connection with a code.
//!
//! # What it does not do
//!
//! No unidirectional streams, which this side neither opens nor permits; no 0-RTT; no idle timeout: the
//! caller decides when a peer is dead.

#![forbid(unsafe_code)]

#[doc(hidden)]
#[cfg(any(test, feature = "check"))]
pub mod check;
mod credit;
mod error;
mod event;
mod frame;
mod mux;
mod parameters;
mod ping;
mod record;
mod recv;
mod send;
mod streams;

#[cfg(test)]
mod tests;

pub use error::{DatagramError, Error, TransportCode, Violation};
pub use event::Event;
pub use mux::{Config, Mux, SLOT_MIN};
pub use record::RECORD_MAX;
