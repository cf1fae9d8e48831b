//! Other connections of this process to the same peer: together they are one sender (see [`Ensemble`](crate::Ensemble)).
//!
//! Each remains a controller of its own, but what shows in the queue that they share they do at the same time: rest, probe,
//! yield to an overflow, meet a rival and part from it. Without siblings nothing of this has any effect.

mod part;

use std::time::{Duration, Instant};

use super::Auto;
use super::bandwidth::Bandwidth;
use super::phase::Phase;
use super::rest::Reason;
use crate::Member;
use crate::curve::BETA;
use crate::ensemble::{Company, Stance, Standing};

/// A controller's place among its siblings.
#[derive(Clone, Debug, Default)]
pub(super) struct Siblings {
    member: Option<Member>,
    /// As of the latest look.
    pub(super) now: Company,
    looked: Option<Instant>,
    /// The beginning of our latest rest, and whether it was a question. One that follows a sibling's began when that did.
    pub(super) rested: Option<(Instant, bool)>,
    /// Time and content of the latest verdict on rivals, ours or a sibling's that we follow.
    pub(super) stance: Option<(Instant, Stance)>,
    /// When the latest batch left that made a queue overflow beside a rival.
    pub(super) overflowed: Option<Instant>,
    /// Arrivals of our latest measurement, in bytes per second; and with them all that siblings had.
    rate: f64,
    pub(super) total: Bandwidth,
    /// Beginning of our latest probe, or of a sibling's that we joined.
    pub(super) probed: Option<Instant>,
    /// When we were last busy, and when we began with a part of what siblings have.
    busy: Option<Instant>,
    parted: Option<Instant>,
    /// The first start is over, or there was none.
    started: bool,
    /// No probe has tried yet to get more of the path than the part that siblings left.
    untried: bool,
    /// Arrivals are of packets sent before our part changed.
    pub(super) settling: bool,
    /// The latest beginning of that kind that we have made room for.
    seen: Option<Instant>,
}

impl Siblings {
    pub(super) fn of(member: Option<Member>) -> Self {
        Self {
            member,
            ..Self::default()
        }
    }

    /// Whether this is the first probe after a beginning with a part of what siblings have, where `limited` is whether it
    /// was one.
    pub(super) fn was_untried(&mut self, limited: bool) -> bool {
        limited && std::mem::take(&mut self.untried)
    }
}

impl Auto {
    /// Tells the others how things stand, and does as they do.
    pub(super) fn watch_siblings(&mut self, now: Instant) {
        let recent = |at| now.saturating_duration_since(at) < LOOK_EVERY;
        if self.siblings.member.is_none() || self.siblings.looked.is_some_and(recent) {
            return;
        }
        self.siblings.looked = Some(now);
        self.take_part(now);
        let standing = self.standing();
        let rtt = standing.rtt;
        let Some(member) = &self.siblings.member else {
            return;
        };
        member.tell(now, &standing);
        let company = member.look(now, rtt, self.siblings.seen);
        let before = std::mem::replace(&mut self.siblings.now, company);
        self.follow_stance(now);
        self.follow_overflow(now);
        self.follow_rest(now);
        self.follow_probe(now);
        self.make_room(now);
        self.claim(now, before);
    }

    fn standing(&self) -> Standing {
        Standing {
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
            parted: self.siblings.parted,
            probed: self.siblings.probed,
        }
    }

    /// The newest verdict on rivals is that of all: half of them beside one and half of them giving way would leave it
    /// most of the path.
    fn follow_stance(&mut self, now: Instant) {
        let theirs = self.siblings.now.stance;
        let Some((at, stance)) = theirs.filter(|_| theirs > self.siblings.stance) else {
            return;
        };
        if self.starting() || self.background {
            return;
        }
        match (stance, self.rival.is_some()) {
            (Stance::Alone, true) => {
                self.part_from_rival(now);
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

    /// A queue that overflows takes packets of some of us: all yield to that.
    fn follow_overflow(&mut self, now: Instant) {
        let theirs = self.siblings.now.overflowed;
        let Some(sent) = theirs.filter(|_| theirs > self.siblings.overflowed) else {
            return;
        };
        self.siblings.overflowed = theirs;
        // Only where our own packets wait: others may be on paths of their own, or lie.
        let waits = self.yielding() > 0.0;
        if let Some(rival) = self.rival.as_mut().filter(|_| waits) {
            let count = self.siblings.now.count();
            rival.on_overflow(now, sent, self.in_flight, self.mtu, count);
        }
    }

    /// Rests where a sibling does: delays answer to all of us together.
    fn follow_rest(&mut self, now: Instant) {
        let Some((at, asking)) = self.siblings.now.rested else {
            return;
        };
        // In a rest that began before we took a part, delays would answer to what we had before.
        let ours = self.siblings.rested.map(|(at, _)| at);
        let ours = ours.max(self.siblings.parted);
        let late = now.saturating_duration_since(at) > FOLLOWED;
        let resting = matches!(self.phase, Phase::Rest(_));
        if ours >= Some(at) || late || resting || self.starting() {
            return;
        }
        let reason = match &mut self.rival {
            _ if !asking => Reason::Routine,
            Some(rival) => {
                rival.skip_check();
                Reason::Check
            }
            None => Reason::Waits,
        };
        self.rest(now, reason);
        self.siblings.rested = Some((at, asking));
    }

    /// Probes where a sibling does: one that probes alone finds what it takes from the others.
    fn follow_probe(&mut self, now: Instant) {
        let theirs = self.siblings.now.probed;
        let Some(at) = theirs.filter(|_| theirs > self.siblings.probed) else {
            return;
        };
        let late = now.saturating_duration_since(at) > FOLLOWED;
        // A member that rests or drains meanwhile probes the next time.
        if !late && self.rival.is_none() && matches!(self.phase, Phase::Cruise { .. }) {
            self.probe(now);
            self.siblings.probed = theirs;
        }
    }

    /// Bytes per second that all of us have together.
    pub(super) fn together(&self) -> f64 {
        self.bandwidth.get() + self.siblings.now.bandwidth
    }

    /// Whether siblings have so much more that it is for them to tell whether a queue is theirs.
    pub(super) fn is_small(&self) -> bool {
        self.part()
            .is_some_and(|part| self.bandwidth.get() < SMALL * part)
    }
}

/// Acknowledgements between two looks span this at least: short against a rest, long against the cost of a look.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A rest or a probe that began longer ago is over soon.
const FOLLOWED: Duration = Duration::from_millis(40);

/// Part of what siblings leave to a new member, below which delays answer too little to what one sends.
const SMALL: f64 = 0.5;
