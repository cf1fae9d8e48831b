//! The link emulator: applies every effect to each packet, in order.

use std::time::{Duration, Instant};

use crate::bursts::Bursts;
use crate::codel::{CodelDecision, CodelState, HeadPacket};
use crate::config::{LinkConfig, LossAt, Setting};
use crate::counters::Counters;
use crate::draw::{Draws, Purpose};
use crate::log_histogram::LogHistogram;
use crate::nanos;
use crate::packet::{DropReason, Fate, Packet};
use crate::policer::PolicerBucket;
use crate::timed_value::{self, TimedValue};
use crate::transmit_queue::{Entry, TransmitQueue};
use crate::transmitter::Transmitter;

/// Emulates one direction of a link. See the crate documentation for the order of calls.
///
/// All internal times are nanoseconds since the start.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    draws: Draws,
    start: Instant,
    /// The latest time passed to [`send`](Self::send).
    now: u64,
    index: u64,
    loss: TimedValue<f64>,
    bursts: Option<Bursts>,
    policer: Option<PolicerBucket>,
    queue: TransmitQueue,
    codel: Option<CodelState>,
    transmitter: Transmitter,
    out: TimedValue<bool>,
    delay: TimedValue<u64>,
    jitter: u64,
    /// Delivery time of the latest packet that was not reordered. Jitter never delivers a packet before this time.
    last_out: u64,
    counters: Counters,
    waits: LogHistogram,
}

#[derive(Clone, Copy, Debug)]
struct TransmittedPacket {
    at: u64,
    bytes: u64,
    marked: bool,
}

impl Link {
    /// Creates a link. Outages and changes count from `start`; all random events follow from `seed`.
    pub fn new(config: LinkConfig, seed: u64, start: Instant) -> Self {
        let draws = Draws::new(seed);
        Self {
            draws,
            start,
            now: 0,
            index: 0,
            loss: losses(&config),
            bursts: config.bursts.map(|model| Bursts::new(model, draws)),
            policer: config.policer.map(|policer| PolicerBucket::new(policer, 0)),
            queue: TransmitQueue::default(),
            codel: config.codel.map(CodelState::new),
            transmitter: Transmitter::new(&config),
            out: outages(&config),
            delay: delays(&config),
            jitter: nanos(config.jitter),
            last_out: 0,
            counters: Counters::default(),
            waits: LogHistogram::default(),
            config,
        }
    }

    /// Sends a packet that enters at `now`, and returns its fate. Times must not go back: an earlier `now` counts as
    /// the latest so far.
    pub fn send(&mut self, now: Instant, packet: impl Into<Packet>) -> Fate {
        let now = nanos(now.saturating_duration_since(self.start)).max(self.now);
        self.now = now;
        let index = self.index;
        self.index += 1;
        self.counters.sent += 1;
        match self.carry(now, index, packet.into()) {
            Ok(sent) => self.propagate(index, sent),
            Err(reason) => {
                self.counters.count_drop(reason);
                Fate::Dropped(reason)
            }
        }
    }

    /// Returns the bytes that have entered the queue and are not yet sent at `now`.
    pub fn backlog(&self, now: Instant) -> usize {
        let now = nanos(now.saturating_duration_since(self.start));
        usize::try_from(self.queue.unsent(now)).unwrap_or(usize::MAX)
    }

    /// Returns the time that a packet entering at `now` would wait until its transmission begins.
    pub fn wait(&self, now: Instant) -> Duration {
        let now = nanos(now.saturating_duration_since(self.start));
        Duration::from_nanos(self.transmitter.begins(now) - now)
    }

    /// Returns the counts of packets and their fates so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the distribution of the times that transmitted packets waited for transmission.
    pub fn waits(&self) -> &LogHistogram {
        &self.waits
    }

    /// Returns the current configuration. Its list of changes still contains those that have taken effect.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Replaces the configuration from now on. Packets already in flight are delivered as computed before.
    ///
    /// Changes in `config` that are already due apply at once. Bursts, `CoDel`, the policer and a trace keep their
    /// state if their configuration is unchanged.
    pub fn reconfigure(&mut self, config: LinkConfig) {
        self.loss = losses(&config);
        if config.bursts != self.config.bursts {
            self.bursts = config.bursts.map(|model| Bursts::new(model, self.draws));
        }
        if config.policer != self.config.policer {
            self.policer = config
                .policer
                .map(|policer| PolicerBucket::new(policer, self.now));
        }
        if config.codel != self.config.codel {
            self.codel = config.codel.map(CodelState::new);
        }
        self.transmitter.reconfigure(&self.config, &config);
        self.out = outages(&config);
        self.delay = delays(&config);
        self.jitter = nanos(config.jitter);
        self.config = config;
    }

    /// Takes a packet from the entry to the exit of the transmitter.
    fn carry(
        &mut self,
        now: u64,
        index: u64,
        packet: Packet,
    ) -> Result<TransmittedPacket, DropReason> {
        let burst = match &mut self.bursts {
            Some(bursts) => bursts.lose(index, self.draws),
            None => false,
        };
        if packet.length > self.config.mtu.min(MAX_LENGTH) {
            return Err(DropReason::TooLong);
        }
        let bytes = (packet.length + self.config.overhead.min(MAX_LENGTH)) as u64;
        if self.config.loss_at == LossAt::Entry {
            self.survive(now, index, burst)?;
        }
        if let Some(policer) = &mut self.policer
            && !policer.admits(now, bytes)
        {
            return Err(DropReason::Policer);
        }
        self.queue.leave(now);
        if !self.queue.fits(now, self.config.queue, bytes) {
            return Err(DropReason::QueueFull);
        }
        let begins = self.transmitter.begins(now);
        let marked = self.leave_queue(now, begins, bytes, packet.ecn_capable)?;
        let at = self.transmitter.send(begins, bytes);
        if at > now {
            self.queue.enter(Entry {
                begins,
                ends: at,
                bytes,
            });
        }
        self.count_wait(begins - now);
        self.counters.marked += u64::from(marked);
        if self.out.at(at) {
            return Err(DropReason::Outage);
        }
        if self.config.loss_at == LossAt::Exit {
            self.survive(at, index, burst)?;
        }
        Ok(TransmittedPacket { at, bytes, marked })
    }

    /// Applies queue management to a packet, and returns whether it is marked.
    fn leave_queue(
        &mut self,
        entered: u64,
        begins: u64,
        bytes: u64,
        ecn_capable: bool,
    ) -> Result<bool, DropReason> {
        let waited = begins - entered;
        let above = self.config.mark_above;
        let mut marked = ecn_capable && above.is_some_and(|above| waited > nanos(above));
        if let Some(codel) = &mut self.codel {
            let head = HeadPacket {
                now: begins,
                waited,
                bytes,
                found: self.queue.bytes,
                ecn_capable,
            };
            match codel.judge(head) {
                CodelDecision::Pass => {}
                CodelDecision::Mark => marked = true,
                CodelDecision::Drop => {
                    // The packet stays in the queue until then, but takes no transmission time.
                    self.queue.enter(Entry {
                        begins,
                        ends: begins,
                        bytes,
                    });
                    return Err(DropReason::Codel);
                }
            }
        }
        Ok(marked)
    }

    fn survive(&mut self, time: u64, index: u64, burst: bool) -> Result<(), DropReason> {
        if burst {
            return Err(DropReason::Burst);
        }
        let share = self.loss.at(time);
        if self.draws.picks(index, Purpose::Loss, share) {
            return Err(DropReason::Random);
        }
        Ok(())
    }

    fn count_wait(&mut self, wait: u64) {
        self.waits.record_nanos(wait);
        let wait = Duration::from_nanos(wait);
        let counters = &mut self.counters;
        counters.transmitted += 1;
        counters.queued += wait;
        counters.queued_max = counters.queued_max.max(wait);
    }

    /// Takes a packet from the transmitter to the far end.
    fn propagate(&mut self, index: u64, sent: TransmittedPacket) -> Fate {
        self.counters.delivered += 1;
        self.counters.delivered_bytes += sent.bytes;
        let jitter = match self.jitter {
            0 => 0,
            jitter => self.draws.below(index, Purpose::Jitter, jitter),
        };
        let late = self.delay.at(sent.at).saturating_add(jitter);
        let due = self.after_stall(sent.at.saturating_add(late));
        let mut at = due.max(self.last_out);
        let reorder = self.config.reorder;
        if self.draws.picks(index, Purpose::Reorder, reorder.share) {
            self.counters.reordered += 1;
            at = at.saturating_add(nanos(reorder.extra));
        } else {
            self.last_out = at;
        }
        let twice = self.config.duplicate;
        let copy = self.draws.picks(index, Purpose::Duplicate, twice);
        let copy = copy.then(|| {
            self.counters.duplicated += 1;
            let gap = self.draws.below(index, Purpose::Gap, COPY_GAP_MAX);
            self.instant(at.saturating_add(gap))
        });
        Fate::Delivered {
            at: self.instant(at),
            copy,
            marked: sent.marked,
        }
    }

    /// Returns the time at which a packet due at `due` is delivered: then, or at the end of the stall that `due` falls
    /// into.
    fn after_stall(&self, due: u64) -> u64 {
        let Some(stall) = self.config.stall else {
            return due;
        };
        let into = due % nanos(stall.every).max(1);
        due.saturating_add(nanos(stall.lasts).saturating_sub(into))
    }

    fn instant(&self, nanos: u64) -> Instant {
        self.start + Duration::from_nanos(nanos)
    }
}

fn losses(config: &LinkConfig) -> TimedValue<f64> {
    let changes = config.changes.iter().filter_map(|change| match change.to {
        Setting::Loss(share) => Some((nanos(change.at), share)),
        _ => None,
    });
    TimedValue::new(config.loss, changes)
}

fn delays(config: &LinkConfig) -> TimedValue<u64> {
    let changes = config.changes.iter().filter_map(|change| match change.to {
        Setting::Delay(delay) => Some((nanos(change.at), nanos(delay))),
        _ => None,
    });
    TimedValue::new(nanos(config.delay), changes)
}

fn outages(config: &LinkConfig) -> TimedValue<bool> {
    let windows = config.outages.iter();
    timed_value::in_windows(windows.map(|outage| (nanos(outage.from), nanos(outage.until))))
}

/// Cap on the length of a packet and on the overhead: beyond those of any real link, and small enough for 64-bit
/// arithmetic.
const MAX_LENGTH: usize = u32::MAX as usize;

/// Longest time between a packet and its copy, in nanoseconds; chosen arbitrarily, to let other packets in between.
const COPY_GAP_MAX: u64 = 2_000_000;
