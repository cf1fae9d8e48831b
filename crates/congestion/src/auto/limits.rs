//! Derives what may be sent from the model of the path.

use super::phase::{Phase, UP};
use super::rest::RestReason;
use super::{ACK_LATE_S, Auto};
use crate::bytes;
use crate::model::Limits;

impl Auto {
    pub(super) fn limits_now(&self) -> Limits {
        let bandwidth = self.bandwidth.get();
        let (window, rate) = self.window_and_rate();
        // Allows a minimum rate: data after a pause must not be delayed by the low rate that was measured during the
        // pause.
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
        let asking = matches!(self.phase, Phase::Rest(rest) if rest.reason != RestReason::Routine);
        let rests_at = if asking { REST_ASKING } else { REST };
        match &self.rival {
            Some(_) if let Phase::Trial(trial) = self.phase => (trial.window, trial.rate),
            Some(rival) if rest => (REST_RIVAL * rival.window.min(self.bdp()), bandwidth),
            Some(rival) if let Some((hold, heard)) = rival.hold.zip(self.heard) => {
                let (floor, alone) = (self.floor_s(), self.siblings.summary.is_none());
                let (window, rate) = hold.gains(heard, floor, alone);
                let gathered = hold.gathered(floor, bandwidth, alone);
                let window = window * bandwidth * floor + gathered + HOLD_PACKETS * self.mtu;
                (window, rate * bandwidth)
            }
            Some(rival) if self.phase != Phase::Startup => {
                // Allow for late acknowledgements only on paths where they take longer than the path itself. On
                // longer paths, the allowance would give more than CUBIC has.
                let short = self.floor_s() < SHORT_S;
                let late = if short { ACK_LATE_S * bandwidth } else { 0.0 };
                let rate = RIVAL_PACING * rival.window / self.rtt_s();
                (rival.window + late, rate)
            }
            _ if rest => (rests_at * self.bdp(), bandwidth),
            _ if self.phase == Phase::Startup => self.startup.limits(self.floor_s(), self.long()),
            _ if self.follows() => self.following(),
            _ => {
                let window = WINDOW * self.bdp() + self.silence_s() * bandwidth;
                (window, self.gain() * bandwidth * self.compensation())
            }
        }
    }

    fn gain(&self) -> f64 {
        match self.phase {
            Phase::Drain if self.queue_may_be_gone() => EASY - self.weighted_yielding(),
            Phase::Drain => DRAIN,
            // The queue that the probe left has drained. The next round trip shows the remaining effects of the
            // probe.
            Phase::Down { .. } if self.has_room() => EASY,
            Phase::Down { .. } if self.outpaces_threads() => DOWN_FAST - self.weighted_yielding(),
            Phase::Down { .. } => DOWN - self.weighted_yielding(),
            Phase::Up if self.policer.rate().is_some() => 1.0,
            Phase::Up => UP,
            _ => CRUISE - self.weighted_yielding(),
        }
    }

    /// Returns by how much to reduce the rate while packets wait, weighted so that connections to one peer become
    /// equal.
    fn weighted_yielding(&self) -> f64 {
        self.weight() * self.yielding()
    }

    /// Returns for how long acknowledgements may be missing. A path that loses several packets together also loses
    /// several acknowledgements together. A medium that stands still for long, compared with the floor, makes most round
    /// trips longer than the floor.
    fn silence_s(&self) -> f64 {
        let medium = self.loss.certain(2.0) > 0.0;
        let together = if medium { self.overflow.clump() } else { 1.0 };
        let apart = ACK_EVERY * self.mtu / self.bandwidth.get().max(self.mtu);
        let stood = self.stood_s.get(f64::max).unwrap_or(0.0);
        let stood = if stood > STOOD * self.floor_s() {
            stood
        } else {
            0.0
        };
        let late = (ACK_LATE_S + self.lateness().as_secs_f64()).max(stood);
        late + (together.min(TOGETHER_MOST) - 1.0) * apart.min(ACK_LATE_S)
    }

    /// Returns whether less is in flight than fills the path, including packets that will be lost. If threads are
    /// slower than the path, losses are not allowed for, because only less is certain.
    fn has_room(&self) -> bool {
        let short = self.floor_s() <= ACK_LATE_S;
        let surplus = if short { 1.0 } else { self.surplus() };
        self.in_flight <= self.bdp() * surplus
    }

    /// Returns whether a queue that round-trip times reported may have drained since.
    pub(super) fn queue_may_be_gone(&self) -> bool {
        self.long() && self.has_room()
    }

    fn long(&self) -> bool {
        self.rtt
            .floor()
            .is_some_and(|floor| floor.as_secs_f64() > LONG_S)
    }

    /// Returns the number of bytes to send for each byte that arrives, if nothing waits.
    fn surplus(&self) -> f64 {
        (1.0 / (1.0 - self.loss.certain(2.0))).min(COMPENSATION_MOST)
    }

    /// Returns the factor on the rate that makes up for losses, but not for those of a full queue or of a policer that was
    /// just found. Its bucket is empty, so that it drops packets of bursts below its rate, too.
    fn compensation(&self) -> f64 {
        let policed = self.policer.is_new();
        if policed || self.queued() && !self.queue_may_be_gone() {
            1.0
        } else {
            self.surplus()
        }
    }
}

/// Window over bandwidth times round-trip time. The rate limits sending, and the window is only a safeguard.
const WINDOW: f64 = 2.0;

/// Rates of the phases over the bandwidth. Cruise is slightly below the highest measured rate.
const DRAIN: f64 = 0.5;
const DOWN: f64 = 0.9;
const DOWN_FAST: f64 = 0.95;
const EASY: f64 = 0.98;
const CRUISE: f64 = 0.999;

/// Bytes in flight during a rest, over bandwidth times round-trip time.
const REST: f64 = 0.75;
const REST_ASKING: f64 = 0.5;
const REST_RIVAL: f64 = 0.5;

/// Pacing rate over window per round trip, chosen so that the window is the limit (RFC 9002 section 7.7).
const RIVAL_PACING: f64 = 1.2;

/// Packets that Linux's BBR keeps in flight in addition.
const HOLD_PACKETS: f64 = 2.0;

/// Round-trip times up to this are not much longer than acknowledgements are late.
const SHORT_S: f64 = 0.005;

/// Maximum factor that makes up for loss: a wrong loss floor must not do much harm.
const COMPENSATION_MOST: f64 = 1.09;

/// Part of the floor. While the medium stands still for a shorter time, twice the floor covers it.
const STOOD: f64 = 0.5;

/// Number of packets that one acknowledgement covers, if packets arrive fast.
const ACK_EVERY: f64 = 10.0;

/// Maximum number of consecutive lost acknowledgements that the window allows for.
const TOGETHER_MOST: f64 = 16.0;

/// Round-trip times above this are so long that timers space packets well, and that a queue may have drained by the
/// time its report arrives. The bytes in flight show that sooner, but less reliably: losses that occur together are
/// reported together.
const LONG_S: f64 = 0.03;

/// Minimum rate: this many packets in a round trip, or in 10 ms if that is longer.
const RATE_LEAST: f64 = 4.0;

/// Duration of a burst: the resolution of a timer.
const QUANTUM_TIME_S: f64 = 0.001;

/// Window without pacing: as much as the bandwidth carries while a thread that shares its core is off, and a number
/// of packets that fits into any buffer.
const THREADS_S: f64 = 0.004;
const WINDOW_UNPACED: f64 = 64.0;
