//! The streams of a connection, the flows that they carry, and the queues of these flows.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use fxhash::FxHashMap;
use quictun_flow::{FlowKey, Side, StreamId};

use crate::grants::{ENDED_COST, STREAM_COST};

/// Entries of ended flows that the queue of flows with data to send may have, besides as many as there are flows.
const STALE_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Streams {
    by_stream: FxHashMap<StreamId, FlowKey>,
    own: Side,
    /// Number of entries in `by_stream` that the peer has opened.
    by_peer: usize,
    /// Flows with data to send, in turn.
    pub(crate) outbound: VecDeque<FlowKey>,
    /// Datagram flows with datagrams to send, in turn.
    pub(crate) datagrams: VecDeque<FlowKey>,
    /// Datagram flows whose request or MOVE has not left yet.
    pub(crate) requested: Vec<FlowKey>,
    /// Bytes that datagrams have taken beyond their share, while streams waited.
    datagram_debt: usize,
    pub(super) inbound: Vec<FlowKey>,
    /// Flows that have credit again, each with its place in the order of waiting. The carrier reports the latest waiter
    /// first, and the first writer may take all credit.
    pub(crate) writable: Vec<(u64, FlowKey)>,
    /// Flows whose applications have reset their connections, and whose peers have not confirmed everything yet.
    pub(crate) resetting: BTreeSet<FlowKey>,
    /// Number of places handed out so far.
    places: u64,
    /// A stream that is open for the next flow, and of which the peer knows nothing yet.
    pub(super) reserved: Option<StreamId>,
    /// Streams of the peer that have not become flows yet.
    pub(crate) arrivals: VecDeque<StreamId>,
    /// Number of flows that the peer may open, now and initially.
    pub(crate) limit: u32,
    first_limit: u32,
    /// Index of the latest request that was answered.
    answered: Option<u64>,
    idle_since: Option<Instant>,
}

impl Streams {
    /// Creates the streams of a connection whose peer may open `limit` flows.
    pub(crate) fn new(now: Instant, own: Side, limit: u32) -> Self {
        Self {
            by_stream: FxHashMap::default(),
            own,
            by_peer: 0,
            outbound: VecDeque::new(),
            datagrams: VecDeque::new(),
            requested: Vec::new(),
            datagram_debt: 0,
            inbound: Vec::new(),
            writable: Vec::new(),
            resetting: BTreeSet::new(),
            places: 0,
            reserved: None,
            arrivals: VecDeque::new(),
            limit,
            first_limit: limit,
            answered: None,
            idle_since: Some(now),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_stream.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_stream.is_empty()
    }

    pub(crate) fn flow(&self, stream: StreamId) -> Option<FlowKey> {
        self.by_stream.get(&stream).copied()
    }

    /// Returns all flows, in the order of their keys.
    pub(crate) fn flows(&self) -> Vec<FlowKey> {
        let mut keys: Vec<FlowKey> = self.by_stream.values().copied().collect();
        keys.sort_unstable();
        keys
    }

    pub(crate) fn insert(&mut self, stream: StreamId, key: FlowKey) {
        let before = self.by_stream.insert(stream, key);
        self.by_peer += usize::from(before.is_none() && stream.initiator() != self.own);
        self.idle_since = None;
    }

    pub(crate) fn remove(&mut self, now: Instant, stream: StreamId) {
        let removed = self.by_stream.remove(&stream);
        self.by_peer -= usize::from(removed.is_some() && stream.initiator() != self.own);
        if self.by_stream.is_empty() {
            self.idle_since = Some(now);
        }
    }

    /// Removes and returns all flows, in the order of their keys, and drops the streams that have not become flows.
    pub(crate) fn drain(&mut self) -> Vec<FlowKey> {
        self.arrivals.clear();
        self.by_peer = 0;
        let mut keys: Vec<FlowKey> = self.by_stream.drain().map(|(_, key)| key).collect();
        keys.sort_unstable();
        keys
    }

    /// Returns whether there has been no flow for this `time`.
    pub(crate) fn is_idle_for(&self, now: Instant, time: Duration) -> bool {
        self.idle_since.is_some_and(|since| now >= since + time)
    }

    /// Returns the place behind all flows that wait for credit.
    pub(crate) fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Returns whether the queue of flows with data to send has many entries of flows that have ended. They leave it when
    /// their turn comes, which a peer can delay: it takes nothing, or has used up its rate.
    pub(crate) fn is_outbound_stale(&self) -> bool {
        self.outbound.len() > 2 * self.by_stream.len() + STALE_MAX
    }

    /// Returns whether a flow has data or datagrams to send.
    pub(crate) fn wants_to_send(&self) -> bool {
        !self.outbound.is_empty() || !self.datagrams.is_empty()
    }

    /// Returns how much of a batch with this `room` datagrams may take: half, if streams have data to send as well.
    pub(crate) fn share_of_datagrams(&self, room: usize) -> usize {
        if self.outbound.is_empty() {
            return room;
        }
        (room / 2).saturating_sub(self.datagram_debt)
    }

    /// Notes that datagrams have taken these bytes of the `room` of a batch. They cannot be cut, and may take more than
    /// their share: streams are given that of the next batches.
    pub(crate) fn note_datagrams(&mut self, taken: usize, room: usize) {
        let contended = !self.outbound.is_empty();
        let beyond = (self.datagram_debt + taken).saturating_sub(room / 2);
        self.datagram_debt = if contended { beyond } else { 0 };
    }

    pub(crate) fn push_inbound(&mut self, key: FlowKey) {
        if self.inbound.last() != Some(&key) {
            self.inbound.push(key);
        }
    }

    /// Takes the flows for which data has arrived, each once. Give the vector back with [`Streams::end_inbound`].
    pub(crate) fn begin_inbound(&mut self) -> Vec<FlowKey> {
        let mut keys = std::mem::take(&mut self.inbound);
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub(crate) fn end_inbound(&mut self, mut keys: Vec<FlowKey>) {
        debug_assert!(self.inbound.is_empty(), "pumping announces nothing");
        keys.clear();
        self.inbound = keys;
    }

    /// Returns the number of the peer's streams that are flows or may become flows.
    pub(crate) fn known(&self) -> usize {
        self.by_peer + self.arrivals.len()
    }

    /// Returns the number of the peer's streams that are flows.
    pub(crate) fn of_peer(&self) -> usize {
        self.by_peer
    }

    pub(crate) fn note_answered(&mut self, stream: StreamId) {
        self.answered = self.answered.max(Some(stream.index()));
    }

    /// Returns whether a request after that of `stream` was answered.
    pub(crate) fn is_overtaken(&self, stream: StreamId) -> bool {
        self.answered > Some(stream.index())
    }

    pub(crate) fn restart(&mut self, limit: u32) {
        (self.limit, self.first_limit) = (limit, limit);
    }

    /// Returns how many flows the peer may open beyond the initial limit.
    pub(crate) fn more_than_first(&self) -> u32 {
        self.limit.saturating_sub(self.first_limit)
    }

    /// Returns the memory to charge before the peer may open twice as many flows, up to `most`, in bytes. Returns 0
    /// while the peer uses at most half of its limit.
    pub(crate) fn cost_of_more(&self, most: u32) -> u64 {
        let open = u32::try_from(self.by_peer).unwrap_or(u32::MAX);
        if open <= self.limit / 2 {
            return 0;
        }
        let more = (self.limit * 2).min(most).saturating_sub(self.limit);
        u64::from(more) * (STREAM_COST + ENDED_COST)
    }

    /// Doubles the number of flows that the peer may open, up to `most`. Returns whether the limit has grown.
    pub(crate) fn grant_more(&mut self, most: u32) -> bool {
        let more = self.limit < most;
        if more {
            self.limit = (self.limit * 2).min(most);
        }
        more
    }
}
