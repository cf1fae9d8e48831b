//! The limits of a connection.

/// The limits of a connection that its caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsLimits {
    /// Largest number of bytes that the peer may send in its handshake, record headers included.
    pub handshake_bytes: usize,
    /// Largest number of records that one key seals; 0 and 1 count as 2. The suite's own limit applies too.
    pub records_per_key: u64,
}

impl TlsLimits {
    /// The limits of a client. A server's flight with ML-KEM and a chain of three certificates with RSA keys of 4096 bits
    /// has 8 kB; public authorities add more to it.
    pub const CLIENT: Self = Self {
        handshake_bytes: 64 * 1024,
        records_per_key: RECORDS_PER_KEY,
    };

    /// The limits of a server, whose clients may be strangers. They are those of a handshake over QUIC (PROTOCOL
    /// AUTH-10).
    pub const SERVER: Self = Self {
        handshake_bytes: 16 * 1024,
        records_per_key: RECORDS_PER_KEY,
    };
}

/// The limit of RFC 8446 section 5.5 for full records with AES-GCM is 2^24.5.
const RECORDS_PER_KEY: u64 = 1 << 24;

/// Largest number of records and messages without data in a row. Each one costs a computation or a key, and gives the
/// application nothing. Other TLS libraries allow 32, too.
pub(crate) const IDLE_MAX: u32 = 32;

/// Largest message after the handshake. A session ticket may contain the client's certificates.
pub(crate) const MESSAGE_MAX: usize = 32 * 1024;
