//! Protocol names that the TLS handshake negotiates (PROTOCOL section 2.2).
//!
//! A client that speaks both protocols offers [`NATIVE`] first. The server picks the first name it knows.

/// The native protocol: OPEN and `OPEN_ACK` frames, typed errors.
pub const NATIVE: &[u8] = b"quictun/1";

/// The native protocol in QMux over TLS. The name contains the draft, because drafts are incompatible with one another.
pub const MUX: &[u8] = b"quictun/1-qmux02";

/// The protocol of quic-tun v0.0.1 to v0.0.5: a 512-byte token, a one-byte ack.
pub const COMPAT: &[u8] = b"quic-tun";

/// HTTP/1.1 (RFC 7301 section 6): a program uses a server's HTTPS proxy. Its one stream is the TLS connection itself.
pub const HTTP_1: &[u8] = b"http/1.1";

/// HTTP/2 (RFC 9113 section 3.1): as [`HTTP_1`], with a stream for each request.
pub const HTTP_2: &[u8] = b"h2";

/// The protocol by which a certificate authority checks that a host name leads here (RFC 8737). The handshake is all of
/// it.
pub const ACME: &[u8] = b"acme-tls/1";

/// The protocol for measurements (draft-banks-quic-performance). The first eight bytes say how many bytes to send back;
/// there is no other framing. A tunnel never offers it.
pub const PERF: &[u8] = b"perf";

/// The protocol of a connection, as the TLS handshake chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The native protocol, ALPN `quictun/1`.
    Native,
    /// The protocol of quic-tun, ALPN `quic-tun`.
    Compat,
    /// CONNECT of HTTP/1.1, ALPN `http/1.1`.
    Http,
    /// CONNECT of HTTP/2, ALPN `h2`. Requests and answers have the form of HTTP/1.1: the carrier translates them.
    Http2,
    /// The measurement protocol, ALPN `perf`: a stream carries the flow's bytes only, without request or answer.
    Raw,
}

impl Protocol {
    /// Returns the ALPN identifier (RFC 7301). JSON, labels and logs name the protocol by it.
    pub const fn alpn(self) -> &'static str {
        match self {
            Self::Native => "quictun/1",
            Self::Compat => "quic-tun",
            Self::Http => "http/1.1",
            Self::Http2 => "h2",
            Self::Raw => "perf",
        }
    }

    /// Returns whether the peer is a program that uses a server's HTTPS proxy.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2)
    }

    /// Returns the protocol that the handshake chose. Without a choice the peer is an original quic-tun.
    pub fn of_alpn(chosen: Option<&[u8]>) -> Self {
        match chosen {
            Some(NATIVE | MUX) => Self::Native,
            Some(HTTP_1) => Self::Http,
            Some(HTTP_2) => Self::Http2,
            Some(PERF) => Self::Raw,
            _ => Self::Compat,
        }
    }
}
