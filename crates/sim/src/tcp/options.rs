//! What a TCP connection is to do.

use std::time::Duration;

/// Payload of a full segment: Ethernet's 1500 bytes less the headers of IPv4 and of TCP with timestamps.
const SEGMENT: u32 = 1448;

/// Largest window of Linux with its usual limit of 6 MiB on receive buffers is less than this, but a
/// reference must not be held back by it.
const WINDOW_MAX: u64 = 64 << 20;

/// A TCP connection and the application that feeds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Congestion control.
    pub algorithm: TcpAlgorithm,
    /// Whether it leaves slow start when the round trip grows (`HyStart++`).
    pub hystart: bool,
    /// Whether it begins with a handshake.
    pub handshake: bool,
    /// Whether routers may mark its packets instead of dropping them (RFC 3168).
    pub ecn: bool,
    /// What the application sends.
    pub load: Load,
    /// When it begins, counted from the network's start.
    pub start: Duration,
    /// When the application stops; `None`: never.
    pub stop: Option<Duration>,
    /// Payload of a segment, in bytes.
    pub segment: u32,
    /// Most bytes under way.
    pub window_max: u64,
}

/// How a connection finds its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpAlgorithm {
    /// CUBIC, RFC 9438.
    #[default]
    Cubic,
    /// `NewReno`, RFC 5681 and RFC 6582.
    NewReno,
}

/// What an application sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// As much as the connection takes.
    #[default]
    Bulk,
    /// So many bytes.
    Bytes(u64),
    /// As much as the connection takes, in turns with nothing.
    OnOff {
        /// Time during which it sends.
        on: Duration,
        /// Time during which it does not.
        off: Duration,
    },
}

impl Default for Tcp {
    /// A bulk transfer with CUBIC from the start to the end, as Linux does it.
    fn default() -> Self {
        Self {
            algorithm: TcpAlgorithm::default(),
            hystart: true,
            handshake: true,
            ecn: false,
            load: Load::default(),
            start: Duration::ZERO,
            stop: None,
            segment: SEGMENT,
            window_max: WINDOW_MAX,
        }
    }
}
