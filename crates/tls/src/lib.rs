//! A TLS 1.3 connection without IO: bytes of a TCP connection in, plaintext out, and back.
//!
//! rustls does the handshake. Afterwards, a record layer of this crate seals records where the caller writes them, and
//! opens records where the caller received them: one copy for what is sent, none for what is received.
//!
//! # Order of calls
//!
//! 1. [`TlsStream::client`] or [`TlsStream::server`].
//! 2. [`TlsStream::poll_transmit`] appends records to a [`SendBuffer`], which go to the TCP connection.
//! 3. The caller appends bytes that have arrived to a buffer, and calls [`TlsStream::poll_received`] with it until the
//!    result is `None` or an error. [`TlsStream::handle_end`] reports the end of the TCP connection.
//! 4. [`TlsStream::seal`] for plaintext to be sent, once [`TlsStream::is_established`].
//! 5. [`TlsStream::poll_transmit`] again, also after an error: an alert tells the peer.
//!
//! [`TlsStream::close`] ends the sending direction. A connection that has failed stays so: each later call returns the
//! same error.
//!
//! ```
//! # use std::io::{Read, Write};
//! # use std::sync::Arc;
//! use bytes::BytesMut;
//! use quictun_tls::{RECORD_MAX, SendBuffer, TlsLimits, TlsStream};
//!
//! # fn greet(
//! #     config: Arc<rustls::ClientConfig>,
//! #     mut socket: std::net::TcpStream,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tls = TlsStream::client(&config, "example.org".try_into()?, TlsLimits::CLIENT)?;
//! let (mut received, mut out) = (BytesMut::new(), SendBuffer::new());
//! let mut greeted = false;
//! while !tls.is_peer_closed() {
//!     if tls.is_established() && !greeted {
//!         tls.seal(&mut out, |slot| {
//!             slot[..5].copy_from_slice(b"hello");
//!             5
//!         })?;
//!         greeted = true;
//!     }
//!     tls.poll_transmit(&mut out);
//!     socket.write_all(out.as_slice())?;
//!     out.advance(out.len());
//!     let filled = received.len();
//!     received.resize(filled + RECORD_MAX, 0);
//!     let count = socket.read(&mut received[filled..])?;
//!     received.truncate(filled + count);
//!     if count == 0 {
//!         tls.handle_end()?;
//!     }
//!     while let Some(plaintext) = tls.poll_received(&mut received)? {
//!         println!("{} bytes", plaintext.len());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees against a hostile peer
//!
//! No input panics. This crate keeps at most [`TlsLimits::handshake_bytes`] of a handshake, and 48 KiB of a message
//! after it. Records without data are limited in number. Only an authenticated `close_notify` ends the received bytes:
//! a TCP connection that ends without it is an error, [`TlsError::Truncated`].

#![forbid(unsafe_code)]

mod aead;
#[doc(hidden)]
#[cfg(any(test, feature = "check"))]
pub mod check;
mod error;
mod established;
mod exporter;
mod handshake;
mod limits;
mod post_handshake;
mod record;
mod send_buffer;
mod stream;

pub use error::{TlsError, Violation};
pub use limits::TlsLimits;
pub use record::{PLAINTEXT_MAX, RECORD_MAX};
pub use send_buffer::SendBuffer;
pub use stream::TlsStream;
