//! A reference TCP, as the cross traffic with which a tunnel shares links.
//!
//! The model is sans-IO, carries data in one direction, and covers the parts of RFC 9293 that matter for congestion
//! control. A [`TcpSender`] has a SACK scoreboard (RFC 2018, RFC 6675). It detects losses by the order of transmission,
//! as RACK does (RFC 8985), so that a lost retransmission costs no timeout. Its window is CUBIC (RFC 9438) with
//! `HyStart++` (RFC 9406), and its retransmission timer is that of RFC 6298 with Linux's floor. A [`TcpReceiver`]
//! delays acknowledgements as RFC 1122 allows and Linux does.
//!
//! In cross traffic, payload exists only as a length. Every segment is full, so a transfer is rounded up to whole
//! segments. A [`ByteStream`](stream::ByteStream) adds bytes in both directions, and a [`TcpStack`] has those of a host.

mod cubic;
mod hystart;
mod ranges;
mod receiver;
mod rtt;
mod segment;
mod sender;
mod stack;
mod stream;
mod tampering;
mod window;

pub(crate) use receiver::TcpReceiver;
pub(crate) use segment::{SegmentKind, TcpSegment};
pub(crate) use sender::TcpSender;
pub use sender::TrafficReport;
pub(crate) use stack::{TcpNews, TcpStack};
pub use tampering::TcpCut;

/// The amount of data that the application of a TCP connection sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Number of bytes; `None` means as many as the connection accepts.
    pub bytes: Option<u64>,
}
