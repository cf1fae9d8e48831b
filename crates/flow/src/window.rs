//! Flow-control windows that follow the bandwidth-delay product, within a memory budget.

use std::time::{Duration, Instant};

/// First window of a connection to a known peer: enough for 1 Gbit/s at 8 ms. It can grow in every round trip of 10 ms
/// or more, as fast as slow start does.
const INITIAL: u64 = 2 << 20;

/// Smallest window of a connection, however little memory there is: a few packets.
pub const FLOOR: u64 = 4 * 1024;

/// Returns the memory that a window of `size` bytes can make this side hold. Reading from a stream returns credit
/// before it is known that the application reads nothing, so the window may fill twice. Pieces cost more than their
/// bytes: a quarter covers all but tiny pieces, whose number is limited separately.
pub fn committed_memory(size: u64) -> u64 {
    size * 5 / 2
}

/// Divisors of the free memory that give the first window of a new connection, capped by [`INITIAL`]. The first applies
/// until 1/32 of the budget is taken. After that, known peers get the second part and unknown ones the third, so that
/// a thousand unknown ones with 10 flows each fit on 64 MiB.
const PLENTY_PART: u64 = 256;
const KNOWN_PART: u64 = 2048;
const SCARCE_PART: u64 = 16_384;

/// Divisor of the free memory that caps a first window taken from an earlier connection. The window reaches the earlier
/// size when it first grows. Otherwise each idle connection would hold half of the free memory.
const REMEMBERED_PART: u64 = 32;

/// Shortest measuring interval. Threads that share cores run in turns of milliseconds, and within one turn a receiver
/// finds far more data than the path delivers on average.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Round trips count as at least this long, because the threads at both ends do not run all the time.
const RTT_MIN: Duration = Duration::from_millis(1);

/// Free memory required for each byte of the largest window. The window's [`committed_memory`] is half of that.
const FREE_PER_WINDOW: u64 = 5;

/// The receive window of one connection.
///
/// The window doubles whenever more than a sixth of it was used in one round trip, and doubles twice if more than a
/// third was used. If flows hold a part of it at rest, the part that is left counts. A peer in slow start sends 2.5
/// times as much in each round trip, and this meets the window announced one round trip earlier.
///
/// The window never takes more than half of the free memory, so that the next connection finds some, too. When memory
/// runs low, used credit is not renewed, and a window of which less than a twelfth is used in a round trip halves.
#[derive(Debug)]
pub struct ReceiveWindow {
    size: u64,
    /// The largest size that use has led to; 0 if the window has not grown.
    needed: u64,
    /// Size of an earlier connection's window, until this one first grows; 0 if none is known.
    remembered: u64,
    epoch: Instant,
    delivered: u64,
}

impl ReceiveWindow {
    /// Returns the size of a first window. `needed` is the size that an earlier connection to the same peer needed,
    /// `free` is the free part of `budget`. `known` is false for a client that is not known yet.
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

    /// Creates a window of `size` bytes that takes the size `remembered` when it first grows.
    pub fn new(now: Instant, size: u64, remembered: u64) -> Self {
        Self {
            size,
            needed: 0,
            remembered,
            epoch: now,
            delivered: 0,
        }
    }

    /// Starts again with `size` bytes, and takes the size `remembered` when it next grows.
    pub fn restart(&mut self, size: u64, remembered: u64) {
        self.size = size;
        self.remembered = remembered;
    }

    /// Updates the size from `delivered`, the total of bytes delivered so far. `left` is the part of the window that
    /// flows leave free. `free` is the memory for the window, its own included. If `least` is given, memory is short,
    /// and a window that is hardly used shrinks towards it. Returns whether an interval has passed since the last
    /// update: a round trip, or longer.
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

    /// Returns the size that the next connection to the same peer should begin with; 0 for the default.
    pub fn needed(&self) -> u64 {
        self.needed
    }

    /// Returns the size of the window, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// Returns the free memory with which a window grows to at most `size`, in bytes.
pub fn room_for(size: u64) -> u64 {
    size.saturating_mul(FREE_PER_WINDOW)
}

/// Returns the largest window for this amount of free memory.
fn most(free: u64) -> u64 {
    free / FREE_PER_WINDOW
}

/// Returns the send window: unacknowledged data kept for retransmission. The library frees only the contiguous
/// acknowledged prefix, so with losses it has to span several congestion windows.
pub fn send_window(congestion_window: u64, free: u64) -> u64 {
    (congestion_window.saturating_mul(5) + (1 << 20)).min(free.max(SEND_FLOOR))
}

/// Bytes that a connection may always have in flight: a full initial window of packets.
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
        assert_eq!(window.size(), MIB, "little use does not grow the window");
        window.update(start + 2 * rtt, rtt, MIB, MIB, 1024 * MIB, None);
        assert_eq!(window.size(), 16 * MIB);
        window.update(start + 3 * rtt, rtt, 2 * MIB, 16 * MIB, 1024 * MIB, None);
        assert_eq!(window.size(), 16 * MIB, "the remembered size applies once");
    }

    #[test]
    fn an_unused_window_halves_if_memory_is_short() {
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
    fn windows_follow_use_and_shrink_if_memory_runs_low() {
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
            "enough memory is left not to shrink the window"
        );
        window.update(start + 4 * rtt, rtt, 3 * MIB, 8 * MIB, 15 * MIB, None);
        assert_eq!(window.size(), 3 * MIB);
        window.update(start + 5 * rtt, rtt, 4 * MIB, 3 * MIB, 0, None);
        assert_eq!(window.size(), FLOOR);
    }
}
