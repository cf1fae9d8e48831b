//! Records of sent batches, from which the delivery rate is measured.
//!
//! Each record holds when a batch was sent, and how many bytes had been delivered by then. The library identifies
//! packets by their send time, and every batch has a distinct send time, so that time is the key. Records older than
//! the oldest batch that may still be acknowledged or lost are dropped.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum number of batches remembered. A connection with more batches in flight is measured by the newer ones.
const RECORDS_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRecord {
    pub(crate) sent: Instant,
    pub(crate) delivered: u64,
    /// True if the sender had more data than the limits allowed.
    pub(crate) limited: bool,
    /// True if the batch was sent at a rate below the estimated bandwidth of the path.
    pub(crate) easy: bool,
    /// True if the batch was sent at a rate above the estimated bandwidth of the path.
    pub(crate) pushed: bool,
    /// Round-trip time of the batch, if one was measured.
    pub(crate) rtt: Option<Duration>,
    /// Numbers of packets of this batch that arrived and that were lost.
    pub(crate) arrived: f64,
    pub(crate) lost: f64,
}

/// Records of sent batches, and the count of delivered bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliverySampler {
    records: VecDeque<BatchRecord>,
    delivered: u64,
    /// Index of the last record found. Packets of one batch are usually settled together.
    recent: usize,
    /// Number of records at the front that [`DeliverySampler::next_settled`] has already returned.
    settled: usize,
}

impl DeliverySampler {
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
        self.records.push_back(BatchRecord {
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

    /// Counts a packet that arrived, and returns the record of its batch if that is still remembered.
    pub(crate) fn on_acked(&mut self, sent: Instant, bytes: u64) -> Option<BatchRecord> {
        self.delivered += bytes;
        let record = self.find(sent)?;
        record.arrived += 1.0;
        Some(*record)
    }

    fn find(&mut self, sent: Instant) -> Option<&mut BatchRecord> {
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

    pub(crate) fn on_lost(&mut self, sent: Instant, packets: f64) -> Option<BatchRecord> {
        let record = self.find(sent)?;
        record.lost += packets;
        Some(*record)
    }

    /// Returns the next batch that was sent before `time`. Returns each batch only once.
    pub(crate) fn next_settled(&mut self, time: Instant) -> Option<BatchRecord> {
        let record = self
            .records
            .get(self.settled)
            .filter(|record| record.sent < time)?;
        self.settled += 1;
        Some(*record)
    }

    pub(crate) fn forget_before(&mut self, time: Instant) {
        let old = |record: &BatchRecord| record.sent < time;
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
