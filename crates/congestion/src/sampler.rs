//! How fast packets arrive: what was sent when, and how much had arrived by then.
//!
//! The library tells of packets by the time they were sent, and every batch has a time of its own, so that
//! time is the key. Nothing is kept of what is older than the oldest batch that may still be settled.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Batches remembered. A connection with more of them in flight is measured by its newer ones.
const RECORDS_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) sent: Instant,
    pub(crate) delivered: u64,
    /// More would have left if it had been allowed to.
    pub(crate) limited: bool,
    /// It left while less was sent than the path was thought to carry.
    pub(crate) easy: bool,
    /// It left while more was.
    pub(crate) pushed: bool,
    /// Its round-trip time, where one was measured.
    pub(crate) rtt: Option<Duration>,
    /// Packets of it that arrived and that were lost.
    pub(crate) arrived: f64,
    pub(crate) lost: f64,
}

/// Records of sent batches and the count of what arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampler {
    records: VecDeque<Record>,
    delivered: u64,
    /// Position of the last record found: packets of one batch are settled together.
    recent: usize,
    /// Records before this one were given as settled.
    settled: usize,
}

impl Sampler {
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn on_sent(&mut self, now: Instant, limited: bool, easy: bool, pushed: bool) {
        if self.records.back().is_some_and(|last| last.sent >= now) {
            return;
        }
        if self.records.len() == RECORDS_MAX {
            self.forget_first();
        }
        self.records.push_back(Record {
            sent: now,
            delivered: self.delivered,
            limited,
            easy,
            pushed,
            rtt: None,
            arrived: 0.0,
            lost: 0.0,
        });
    }

    /// Counts a packet that arrived, and gives its batch where that is remembered.
    pub(crate) fn on_acked(&mut self, sent: Instant, bytes: u64) -> Option<Record> {
        self.delivered += bytes;
        let record = self.find(sent)?;
        record.arrived += 1.0;
        Some(*record)
    }

    fn find(&mut self, sent: Instant) -> Option<&mut Record> {
        let (records, recent) = (&self.records, self.recent);
        let left = |at: usize| records.get(at).is_some_and(|record| record.sent == sent);
        self.recent = match [recent, recent + 1].into_iter().find(|&at| left(at)) {
            Some(near) => near,
            None => records
                .binary_search_by_key(&sent, |record| record.sent)
                .ok()?,
        };
        self.records.get_mut(self.recent)
    }

    pub(crate) fn set_rtt(&mut self, sent: Instant, rtt: Duration) {
        if let Some(record) = self.find(sent) {
            record.rtt.get_or_insert(rtt);
        }
    }

    pub(crate) fn on_lost(&mut self, sent: Instant, packets: f64) -> Option<Record> {
        let record = self.find(sent)?;
        record.lost += packets;
        Some(*record)
    }

    /// The next batch that left before `time`, each once.
    pub(crate) fn next_settled(&mut self, time: Instant) -> Option<Record> {
        let record = self
            .records
            .get(self.settled)
            .filter(|record| record.sent < time)?;
        self.settled += 1;
        Some(*record)
    }

    pub(crate) fn forget_before(&mut self, time: Instant) {
        let old = |record: &Record| record.sent < time;
        while self.records.front().is_some_and(old) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        self.records.pop_front();
        self.recent = self.recent.saturating_sub(1);
        self.settled = self.settled.saturating_sub(1);
    }
}
