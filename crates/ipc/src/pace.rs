//! Decides when to show staged messages to the peer although the batch is not complete. Batches make messages cheaper,
//! but not if other work for each message takes much longer.

use quictun_shmq::cycles;

/// Largest number of messages between two readings of the clock. It is small, because slow messages are detected after
/// that many.
const EVERY: u32 = 8;

/// If two readings are at least this many ticks apart, messages are not held back any more. The time is a few times as
/// long as a cache line takes from core to core.
const SLOW: u64 = 4000;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlushPacer {
    /// Ticks at the last reading in this turn, or 0 if there was none.
    since: u64,
    /// Number of messages until the next reading.
    left: u32,
    every: u32,
}

impl FlushPacer {
    /// Starts a turn. Time that passed before it is not attributed to messages.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.since = 0;
    }

    /// Counts a message. Returns whether it and all messages before it should be shown now.
    #[inline(always)]
    pub(crate) fn is_late(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.read_clock(cycles())
    }

    fn read_clock(&mut self, now: u64) -> bool {
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

    /// Reads the clock as needed while `count` messages take `ticks` each. Returns the number of readings and the
    /// number of late messages.
    fn messages(pace: &mut FlushPacer, count: u32, ticks: u64, clock: &mut u64) -> (u32, u32) {
        let (mut looks, mut late) = (0, 0);
        for _ in 0..count {
            *clock += ticks;
            if pace.left > 0 {
                pace.left -= 1;
            } else {
                looks += 1;
                late += u32::from(pace.read_clock(*clock));
            }
        }
        (looks, late)
    }

    #[test]
    fn quick_messages_are_batched_and_slow_ones_are_published() {
        let (mut pace, mut clock) = (FlushPacer::default(), 1);
        let (looks, late) = messages(&mut pace, 800, 100, &mut clock);
        assert_eq!(late, 0);
        assert!(looks <= 105, "{looks} readings of the clock");
        let (_, late) = messages(&mut pace, 100, 10_000, &mut clock);
        assert!(late >= 100 - EVERY, "{late} of 100 are late");
        let (looks, late) = messages(&mut pace, 800, 100, &mut clock);
        assert!(late <= 1 && looks <= 105, "late: {late}, readings: {looks}");
        clock += 1_000_000;
        pace.begin();
        assert_eq!(messages(&mut pace, 8, 100, &mut clock).1, 0);
    }
}
