//! Flow-control windows that follow bandwidth x delay under a budget.

use std::time::{Duration, Instant};

/// Where a connection of a known peer starts: enough for 1 Gbit/s at 8 ms. It grows every round trip of 10 ms or more
/// if need be, as fast as slow start does.
const INITIAL: u64 = 2 << 20;

/// The least that a connection has, however little memory there is: a few packets.
pub const FLOOR: u64 = 4 * 1024;

/// What a window of `size` bytes can make us hold. Reading from a stream gives credit back before it is known that the
/// application takes nothing: so the window may come twice. Pieces cost more than their bytes: a quarter covers all but
/// tiny ones, and of those a peer is not allowed so many.
pub fn debt(size: u64) -> u64 {
    size * 5 / 2
}

/// Parts of the free memory that newcomers start with, as far as [`INITIAL`] allows. Once 1/32 of the budget is taken,
/// they get less, so that a thousand unknown ones with 10 flows each find room on 64 MiB.
const PLENTY_PART: u64 = 256;
const KNOWN_PART: u64 = 2048;
const SCARCE_PART: u64 = 16_384;

/// Largest first window that an earlier connection can lead to, as a part of the free memory. The window takes the earlier
/// one's size when it first grows. Idle connections would otherwise hold half of the free memory each.
const REMEMBERED_PART: u64 = 32;

/// Shortest measuring interval. Threads that share cores take turns of milliseconds, and within a turn
/// a receiver finds far more than the path brings on average.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Round trips are taken to be at least this long: the threads at both ends are not always running.
const RTT_MIN: Duration = Duration::from_millis(1);

/// Free memory for each byte of the largest window: its [`debt`] is half of that.
const FREE_PER_WINDOW: u64 = 5;

/// The receive window of one connection.
///
/// It doubles whenever more than a sixth of it was used up in one round trip, and doubles twice where more than a third
/// was; where flows hold a part of it at rest, the part that is left counts. A peer at its start sends 2.5 times as much in
/// each, and what it sends meets the window announced a round trip before. It never takes more than half of what is free,
/// so that the next one finds something, too; where memory runs low, what has been used is not renewed, and a window of
/// which less than a twelfth is used in a round trip halves.
#[derive(Debug)]
pub struct ReceiveWindow {
    size: u64,
    /// The most that use has made it; 0: it is as it was at first.
    needed: u64,
    /// Size of an earlier connection's window, until this one first grows; 0: none is known.
    remembered: u64,
    epoch: Instant,
    delivered: u64,
}

impl ReceiveWindow {
    /// What to begin with where so much of a budget is `free`, and an earlier connection to the same peer `needed` so
    /// much.
    pub fn first(needed: u64, free: u64, budget: u64, known: bool) -> u64 {
        let part = if free > budget / 32 * 31 {
            PLENTY_PART
        } else if known {
            KNOWN_PART
        } else {
            SCARCE_PART
        };
        let first = INITIAL.min(free / part);
        needed.min(free / REMEMBERED_PART).max(first).max(FLOOR)
    }

    /// Begins with `size` bytes, and goes on with the `remembered` ones.
    pub fn new(now: Instant, size: u64, remembered: u64) -> Self {
        Self {
            size,
            needed: 0,
            remembered,
            epoch: now,
            delivered: 0,
        }
    }

    /// Begins again with `size` bytes, and goes on with the `remembered` ones.
    pub fn restart(&mut self, size: u64, remembered: u64) {
        self.size = size;
        self.remembered = remembered;
    }

    /// Notes how much was delivered in total so far. `left` is what flows leave of the window, `free` the memory that there
    /// is for it, its own included. Where memory is short, a window that is hardly used shrinks towards `least`.
    /// Returns whether a round trip has passed since the last time.
    pub fn update(
        &mut self,
        now: Instant,
        rtt: Duration,
        delivered: u64,
        left: u64,
        free: u64,
        least: Option<u64>,
    ) -> bool {
        let interval = rtt.max(INTERVAL_MIN);
        let elapsed = now.saturating_duration_since(self.epoch);
        if elapsed < interval {
            return false;
        }
        let most = most(free).max(FLOOR);
        let taken = delivered.saturating_sub(self.delivered);
        let share = rtt.max(RTT_MIN).as_secs_f64() / elapsed.as_secs_f64();
        let used = as_f64(taken) * share;
        let more = if used > as_f64(left / 3) {
            3 * left
        } else if used > as_f64(left / 6) {
            left
        } else {
            0
        };
        let remembered = if more > 0 {
            std::mem::take(&mut self.remembered)
        } else {
            0
        };
        let wanted = (self.size + more).max(remembered).min(most);
        if wanted > self.size {
            self.size = wanted;
            self.needed = wanted;
        } else if self.size > 2 * most {
            self.size = most;
        } else if let Some(least) = least
            && used < as_f64(left / 12)
        {
            let half = (self.size / 2).max(least).max(FLOOR);
            self.size = self.size.min(half);
        }
        self.epoch = now;
        self.delivered = delivered;
        true
    }

    /// What the next connection to the same peer should begin with; 0: like any.
    pub fn needed(&self) -> u64 {
        self.needed
    }

    /// The window, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// The free memory with which a window grows to no more than `size`, bytes.
pub fn room_for(size: u64) -> u64 {
    size.saturating_mul(FREE_PER_WINDOW)
}

/// The largest window where so much is free.
fn most(free: u64) -> u64 {
    free / FREE_PER_WINDOW
}

/// The send window: unacknowledged data kept for retransmission. The library frees only the contiguous
/// acknowledged prefix, so with losses it has to span several congestion windows.
pub fn send_window(congestion_window: u64, free: u64) -> u64 {
    (congestion_window.saturating_mul(5) + (1 << 20)).min(free.max(SEND_FLOOR))
}

/// What a connection may always have under way: a full window of packets at the start.
const SEND_FLOOR: u64 = 32 * 1024;

#[expect(clippy::cast_precision_loss, reason = "byte counts far below 2^53")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_first_window_leaves_room_for_thousands() {
        let first = |needed, free, known| ReceiveWindow::first(needed, free, 1024 * MIB, known);
        assert_eq!(first(0, 1024 * MIB, false), INITIAL);
        assert_eq!(first(0, 768 * MIB, true), 384 * 1024);
        assert_eq!(first(0, 768 * MIB, false), 48 * 1024);
        assert_eq!(first(0, 0, false), FLOOR);
        // An earlier connection's window is granted at once up to 1/32 of the free memory.
        assert_eq!(first(16 * MIB, 1024 * MIB, false), 16 * MIB);
        assert_eq!(first(16 * MIB, 64 * MIB, false), 2 * MIB);
    }

    #[test]
    fn a_remembered_window_comes_back_with_the_first_growth() {
        let start = Instant::now();
        let rtt = Duration::from_millis(100);
        let mut window = ReceiveWindow::new(start, MIB, 16 * MIB);
        window.update(start + rtt, rtt, MIB / 10, MIB, 1024 * MIB, None);
        assert_eq!(window.size(), MIB, "little use shows nothing");
        window.update(start + 2 * rtt, rtt, MIB, MIB, 1024 * MIB, None);
        assert_eq!(window.size(), 16 * MIB);
        window.update(start + 3 * rtt, rtt, 2 * MIB, 16 * MIB, 1024 * MIB, None);
        assert_eq!(window.size(), 16 * MIB, "it is remembered once");
    }

    #[test]
    fn an_unused_window_halves_where_memory_is_short() {
        let start = Instant::now();
        let rtt = Duration::from_millis(100);
        let mut window = ReceiveWindow::new(start, 8 * MIB, 0);
        let mut size_after = |number: u32, delivered, left, least| {
            window.update(
                start + number * rtt,
                rtt,
                delivered,
                left,
                1024 * MIB,
                least,
            );
            window.size()
        };
        assert_eq!(size_after(1, MIB / 2, 8 * MIB, None), 8 * MIB);
        assert_eq!(size_after(2, MIB, 8 * MIB, Some(MIB)), 4 * MIB);
        assert_eq!(
            size_after(3, 3 * MIB / 2, 4 * MIB, Some(MIB)),
            4 * MIB,
            "an eighth is used"
        );
        assert_eq!(size_after(4, 3 * MIB / 2, 4 * MIB, Some(3 * MIB)), 3 * MIB);
        assert_eq!(size_after(5, 3 * MIB / 2, 3 * MIB, Some(4 * MIB)), 3 * MIB);
    }

    #[test]
    fn windows_follow_use_and_shrink_where_memory_runs_low() {
        let start = Instant::now();
        let rtt = Duration::from_millis(100);
        let mut window = ReceiveWindow::new(start, MIB, 0);
        window.update(start + rtt, rtt, MIB / 5, MIB, 1024 * MIB, None);
        assert_eq!(window.size(), 2 * MIB);
        window.update(start + 2 * rtt, rtt, MIB, 2 * MIB, 1024 * MIB, None);
        assert_eq!(window.size(), 8 * MIB);
        window.update(start + 3 * rtt, rtt, 2 * MIB, 8 * MIB, 30 * MIB, None);
        assert_eq!(
            window.size(),
            8 * MIB,
            "there is enough not to take anything back"
        );
        window.update(start + 4 * rtt, rtt, 3 * MIB, 8 * MIB, 15 * MIB, None);
        assert_eq!(window.size(), 3 * MIB);
        window.update(start + 5 * rtt, rtt, 4 * MIB, 3 * MIB, 0, None);
        assert_eq!(window.size(), FLOOR);
    }
}
