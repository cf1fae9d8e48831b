//! Sharing of congestion state between the connections of a process to one peer (RFC 9040, ensemble sharing).
//!
//! Members publish their state to one another, so that none takes the others for rivals, and together they take no
//! more of a path than one connection would.
//!
//! A [`PathMemory`](crate::PathMemory) holds an [`Ensemble`] for each peer. A controller joins the ensemble when the
//! controller is created. The controller's [`Member`] leaves when the last clone of the controller is dropped. Every
//! few milliseconds, a member publishes its own state and reads the state of the others:
//!
//! ```text
//!  Ensemble::join ─► Member::publish, Member::summarize, every few milliseconds of acknowledgements ─► drop
//! ```
//!
//! Members may run in different threads. Each member has a slot to which it alone writes, so that no thread waits for
//! another. All memory orderings are relaxed, except those that hand over a slot. Relaxed ordering is enough for three
//! reasons. Every value is meaningful on its own. If several members report the same event, the newest time counts. A
//! read that misses a recent value is soon followed by another read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Maximum number of connections to one peer that know of one another: one for each core of a large machine. Further
/// connections work on their own.
const SLOTS: usize = 32;

/// Time, besides `BUSY_ROUNDS` round-trip times, in which a member must have sent at its full allowed rate. Otherwise
/// it counts as idle and leaves the path to the others.
const BUSY: Duration = Duration::from_millis(300);
const BUSY_ROUNDS: u32 = 2;

/// Two members share a path if their round-trip times differ by at most the shorter one divided by this, plus
/// `SAME_PATH_ADDED`. Packets in one queue wait equally long, whatever round-trip time each member assumes without
/// that queue.
const SAME_PATH: u32 = 4;
const SAME_PATH_ADDED: Duration = Duration::from_millis(5);

/// A delivered rate below this share of the bandwidth means that the member had too little data to send.
const FULL: f64 = 0.7;

/// Number of low bits of a stored time that hold the kind of an event, and the latest time that can be stored: 146
/// years.
const KIND_BITS: u32 = 2;
const TIME_MAX: u64 = u64::MAX >> KIND_BITS;

/// The connections of this process to one peer. Clones refer to the same ensemble.
#[derive(Clone, Debug)]
pub struct Ensemble(Arc<SlotTable>);

/// A weak reference to an ensemble, which lives only as long as it has members.
#[derive(Clone, Debug, Default)]
pub(crate) struct WeakEnsemble(Weak<SlotTable>);

#[derive(Debug)]
struct SlotTable {
    /// Origin of stored times. A time is stored as the nanoseconds since the origin plus one, and 0 means never.
    origin: Instant,
    slots: [OnceLock<Box<MemberSlot>>; SLOTS],
}

/// The state of one member, as the other members see it.
#[derive(Debug, Default)]
struct MemberSlot {
    taken: AtomicBool,
    busy: AtomicU64,
    rtt: AtomicU64,
    /// Bits of floating-point numbers: `bandwidth` and `rate` in bytes per second, `window` in bytes.
    bandwidth: AtomicU64,
    rate: AtomicU64,
    window: AtomicU64,
    /// Times of the latest events. The lowest bits of `rested` and `stance` hold the kind of the event.
    overflowed: AtomicU64,
    rested: AtomicU64,
    stance: AtomicU64,
    part_taken: AtomicU64,
    probed: AtomicU64,
}

/// The membership of one connection in an ensemble. Clones stand for the same connection and share its slot.
#[derive(Clone, Debug)]
pub struct Member(Arc<Membership>);

#[derive(Debug)]
struct Membership {
    table: Arc<SlotTable>,
    number: usize,
}

/// A member's verdict on whether it has rivals, and of which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stance {
    /// The member sees no rival.
    Alone,
    /// The member sees a rival that yields to loss.
    Beside,
    /// The member sees a rival that does not yield to loss.
    Holding,
}

/// The state that a member publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MemberState {
    /// True if the member sends as fast as its limits allow.
    pub(crate) busy: bool,
    /// The current round-trip time.
    pub(crate) rtt: Duration,
    /// The bandwidth estimate in bytes per second; 0 if the member has none yet.
    pub(crate) bandwidth: f64,
    /// The delivered rate of the latest measurement, in bytes per second.
    pub(crate) rate: f64,
    /// The window that the member keeps beside a rival, in bytes; 0 if it sees no rival.
    pub(crate) window: f64,
    /// Send time of the latest batch that made a queue overflow beside a rival.
    pub(crate) overflowed: Option<Instant>,
    /// Start time of the member's latest rest, and whether that rest was a question.
    pub(crate) rested: Option<(Instant, bool)>,
    /// The member's latest verdict on rivals, and the time at which it changed.
    pub(crate) stance: Option<(Instant, Stance)>,
    /// Time at which the member started with a part of what the others have.
    pub(crate) part_taken: Option<Instant>,
    /// Start time of the member's latest probe.
    pub(crate) probed: Option<Instant>,
}

/// Summary of the other members that are busy on the same path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SiblingSummary {
    /// Number of these members.
    pub(crate) busy: u32,
    /// Number of members that know their bandwidth, and the sum of their bandwidths in bytes per second.
    pub(crate) settled: u32,
    pub(crate) bandwidth: f64,
    /// Sum of the delivered rates of their latest measurements, in bytes per second. If a member had too little data
    /// to send, its bandwidth counts instead.
    pub(crate) rate: f64,
    /// Number of members beside a rival, and the sum of their windows in bytes.
    pub(crate) beside: u32,
    pub(crate) window: f64,
    /// The latest events that any of the members reports.
    pub(crate) overflowed: Option<Instant>,
    pub(crate) rested: Option<(Instant, bool)>,
    pub(crate) stance: Option<(Instant, Stance)>,
    pub(crate) probed: Option<Instant>,
    /// Number of members that have started with a part since the given time, and the time of the latest such start.
    pub(crate) begun: u32,
    pub(crate) part_taken: Option<Instant>,
}

impl Ensemble {
    /// Creates an ensemble without members. Members must not report times before `origin`.
    pub fn new(origin: Instant) -> Self {
        Self(Arc::new(SlotTable {
            origin,
            slots: std::array::from_fn(|_| OnceLock::new()),
        }))
    }

    /// Joins one more connection. Returns `None` if all slots are taken.
    pub fn join(&self) -> Option<Member> {
        let number = (0..SLOTS).find(|number| self.0.take(*number))?;
        let table = self.0.clone();
        Some(Member(Arc::new(Membership { table, number })))
    }

    /// Returns the number of members.
    #[cfg(test)]
    pub(crate) fn members(&self) -> usize {
        self.0.others(SLOTS).count()
    }

    pub(crate) fn downgrade(&self) -> WeakEnsemble {
        WeakEnsemble(Arc::downgrade(&self.0))
    }
}

impl WeakEnsemble {
    pub(crate) fn upgrade(&self) -> Option<Ensemble> {
        self.0.upgrade().map(Ensemble)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl SlotTable {
    fn take(&self, number: usize) -> bool {
        let slot = self.slots[number].get_or_init(Box::default);
        // Acquire ordering: the values that the previous member has cleared are visible as cleared.
        let free = Ordering::Acquire;
        let taken = &slot.taken;
        taken
            .compare_exchange(false, true, free, Ordering::Relaxed)
            .is_ok()
    }

    /// Iterates over the taken slots except that of member `own`.
    fn others(&self, own: usize) -> impl Iterator<Item = &MemberSlot> {
        let slots = self.slots.iter().enumerate();
        let others = slots.filter(move |(number, _)| *number != own);
        let slots = others.filter_map(|(_, slot)| slot.get());
        let slots = slots.map(|slot| &**slot);
        slots.filter(|slot| slot.taken.load(Ordering::Relaxed))
    }

    fn encode_time(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(since).map_or(TIME_MAX, |since| since.min(TIME_MAX - 1) + 1)
    }

    fn decode_time(&self, number: u64) -> Option<Instant> {
        let since = Duration::from_nanos(number.checked_sub(1)?);
        self.origin.checked_add(since)
    }

    /// Packs a time and one of four kinds into one number.
    fn encode_event(&self, event: Option<(Instant, u64)>) -> u64 {
        event.map_or(0, |(at, kind)| self.encode_time(at) << KIND_BITS | kind)
    }

    fn decode_event(&self, number: u64) -> Option<(Instant, u64)> {
        let kind = number & ((1 << KIND_BITS) - 1);
        self.decode_time(number >> KIND_BITS).map(|at| (at, kind))
    }
}

impl Stance {
    fn of(kind: u64) -> Self {
        match kind {
            0 => Self::Alone,
            1 => Self::Beside,
            _ => Self::Holding,
        }
    }
}

impl MemberSlot {
    fn is_of_path(&self, rtt: Duration) -> bool {
        let other = Duration::from_nanos(self.rtt.load(Ordering::Relaxed));
        rtt.abs_diff(other) <= rtt.min(other) / SAME_PATH + SAME_PATH_ADDED
    }
}

impl Member {
    /// Publishes this member's state to the other members.
    pub(crate) fn publish(&self, now: Instant, state: &MemberState) {
        let table = &self.0.table;
        let Some(slot) = table.slots[self.0.number].get() else {
            return;
        };
        let store = |to: &AtomicU64, value| to.store(value, Ordering::Relaxed);
        if state.busy {
            store(&slot.busy, table.encode_time(now));
        }
        let rtt = u64::try_from(state.rtt.as_nanos()).unwrap_or(u64::MAX);
        store(&slot.rtt, rtt);
        store(&slot.bandwidth, state.bandwidth.to_bits());
        store(&slot.rate, state.rate.to_bits());
        store(&slot.window, state.window.to_bits());
        let overflowed = state.overflowed.map_or(0, |at| table.encode_time(at));
        store(&slot.overflowed, overflowed);
        let rested = state.rested.map(|(at, asking)| (at, u64::from(asking)));
        store(&slot.rested, table.encode_event(rested));
        let stance = state.stance.map(|(at, stance)| (at, stance as u64));
        store(&slot.stance, table.encode_event(stance));
        let part_taken = state.part_taken.map_or(0, |at| table.encode_time(at));
        store(&slot.part_taken, part_taken);
        let probed = state.probed.map_or(0, |at| table.encode_time(at));
        store(&slot.probed, probed);
    }

    /// Summarizes the busy members whose round-trip time is close to `rtt`. `since` is the latest start with a part
    /// that the caller already knows about.
    pub(crate) fn summarize(
        &self,
        now: Instant,
        rtt: Duration,
        since: Option<Instant>,
    ) -> SiblingSummary {
        let table = &self.0.table;
        let load = |from: &AtomicU64| from.load(Ordering::Relaxed);
        let idle = BUSY + BUSY_ROUNDS * rtt;
        let oldest = now.checked_sub(idle).map_or(0, |at| table.encode_time(at));
        let mut summary = SiblingSummary::default();
        for slot in table.others(self.0.number) {
            let busy = load(&slot.busy);
            if busy == 0 || busy < oldest || !slot.is_of_path(rtt) {
                continue;
            }
            summary.busy += 1;
            let bandwidth = f64::from_bits(load(&slot.bandwidth));
            if bandwidth > 0.0 {
                summary.settled += 1;
                summary.bandwidth += bandwidth;
                let rate = f64::from_bits(load(&slot.rate));
                let full = rate >= FULL * bandwidth;
                summary.rate += if full { rate } else { bandwidth };
            }
            let window = f64::from_bits(load(&slot.window));
            if window > 0.0 {
                summary.beside += 1;
                summary.window += window;
            }
            let overflowed = table.decode_time(load(&slot.overflowed));
            summary.overflowed = summary.overflowed.max(overflowed);
            let rested = table.decode_event(load(&slot.rested));
            let rested = rested.map(|(at, kind)| (at, kind == 1));
            summary.rested = summary.rested.max(rested);
            let part_taken = table.decode_time(load(&slot.part_taken));
            summary.begun += u32::from(part_taken > since);
            summary.part_taken = summary.part_taken.max(part_taken);
            summary.probed = summary.probed.max(table.decode_time(load(&slot.probed)));
            let stance = table.decode_event(load(&slot.stance));
            let stance = stance.map(|(at, kind)| (at, Stance::of(kind)));
            summary.stance = summary.stance.max(stance);
        }
        summary
    }
}

impl SiblingSummary {
    pub(crate) fn is_none(&self) -> bool {
        self.busy == 0
    }

    /// Returns the number of connections on the path, this one included.
    pub(crate) fn count(&self) -> f64 {
        f64::from(self.busy + 1)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let Some(slot) = self.table.slots[self.number].get() else {
            return;
        };
        for value in [
            &slot.busy,
            &slot.rtt,
            &slot.bandwidth,
            &slot.rate,
            &slot.window,
            &slot.overflowed,
            &slot.rested,
            &slot.stance,
            &slot.part_taken,
            &slot.probed,
        ] {
            value.store(0, Ordering::Relaxed);
        }
        // Release ordering: the next member finds the slot cleared.
        slot.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
