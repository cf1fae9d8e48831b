//! When the peer is shown what was written, where that takes long: messages are shown together because it is cheaper, which it
//! is not when there is much else to do for each of them.

use quictun_shmq::cycles;

/// Messages between two looks at the clock, at most: few, for what is slow is noticed after so many.
const EVERY: u32 = 8;

/// From as many ticks on, between two looks, messages are not kept back any more: a few times what a line takes from core to
/// core.
const SLOW: u64 = 4000;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Ticks at the last look in this turn; 0 is none.
    since: u64,
    /// Messages until the next look.
    left: u32,
    every: u32,
}

impl Pace {
    /// Whatever time has passed before now is not the messages'.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.since = 0;
    }

    /// Notes a message; whether it and those before it should be shown now.
    #[inline(always)]
    pub(crate) fn is_late(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.look(cycles())
    }

    fn look(&mut self, now: u64) -> bool {
        let since = std::mem::replace(&mut self.since, now);
        let slow = since > 0 && now.wrapping_sub(since) > SLOW;
        self.every = if slow {
            0
        } else {
            (2 * self.every + 1).min(EVERY - 1)
        };
        self.left = self.every;
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at the clock while that many messages take `ticks` each, and how many of them were late.
    fn messages(pace: &mut Pace, count: u32, ticks: u64, clock: &mut u64) -> (u32, u32) {
        let (mut looks, mut late) = (0, 0);
        for _ in 0..count {
            *clock += ticks;
            if pace.left > 0 {
                pace.left -= 1;
            } else {
                looks += 1;
                late += u32::from(pace.look(*clock));
            }
        }
        (looks, late)
    }

    #[test]
    fn quick_messages_are_kept_back_and_slow_ones_are_not() {
        let (mut pace, mut clock) = (Pace::default(), 1);
        let (looks, late) = messages(&mut pace, 800, 100, &mut clock);
        assert_eq!(late, 0);
        assert!(looks <= 105, "{looks} looks at the clock");
        let (_, late) = messages(&mut pace, 100, 10_000, &mut clock);
        assert!(late >= 100 - EVERY, "{late} of 100");
        let (looks, late) = messages(&mut pace, 800, 100, &mut clock);
        assert!(late <= 1 && looks <= 105, "{late}, {looks}");
        clock += 1_000_000;
        pace.begin();
        assert_eq!(messages(&mut pace, 8, 100, &mut clock).1, 0);
    }
}
