//! Grants to a peer when its connection begins, and the memory that parts of a connection may take.

use quictun_flow::window;

/// Memory of a flow without the bytes that it carries. `quictun-scale idle` shows 2.4 to 2.6 KiB for an idle flow.
pub(crate) const FLOW_COST: u64 = 2560;

/// Memory of a connection without its streams and the data from its peer, in bytes: the state of QUIC and TLS. Each of
/// 2000 silent connections, with 128 streams permitted, takes 33 KiB (`quictun-attack stalled --flows 0`).
pub(crate) const CONNECTION_COST: u64 = 22 * 1024;

/// Memory of a stream that the peer may open, in bytes: its entries in the library's tables.
pub(crate) const STREAM_COST: u64 = 84;

/// Further memory of a stream that has ended here while the peer keeps its half open: the library's state of both
/// halves. For streams beyond the first ones, it is charged in advance.
pub(crate) const ENDED_COST: u64 = 576;

/// Number of flows that a peer may open before the connection has shown that it needs more. Every permitted stream
/// costs memory.
pub(crate) const FLOWS_INITIAL: u32 = 128;

/// Limits for a peer until it has identified itself, if the server requires that (PROTOCOL AUTH-4).
const STRANGER_FLOWS: u32 = 16;
const STRANGER_WINDOW: u64 = 64 * 1024;

/// Grants to the peer when a connection begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitialGrants {
    /// The receive window, in bytes.
    pub(crate) window: u64,
    /// Receive window of an earlier connection to the same peer, in bytes. 0 if none is known.
    pub(crate) remembered: u64,
    /// Number of flows that the peer may open.
    pub(crate) flows: u32,
}

/// The rule for the grants to a newcomer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstGrants {
    /// Number of flows that the peer may open. `None` for a stranger.
    pub(crate) flows: Option<u32>,
}

impl FirstGrants {
    /// Computes the grants from the window for newcomers and the window that an earlier connection needed.
    pub(crate) fn compute(self, window: u64, remembered: u64) -> InitialGrants {
        match self.flows {
            None => InitialGrants::for_stranger(window),
            Some(flows) => InitialGrants {
                window,
                remembered,
                flows,
            },
        }
    }
}

impl InitialGrants {
    /// Returns the grants to a stranger if others begin with `window`.
    pub(crate) fn for_stranger(window: u64) -> Self {
        Self {
            window: STRANGER_WINDOW.min(window.max(window::FLOOR)),
            remembered: 0,
            flows: STRANGER_FLOWS,
        }
    }

    /// Returns the memory that the peer can make this side hold, in bytes.
    pub(crate) fn committed_memory(self) -> u64 {
        let streams = u64::from(self.flows) * STREAM_COST + ENDED_COST;
        CONNECTION_COST + streams + FLOW_COST + window::committed_memory(self.window)
    }
}
