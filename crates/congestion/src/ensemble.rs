//! Connections of a process to one peer tell one another how they stand (RFC 9040, ensemble sharing), so that none takes
//! the others for rivals, and all take no more of a path than one would.
//!
//! A [`PathMemory`](crate::PathMemory) has an [`Ensemble`] for each peer. A controller joins it when it begins; a
//! [`Member`] leaves when the last clone of the controller goes. Now and then a member tells how it stands, and looks how
//! the others do:
//!
//! ```text
//!  Ensemble::join ─► Member::tell, Member::look, every few milliseconds of acknowledgements ─► drop
//! ```
//!
//! Members may be in different threads. Each has a place to which it alone writes, so that none waits. All orderings are
//! relaxed but for those that hand over a place: a value stands for itself, the newest time counts where several members
//! tell of the same, and a look that misses what was told a moment ago is followed by another one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Connections to one peer that know of one another: one for each core of large machines. Further ones are on their own.
const PLACES: usize = 32;

/// A member that has not sent as fast as it may for so long, and twice the round-trip time, leaves the path to others.
const BUSY: Duration = Duration::from_millis(300);
const BUSY_ROUNDS: u32 = 2;

/// Round trips that differ by no more than this part and this time are those of the same path: packets in one queue
/// wait alike, whatever each member knows of the path without it.
const SAME_PATH: u32 = 4;
const SAME_PATH_ADDED: Duration = Duration::from_millis(5);

/// Part of the bandwidth below which it was for want of data that no more arrived.
const FULL: f64 = 0.7;

/// Bits of a time that is told with a kind, and the latest time: 146 years.
const KIND_BITS: u32 = 2;
const TIME_MAX: u64 = u64::MAX >> KIND_BITS;

/// Connections of this process to one peer; clones are the same.
#[derive(Clone, Debug)]
pub struct Ensemble(Arc<Shared>);

/// An ensemble that lives as long as it has members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faint(Weak<Shared>);

#[derive(Debug)]
struct Shared {
    /// Times are told as nanoseconds since then, and one: 0 is never.
    origin: Instant,
    places: [OnceLock<Box<Place>>; PLACES],
}

/// The standing of a member, as the others see it.
#[derive(Debug, Default)]
struct Place {
    taken: AtomicBool,
    busy: AtomicU64,
    rtt: AtomicU64,
    /// Bits of numbers: bytes per second, and bytes.
    bandwidth: AtomicU64,
    rate: AtomicU64,
    window: AtomicU64,
    /// Times; the lowest bits of the latter two tell of which kind.
    overflowed: AtomicU64,
    rested: AtomicU64,
    stance: AtomicU64,
    parted: AtomicU64,
    probed: AtomicU64,
}

/// A connection of an ensemble. Clones are the same connection, and have one place.
#[derive(Clone, Debug)]
pub struct Member(Arc<Seat>);

#[derive(Debug)]
struct Seat {
    shared: Arc<Shared>,
    number: usize,
}

/// A member's verdict on rivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stance {
    /// There is none.
    Alone,
    /// One that yields to loss.
    Beside,
    /// One that does not.
    Holding,
}

/// The standing that a member tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Standing {
    /// It sends as fast as it may.
    pub(crate) busy: bool,
    /// Round-trip time at the moment.
    pub(crate) rtt: Duration,
    /// Bytes per second; 0: it does not know yet.
    pub(crate) bandwidth: f64,
    /// Bytes per second that arrived in its latest measurement.
    pub(crate) rate: f64,
    /// Bytes, beside a rival; 0: there is none.
    pub(crate) window: f64,
    /// When the latest batch left that made a queue overflow beside a rival.
    pub(crate) overflowed: Option<Instant>,
    /// When its latest rest began, and whether that was a question.
    pub(crate) rested: Option<(Instant, bool)>,
    /// When it last changed its mind about rivals.
    pub(crate) stance: Option<(Instant, Stance)>,
    /// When it began with a part of what the others have.
    pub(crate) parted: Option<Instant>,
    /// When its latest probe began.
    pub(crate) probed: Option<Instant>,
}

/// The others that are busy on the same path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Company {
    /// Their number.
    pub(crate) busy: u32,
    /// The number of those that know their bandwidth, and the sum of it, in bytes per second.
    pub(crate) settled: u32,
    pub(crate) bandwidth: f64,
    /// The sum of what arrived in their latest measurements.
    pub(crate) rate: f64,
    /// The number of those beside a rival, and the sum of their windows.
    pub(crate) beside: u32,
    pub(crate) window: f64,
    /// The latest of what they tell.
    pub(crate) overflowed: Option<Instant>,
    pub(crate) rested: Option<(Instant, bool)>,
    pub(crate) stance: Option<(Instant, Stance)>,
    pub(crate) probed: Option<Instant>,
    /// The number of those that have begun with a part since the time asked about, and the latest of them.
    pub(crate) begun: u32,
    pub(crate) parted: Option<Instant>,
}

impl Ensemble {
    /// An ensemble without members; no time that they tell is before `origin`.
    pub fn new(origin: Instant) -> Self {
        Self(Arc::new(Shared {
            origin,
            places: std::array::from_fn(|_| OnceLock::new()),
        }))
    }

    /// A place for one more connection; `None` where there are too many.
    pub fn join(&self) -> Option<Member> {
        let number = (0..PLACES).find(|number| self.0.take(*number))?;
        let shared = self.0.clone();
        Some(Member(Arc::new(Seat { shared, number })))
    }

    /// The number of connections.
    #[cfg(test)]
    pub(crate) fn members(&self) -> usize {
        self.0.others(PLACES).count()
    }

    pub(crate) fn faint(&self) -> Faint {
        Faint(Arc::downgrade(&self.0))
    }
}

impl Faint {
    pub(crate) fn get(&self) -> Option<Ensemble> {
        self.0.upgrade().map(Ensemble)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Shared {
    fn take(&self, number: usize) -> bool {
        let place = self.places[number].get_or_init(Box::default);
        // Acquire: what the member before has cleared is clear.
        let free = Ordering::Acquire;
        let taken = &place.taken;
        taken
            .compare_exchange(false, true, free, Ordering::Relaxed)
            .is_ok()
    }

    /// Places of others than `own` that are taken.
    fn others(&self, own: usize) -> impl Iterator<Item = &Place> {
        let places = self.places.iter().enumerate();
        let others = places.filter(move |(number, _)| *number != own);
        let places = others.filter_map(|(_, place)| place.get());
        let places = places.map(|place| &**place);
        places.filter(|place| place.taken.load(Ordering::Relaxed))
    }

    fn number(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(since).map_or(TIME_MAX, |since| since.min(TIME_MAX - 1) + 1)
    }

    fn time(&self, number: u64) -> Option<Instant> {
        let since = Duration::from_nanos(number.checked_sub(1)?);
        self.origin.checked_add(since)
    }

    /// A time and one of four kinds.
    fn marked(&self, told: Option<(Instant, u64)>) -> u64 {
        told.map_or(0, |(at, kind)| self.number(at) << KIND_BITS | kind)
    }

    fn mark(&self, number: u64) -> Option<(Instant, u64)> {
        let kind = number & ((1 << KIND_BITS) - 1);
        self.time(number >> KIND_BITS).map(|at| (at, kind))
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

impl Place {
    fn is_of_path(&self, rtt: Duration) -> bool {
        let other = Duration::from_nanos(self.rtt.load(Ordering::Relaxed));
        rtt.abs_diff(other) <= rtt.min(other) / SAME_PATH + SAME_PATH_ADDED
    }
}

impl Member {
    /// Tells the others how this one stands.
    pub(crate) fn tell(&self, now: Instant, standing: &Standing) {
        let shared = &self.0.shared;
        let Some(place) = shared.places[self.0.number].get() else {
            return;
        };
        let store = |to: &AtomicU64, value| to.store(value, Ordering::Relaxed);
        if standing.busy {
            store(&place.busy, shared.number(now));
        }
        let rtt = u64::try_from(standing.rtt.as_nanos()).unwrap_or(u64::MAX);
        store(&place.rtt, rtt);
        store(&place.bandwidth, standing.bandwidth.to_bits());
        store(&place.rate, standing.rate.to_bits());
        store(&place.window, standing.window.to_bits());
        let overflowed = standing.overflowed.map_or(0, |at| shared.number(at));
        store(&place.overflowed, overflowed);
        let rested = standing.rested.map(|(at, asking)| (at, u64::from(asking)));
        store(&place.rested, shared.marked(rested));
        let stance = standing.stance.map(|(at, stance)| (at, stance as u64));
        store(&place.stance, shared.marked(stance));
        let parted = standing.parted.map_or(0, |at| shared.number(at));
        store(&place.parted, parted);
        let probed = standing.probed.map_or(0, |at| shared.number(at));
        store(&place.probed, probed);
    }

    /// Looks at the others whose round trips take about as long as `rtt`; `since`: the latest of those that are known
    /// to have begun with a part.
    pub(crate) fn look(&self, now: Instant, rtt: Duration, since: Option<Instant>) -> Company {
        let shared = &self.0.shared;
        let load = |from: &AtomicU64| from.load(Ordering::Relaxed);
        let idle = BUSY + BUSY_ROUNDS * rtt;
        let oldest = now.checked_sub(idle).map_or(0, |at| shared.number(at));
        let mut company = Company::default();
        for place in shared.others(self.0.number) {
            let busy = load(&place.busy);
            if busy == 0 || busy < oldest || !place.is_of_path(rtt) {
                continue;
            }
            company.busy += 1;
            let bandwidth = f64::from_bits(load(&place.bandwidth));
            if bandwidth > 0.0 {
                company.settled += 1;
                company.bandwidth += bandwidth;
                let rate = f64::from_bits(load(&place.rate));
                let full = rate >= FULL * bandwidth;
                company.rate += if full { rate } else { bandwidth };
            }
            let window = f64::from_bits(load(&place.window));
            if window > 0.0 {
                company.beside += 1;
                company.window += window;
            }
            let overflowed = shared.time(load(&place.overflowed));
            company.overflowed = company.overflowed.max(overflowed);
            let rested = shared.mark(load(&place.rested));
            let rested = rested.map(|(at, kind)| (at, kind == 1));
            company.rested = company.rested.max(rested);
            let parted = shared.time(load(&place.parted));
            company.begun += u32::from(parted > since);
            company.parted = company.parted.max(parted);
            company.probed = company.probed.max(shared.time(load(&place.probed)));
            let stance = shared.mark(load(&place.stance));
            let stance = stance.map(|(at, kind)| (at, Stance::of(kind)));
            company.stance = company.stance.max(stance);
        }
        company
    }
}

impl Company {
    pub(crate) fn is_none(&self) -> bool {
        self.busy == 0
    }

    /// The number of connections on the path: these and one more.
    pub(crate) fn count(&self) -> f64 {
        f64::from(self.busy + 1)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(place) = self.shared.places[self.number].get() else {
            return;
        };
        for value in [
            &place.busy,
            &place.rtt,
            &place.bandwidth,
            &place.rate,
            &place.window,
            &place.overflowed,
            &place.rested,
            &place.stance,
            &place.parted,
            &place.probed,
        ] {
            value.store(0, Ordering::Relaxed);
        }
        // Release: the next member finds the place clear.
        place.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
