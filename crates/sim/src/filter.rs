//! Middleboxes that treat UDP and TCP differently.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::network::{HostId, Network};
use crate::packet::PacketBody;

/// The treatment of packets from one host to another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathFilter {
    /// The treatment of UDP.
    pub udp: FilterRule,
    /// The treatment of TCP.
    pub tcp: FilterRule,
}

/// The treatment of packets of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum FilterRule {
    /// Packets pass as without a filter.
    #[default]
    Pass,
    /// A middlebox drops all packets.
    Block,
    /// A middlebox drops datagrams that begin with a short header (RFC 9000 section 17.3). Those of a handshake pass, with
    /// the packets that they end with.
    Handshakes,
    /// Packets beyond a rate are lost.
    Police {
        /// Bytes that pass at any rate.
        after: u64,
        /// Bytes per second from then on.
        rate: f64,
    },
}

/// Time at the rate of [`FilterRule::Police`] that may pass in one burst.
const BURST: Duration = Duration::from_millis(50);

/// The filters of a network, by the numbers of both hosts.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    of: BTreeMap<(usize, usize), FilterState>,
    /// The middlebox to which TCP goes from one host to another.
    diverted: BTreeMap<(usize, usize), usize>,
}

#[derive(Debug)]
struct FilterState {
    filter: PathFilter,
    passed: u64,
    /// Bytes that may pass at once, and when that was so.
    tokens: f64,
    at: Instant,
}

impl Filters {
    pub(crate) fn divert(&mut self, from: usize, to: usize, middlebox: usize) {
        self.diverted.insert((from, to), middlebox);
    }

    /// Returns the middlebox that gets a packet in place of its receiver.
    pub(crate) fn middlebox(&self, ends: (usize, usize), body: &PacketBody) -> Option<usize> {
        let found = self.diverted.get(&ends).copied();
        found.filter(|_| matches!(body, PacketBody::Stream { .. }))
    }

    /// Returns the host whose address the packets of a middlebox have.
    pub(crate) fn disguise(&self, ends: (usize, usize), body: &PacketBody) -> Option<usize> {
        if !matches!(body, PacketBody::Stream { .. }) {
            return None;
        }
        let (middlebox, client) = ends;
        let mut diverted = self.diverted.iter();
        let found = diverted.find(|&(&(from, _), &by)| (from, by) == (client, middlebox));
        found.map(|(&(_, to), _)| to)
    }

    /// Returns whether a packet is lost between two hosts.
    pub(crate) fn drops(&mut self, now: Instant, ends: (usize, usize), body: &PacketBody) -> bool {
        let Some(state) = self.of.get_mut(&ends) else {
            return false;
        };
        let rule = match body {
            PacketBody::Udp(_) | PacketBody::Filler { .. } => state.filter.udp,
            PacketBody::Tcp(_) | PacketBody::Stream { .. } => state.filter.tcp,
        };
        match rule {
            FilterRule::Pass => false,
            FilterRule::Block => true,
            FilterRule::Handshakes => {
                let long_header =
                    |datagram: &[u8]| datagram.first().is_some_and(|it| it & 0x80 != 0);
                matches!(body, PacketBody::Udp(datagram) if !long_header(datagram))
            }
            FilterRule::Police { after, rate } => {
                #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
                let length = body.length() as f64;
                state.passed += body.length() as u64;
                let refilled = state.tokens + rate * (now - state.at).as_secs_f64();
                state.tokens = refilled.min(rate * BURST.as_secs_f64());
                state.at = now;
                if state.passed <= after {
                    return false;
                }
                let passes = state.tokens >= length;
                state.tokens -= if passes { length } else { 0.0 };
                !passes
            }
        }
    }
}

impl Network {
    /// Sets the treatment of packets from one host to another, from now on.
    pub fn set_filter(&mut self, from: HostId, to: HostId, filter: PathFilter) {
        let state = FilterState {
            filter,
            passed: 0,
            tokens: 0.0,
            at: self.now,
        };
        self.filters.of.insert((from.0, to.0), state);
        let what = format!("packets to {}: {filter:?}", self.name(to));
        self.note(from.0, what);
    }

    /// Sets the treatment of packets between two hosts, in both directions.
    pub fn set_filters(&mut self, a: HostId, b: HostId, filter: PathFilter) {
        self.set_filter(a, b, filter);
        self.set_filter(b, a, filter);
    }

    /// Resets all TCP connections of a host's carriers, at both ends.
    pub fn cut_tcp(&mut self, id: HostId) {
        self.host(id).tcp().cut();
        self.note(id.0, "loses its TCP connections".to_owned());
    }

    /// Drops all further segments of a host's present TCP connections. New connections pass.
    pub fn silence_tcp(&mut self, id: HostId) {
        self.host(id).tcp().silence();
        self.note(id.0, "hears no more of its TCP connections".to_owned());
    }
}
