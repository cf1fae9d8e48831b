//! Queues that overflow: which sender caused the overflow, and what follows from it.

use std::time::{Duration, Instant};

use super::{Rival, WINDOW_LEAST};
use crate::auto::Auto;
use crate::auto::phase::{CRUISE_EPOCHS_MAX, Phase};
use crate::auto::rest::RestReason;
use crate::curve::BETA;

impl Auto {
    /// Judges batches whose fate is known: compares the losses of batches that waited with those of batches that did
    /// not.
    pub(in crate::auto) fn judge(&mut self, now: Instant, newest: Instant) {
        let patience = Duration::from_secs_f64((self.floor_s() / 4.0).max(JUDGED_AFTER_S));
        let Some(until) = newest.checked_sub(patience) else {
            return;
        };
        let floor = self.rtt.floor().unwrap_or_default();
        while let Some(record) = self.sampler.next_settled(until) {
            self.judged.0 += record.arrived;
            self.judged.1 += record.lost;
            let Some(rtt) = record.rtt else { continue };
            let (arrived, lost) = std::mem::take(&mut self.judged);
            let wait = rtt.saturating_sub(floor);
            let lateness = self.lateness();
            let waited = wait > self.own_noise() + lateness;
            let easy =
                record.easy && wait <= self.own_noise().max(floor.mul_f64(EASY_WAIT)) + lateness;
            self.loss.add(arrived, lost, easy);
            self.overflow.add(arrived, lost, waited);
            if lost <= 0.0 || !waited || self.starting() {
                continue;
            }
            // Beside a rival one loss is enough, as it is for CUBIC: a flow that waited for more losses would take a
            // larger share.
            let one_is_enough = self.rival.is_some()
                && (wait > floor.mul_f64(LONG_QUEUE) || !self.medium_loses_beside_rival());
            if self.overflow.take(&self.loss, one_is_enough) {
                self.on_overflow(now, record.sent, record.pushed);
            }
        }
    }

    /// Returns whether the medium loses so many packets that CUBIC would have almost nothing beside the rival. One loss
    /// then says nothing about the queue.
    fn medium_loses_beside_rival(&self) -> bool {
        let longest = self.rival.map_or(0.0, |rival| rival.longest_s());
        let floor = self.floor_s();
        floor > MEDIUM_LONG_S && longest > CLEAR * floor && self.overflow.medium_loses()
    }

    /// Notes when the path, or a host on it, has stood still: nothing arrived for long, and the next packet was late
    /// by as much. The data on its way then arrives all at once, and may exceed the capacity of a queue.
    pub(in crate::auto) fn watch_standstill(&mut self, now: Instant, sample: Duration) {
        let least =
            STANDSTILL_MAX.min(self.rtt.floor().unwrap_or(STANDSTILL_MAX)) + self.own_noise();
        let silent = self
            .heard
            .replace(now)
            .map_or(Duration::ZERO, |heard| now.saturating_duration_since(heard));
        let late = self
            .rtt
            .latest()
            .map_or(Duration::ZERO, |latest| sample.saturating_sub(latest));
        let stood = silent.min(late);
        if stood > least {
            let again = |at| now.saturating_duration_since(at) < STOOD_AGAIN;
            let often = self.standstill.is_some_and(again);
            self.stood_again = if often {
                self.stood_again.saturating_add(1)
            } else {
                0
            };
            if stood < STOOD_MOST && self.stood_again >= STOOD_TIMES {
                self.stood_s
                    .add(now, stood.as_secs_f64(), STOOD_AGE, f64::max);
            }
            self.standstill = Some(now);
        }
    }

    /// Returns whether a standstill may have caused the overflow of a queue after the batch sent at `sent`.
    fn standstill_explains(&self, sent: Instant) -> bool {
        self.standstill
            .is_some_and(|standstill| sent <= standstill + STANDSTILL_DRAINED)
    }

    /// Handles the overflow of a queue after the batch sent at `sent`. `ours` is true if this sender's probe caused
    /// it.
    fn on_overflow(&mut self, now: Instant, sent: Instant, ours: bool) {
        // During a rise this reason does not excuse an overflow: with frequent standstills, the window would
        // otherwise grow without end.
        let rises = self
            .rival
            .is_some_and(|rival| rival.rise.continues(rival.window));
        if self.standstill_explains(sent) && !rises {
            if self.rival.is_none() && matches!(self.phase, Phase::Up | Phase::Cruise { .. }) {
                self.enter(now, Phase::Down { ended: true });
            }
            return;
        }
        if let Some(rival) = &mut self.rival {
            let count = self.siblings.summary.count();
            rival.on_overflow(now, sent, self.in_flight, self.mtu, count);
            self.siblings.overflowed = self.siblings.overflowed.max(Some(sent));
            return;
        }
        if self.overflowed.is_some_and(|last| sent <= last) {
            return;
        }
        let last = self.overflowed.replace(now);
        if ours {
            // This sender's probe caused the overflow, so it probes less often from now on.
            self.cruise = (self.cruise * 2).min(CRUISE_EPOCHS_MAX);
            if self.phase == Phase::Up {
                self.enter(now, Phase::Down { ended: false });
            }
            return;
        }
        let since = last.map(|last| now.saturating_duration_since(last).as_secs_f64());
        let again = since.is_some_and(|since| since < self.next_overflow_s());
        self.overflows = if again { self.overflows + 1 } else { 1 };
        if self.overflows == 1 {
            self.overflowing = Some(now);
        }
        let lasting = self.overflowing.map_or(0.0, |first| {
            now.saturating_duration_since(first).as_secs_f64()
        });
        if self.overflows >= OVERFLOWS && lasting >= OVERFLOWING_S && !self.background {
            // Probes of siblings may have caused the overflows. A common rest of all members shows whether they did.
            let own = self.long_enough() && !self.siblings.summary.is_none();
            if self.pressure.queue_known(now) || !self.may_jitter() && !own {
                self.meet_rival(now, BETA * self.in_flight);
            } else {
                self.pressure.in_flight = self.in_flight;
                self.rest(now, RestReason::Overflows);
            }
            return;
        }
        self.bandwidth
            .set_bound(OVERFLOW_CUT * self.bandwidth.get());
        if matches!(self.phase, Phase::Up | Phase::Cruise { .. }) {
            self.enter(now, Phase::Down { ended: false });
        }
    }

    /// Returns how soon a rival makes the queue overflow again: CUBIC on a long path, and Reno's growth on a short
    /// one (RFC 9438 section 4.3).
    fn next_overflow_s(&self) -> f64 {
        let rtt = self.rtt_s();
        let reno = RENO_ROUNDS * 2.0 * self.bdp() / self.mtu * rtt;
        (AGAIN_S + AGAIN_ROUNDS * rtt).min(AGAIN_LEAST_S + AGAIN_TIMES * reno)
    }
}

impl Rival {
    /// Handles the overflow of a queue after the batch sent at `sent`. `count` connections act as one flow.
    pub(in crate::auto) fn on_overflow(
        &mut self,
        now: Instant,
        sent: Instant,
        in_flight: f64,
        mtu: f64,
        count: f64,
    ) {
        if self.holds() {
            self.overflowed = now;
        } else if sent > self.overflowed {
            self.unresponsive.on_overflow(now);
            self.rise.overflows = self.rise.overflows.saturating_sub(1);
            let window = self.curve.cut(count * self.window.min(in_flight)) / count;
            self.window = window.max(WINDOW_LEAST * mtu);
            self.overflowed = now;
        }
    }
}

/// Minimum time after which batches sent before the newest acknowledged one are settled. Later losses are few.
const JUDGED_AFTER_S: f64 = 0.003;

/// Part of the floor that packets of an easy phase may wait: hosts let all packets wait for about a millisecond.
const EASY_WAIT: f64 = 1.0 / 16.0;

/// Number of consecutive overflows, not caused by this sender's probes, that reveal a rival. Each must follow the one
/// before within a time computed from the values below.
pub(super) const OVERFLOWS: u32 = 3;
const AGAIN_S: f64 = 8.0;
const AGAIN_ROUNDS: f64 = 50.0;
const AGAIN_LEAST_S: f64 = 0.1;
const AGAIN_TIMES: f64 = 2.0;

/// Minimum time from the first to the last of these overflows. On short paths, timers and hosts that stand still make
/// queues overflow several times in a row.
const OVERFLOWING_S: f64 = 1.0;

/// Number of round trips, for each packet in a window, in which Reno's growth makes up for a cut.
const RENO_ROUNDS: f64 = 0.57;

/// The path has stood still if nothing arrives for longer than the floor or this time, whichever is shorter. The
/// queues that it leaves have drained after `STANDSTILL_DRAINED`.
const STANDSTILL_MAX: Duration = Duration::from_millis(4);
const STANDSTILL_DRAINED: Duration = Duration::from_millis(20);

/// Part of the bandwidth left by an overflow of unknown cause: the cut is half as deep as CUBIC's.
const OVERFLOW_CUT: f64 = 0.85;

/// Wait over the floor, from which on one loss counts although the medium loses packets.
const LONG_QUEUE: f64 = 1.5;

/// Longest round trip over the floor, from which on losses without a queue are those of the medium.
const CLEAR: f64 = 1.25;

/// On shorter paths, a packet that finds a queue may seem to have found none.
const MEDIUM_LONG_S: f64 = 0.015;

/// The longest recent standstill is remembered for this span and for one more.
const STOOD_AGE: Duration = Duration::from_millis(500);

/// A medium stands still again and again: each standstill follows the one before within `STOOD_AGAIN`, this many times in
/// a row, and takes less than `STOOD_MOST`. A handover causes one or two, or a longer one.
const STOOD_TIMES: u32 = 2;
const STOOD_AGAIN: Duration = Duration::from_millis(250);
const STOOD_MOST: Duration = Duration::from_millis(50);
