//! `CoDel` (RFC 8289), told of packets one by one.
//!
//! The RFC decides when a packet leaves the queue. In a FIFO that time follows from earlier packets, so the
//! decision is made when the packet enters, and is the same, with one exception: the RFC never drops from a
//! queue that has at most one packet left *behind* it, and what comes behind is not known yet. Here the queue
//! that counts is the one that the packet *found*; where a queue stands the two are alike.

use crate::config::Codel;
use crate::nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Mark,
    Drop,
}

/// The RFC's state; the names are its.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    target: u64,
    interval: u64,
    ecn: bool,
    /// When the wait will have been above the target for an interval.
    first_above: Option<u64>,
    dropping: bool,
    /// When the next drop is due, if `owed` is not set.
    drop_next: u64,
    /// A drop has been made for which `drop_next` has not moved on.
    owed: bool,
    /// Drops since dropping began.
    count: u64,
    last_count: u64,
    max_packet: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// When it leaves the queue.
    pub(crate) now: u64,
    /// How long it waited.
    pub(crate) waited: u64,
    pub(crate) bytes: u64,
    /// Bytes before it when it entered.
    pub(crate) found: u64,
    pub(crate) ecn_capable: bool,
}

impl Control {
    pub(crate) fn new(codel: Codel) -> Self {
        Self {
            target: nanos(codel.target),
            interval: nanos(codel.interval),
            ecn: codel.ecn,
            first_above: None,
            dropping: false,
            drop_next: 0,
            owed: false,
            count: 0,
            last_count: 0,
            max_packet: 0,
        }
    }

    /// What becomes of the packet at the head of the queue. Every packet comes here, in order.
    pub(crate) fn judge(&mut self, head: Head) -> Verdict {
        self.max_packet = self.max_packet.max(head.bytes);
        let ok_to_drop = self.ok_to_drop(head);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
                self.owed = false;
                return Verdict::Pass;
            }
            if std::mem::take(&mut self.owed) {
                self.drop_next = self.control_law(self.drop_next);
            }
            if head.now < self.drop_next {
                return Verdict::Pass;
            }
            self.count += 1;
            self.owed = true;
            return self.hit(head);
        }
        if !ok_to_drop {
            return Verdict::Pass;
        }
        self.dropping = true;
        // Shortly after the last time, the rate of drops that was enough then is where to begin.
        let delta = self.count - self.last_count;
        let recent = head.now.saturating_sub(self.drop_next) < self.interval.saturating_mul(16);
        self.count = if recent && delta > 1 { delta } else { 1 };
        self.drop_next = self.control_law(head.now);
        self.last_count = self.count;
        self.hit(head)
    }

    /// The RFC's `dodequeue`: whether packets have waited for too long all through an interval.
    fn ok_to_drop(&mut self, head: Head) -> bool {
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

    fn hit(&self, head: Head) -> Verdict {
        if self.ecn && head.ecn_capable {
            Verdict::Mark
        } else {
            Verdict::Drop
        }
    }

    /// `time` and an interval divided by the root of `count`, to 1/65536.
    fn control_law(&self, time: u64) -> u64 {
        let root = (u128::from(self.count) << 32).isqrt().max(1);
        let step = (u128::from(self.interval) << 16) / root;
        time.saturating_add(u64::try_from(step).unwrap_or(u64::MAX))
    }
}
