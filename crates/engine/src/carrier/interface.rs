//! The values that a carrier of any kind exchanges with its connection.

use std::time::Duration;

use bytes::Bytes;
use quictun_flow::StreamId;

use crate::loss::LossReason;

/// News of a carrier.
#[derive(Debug)]
pub(crate) enum CarrierEvent {
    /// The handshake has completed.
    Connected,
    /// The connection has ended.
    Lost(LossReason),
    /// The peer has opened streams: see [`Carrier::accept`](super::Carrier::accept).
    Opened,
    /// Data, an end or a reset has arrived on a stream.
    Readable(StreamId),
    /// A stream that was blocked has credit.
    Writable(StreamId),
    /// The peer no longer reads a stream, for the reason of this code.
    Stopped(StreamId, u64),
    /// The peer permits more streams.
    Available,
    /// The payload of a DATAGRAM frame has arrived.
    Datagram(Bytes),
}

/// The path of a carrier, as it was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathView {
    /// The smoothed round-trip time.
    pub(crate) rtt: Duration,
    /// The lowest round-trip time.
    pub(crate) min_rtt: Duration,
    /// Bytes that may be in flight: the window of the congestion controller, or over TCP a constant.
    pub(crate) window: u64,
}

/// The credit that a peer should have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreditOffer {
    /// The receive window, in bytes.
    pub(crate) window: u64,
    /// The part of the window that is left beside the data that flows hold, in bytes.
    pub(crate) left: u64,
    /// Credit below which the peer is starved, in bytes. 0 if memory is short.
    pub(crate) floor: u64,
}

/// The state of a batch that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchContext {
    /// The handshake has completed.
    pub(crate) established: bool,
    /// No flow has more data to send.
    pub(crate) last: bool,
}

/// Counts of packets and bytes, for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarrierCounters {
    /// Size of a UDP payload, and the congestion window, in bytes. `None` over TCP, where they are the system's.
    pub(crate) mtu: Option<u16>,
    pub(crate) congestion_window: Option<u64>,
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) congestion_events: u64,
    /// The rate at which packets leave, in bytes per second, if there is one.
    pub(crate) pacing_rate: Option<f64>,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) batches: u64,
    pub(crate) datagrams: u64,
    pub(crate) repeated: u64,
}
