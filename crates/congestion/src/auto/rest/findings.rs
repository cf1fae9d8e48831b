//! The findings of a rest, before any verdict.

use std::time::Duration;

use super::Rest;
use crate::auto::Auto;

/// Findings of a rest on which several verdicts depend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Findings {
    /// The round-trip time without a queue, as known before the rest.
    pub(super) floor: Duration,
    /// The highest recent rate of this flow, if any is known, and its rate before the rest, in bytes per second.
    pub(super) most: Option<f64>,
    pub(super) carried: f64,
    /// The part of the queue that is this flow's, if delays have shown it: see [`Rest::answered`].
    pub(super) answered: Option<f64>,
    /// True if even the shortest round trip of the rest was in a queue.
    pub(super) queued: bool,
}

impl Findings {
    /// Returns whether the flow carries less than `part` of its highest recent rate.
    pub(super) fn carries_less_than(&self, part: f64) -> bool {
        self.most.is_some_and(|most| self.carried < part * most)
    }

    /// Returns whether delays have reacted as a queue does, but less than a queue of this flow.
    pub(super) fn queue_is_of_others(&self) -> bool {
        self.answered
            .is_some_and(|share| (UNANSWERED_RIVAL..SHARE).contains(&share))
    }
}

impl Auto {
    pub(super) fn findings(&self, rest: &Rest) -> Findings {
        let floor = self.rtt.floor().unwrap_or(rest.least);
        let noise = self.packet_noise(self.together());
        let most = self.most.get(f64::max);
        // Bytes in flight include those that will be lost and never arrive, so the delivered rate is the upper limit.
        let carried = rest.carried().min(most.unwrap_or(f64::MAX));
        Findings {
            floor,
            most,
            carried,
            answered: rest.answered(carried),
            queued: rest.least > floor.mul_f64(17.0 / 16.0).max(floor + noise),
        }
    }
}

/// Most of the queue is that of other flows if less than this share is this sender's.
pub(super) const SHARE: f64 = 0.35;

/// Delays that react by less than this do not depend on what is sent. Beside a rival, a reaction of 0.1 would already
/// be this sender's small share.
pub(super) const UNANSWERED: f64 = 0.2;
pub(super) const UNANSWERED_RIVAL: f64 = 0.1;
