//! TLS over TCP as a carrier: QMux (draft-ietf-quic-qmux-02) in TLS 1.3. It serves where UDP does not pass.
//!
//! The engine's caller dials and accepts the TCP connections, and reports when they are ready. The engine keeps their
//! sockets beside the connections, and passes them to [`TlsCarrier::read`] and [`TlsCarrier::write`].
//!
//! TCP acknowledges bytes to this side's system and not to this carrier, so flows need a bond here: the bond's
//! confirmations tell what has arrived.

mod connection;
mod hello;
mod loss;
mod rtt;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use connection::{TlsCarrier, WRITE_MAX};
pub(crate) use settings::{TlsClient, TlsServer};
pub(crate) use stream::MuxStream;
