//! TLS over TCP as a carrier: QMux (draft-ietf-quic-qmux-02) in TLS 1.3. It serves where UDP does not pass.
//!
//! The engine's caller dials and accepts the TCP connections, and reports when they are ready. The engine keeps their
//! sockets beside the connections, and passes them to [`TlsCarrier::read`] and [`TlsCarrier::write`].
//!
//! TCP acknowledges bytes to this side's system and not to this carrier, so flows need a bond here: the bond's
//! confirmations tell what has arrived.
//!
//! A server's HTTPS proxy has carriers of this kind, too. If ALPN selects `http/1.1`, the TLS connection is one stream,
//! without QMux ([`single_stream`]). If it selects `h2`, HTTP/2 has the streams. Such flows have no bond.

mod connection;
mod hello;
mod layer;
mod loss;
mod rtt;
mod settings;
mod single_stream;
#[cfg(test)]
mod tests;
mod unsent;

pub(crate) use connection::{TlsCarrier, WRITE_MAX};
pub(crate) use layer::LayerStream;
pub(crate) use settings::{TlsClient, TlsServer};
pub use unsent::UNSENT_FIRST;
