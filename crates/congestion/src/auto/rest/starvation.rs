//! The verdict that other flows starve this one behind a short queue.
//!
//! BBR's own cycle drains a short queue again and again, so packets never wait for long without a break. A rest shows
//! such a flow nevertheless: most of the queue stays although this sender, which carries little, sends less.

use std::time::Instant;

use super::Rest;
use super::verdict::UNANSWERED;
use crate::auto::Auto;

impl Auto {
    /// Returns whether the rest shows that other flows starve this one. `floor_s` is the floor before the rest, and
    /// `queued` is true if even the shortest round trip was in a queue.
    ///
    /// A flow that carries almost nothing is starved at once. One that carries little is starved if two rests in a
    /// row show it.
    pub(super) fn is_starved(
        &mut self,
        now: Instant,
        rest: &Rest,
        floor_s: f64,
        queued: bool,
    ) -> bool {
        let most = self.most.get(f64::max).unwrap_or(0.0);
        let carried = rest.carried().min(most);
        let answered = rest.answered(carried);
        let waits = rest.mean_before / floor_s;
        let own = answered.is_none_or(|share| share >= SHARE);
        if own || waits <= WAIT {
            return false;
        }
        let stays = queued && rest.mean() > self.rtt.drained_s(rest.mean_before);
        let jitter = rest.swings() && answered.is_none_or(|share| share < UNANSWERED);
        let others =
            stays && !jitter && waits < SHORT_QUEUE && carried < LITTLE * most && rest.is_likely();
        let again = others && self.pressure.waits_behind_others(now);
        if others {
            self.pressure.note_others(now);
        }
        again || carried < STARVED * most && rest.is_certain()
    }
}

/// Part of the highest recent rate of this flow. A flow that carries less than `STARVED` of it has almost
/// nothing, and one that carries less than `LITTLE` has less than a fair share beside one other flow.
pub(super) const STARVED: f64 = 0.12;
const LITTLE: f64 = 0.4;

/// Round trips before the rest, over the floor: packets wait if it exceeds `WAIT`. From `SHORT_QUEUE` on, the queue
/// is so long that BBR's cycle does not drain it, and [`super::RestReason::Pressed`] finds the rival.
const WAIT: f64 = 1.125;
const SHORT_QUEUE: f64 = 1.75;

/// Most of the queue is that of other flows if less than this share is this sender's.
const SHARE: f64 = 0.35;
