//! The verdict that the path itself has become longer.

use std::time::{Duration, Instant};

use super::{Rest, RestReason};
use crate::auto::phase::CRUISE_EPOCHS;
use crate::auto::{ACK_LATE_S, Auto};

/// A silence, after which packets were later by about the length of the silence. It results from a handover to a
/// longer path, or from a standstill.
#[derive(Clone, Copy, Debug)]
pub(in crate::auto) struct DelayJump {
    at: Instant,
    by: Duration,
}

impl Auto {
    /// Notes the largest recent jump of the delay. `sample` is the newest round-trip time.
    pub(in crate::auto) fn watch_jump(&mut self, now: Instant, sample: Duration) {
        let (Some(heard), Some(latest)) = (self.heard, self.rtt.latest()) else {
            return;
        };
        // Acknowledgements of a flow that carries little are apart anyway.
        let silent = now.saturating_duration_since(heard);
        let silent = silent.saturating_sub(self.noise());
        let by = sample.saturating_sub(latest).min(silent * 2);
        if by < JUMP_LEAST {
            return;
        }
        // Both directions become longer, one after the other, so two jumps in a row count as one.
        let soon = |jump: &DelayJump| now.saturating_duration_since(jump.at) <= sample;
        let by = by
            + self
                .jump
                .filter(soon)
                .map_or(Duration::ZERO, |jump| jump.by);
        if self.recent_jump(now).is_none_or(|longest| by > longest) {
            self.jump = Some(DelayJump { at: now, by });
        }
    }

    fn recent_jump(&self, now: Instant) -> Option<Duration> {
        let recent = |jump: &DelayJump| now.saturating_duration_since(jump.at) < RECENT;
        self.jump.filter(recent).map(|jump| jump.by)
    }

    /// Returns whether the path has become longer. If so, delays have jumped to their current value, do not react to
    /// what is sent, and do not vary by themselves either.
    pub(super) fn path_is_longer(&self, now: Instant, rest: &Rest, floor: Duration) -> bool {
        let late = rest.least.saturating_sub(floor);
        let longer = rest.least > floor.mul_f64(LONGER).max(floor + self.noise());
        let jumped = self
            .recent_jump(now)
            .is_some_and(|by| by > late.mul_f64(JUMPED));
        let change = rest.high.saturating_sub(rest.low).as_secs_f64();
        let steady = !rest.swings() && change <= ACK_LATE_S;
        let deaf = rest.answer(self.bandwidth.get()) < DEAF;
        let asked = rest.reason != RestReason::Routine;
        asked && self.long_enough() && longer && jumped && steady && deaf
    }

    /// Takes the new round-trip time as the floor, and restores the bandwidth that was known before packets seemed to
    /// wait.
    pub(super) fn on_longer_path(&mut self, now: Instant, rest: &Rest) {
        self.rtt.lengthen(now, rest.least);
        self.end_rivalry(now);
        let before = self.pressure.bandwidth.max(self.slowdown.before(now));
        if before > self.bandwidth.get() {
            self.bandwidth.reset(before);
        }
        self.pressure.forget();
        self.cruise = CRUISE_EPOCHS;
    }
}

/// Factor by which the round-trip time must exceed the floor, so that chance does not explain the difference.
const LONGER: f64 = 1.125;

/// Maximum reaction of the delay to what was taken out of flight. The reaction may be negative if some of the packets
/// before the rest were sent before the jump.
const DEAF: f64 = 0.1;

/// Part of the delay that a jump must explain. A handover may also stop the path for a while, which adds to the jump.
const JUMPED: f64 = 0.75;

/// Minimum jump: acknowledgements may be this late by themselves.
const JUMP_LEAST: Duration = Duration::from_millis(3);

/// Time for which a jump may explain why packets are late.
const RECENT: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the jump that a sender at `mbit` Mbit/s notes if a packet arrives `silence_ms` after the one before it,
    /// and is later by `late_ms`.
    fn jump(mbit: f64, silence_ms: u32, late_ms: u32) -> Option<Duration> {
        let now = Instant::now();
        let mut auto = Auto::new(now, 1250);
        auto.bandwidth.reset(mbit * 1e6 / 8.0);
        auto.rtt.on_sample(now, 30 * MS);
        auto.heard = Some(now);
        let later = now + silence_ms * MS;
        auto.watch_jump(later, (30 + late_ms) * MS);
        auto.recent_jump(later)
    }

    #[test]
    fn a_silence_of_which_packets_are_late_is_a_jump() {
        assert_eq!(jump(100.0, 30, 30), Some(30 * MS));
        assert_eq!(jump(5.0, 30, 30), Some(30 * MS));
    }

    #[test]
    fn packets_of_a_slow_flow_are_apart_without_a_jump() {
        assert_eq!(jump(100.0, 5, 6), Some(6 * MS));
        assert_eq!(jump(5.0, 5, 6), None);
    }
}
