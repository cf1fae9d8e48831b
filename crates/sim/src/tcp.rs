//! A reference TCP: what a tunnel has to share links with.
//!
//! Sans-IO, one direction of data, as much of RFC 9293 as congestion control is about. A [`Sender`] has a
//! SACK scoreboard (RFC 2018, RFC 6675) and finds losses by the order of transmission (as RACK does,
//! RFC 8985), so that a lost retransmission costs no time-out; its window is CUBIC (RFC 9438) with `HyStart++`
//! (RFC 9406), and its timer RFC 6298 with Linux's floor. A [`Receiver`] delays acknowledgements as RFC 1122 allows
//! and Linux does.
//!
//! Payload exists only as a length, and every segment is full: a transfer is rounded up to whole segments.

mod cubic;
mod hystart;
mod ranges;
mod receiver;
mod rtt;
mod segment;
mod sender;
mod window;

pub(crate) use receiver::Receiver;
pub(crate) use segment::{Kind, Segment};
pub(crate) use sender::Sender;
pub use sender::TrafficReport;

/// What the application of a TCP connection sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// So many bytes; `None`: as many as the connection takes.
    pub bytes: Option<u64>,
}
