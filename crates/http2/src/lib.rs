//! A server's side of HTTP/2 (RFC 9113) for CONNECT (section 8.5), without IO.
//!
//! An [`Http2`] is one connection. It takes bytes that have arrived and the current time, and it writes frames for the
//! transport. The transport, and its encryption, are the caller's.
//!
//! The caller reads the same on each stream as on a connection of HTTP/1.1: a head, and data behind it. It writes the same,
//! too: the head of an answer, and data. So one reader of heads decides what a request means. Frames, fields and
//! credit stay here.
//!
//! # Order of calls
//!
//! Every method that takes `now` must be given a time that never goes back.
//!
//! * inputs: [`Http2::handle_bytes`],
//! * commands: [`Http2::accept`], [`Http2::write`], [`Http2::finish`], [`Http2::reset`], [`Http2::read`],
//!   [`Http2::stop`], [`Http2::drain`], [`Http2::close`], and those that give credit:
//!   [`Http2::note_held`], [`Http2::set_window`], [`Http2::grant_streams`], [`Http2::set_kept`].
//!
//! After them the caller drains the outputs: [`Http2::poll_event`] until it returns `None`, and [`Http2::poll_transmit`]
//! until it returns 0 or the transport takes no more. There are no timers.
//!
//! # Credit
//!
//! A peer may send the [`Config::window`] beyond the bytes that were read. On each stream, it may send a small window
//! beyond the bytes that the application has taken, and half of the connection's window once the application has shown
//! that it takes them. So a stream whose application takes nothing stops alone.
//!
//! # Ends
//!
//! | of a stream | in HTTP/2 |
//! |---|---|
//! | the end of a direction | `END_STREAM` |
//! | a reset by this side | `RST_STREAM` with the caller's code, or `REFUSED_STREAM` if nothing of the request was read |
//! | a reset by the peer | reading ends with a reset, after the data that arrived before it |
//! | this side reads no more | nothing until its own direction has ended, and `RST_STREAM` then |
//!
//! A connection that ends leaves its streams as they are. The caller knows that they are not complete.
//!
//! # A hostile peer
//!
//! The peer can make this side hold, at most:
//!
//! * the window, or 65,535 bytes if it is smaller, in pieces of at least 1 KiB, each of which keeps the memory of the input
//!   it lies in. Shorter pieces are copied together,
//! * a block of fields of 16 KiB, a table of fields of 4 KiB, and the heads of unread requests, of 8 KiB each,
//! * the state of 100 streams, and of those that were reset and not read yet,
//! * 256 answers to its frames.
//!
//! Meters count resets before an answer, by either side, and frames that move nothing. Each limit that the peer exceeds
//! ends the stream or the connection with a code.
//!
//! # What it does not do
//!
//! No push, no priorities, no trailers, no extended CONNECT (RFC 8441), no fields in the dynamic table of the encoder.

#![forbid(unsafe_code)]

mod answer;
#[doc(hidden)]
#[cfg(any(test, feature = "check"))]
pub mod check;
mod connection;
mod credit;
mod error;
mod event;
mod flood;
mod frame;
mod hpack;
mod recv;
mod request;
mod send;

#[cfg(test)]
mod tests;

pub use connection::{Config, Http2, SLOT_MIN, STREAMS_MAX};
pub use error::{BrokenRule, ErrorCode};
pub use event::{End, Event};
