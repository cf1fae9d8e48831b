//! Grants to a peer when its connection begins, and the memory that they and other things of a connection may take.

use quictun_flow::window;

/// Memory of a flow besides the bytes that it carries: `quictun-scale idle` shows 2.4 to 2.6 KiB for an idle one.
pub(crate) const FLOW_COST: u64 = 2560;

/// Memory of a connection besides its streams and what its peer may send, bytes: state of QUIC and TLS. Each of 2 000 that
/// say nothing, with 128 streams permitted, takes 33 KiB (`quictun-attack stalled --flows 0`).
pub(crate) const CONNECTION_COST: u64 = 22 * 1024;

/// Memory of a stream that the peer may open, bytes: its entries in the library's tables.
pub(crate) const STREAM_COST: u64 = 84;

/// Further memory of a stream that has ended here while the peer keeps its half open: the library's state of both halves.
/// It is charged in advance for streams that the peer may open beyond the first ones.
pub(crate) const ENDED_COST: u64 = 576;

/// Flows a peer may open before the connection has shown that it needs more: every permitted stream
/// costs memory.
pub(crate) const FLOWS_INITIAL: u32 = 128;

/// Limits of a peer until it has shown who it is, where that is asked for (PROTOCOL AUTH-4).
const STRANGER_FLOWS: u32 = 16;
const STRANGER_WINDOW: u64 = 64 * 1024;

/// Grants to the peer when a connection begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    /// The receive window, bytes.
    pub(crate) window: u64,
    /// Receive window of an earlier connection to the same peer, bytes; 0: none is known.
    pub(crate) remembered: u64,
    /// Flows that the peer may open.
    pub(crate) flows: u32,
}

impl First {
    /// Grants to a stranger where others begin with `window`.
    pub(crate) fn stranger(window: u64) -> Self {
        Self {
            window: STRANGER_WINDOW.min(window.max(window::FLOOR)),
            remembered: 0,
            flows: STRANGER_FLOWS,
        }
    }

    /// Memory that the peer may make us hold, bytes.
    pub(crate) fn debt(self) -> u64 {
        let streams = u64::from(self.flows) * STREAM_COST + ENDED_COST;
        CONNECTION_COST + streams + FLOW_COST + window::debt(self.window)
    }
}
