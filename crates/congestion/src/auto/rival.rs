//! Other flows on the path: yielding while packets wait, and the reaction to flows that do not yield.
//!
//! A flow that fills the queue until it overflows is a [`Rival`]. Beside a rival that yields to loss, the sender uses
//! CUBIC's window. BBR does not yield to loss. A [`Lull`](lull::Lull) every ten seconds reveals it, and the sender
//! then keeps a part of the path with [`Hold`].

mod aggregation;
mod hold;
mod lull;
mod overflow;
mod share;
mod trial;
mod unresponsive;
mod yielding;

use std::time::{Duration, Instant};

use hold::Hold;
use lull::Lulls;
pub(super) use trial::{Trial, TrialSchedule};
use unresponsive::Unresponsive;

use super::recent_extreme::RecentExtreme;
use crate::curve::Curve;

/// A flow that fills the queue until it overflows, and this sender's behaviour beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rival {
    /// Window that CUBIC would have, in bytes.
    pub(super) window: f64,
    curve: Curve,
    rise: WindowRise,
    /// Rate in bytes per second that all flows carry together, as measured by the latest two rests. `capacity` is set
    /// if this sender had more than half of it.
    carried: (Option<f64>, Option<f64>),
    capacity: Option<f64>,
    /// Times of the latest overflow, and of the latest long wait of packets.
    overflowed: Instant,
    waited: Option<Instant>,
    /// The highest recent mean of a round trip, in seconds.
    longest: RecentExtreme,
    /// Time of the next check of whether the rival exists and how much of the path this sender has, and the number of
    /// checks so far.
    check: Option<Instant>,
    checks: u32,
    /// Number of consecutive rests that saw no queue.
    rests: u32,
    /// The highest delivered rate before the rival was met, in bytes per second.
    before: f64,
    lulls: Lulls,
    unresponsive: Unresponsive,
    pub(super) hold: Option<Hold>,
    /// Earliest time for the next attempt to hold.
    hold_from: Option<Instant>,
}

/// Fast growth as in a startup phase, until the window reaches `goal` or the queue has overflowed `overflows` times.
#[derive(Clone, Copy, Debug)]
struct WindowRise {
    goal: f64,
    overflows: u32,
}

impl WindowRise {
    fn continues(self, window: f64) -> bool {
        window < self.goal && self.overflows > 0
    }
}

impl Rival {
    /// Returns whether a check of the rival is due, and clears it.
    pub(super) fn is_unchecked(&mut self, now: Instant) -> bool {
        self.check.take_if(|at| now >= *at).is_some()
    }

    /// Cancels a check, because a sibling's rest gives the same answer.
    pub(super) fn skip_check(&mut self) {
        self.check = None;
    }

    /// Returns the highest recent mean of a round trip, in seconds.
    fn longest_s(&self) -> f64 {
        self.longest.get(f64::max).unwrap_or(0.0)
    }

    /// Returns whether the sender holds a part of the path against the rival.
    pub(super) fn holds(&self) -> bool {
        self.hold.is_some()
    }
}

/// Measures how long packets have waited although less is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Duration in seconds, weighted by how much less is sent.
    seconds: f64,
    /// Bytes in flight, and the bandwidth, when the wait began.
    pub(super) in_flight: f64,
    pub(super) bandwidth: f64,
    watched: Instant,
    /// Share of recent time in which packets have waited.
    share: f64,
    /// Time at which the sender last rested to ask about delays, and time for which it does not ask again.
    asked: Instant,
    patience: Duration,
    /// True if a question since the startup phase has found no jitter.
    pub(super) settled: bool,
    /// Time at which delays last showed that the wait is a queue, and time at which a rival seemed to have gone.
    answered: Option<Instant>,
    rival_gone: Option<Instant>,
    /// Time at which a rest last showed that most of the queue is that of other flows.
    others: Option<Instant>,
    /// True if the latest rest seemed to show jitter although an earlier one had shown a queue.
    pub(super) doubted: bool,
}

impl Pressure {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            seconds: 0.0,
            in_flight: 0.0,
            bandwidth: 0.0,
            watched: now,
            share: 0.0,
            asked: now,
            patience: PATIENCE,
            settled: false,
            answered: None,
            rival_gone: None,
            others: None,
            doubted: false,
        }
    }

    pub(super) fn ask(&mut self, now: Instant) {
        self.share = 0.0;
        self.asked = now;
        self.patience = (PATIENCE_GROWTH * self.patience).min(PATIENCE_MOST);
    }

    /// Returns whether packets wait more often than not, and no rest has asked for the reason in a while.
    fn due(&self, now: Instant) -> bool {
        self.share > WAITS && now.saturating_duration_since(self.asked) > self.patience
    }

    /// Records that the delay is jitter, which may change again.
    pub(super) fn reset_patience(&mut self) {
        self.patience = PATIENCE;
    }

    /// Records that the delay is a queue.
    pub(super) fn note_queue(&mut self, now: Instant) {
        self.answered = Some(now);
    }

    /// Records that most of the queue is that of other flows, although this sender carries little.
    pub(super) fn note_others(&mut self, now: Instant) {
        self.others = Some(now);
        self.patience = self.patience.min(PATIENCE_OTHERS);
    }

    /// Returns whether a rest has shown recently that most of the queue is that of other flows.
    pub(super) fn waits_behind_others(&self, now: Instant) -> bool {
        self.others
            .is_some_and(|at| now.saturating_duration_since(at) < OTHERS)
    }

    /// Returns whether delays have shown recently that they are a queue, or whether a rival may be back.
    fn queue_known(&self, now: Instant) -> bool {
        let recent = |at| now.saturating_duration_since(at) < KNOWN;
        self.answered.is_some_and(recent) || self.rival_suspected(now)
    }

    /// Returns whether a rival has gone, or seemed to go, recently.
    pub(super) fn rival_suspected(&self, now: Instant) -> bool {
        let recent = |at| now.saturating_duration_since(at) < SUSPECTED;
        self.rival_gone.is_some_and(recent)
    }

    /// Records that what was taken for a rival does not exist.
    pub(super) fn forget_rival(&mut self) {
        self.rival_gone = None;
    }

    /// Forgets a wait that has ended.
    pub(super) fn forget(&mut self) {
        self.seconds = 0.0;
        self.in_flight = 0.0;
        self.bandwidth = 0.0;
    }
}

/// Minimum window in packets: the smallest that keeps acknowledgements coming.
const WINDOW_LEAST: f64 = 4.0;

/// Time for which the sender does not ask about delays again. It is multiplied by `PATIENCE_GROWTH` after each
/// question, up to `PATIENCE_MOST`.
const PATIENCE: Duration = Duration::from_millis(250);
const PATIENCE_GROWTH: u32 = 3;
const PATIENCE_MOST: Duration = Duration::from_secs(8);

/// Share of time above which packets wait too often. Probes of this and of other senders make packets wait for less.
const WAITS: f64 = 0.5;

/// After the verdict that most of the queue is that of other flows: the time for which the verdict is valid, and the
/// longest time until the next question.
const OTHERS: Duration = Duration::from_secs(10);
const PATIENCE_OTHERS: Duration = Duration::from_secs(1);

/// Time for which the verdict that delays are a queue is valid, and time in which a rival that has gone may be back.
const KNOWN: Duration = Duration::from_secs(4);
const SUSPECTED: Duration = Duration::from_secs(30);
