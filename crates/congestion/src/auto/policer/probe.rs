//! Searches for a policer, and checks whether it still exists.

use std::time::Instant;

use super::{CeilingChange, PathEstimates};
use crate::auto::Auto;
use crate::auto::epoch::RateSample;
use crate::auto::phase::Phase;

impl Auto {
    pub(in crate::auto) fn watch_policer(&mut self, now: Instant, outcome: RateSample) {
        let full = match self.phase {
            // All packets that this measurement counts were sent in this phase.
            Phase::Cruise { .. } => self.phase_s(now) > 2.0 * self.rtt_s() + LATE_S,
            Phase::Down { ended } => !ended,
            _ => false,
        };
        // Queues this short overflow without a visible wait.
        let short = self.bdp() < PATH_LEAST * self.mtu;
        if !full || short || outcome.queued || !outcome.limited {
            return;
        }
        let path = PathEstimates {
            clump: self.overflow.clump(),
            mtu: self.mtu,
            rtt: self.rtt.floor().unwrap_or_default(),
            medium: self.loss.certain(SEEN),
        };
        match self.policer.on_epoch(now, outcome, path) {
            CeilingChange::Same => return,
            CeilingChange::Lowered => self.loss.forget_easy(),
            CeilingChange::Raised => {}
        }
        let rate = self.policer.rate();
        self.bandwidth.set_ceiling(rate);
        if let Some(rate) = rate {
            self.bandwidth.reset(rate);
        }
    }
}

/// Number of standard deviations beyond which loss at a low rate is attributed to the medium. A policer that has not
/// been found yet causes loss there too.
const SEEN: f64 = 6.0;

/// Packets are declared lost this much later than a round trip.
const LATE_S: f64 = 0.005;

/// Minimum number of packets in flight for which a policer can be distinguished from a queue.
const PATH_LEAST: f64 = 4.0;
