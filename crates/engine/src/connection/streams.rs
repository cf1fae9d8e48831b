//! The streams of a connection, the flows that they belong to, and the queues of these flows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fxhash::FxHashMap;
use quictun_flow::FlowKey;
use quinn_proto::{Side, StreamId};

use crate::grants::{ENDED_COST, STREAM_COST};

#[derive(Debug)]
pub(crate) struct Streams {
    by_stream: FxHashMap<StreamId, FlowKey>,
    own: Side,
    /// Those of them that the peer has opened.
    by_peer: usize,
    /// Flows with something to send, in turn.
    pub(crate) outbound: VecDeque<FlowKey>,
    pub(super) inbound: Vec<FlowKey>,
    /// Flows for which there is credit again, each with its place among those that wait: the library names the one first that
    /// came last, and who writes first may take all.
    pub(crate) writable: Vec<(u64, FlowKey)>,
    /// Places that were given.
    places: u64,
    /// Streams of the peer that are no flows yet.
    pub(crate) arrivals: VecDeque<StreamId>,
    /// Flows that the peer may open, now and at first.
    pub(crate) limit: u32,
    first_limit: u32,
    /// Index of the latest request that was answered.
    answered: Option<u64>,
    idle_since: Option<Instant>,
}

impl Streams {
    /// The streams of a connection whose peer may open `limit` flows.
    pub(crate) fn new(now: Instant, own: Side, limit: u32) -> Self {
        Self {
            by_stream: FxHashMap::default(),
            own,
            by_peer: 0,
            outbound: VecDeque::new(),
            inbound: Vec::new(),
            writable: Vec::new(),
            places: 0,
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

    /// All flows, in the order of their keys.
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

    /// Takes out all flows, in the order of their keys, and drops the streams that are no flows yet.
    pub(crate) fn drain(&mut self) -> Vec<FlowKey> {
        self.arrivals.clear();
        self.by_peer = 0;
        let mut keys: Vec<FlowKey> = self.by_stream.drain().map(|(_, key)| key).collect();
        keys.sort_unstable();
        keys
    }

    /// Whether there has been no flow for so long.
    pub(crate) fn is_idle_for(&self, now: Instant, time: Duration) -> bool {
        self.idle_since.is_some_and(|since| now >= since + time)
    }

    /// The place behind all flows that wait for credit.
    pub(crate) fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    pub(crate) fn push_inbound(&mut self, key: FlowKey) {
        if self.inbound.last() != Some(&key) {
            self.inbound.push(key);
        }
    }

    /// Takes the flows for which something has arrived, each once. Give the vector back with [`Streams::end_inbound`].
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

    /// Streams of the peer that are flows or may become some.
    pub(crate) fn known(&self) -> usize {
        self.by_peer + self.arrivals.len()
    }

    /// Streams of the peer that are flows.
    pub(crate) fn of_peer(&self) -> usize {
        self.by_peer
    }

    pub(crate) fn note_answered(&mut self, stream: StreamId) {
        self.answered = self.answered.max(Some(stream.index()));
    }

    /// Whether a request that came after that of `stream` was answered.
    pub(crate) fn is_overtaken(&self, stream: StreamId) -> bool {
        self.answered > Some(stream.index())
    }

    pub(crate) fn restart(&mut self, limit: u32) {
        (self.limit, self.first_limit) = (limit, limit);
    }

    /// Flows that the peer may open beyond those of the beginning.
    pub(crate) fn more_than_first(&self) -> u32 {
        self.limit.saturating_sub(self.first_limit)
    }

    /// Memory to charge before the peer may open twice as many flows, at most `most`, bytes. 0 while it uses less than half
    /// of its limit.
    pub(crate) fn cost_of_more(&self, most: u32) -> u64 {
        let open = u32::try_from(self.by_peer).unwrap_or(u32::MAX);
        if open <= self.limit / 2 {
            return 0;
        }
        let more = (self.limit * 2).min(most).saturating_sub(self.limit);
        u64::from(more) * (STREAM_COST + ENDED_COST)
    }

    /// Lets the peer open twice as many flows, at most `most`. Returns whether that is more than before.
    pub(crate) fn grant_more(&mut self, most: u32) -> bool {
        let more = self.limit < most;
        if more {
            self.limit = (self.limit * 2).min(most);
        }
        more
    }
}
