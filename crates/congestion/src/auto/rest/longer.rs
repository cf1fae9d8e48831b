//! The verdict that the path itself takes longer than before.

use std::time::{Duration, Instant};

use super::{Reason, Rest};
use crate::auto::phase::CRUISE_EPOCHS;
use crate::auto::{ACK_LATE_S, Auto};

/// Silence, and packets later by as much as soon as it was over: a handover to a longer path, or a standstill.
#[derive(Clone, Copy, Debug)]
pub(in crate::auto) struct Jump {
    at: Instant,
    by: Duration,
}

impl Auto {
    /// Notes the longest jump of delays lately; `sample` is the newest round-trip time.
    pub(in crate::auto) fn watch_jump(&mut self, now: Instant, sample: Duration) {
        let (Some(heard), Some(latest)) = (self.heard, self.rtt.latest()) else {
            return;
        };
        let silent = now.saturating_duration_since(heard);
        let by = sample.saturating_sub(latest).min(silent * 2);
        if by < JUMP_LEAST {
            return;
        }
        // Both ways become longer, one after the other.
        let soon = |jump: &Jump| now.saturating_duration_since(jump.at) <= sample;
        let by = by
            + self
                .jump
                .filter(soon)
                .map_or(Duration::ZERO, |jump| jump.by);
        if self.recent_jump(now).is_none_or(|longest| by > longest) {
            self.jump = Some(Jump { at: now, by });
        }
    }

    fn recent_jump(&self, now: Instant) -> Option<Duration> {
        let recent = |jump: &Jump| now.saturating_duration_since(jump.at) < RECENT;
        self.jump.filter(recent).map(|jump| jump.by)
    }

    /// Whether the path has become longer: delays have jumped to where they are, do not answer to what is sent, and do not
    /// change by themselves either.
    pub(super) fn is_longer(&self, now: Instant, rest: &Rest, floor: Duration) -> bool {
        let late = rest.least.saturating_sub(floor);
        let longer = rest.least > floor.mul_f64(LONGER).max(floor + self.noise());
        let jumped = self
            .recent_jump(now)
            .is_some_and(|by| late.abs_diff(by) < late / 4);
        let change = rest.high.saturating_sub(rest.low).as_secs_f64();
        let steady = !rest.swings() && change <= ACK_LATE_S;
        let deaf = rest.answer(self.bandwidth.get()) < DEAF;
        let asked = rest.reason != Reason::Routine;
        asked && self.long_enough() && longer && jumped && steady && deaf
    }

    /// Begins anew with what the path takes, at the bandwidth that was known before packets seemed to wait.
    pub(super) fn on_longer(&mut self, now: Instant, rest: &Rest) {
        self.rtt.lengthen(now, rest.least);
        self.part_from_rival(now);
        let before = self.pressure.bandwidth.max(self.fall.before(now));
        if before > self.bandwidth.get() {
            self.bandwidth.reset(before);
        }
        self.pressure.forget();
        self.cruise = CRUISE_EPOCHS;
    }
}

/// So much longer is no chance.
const LONGER: f64 = 1.125;

/// Part of what was taken out of flight that delays may answer; less than nothing where some of the packets before were from
/// before the jump.
const DEAF: f64 = 0.1;

/// Acknowledgements may be this late by themselves.
const JUMP_LEAST: Duration = Duration::from_millis(3);

/// How long a jump may be what makes packets late.
const RECENT: Duration = Duration::from_secs(4);
