//! `CoDel` (RFC 8289), applied to packets one by one as they enter the queue.
//!
//! The RFC decides when a packet leaves the queue. In a FIFO that time follows from earlier packets, so this module
//! decides when the packet enters. The decisions are the same, with one exception: the RFC never drops if the queue has
//! at most one packet left *behind* the dequeued one, and that number is not known yet. This module uses the queue that
//! the packet *found* instead; while a standing queue exists, the two are equivalent.

use crate::config::Codel;
use crate::nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodelDecision {
    Pass,
    Mark,
    Drop,
}

/// The state variables of RFC 8289, under the RFC's names.
#[derive(Clone, Debug)]
pub(crate) struct CodelState {
    target: u64,
    interval: u64,
    ecn: bool,
    /// Time at which the wait will have been above the target for a whole interval.
    first_above: Option<u64>,
    dropping: bool,
    /// Time at which the next drop is due, if `unscheduled` is not set.
    drop_next: u64,
    /// Set after a drop whose successor has not been scheduled yet: `drop_next` is still the time of that drop.
    unscheduled: bool,
    /// Drops since the dropping state began.
    count: u64,
    last_count: u64,
    max_packet: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadPacket {
    /// Time at which the packet leaves the queue.
    pub(crate) now: u64,
    /// Time that the packet spent in the queue.
    pub(crate) waited: u64,
    pub(crate) bytes: u64,
    /// Bytes ahead of the packet when it entered.
    pub(crate) found: u64,
    pub(crate) ecn_capable: bool,
}

impl CodelState {
    pub(crate) fn new(codel: Codel) -> Self {
        Self {
            target: nanos(codel.target),
            interval: nanos(codel.interval),
            ecn: codel.ecn,
            first_above: None,
            dropping: false,
            drop_next: 0,
            unscheduled: false,
            count: 0,
            last_count: 0,
            max_packet: 0,
        }
    }

    /// Decides whether the packet at the head of the queue passes, is marked or is dropped. Every packet must be
    /// judged, in order.
    pub(crate) fn judge(&mut self, head: HeadPacket) -> CodelDecision {
        self.max_packet = self.max_packet.max(head.bytes);
        let ok_to_drop = self.ok_to_drop(head);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
                self.unscheduled = false;
                return CodelDecision::Pass;
            }
            if std::mem::take(&mut self.unscheduled) {
                self.drop_next = self.control_law(self.drop_next);
            }
            if head.now < self.drop_next {
                return CodelDecision::Pass;
            }
            self.count += 1;
            self.unscheduled = true;
            return self.mark_or_drop(head);
        }
        if !ok_to_drop {
            return CodelDecision::Pass;
        }
        self.dropping = true;
        // If dropping resumes soon after it last stopped, start from the drop rate that was sufficient then.
        let delta = self.count - self.last_count;
        let recent = head.now.saturating_sub(self.drop_next) < self.interval.saturating_mul(16);
        self.count = if recent && delta > 1 { delta } else { 1 };
        self.drop_next = self.control_law(head.now);
        self.last_count = self.count;
        self.mark_or_drop(head)
    }

    /// Returns whether packets have waited above the target for a whole interval (the RFC's `dodequeue`).
    fn ok_to_drop(&mut self, head: HeadPacket) -> bool {
        if head.waited < self.target || head.found <= self.max_packet {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(head.now.saturating_add(self.interval));
                false
            }
            Some(above) => head.now >= above,
        }
    }

    fn mark_or_drop(&self, head: HeadPacket) -> CodelDecision {
        if self.ecn && head.ecn_capable {
            CodelDecision::Mark
        } else {
            CodelDecision::Drop
        }
    }

    /// Returns `time` plus the interval divided by the square root of `count`, with a precision of 1/65536.
    fn control_law(&self, time: u64) -> u64 {
        let root = (u128::from(self.count) << 32).isqrt().max(1);
        let step = (u128::from(self.interval) << 16) / root;
        time.saturating_add(u64::try_from(step).unwrap_or(u64::MAX))
    }
}
