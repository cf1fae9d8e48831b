//! How fast packets arrive: what was sent when, and how much had arrived by then.
//!
//! The library tells of packets by the time they were sent, and every batch has a time of its own, so that
//! time is the key. Nothing is kept of what is older than the oldest batch that may still be settled.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Batches remembered. A connection with more of them in flight is measured by its newer ones.
const RECORDS_MAX: usize = 1 << 16;

/// One batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) sent: Instant,
    /// Bytes that had arrived in total when it left.
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
    /// Bytes that arrived in total.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn on_sent(&mut self, now: Instant, limited: bool, easy: bool, pushed: bool) {
        if self.records.back().is_some_and(|last| last.sent >= now) {
            return;
        }
        if self.records.len() == RECORDS_MAX {
            self.records.pop_front();
            self.recent = self.recent.saturating_sub(1);
            self.settled = self.settled.saturating_sub(1);
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
        self.find(sent)?;
        let record = self.records.get_mut(self.recent)?;
        record.arrived += 1.0;
        Some(*record)
    }

    /// The batch that left at `sent`.
    pub(crate) fn find(&mut self, sent: Instant) -> Option<Record> {
        for step in 0..2 {
            let near = self.records.get(self.recent + step);
            if let Some(record) = near.filter(|record| record.sent == sent) {
                self.recent += step;
                return Some(*record);
            }
        }
        let position = self
            .records
            .binary_search_by_key(&sent, |record| record.sent);
        self.recent = position.ok()?;
        self.records.get(self.recent).copied()
    }

    /// Notes the round-trip time of the batch that left at `sent`.
    pub(crate) fn set_rtt(&mut self, sent: Instant, rtt: Duration) {
        if self.find(sent).is_some()
            && let Some(record) = self.records.get_mut(self.recent)
        {
            record.rtt.get_or_insert(rtt);
        }
    }

    /// Notes that `packets` of the batch were lost.
    pub(crate) fn on_lost(&mut self, sent: Instant, packets: f64) -> Option<Record> {
        self.find(sent)?;
        let record = self.records.get_mut(self.recent)?;
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

    /// Forgets what left before `time`.
    pub(crate) fn forget_before(&mut self, time: Instant) {
        while self
            .records
            .front()
            .is_some_and(|record| record.sent < time)
        {
            self.records.pop_front();
            self.recent = self.recent.saturating_sub(1);
            self.settled = self.settled.saturating_sub(1);
        }
    }
}
