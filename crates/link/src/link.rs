//! The link itself.

use std::time::{Duration, Instant};

use crate::config::{LinkConfig, Queue};
use crate::counters::Counters;
use crate::draw::{Purpose, draw};
use crate::packet::{DropReason, Fate, Packet};

/// Longest time between a packet and its copy.
const COPY_GAP_MAX: Duration = Duration::from_millis(2);

/// One direction of a link. See the crate documentation.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    seed: u64,
    start: Instant,
    /// Number of the next packet.
    index: u64,
    /// When the transmitter has sent all it was given.
    busy_until: Instant,
    /// When the last packet that keeps the order comes out.
    last_out: Instant,
    counters: Counters,
}

impl Link {
    /// A link whose outages count from `start` and whose accidents follow from `seed`.
    pub fn new(config: LinkConfig, seed: u64, start: Instant) -> Self {
        Self {
            config,
            seed,
            start,
            index: 0,
            busy_until: start,
            last_out: start,
            counters: Counters::default(),
        }
    }

    /// A packet enters at `now`, which never goes back.
    pub fn send(&mut self, now: Instant, packet: impl Into<Packet>) -> Fate {
        let Packet { length, .. } = packet.into();
        let index = self.index;
        self.index += 1;
        self.counters.sent += 1;
        if length > self.config.mtu {
            self.counters.too_long += 1;
            return Fate::Dropped(DropReason::TooLong);
        }
        let bytes = length + self.config.overhead;
        let Queue::Bytes(room) = self.config.queue;
        let waiting = self.backlog(now);
        if waiting > 0 && waiting + bytes > room {
            self.counters.queue_full += 1;
            return Fate::Dropped(DropReason::QueueFull);
        }
        let sent = self.transmit(now, bytes);
        if self.is_out(sent) {
            self.counters.outage += 1;
            return Fate::Dropped(DropReason::Outage);
        }
        if self.picks(index, Purpose::Loss, self.config.loss) {
            self.counters.random += 1;
            return Fate::Dropped(DropReason::Random);
        }
        self.counters.delivered += 1;
        self.counters.delivered_bytes += bytes as u64;
        let at = self.propagate(index, sent);
        let copy = self
            .picks(index, Purpose::Duplicate, self.config.duplicate)
            .then(|| {
                self.counters.duplicated += 1;
                at + COPY_GAP_MAX.mul_f64(draw(self.seed, index, Purpose::Gap))
            });
        Fate::Delivered {
            at,
            copy,
            marked: false,
        }
    }

    /// Bytes that wait for transmission or are being transmitted.
    pub fn backlog(&self, now: Instant) -> usize {
        let Some(rate) = self.config.rate else {
            return 0;
        };
        let busy = self.busy_until.saturating_duration_since(now);
        let bytes = (busy.as_nanos() * u128::from(rate)).div_ceil(1_000_000_000);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What the link is like.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Makes the link a different one from now on. What is under way arrives as it would have.
    pub fn reconfigure(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// When the last bit has been sent.
    fn transmit(&mut self, now: Instant, bytes: usize) -> Instant {
        let Some(rate) = self.config.rate else {
            return now;
        };
        let begins = self.busy_until.max(now);
        let waited = begins - now;
        self.counters.queued += waited;
        self.counters.queued_max = self.counters.queued_max.max(waited);
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        self.busy_until = begins + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.busy_until
    }

    /// When it arrives.
    fn propagate(&mut self, index: u64, sent: Instant) -> Instant {
        let jitter = self
            .config
            .jitter
            .mul_f64(draw(self.seed, index, Purpose::Jitter));
        let at = (sent + self.config.delay + jitter).max(self.last_out);
        let reorder = self.config.reorder;
        if self.picks(index, Purpose::Reorder, reorder.share) {
            self.counters.reordered += 1;
            return at + reorder.extra;
        }
        self.last_out = at;
        at
    }

    fn is_out(&self, at: Instant) -> bool {
        let at = at.saturating_duration_since(self.start);
        self.config
            .outages
            .iter()
            .any(|outage| (outage.from..outage.until).contains(&at))
    }

    fn picks(&self, index: u64, purpose: Purpose, share: f64) -> bool {
        share > 0.0 && draw(self.seed, index, purpose) < share
    }
}
