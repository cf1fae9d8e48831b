//! The link itself.

use std::time::{Duration, Instant};

use crate::bursts::Bursts;
use crate::codel::{Control, Head, Verdict};
use crate::config::{LinkConfig, LossAt, Setting};
use crate::counters::Counters;
use crate::draw::{Draws, Purpose};
use crate::histogram::Histogram;
use crate::nanos;
use crate::packet::{DropReason, Fate, Packet};
use crate::policer::Bucket;
use crate::schedule::{self, Schedule};
use crate::transmitter::Transmitter;
use crate::waiting::{Entry, Waiting};

/// One direction of a link. See the crate documentation.
///
/// Inside, all times are nanoseconds since the start.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    draws: Draws,
    start: Instant,
    /// The latest time it was told.
    now: u64,
    index: u64,
    loss: Schedule<f64>,
    bursts: Option<Bursts>,
    policer: Option<Bucket>,
    waiting: Waiting,
    codel: Option<Control>,
    transmitter: Transmitter,
    out: Schedule<bool>,
    delay: Schedule<u64>,
    jitter: u64,
    /// When the last packet that keeps the order comes out.
    last_out: u64,
    counters: Counters,
    waits: Histogram,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: u64,
    bytes: u64,
    marked: bool,
}

impl Link {
    /// A link whose outages and changes count from `start` and whose accidents follow from `seed`.
    pub fn new(config: LinkConfig, seed: u64, start: Instant) -> Self {
        let draws = Draws::new(seed);
        Self {
            draws,
            start,
            now: 0,
            index: 0,
            loss: losses(&config),
            bursts: config.bursts.map(|model| Bursts::new(model, draws)),
            policer: config.policer.map(|policer| Bucket::new(policer, 0)),
            waiting: Waiting::default(),
            codel: config.codel.map(Control::new),
            transmitter: Transmitter::new(&config),
            out: outages(&config),
            delay: delays(&config),
            jitter: nanos(config.jitter),
            last_out: 0,
            counters: Counters::default(),
            waits: Histogram::default(),
            config,
        }
    }

    /// A packet enters at `now`. Times do not go back: an earlier one counts as the latest so far.
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

    /// Bytes that have entered the queue and have not been sent.
    pub fn backlog(&self, now: Instant) -> usize {
        let now = nanos(now.saturating_duration_since(self.start));
        usize::try_from(self.waiting.unsent(now)).unwrap_or(usize::MAX)
    }

    /// How long a packet that enters at `now` would wait until its transmission begins.
    pub fn wait(&self, now: Instant) -> Duration {
        let now = nanos(now.saturating_duration_since(self.start));
        Duration::from_nanos(self.transmitter.begins(now) - now)
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How long packets that were transmitted waited for that.
    pub fn waits(&self) -> &Histogram {
        &self.waits
    }

    /// What the link was made to be like; changes that have come due are still in its list.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Makes the link a different one from now on. What is under way arrives as it would have.
    ///
    /// Of the changes in `config`, those that are due apply at once. What is the same as
    /// before keeps its state: bursts, `CoDel`, policer; a trace goes on where it was.
    pub fn reconfigure(&mut self, config: LinkConfig) {
        self.loss = losses(&config);
        if config.bursts != self.config.bursts {
            self.bursts = config.bursts.map(|model| Bursts::new(model, self.draws));
        }
        if config.policer != self.config.policer {
            self.policer = config.policer.map(|policer| Bucket::new(policer, self.now));
        }
        if config.codel != self.config.codel {
            self.codel = config.codel.map(Control::new);
        }
        self.transmitter.reconfigure(&self.config, &config);
        self.out = outages(&config);
        self.delay = delays(&config);
        self.jitter = nanos(config.jitter);
        self.config = config;
    }

    /// From the entry to behind the transmitter.
    fn carry(&mut self, now: u64, index: u64, packet: Packet) -> Result<Sent, DropReason> {
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
        self.waiting.leave(now);
        if !self.waiting.fits(now, self.config.queue, bytes) {
            return Err(DropReason::QueueFull);
        }
        let begins = self.transmitter.begins(now);
        let marked = self.leave_queue(now, begins, bytes, packet.ecn_capable)?;
        let at = self.transmitter.send(begins, bytes);
        if at > now {
            self.waiting.enter(Entry {
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
        Ok(Sent { at, bytes, marked })
    }

    /// What the queue's management does, and whether it marks.
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
            let head = Head {
                now: begins,
                waited,
                bytes,
                found: self.waiting.bytes,
                ecn_capable,
            };
            match codel.judge(head) {
                Verdict::Pass => {}
                Verdict::Mark => marked = true,
                Verdict::Drop => {
                    // It was in the queue until then, and leaves the transmitter to the next.
                    self.waiting.enter(Entry {
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

    /// From the transmitter to the far end.
    fn propagate(&mut self, index: u64, sent: Sent) -> Fate {
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

    /// When a packet that is due at `due` comes out.
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

fn losses(config: &LinkConfig) -> Schedule<f64> {
    let changes = config.changes.iter().filter_map(|change| match change.to {
        Setting::Loss(share) => Some((nanos(change.at), share)),
        _ => None,
    });
    Schedule::new(config.loss, changes)
}

fn delays(config: &LinkConfig) -> Schedule<u64> {
    let changes = config.changes.iter().filter_map(|change| match change.to {
        Setting::Delay(delay) => Some((nanos(change.at), nanos(delay))),
        _ => None,
    });
    Schedule::new(nanos(config.delay), changes)
}

fn outages(config: &LinkConfig) -> Schedule<bool> {
    let windows = config.outages.iter();
    schedule::within(windows.map(|outage| (nanos(outage.from), nanos(outage.until))))
}

/// Longest packet, and most overhead: beyond any link's, so that the arithmetic fits 64 bits.
const MAX_LENGTH: usize = u32::MAX as usize;

/// Longest time between a packet and its copy, in nanoseconds; chosen arbitrarily, to let others between.
const COPY_GAP_MAX: u64 = 2_000_000;
