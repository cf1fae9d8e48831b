//! The other connections of this process to the same peer: together they act as one sender (see
//! [`Ensemble`](crate::Ensemble)).
//!
//! Each connection keeps its own controller. But actions that show in the shared queue happen at the same time in all
//! of them: resting, probing, yielding to an overflow, meeting a rival and parting from it. Without siblings this
//! module has no effect.

mod part;

use std::time::{Duration, Instant};

use super::Auto;
use super::bandwidth::Bandwidth;
use super::phase::Phase;
use super::rest::RestReason;
use crate::Member;
use crate::curve::BETA;
use crate::ensemble::{MemberState, SiblingSummary, Stance};

/// A controller's view of its siblings.
#[derive(Clone, Debug, Default)]
pub(super) struct Siblings {
    member: Option<Member>,
    /// The siblings as of the latest reading.
    pub(super) summary: SiblingSummary,
    looked: Option<Instant>,
    /// Start time of this controller's latest rest, and whether that rest was a question. A rest that follows a
    /// sibling's has the start time of that rest.
    pub(super) rested: Option<(Instant, bool)>,
    /// Time and content of the latest verdict on rivals: this controller's, or that of a sibling which it follows.
    pub(super) stance: Option<(Instant, Stance)>,
    /// Send time of the latest batch that made a queue overflow beside a rival.
    pub(super) overflowed: Option<Instant>,
    /// Delivered rate of this controller's latest measurement, in bytes per second. `total` adds the rates of all
    /// siblings.
    rate: f64,
    pub(super) total: Bandwidth,
    /// Start time of this controller's latest probe, or of the sibling's probe that it joined.
    pub(super) probed: Option<Instant>,
    /// Time at which this controller was last busy, and time at which it started with a part of what the siblings
    /// have.
    busy: Option<Instant>,
    part_taken: Option<Instant>,
    /// True once the first startup phase has ended or was skipped.
    started: bool,
    /// True until a probe has tried to get more of the path than the part that the siblings left.
    untried: bool,
    /// True while arrivals are of packets sent before this controller's part changed.
    pub(super) settling: bool,
    /// The latest start with a part that this controller has made room for.
    seen: Option<Instant>,
}

impl Siblings {
    pub(super) fn of(member: Option<Member>) -> Self {
        Self {
            member,
            ..Self::default()
        }
    }

    /// Returns whether this is the first probe since the controller started with a part of what the siblings have.
    /// `limited` is true if the controller sent as fast as the probe allowed.
    pub(super) fn was_untried(&mut self, limited: bool) -> bool {
        limited && std::mem::take(&mut self.untried)
    }
}

impl Auto {
    /// Publishes this controller's state, reads that of the siblings, and follows their actions.
    pub(super) fn watch_siblings(&mut self, now: Instant) {
        let recent = |at| now.saturating_duration_since(at) < LOOK_EVERY;
        if self.siblings.member.is_none() || self.siblings.looked.is_some_and(recent) {
            return;
        }
        self.siblings.looked = Some(now);
        self.take_part(now);
        let state = self.own_state();
        let rtt = state.rtt;
        let Some(member) = &self.siblings.member else {
            return;
        };
        member.publish(now, &state);
        let summary = member.summarize(now, rtt, self.siblings.seen);
        let before = std::mem::replace(&mut self.siblings.summary, summary);
        self.follow_stance(now);
        self.follow_overflow(now);
        self.follow_rest(now);
        self.follow_probe(now);
        self.make_room(now);
        self.claim(now, before);
    }

    fn own_state(&self) -> MemberState {
        MemberState {
            busy: self.limited,
            rtt: Duration::from_secs_f64(self.rtt.mean_s()),
            bandwidth: if self.is_new() {
                0.0
            } else {
                self.bandwidth.get()
            },
            rate: self.siblings.rate,
            window: self.rival.map_or(0.0, |rival| rival.window),
            overflowed: self.siblings.overflowed,
            rested: self.siblings.rested,
            stance: self.siblings.stance,
            part_taken: self.siblings.part_taken,
            probed: self.siblings.probed,
        }
    }

    /// Follows the newest verdict on rivals, which applies to all members. If half of them competed with a rival and
    /// the other half yielded, the rival would get most of the path.
    fn follow_stance(&mut self, now: Instant) {
        let theirs = self.siblings.summary.stance;
        let Some((at, stance)) = theirs.filter(|_| theirs > self.siblings.stance) else {
            return;
        };
        if self.starting() || self.background {
            return;
        }
        match (stance, self.rival.is_some()) {
            (Stance::Alone, true) => {
                self.end_rivalry(now);
                let left = self.cruise;
                self.enter(now, Phase::Cruise { left });
            }
            (Stance::Beside | Stance::Holding, false) => {
                let rested = match self.phase {
                    Phase::Rest(rest) => rest.in_flight_before(),
                    _ => 0.0,
                };
                let in_flight = self.in_flight.max(rested).max(self.target());
                self.begin_rivalry(now, BETA * in_flight);
            }
            _ => {}
        }
        if stance == Stance::Holding {
            self.hold_as_others(now, at);
        }
        self.siblings.stance = Some((at, stance));
    }

    /// Yields to an overflow that a sibling has seen. An overflowing queue drops packets of some members only, but
    /// all of them yield.
    fn follow_overflow(&mut self, now: Instant) {
        let theirs = self.siblings.summary.overflowed;
        let Some(sent) = theirs.filter(|_| theirs > self.siblings.overflowed) else {
            return;
        };
        self.siblings.overflowed = theirs;
        // Yields only if this controller's own packets wait, because siblings may be on other paths, or report
        // falsehoods.
        let waits = self.yielding() > 0.0;
        if let Some(rival) = self.rival.as_mut().filter(|_| waits) {
            let count = self.siblings.summary.count();
            rival.on_overflow(now, sent, self.in_flight, self.mtu, count);
        }
    }

    /// Rests when a sibling does, because delays react to all members together.
    fn follow_rest(&mut self, now: Instant) {
        let Some((at, asking)) = self.siblings.summary.rested else {
            return;
        };
        // If the rest began before this controller took a part, delays would react to what it had before.
        let ours = self.siblings.rested.map(|(at, _)| at);
        let ours = ours.max(self.siblings.part_taken);
        let late = now.saturating_duration_since(at) > FOLLOWED;
        let resting = matches!(self.phase, Phase::Rest(_));
        if ours >= Some(at) || late || resting || self.starting() {
            return;
        }
        let reason = match &mut self.rival {
            _ if !asking => RestReason::Routine,
            Some(rival) => {
                rival.skip_check();
                RestReason::Check
            }
            None => RestReason::Waits,
        };
        self.rest(now, reason);
        self.siblings.rested = Some((at, asking));
    }

    /// Probes when a sibling does, because a single probing member would only take bandwidth from the others.
    fn follow_probe(&mut self, now: Instant) {
        let theirs = self.siblings.summary.probed;
        let Some(at) = theirs.filter(|_| theirs > self.siblings.probed) else {
            return;
        };
        let late = now.saturating_duration_since(at) > FOLLOWED;
        // A member that rests or drains at this moment joins the next probe.
        if !late && self.rival.is_none() && matches!(self.phase, Phase::Cruise { .. }) {
            self.probe(now);
            self.siblings.probed = theirs;
        }
    }

    /// Returns the bandwidth of all members together, in bytes per second.
    pub(super) fn together(&self) -> f64 {
        self.bandwidth.get() + self.siblings.summary.bandwidth
    }

    /// Returns whether the siblings have so much more bandwidth that they must judge whether a queue is theirs.
    pub(super) fn is_small(&self) -> bool {
        self.part()
            .is_some_and(|part| self.bandwidth.get() < SMALL * part)
    }
}

/// Minimum time between two readings: short compared with a rest, and long compared with the cost of a reading.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Age after which a rest or a probe is nearly over, so that it is not worth joining.
const FOLLOWED: Duration = Duration::from_millis(40);

/// Share of the part that siblings leave to a new member. A member with less bandwidth than that sends so little that
/// delays hardly react to it.
const SMALL: f64 = 0.5;
