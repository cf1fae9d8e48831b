//! Giving way, and taking a share.

use std::time::{Duration, Instant};

use super::{Pressure, Rival};
use crate::auto::Auto;
use crate::auto::phase::{CRUISE_EPOCHS, CRUISE_EPOCHS_MAX, Phase};
use crate::auto::rest::Reason;
use crate::curve::{BETA, Curve};

impl Auto {
    /// How much less to send while packets wait: what waits is ours as much as that of others. It depends on the
    /// time they wait, not on its share of the round trip, so that long and short paths give way alike.
    pub(in crate::auto) fn yielding(&self) -> f64 {
        if !self.paced() {
            return 0.0;
        }
        let noise = self.noise().as_secs_f64();
        let least = (noise + YIELD_FROM_S).min(YIELD_FROM * self.floor_s());
        let least = least.max(noise);
        let wait = self.rtt.excess().as_secs_f64() - least;
        let most = self.yield_most();
        (YIELD_PER_S * wait).clamp(self.yielding_slowly(), most)
    }

    /// The same where jitter hides short queues from single packets: by what packets take on average.
    fn yielding_slowly(&self) -> f64 {
        if !self.rtt.jitters() {
            return 0.0;
        }
        let turn = self.rtt.turn().unwrap_or_default().as_secs_f64();
        let wait = self.rtt.mean_s() - turn - YIELD_FROM_S.max(MEAN_WAIT * turn);
        (MEAN_YIELD * wait / turn).clamp(0.0, MEAN_YIELD_MOST)
    }

    fn yield_most(&self) -> f64 {
        if self.background {
            YIELD_BACKGROUND
        } else {
            YIELD_MOST
        }
    }

    /// As little as giving way allows is sent, for a while already, and still packets wait.
    pub(in crate::auto) fn pressed(&self) -> bool {
        self.yielding() >= self.yield_most() && self.pressure.seconds > PRESSED_S
    }

    /// Looks whether packets have waited too long for it to be our doing.
    pub(in crate::auto) fn watch_queue(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.pressure.watched);
        self.pressure.watched = now;
        if matches!(self.phase, Phase::Rest(_)) || self.rtt.level().is_none() {
            return;
        }
        if self.starting() {
            self.pressure = Pressure::new(now);
            return;
        }
        if matches!(self.phase, Phase::Cruise { .. }) && self.rival.is_none() && self.limited {
            let waits = if self.yielding() > 0.0 { 1.0 } else { 0.0 };
            let part = (elapsed.as_secs_f64() / (WAITS_ROUNDS * self.rtt_s())).min(1.0);
            self.pressure.share += (waits - self.pressure.share) * part;
            let latest = self.rtt.latest().unwrap_or_default().as_secs_f64();
            self.cruising.add(latest, self.in_flight);
            if waits > 0.0 && self.late() && self.pressure.due(now) {
                self.rest(now, Reason::Waits);
                return;
            }
        }
        if !self.queued() {
            self.pressure.forget();
            return;
        }
        if self.pressure.in_flight <= 0.0 {
            self.pressure.in_flight = self.in_flight;
            self.pressure.bandwidth = self.bandwidth.get();
        }
        self.pressure.seconds += self.yielding() / self.yield_most() * elapsed.as_secs_f64();
        let known = if self.pressure.knows(now) {
            PATIENCE_KNOWN
        } else {
            1.0
        };
        let patience = known * (PATIENCE_S + PATIENCE_ROUNDS * self.rtt_s());
        if self.rival.is_none() && self.limited && self.pressure.seconds > patience {
            if self.pressure.knows(now) || !self.long_enough() {
                self.meet_rival(now, BETA * self.pressure.in_flight);
            } else {
                self.rest(now, Reason::Pressed);
            }
        }
    }

    /// Judges batches whose fate is known: whether more is lost of those that waited.
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
            let reach = self.reach();
            let waited = wait > self.noise() + reach;
            let easy = record.easy && wait <= self.noise().max(floor.mul_f64(EASY_WAIT)) + reach;
            let rival = self.rival.is_some();
            self.loss.add(arrived, lost, easy);
            self.overflow.add(arrived, lost, waited);
            let judging = lost > 0.0 && waited && !self.starting();
            if judging && self.overflow.take(&self.loss, rival) {
                self.on_overflow(now, record.sent, record.pushed);
            }
        }
    }

    /// Notes where the path has stood still, or a host on it: nothing was heard for long, and then of something that
    /// is that late. What was on the way comes at once then, and may be more than a queue holds.
    pub(in crate::auto) fn watch_standstill(&mut self, now: Instant, sample: Duration) {
        let least = STANDSTILL_MAX.min(self.rtt.floor().unwrap_or(STANDSTILL_MAX)) + self.noise();
        let silent = self
            .heard
            .replace(now)
            .map_or(Duration::ZERO, |heard| now.saturating_duration_since(heard));
        let late = self
            .rtt
            .latest()
            .map_or(Duration::ZERO, |latest| sample.saturating_sub(latest));
        if silent.min(late) > least {
            self.stood = Some(now);
        }
    }

    /// Whether a queue that overflowed after the batch that left at `sent` may have done so because of a standstill.
    fn stood(&self, sent: Instant) -> bool {
        self.stood
            .is_some_and(|stood| sent <= stood + STANDSTILL_DRAINED)
    }

    /// A queue overflowed after the batch that left at `sent`.
    fn on_overflow(&mut self, now: Instant, sent: Instant, ours: bool) {
        if self.stood(sent) {
            if self.rival.is_none() && matches!(self.phase, Phase::Up | Phase::Cruise { .. }) {
                self.enter(now, Phase::Down { ended: true });
            }
            return;
        }
        if let Some(rival) = &mut self.rival {
            if sent > rival.overflowed {
                let window = rival.curve.cut(rival.window.min(self.in_flight));
                rival.window = window.max(WINDOW_LEAST * self.mtu);
                rival.overflowed = now;
            }
            return;
        }
        if self.overflowed.is_some_and(|last| sent <= last) {
            return;
        }
        let last = self.overflowed.replace(now);
        if ours {
            // We asked for it: less often from now on.
            self.cruise = (self.cruise * 2).min(CRUISE_EPOCHS_MAX);
            if self.phase == Phase::Up {
                self.enter(now, Phase::Down { ended: false });
            }
            return;
        }
        let since = last.map(|last| now.saturating_duration_since(last).as_secs_f64());
        let again = since.is_some_and(|since| since < self.again_s());
        self.overflows = if again { self.overflows + 1 } else { 1 };
        if self.overflows == 1 {
            self.overflowing = Some(now);
        }
        let lasting = self.overflowing.map_or(0.0, |first| {
            now.saturating_duration_since(first).as_secs_f64()
        });
        if self.overflows >= OVERFLOWS && lasting >= OVERFLOWING_S && !self.background {
            if self.pressure.knows(now) || !self.late() {
                self.meet_rival(now, BETA * self.in_flight);
            } else {
                self.pressure.in_flight = self.in_flight;
                self.rest(now, Reason::Overflows);
            }
            return;
        }
        self.bandwidth
            .set_bound(OVERFLOW_CUT * self.bandwidth.get());
        if matches!(self.phase, Phase::Up | Phase::Cruise { .. }) {
            self.enter(now, Phase::Down { ended: false });
        }
    }

    /// How soon a rival makes the queue overflow again: CUBIC on a long path, Reno's growth on a short one (RFC 9438
    /// section 4.3).
    fn again_s(&self) -> f64 {
        let rtt = self.rtt_s();
        let reno = RENO_ROUNDS * 2.0 * self.bdp() / self.mtu * rtt;
        (AGAIN_S + AGAIN_ROUNDS * rtt).min(AGAIN_LEAST_S + AGAIN_TIMES * reno)
    }

    pub(in crate::auto) fn meet_rival(&mut self, now: Instant, window: f64) {
        if self.background {
            return;
        }
        let left = CRUISE_EPOCHS;
        self.enter(now, Phase::Cruise { left });
        self.rival = Some(Rival {
            window: window.max(WINDOW_LEAST * self.mtu),
            curve: Curve::default(),
            overflowed: now,
            waited: None,
            check: self.long_enough().then_some(now + CHECK),
            rests: 0,
            before: self.bandwidth.most(),
        });
    }

    /// Where a rest sees no queue, no other flow is there, or the queue is so short that it has drained for once.
    pub(in crate::auto) fn rest_beside_rival(&mut self, now: Instant, queued: bool) {
        let Some(rival) = &mut self.rival else { return };
        if queued {
            rival.rests = 0;
            return;
        }
        rival.rests += 1;
        let waited = rival
            .waited
            .is_some_and(|at| now.saturating_duration_since(at).as_secs_f64() < QUIET_S);
        let most = self.bandwidth.most();
        let shared = most < SHARED * rival.before;
        // A connection that began beside the rival has not seen the path without it.
        let unknown = most > UNKNOWN * rival.before && rival.rests < RESTS_UNKNOWN;
        if !waited || !(shared || unknown) || rival.rests >= RESTS {
            self.part_from_rival(now);
        }
    }

    pub(in crate::auto) fn part_from_rival(&mut self, now: Instant) {
        if self.rival.take().is_some() {
            // One more overflow soon, and it is back.
            self.overflows = OVERFLOWS - 1;
            self.overflowed = Some(now);
            self.pressure.seconds = 0.0;
            self.pressure.in_flight = 0.0;
            self.cruise = CRUISE_EPOCHS_MAX;
        }
    }

    pub(in crate::auto) fn on_rival_ack(&mut self, now: Instant, bytes: f64) {
        let waits = self.yielding() >= self.yield_most();
        let (floor, rtt) = (self.floor_s(), self.rtt_s());
        let Some(rival) = &mut self.rival else { return };
        if waits {
            rival.waited = Some(now);
        }
        let latest = rival.waited.max(Some(rival.overflowed)).unwrap_or(now);
        let quiet = now.saturating_duration_since(latest).as_secs_f64();
        if quiet > QUIET_S + QUIET_ROUNDS * floor {
            self.part_from_rival(now);
            self.enter(now, Phase::Cruise { left: self.cruise });
            return;
        }
        if self.in_flight > 0.5 * rival.window {
            rival.window = rival.curve.grow(now, rival.window, bytes, rtt, self.mtu);
        }
    }

    /// The rival's window says what to send; what arrived is remembered for afterwards.
    pub(in crate::auto) fn on_rival_epoch(&mut self) {
        let Phase::Cruise { left } = &mut self.phase else {
            return;
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            *left = CRUISE_EPOCHS;
            self.bandwidth.clear_bound();
            self.bandwidth.turn();
        }
    }
}

/// Packets may wait this long, beside [`Auto::noise`], before we give way: timers and probes do that. On short paths
/// it is this share of the floor: their queues overflow soon after.
const YIELD_FROM_S: f64 = 0.001;
const YIELD_FROM: f64 = 0.4;

/// Share by which less is sent for each second that packets wait, and the most: all of it at 3.6 ms, before
/// a buffer of a quarter of 20 ms overflows.
const YIELD_PER_S: f64 = 1.5 / 0.013;
const YIELD_MOST: f64 = 0.3;

/// Means over a round trip differ by this share of it where nothing waits; what they are above that is drained in two.
const MEAN_WAIT: f64 = 1.0 / 16.0;
const MEAN_YIELD: f64 = 0.5;
const MEAN_YIELD_MOST: f64 = 0.1;

/// The most where all other flows are to have what they want.
const YIELD_BACKGROUND: f64 = 0.85;

/// Others' probes are waited out before the bandwidth is taken to be less: where their round trip is 100 ms, a probe
/// and the queue it leaves take thrice that.
const PRESSED_S: f64 = 0.3;

/// Our own kind has drained the queue by then, each of them giving way.
const PATIENCE_S: f64 = 0.3;
const PATIENCE_ROUNDS: f64 = 10.0;

/// Part of it where delays have answered that it is a queue.
const PATIENCE_KNOWN: f64 = 0.5;

/// Round trips over which it is looked at how often packets wait.
const WAITS_ROUNDS: f64 = 4.0;

/// Batches that left this much before the newest acknowledged one are settled; later losses are few.
const JUDGED_AFTER_S: f64 = 0.003;

/// Share of the floor that packets of an easy phase may wait: hosts let all packets wait for a millisecond or so.
const EASY_WAIT: f64 = 1.0 / 16.0;

/// Overflows that are not ours, each this soon after the one before, that make a rival.
const OVERFLOWS: u32 = 3;
const AGAIN_S: f64 = 8.0;
const AGAIN_ROUNDS: f64 = 50.0;
const AGAIN_LEAST_S: f64 = 0.1;
const AGAIN_TIMES: f64 = 2.0;

/// The first and the last of them are so far apart: on short paths, timers and hosts that stand still make queues
/// overflow a few times in a row.
const OVERFLOWING_S: f64 = 1.0;

/// Round trips for each packet in a window, in which Reno's growth makes up for a cut.
const RENO_ROUNDS: f64 = 0.57;

/// Longer than the floor nothing is heard, up to this, where a path stands still; what that has left in queues is
/// gone after the latter.
const STANDSTILL_MAX: Duration = Duration::from_millis(4);
const STANDSTILL_DRAINED: Duration = Duration::from_millis(20);

/// What an overflow of unknown making leaves of the bandwidth: half of what CUBIC gives up.
const OVERFLOW_CUT: f64 = 0.85;

/// Without overflow and long waits for this long, the rival has gone: CUBIC's own cycle is shorter.
const QUIET_S: f64 = 8.0;
const QUIET_ROUNDS: f64 = 20.0;

/// Less than this of the bandwidth before is left to a flow that shares a link.
const SHARED: f64 = 0.9;

/// How long after a rival was met it is looked whether it is one.
const CHECK: Duration = Duration::from_millis(1500);

/// Rests without a queue after which a rival has gone, though packets waited long between them: a minute, in which shares
/// become equal.
const RESTS: u32 = 6;
const RESTS_UNKNOWN: u32 = 2;

/// So many times the bandwidth before may be that of the path alone, or still be shared.
const UNKNOWN: f64 = 2.0;

/// Packets, the least that keeps acknowledgements coming.
const WINDOW_LEAST: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Loss, Model as _};

    #[test]
    fn a_path_that_was_gone_is_tried_from_the_beginning() {
        let now = Instant::now();
        let mut auto = Auto::new(now, 1250);
        auto.meet_rival(now, 10_000.0);
        assert_eq!(auto.view().phase, "rival");
        let loss = Loss {
            bytes: 1250,
            persistent: true,
        };
        auto.on_lost(now, now, loss);
        assert_eq!(auto.view().phase, "startup");
    }
}
