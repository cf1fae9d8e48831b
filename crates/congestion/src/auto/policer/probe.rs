//! Looking for a policer, and finding out whether it is still there.

use std::time::Instant;

use super::{Known, Verdict};
use crate::auto::Auto;
use crate::auto::epoch::Outcome;
use crate::auto::phase::Phase;

impl Auto {
    pub(in crate::auto) fn watch_policer(&mut self, now: Instant, outcome: Outcome) {
        let full = match self.phase {
            // What arrived and was lost left in this phase.
            Phase::Cruise { .. } => self.phase_s(now) > 2.0 * self.rtt_s() + LATE_S,
            Phase::Down { ended } => !ended,
            _ => false,
        };
        // Queues as short as that overflow without a wait to be seen.
        let short = self.bdp() < PATH_LEAST * self.mtu;
        if !full || short || outcome.queued || !outcome.limited {
            return;
        }
        let known = Known {
            clump: self.overflow.clump(),
            mtu: self.mtu,
            rtt: self.rtt.floor().unwrap_or_default(),
            bandwidth: self.bandwidth.get(),
            medium: self.loss.certain(SEEN),
        };
        match self.policer.on_epoch(now, outcome, known) {
            Verdict::Same => return,
            Verdict::Lowered => self.loss.doubt(),
            Verdict::Raised => {}
        }
        let rate = self.policer.rate();
        self.bandwidth.set_ceiling(rate);
        if let Some(rate) = rate.or(self.policer.before.take()) {
            self.bandwidth.reset(rate);
        }
    }
}

/// Loss where less is sent is the medium's only beyond so many standard deviations: a policer not found yet shows there,
/// too.
const SEEN: f64 = 6.0;

/// Packets are given up this much later than a round trip.
const LATE_S: f64 = 0.005;

/// Packets in flight, the least that tells a policer from a queue.
const PATH_LEAST: f64 = 4.0;
