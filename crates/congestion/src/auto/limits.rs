//! From what is known to what may be sent.

use super::phase::{Phase, UP};
use super::rest::Reason;
use super::{ACK_LATE_S, Auto};
use crate::bytes;
use crate::model::Limits;

impl Auto {
    pub(super) fn limits_now(&self) -> Limits {
        let bandwidth = self.bandwidth.get();
        let (window, rate) = self.window_and_rate();
        // A reply to a pause must not wait for a rate that the pause has shown.
        let least = RATE_LEAST * self.mtu / self.floor_s().max(0.01);
        let rate = rate.max(least);
        let quantum = (rate * QUANTUM_TIME_S)
            .min(bytes::QUANTUM_MAX)
            .min(self.bdp() / 4.0)
            .max(self.mtu);
        let paced = self.paced();
        let window = if paced {
            window
        } else {
            window
                .max(bandwidth * THREADS_S)
                .max(WINDOW_UNPACED * self.mtu)
        };
        Limits {
            window: bytes::whole((window + quantum).max(4.0 * self.mtu)),
            rate: paced.then_some(rate),
            quantum: bytes::whole(quantum),
        }
    }

    fn window_and_rate(&self) -> (f64, f64) {
        let bandwidth = self.bandwidth.get();
        let rest = matches!(self.phase, Phase::Rest(_));
        let asking = matches!(self.phase, Phase::Rest(rest) if rest.reason != Reason::Routine);
        let rests_at = if asking { REST_ASKING } else { REST };
        match &self.rival {
            Some(rival) if rest => (REST_RIVAL * rival.window.min(self.bdp()), bandwidth),
            Some(rival) if let Some((hold, heard)) = rival.hold.zip(self.heard) => {
                let (window, rate) = hold.gains(heard, self.floor_s(), self.siblings.now.is_none());
                let window = window * bandwidth * self.floor_s();
                let gathered = hold.gathered(self.floor_s(), bandwidth) + HOLD_PACKETS * self.mtu;
                (window + gathered, rate * bandwidth)
            }
            Some(rival) if self.phase != Phase::Startup => {
                // Late acknowledgements matter where they take longer than the path; elsewhere to make up for
                // them would be more than CUBIC has.
                let short = self.floor_s() < SHORT_S;
                let late = if short { ACK_LATE_S * bandwidth } else { 0.0 };
                let rate = RIVAL_PACING * rival.window / self.rtt_s();
                (rival.window + late, rate)
            }
            _ if rest => (rests_at * self.bdp(), bandwidth),
            _ if self.phase == Phase::Startup => self.startup.limits(self.floor_s(), self.long()),
            _ => {
                let window = WINDOW * self.bdp() + self.silence_s() * bandwidth;
                (window, self.gain() * bandwidth * self.compensation())
            }
        }
    }

    fn gain(&self) -> f64 {
        match self.phase {
            Phase::Drain if self.gone() => EASY - self.giving(),
            Phase::Drain => DRAIN,
            // What the probe left behind is gone: the next round trip shows the rest.
            Phase::Down { .. } if self.has_room() => EASY,
            Phase::Down { .. } if self.hurried() => DOWN_HURRIED - self.giving(),
            Phase::Down { .. } => DOWN - self.giving(),
            Phase::Up if self.policer.rate().is_some() => 1.0,
            Phase::Up => UP,
            _ => CRUISE - self.giving(),
        }
    }

    /// How much less to send while packets wait, so that connections to one peer become equal.
    fn giving(&self) -> f64 {
        self.weight() * self.yielding()
    }

    /// For how long no acknowledgement may come. A path that loses packets together loses acknowledgements together.
    fn silence_s(&self) -> f64 {
        let medium = self.loss.certain(2.0) > 0.0;
        let together = if medium { self.overflow.clump() } else { 1.0 };
        let apart = ACK_EVERY * self.mtu / self.bandwidth.get().max(self.mtu);
        let late = ACK_LATE_S + self.reach().as_secs_f64();
        late + (together.min(TOGETHER_MOST) - 1.0) * apart.min(ACK_LATE_S)
    }

    /// Whether less is in flight than fills the path, that which will be lost included. Where threads are slower than
    /// the path, less is sure.
    fn has_room(&self) -> bool {
        let short = self.floor_s() <= ACK_LATE_S;
        let surplus = if short { 1.0 } else { self.surplus() };
        self.in_flight <= self.bdp() * surplus
    }

    /// Whether a queue that was heard of may have gone since.
    pub(super) fn gone(&self) -> bool {
        self.long() && self.has_room()
    }

    fn long(&self) -> bool {
        self.rtt
            .floor()
            .is_some_and(|floor| floor.as_secs_f64() > LONG_S)
    }

    /// Bytes sent for each byte that arrives, where nothing waits.
    fn surplus(&self) -> f64 {
        (1.0 / (1.0 - self.loss.certain(2.0))).min(COMPENSATION_MOST)
    }

    /// The factor that sends what is lost on top of what the path delivers.
    fn compensation(&self) -> f64 {
        if self.queued() && !self.gone() {
            1.0
        } else {
            self.surplus()
        }
    }
}

/// Window over bandwidth and round trip: the rate is the limit, the window its safeguard.
const WINDOW: f64 = 2.0;

/// The rates of the phases over the bandwidth. Cruise is a little less than what was measured at its best.
const DRAIN: f64 = 0.5;
const DOWN: f64 = 0.9;
const DOWN_HURRIED: f64 = 0.95;
const EASY: f64 = 0.98;
const CRUISE: f64 = 0.999;

/// Part of the bandwidth times the round trip that is in flight at rest.
const REST: f64 = 0.75;
const REST_ASKING: f64 = 0.5;
const REST_RIVAL: f64 = 0.5;

/// Pacing over window and round trip, so that the window is the limit (RFC 9002 section 7.7).
const RIVAL_PACING: f64 = 1.2;

/// Packets that Linux's BBR has in flight beside that.
const HOLD_PACKETS: f64 = 2.0;

/// Round trips that are not much longer than acknowledgements are late.
const SHORT_S: f64 = 0.005;

/// Loss is made up for by no more: a wrong floor must not do much harm.
const COMPENSATION_MOST: f64 = 1.09;

/// Packets that one acknowledgement is sent for, where they come fast.
const ACK_EVERY: f64 = 10.0;

/// Acknowledgements lost in a row that are made up for.
const TOGETHER_MOST: f64 = 16.0;

/// Round trips so long that timers space packets well, and that a queue may have gone since it was heard of. What is in
/// flight tells that sooner, but less surely: of losses that come together many are known of at once.
const LONG_S: f64 = 0.03;

/// Packets in a round trip, or in 10 ms where that is longer.
const RATE_LEAST: f64 = 4.0;

/// A burst lasts this long, a timer's unit.
const QUANTUM_TIME_S: f64 = 0.001;

/// Without pacing: threads that share cores are away this long, and so many packets fit any buffer.
const THREADS_S: f64 = 0.004;
const WINDOW_UNPACED: f64 = 64.0;
