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

/// The protocol spoken on a connection, chosen in the TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// ALPN `quictun/1`.
    Native,
    /// ALPN `quic-tun`.
    Compat,
    /// ALPN `perf`: the bytes of a stream are the flow's, without request or answer. For measurements.
    Raw,
}

impl Protocol {
    /// The ALPN (RFC 7301), which names the protocol in JSON, labels and logs.
    pub const fn alpn(self) -> &'static str {
        match self {
            Self::Native => "quictun/1",
            Self::Compat => "quic-tun",
            Self::Raw => "perf",
        }
    }

    /// The protocol that the handshake has chosen; where it has chosen none, the peer is an original.
    pub fn of_alpn(chosen: Option<&[u8]>) -> Self {
        match chosen {
            Some(NATIVE) => Self::Native,
            Some(PERF) => Self::Raw,
            _ => Self::Compat,
        }
    }
}
