//! Memory of a connection: its own, and the most that its peer may make us hold.
//!
//! [`First::debt`] is charged when a connection begins, [`Connection::debt`] from then on. Further streams are charged when
//! they are permitted: [`Connection::cost_of_more_flows`], then [`Connection::grant_more_flows`].

use quinn_proto::VarInt;

use super::Connection;
use crate::charges::{FLOW_COST, OVERHEAD_MIN};
use crate::window;

/// Flows a peer may open before the connection has shown that it needs more: every permitted stream
/// costs memory.
pub(crate) const FLOWS_INITIAL: u32 = 128;

/// Memory of a connection besides its streams and what its peer may send, bytes: state of QUIC and TLS. Each of 2 000 that
/// say nothing, with 128 streams permitted, takes 33 KiB (`quictun-attack stalled --flows 0`).
const CONNECTION_COST: u64 = 22 * 1024;

/// Memory of a stream that the peer may open, bytes: its entries in the library's tables.
const STREAM_COST: u64 = 84;

/// Further memory of a stream that has ended here while the peer keeps its half open: the library's state of both halves.
/// It is charged in advance for streams that the peer may open beyond the first ones.
const ENDED_COST: u64 = 576;

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

/// Limits of a peer until it has shown who it is, where that is asked for (PROTOCOL AUTH-4).
const STRANGER_FLOWS: u32 = 16;
const STRANGER_WINDOW: u64 = 64 * 1024;

impl Connection {
    /// Memory that the peer may make us hold, bytes. After the connection is lost only the library's state is left.
    pub(crate) fn debt(&mut self) -> u64 {
        if self.lost {
            return CONNECTION_COST;
        }
        let window = self.window_debt();
        let more = u64::from(self.flow_limit.saturating_sub(self.first_flows));
        // One flow can be served, and one refused, however little memory there is: see `arrivals`.
        let ended = self.ended_streams().max(more).max(1);
        let first = self.quic.side().is_server() && self.streams.is_empty();
        let streams = u64::from(self.flow_limit) * STREAM_COST
            + ended * ENDED_COST
            + u64::from(first) * FLOW_COST;
        CONNECTION_COST + streams + window + self.holding.parked as u64 + self.control.kept()
    }

    /// The part of [`Connection::debt`] that the receive window causes, bytes.
    pub(crate) fn window_debt(&self) -> u64 {
        let given = self.credit() + self.excess();
        window::debt(self.receive_window.size()).max(given)
    }

    /// Credit that the peer has not used, and bytes that have arrived and are not read, bytes.
    pub(crate) fn credit(&self) -> u64 {
        self.announced + self.owed
    }

    /// Bytes that flows hold at the expense of the window.
    pub(super) fn excess(&self) -> u64 {
        self.holding.held.saturating_sub(self.holding.parked) as u64
    }

    /// Memory of the connection without its flows, as far as it can be counted, bytes.
    pub(crate) fn held_for_itself(&mut self) -> u64 {
        let ended = self.ended_streams() * ENDED_COST;
        CONNECTION_COST + self.control.received() + self.control.kept() + ended
    }

    /// Count of streams that have ended here and that the peer keeps open although it was asked to stop.
    pub(crate) fn ended_streams(&mut self) -> u64 {
        if self.quic.is_closed() || self.quic.side().is_client() {
            return 0;
        }
        let ours = self.streams.len() + self.arrivals.len() + self.control.streams();
        let open = self
            .quic
            .streams()
            .remote_open_streams(quinn_proto::Dir::Bi);
        open.saturating_sub(ours as u64)
    }

    /// Whether the peer makes us hold more than its credit can account for: it sends tiny pieces.
    pub(crate) fn hoards(&self) -> bool {
        let some = self.streams.len() * OVERHEAD_MIN;
        let size = self.receive_window.size();
        self.holding.overhead as u64 > window::debt(size) - size + some as u64
    }

    /// Memory to charge before the peer may open twice as many flows, at most `most`, bytes. 0 while it uses less than half
    /// of its limit.
    pub(crate) fn cost_of_more_flows(&self, most: u32) -> u64 {
        let open = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        if !self.admitted || open <= self.flow_limit / 2 {
            return 0;
        }
        let more = (self.flow_limit * 2)
            .min(most)
            .saturating_sub(self.flow_limit);
        u64::from(more) * (STREAM_COST + ENDED_COST)
    }

    /// Whether the peer may open more flows than it has.
    pub(crate) fn has_streams_left(&self) -> bool {
        self.streams.len() + self.control.streams() < self.flow_limit as usize
    }

    /// Lets the peer open more flows: see [`Connection::cost_of_more_flows`].
    pub(crate) fn grant_more_flows(&mut self, most: u32) {
        if self.flow_limit < most {
            self.flow_limit = (self.flow_limit * 2).min(most);
            self.quic.set_max_concurrent_streams(
                quinn_proto::Dir::Bi,
                VarInt::from_u32(self.flow_limit),
            );
        }
    }
}
