//! Protocol names offered in the TLS handshake (PROTOCOL section 2.2).
//!
//! A client that speaks both offers [`NATIVE`] first; the server picks the first it knows.

/// Our protocol: OPEN and `OPEN_ACK` frames, typed errors.
pub const NATIVE: &[u8] = b"quictun/1";

/// The protocol of quic-tun v0.0.1 to v0.0.5: a 512-byte token, a one-byte ack.
pub const COMPAT: &[u8] = b"quic-tun";

/// Measurements (draft-banks-quic-performance): eight bytes say how many to send back, nothing else frames them.
/// No tunnel offers it.
pub const PERF: &[u8] = b"perf";
