//! Whether to let packets gather before they are looked at.
//!
//! At some hundred Mbit/s packets come one by one, ten or twenty microseconds apart, and a worker that is woken for
//! each spends several times as long on waking up as on the packet. So it stays asleep for a while, as a network card
//! moderates its interrupts. It does not where little comes, for the first byte should not wait, nor where so much
//! comes that it arrives in large pieces anyway.
//!
//! Tell it of every turn ([`Gather::note`]), and ask before the next ([`Gather::pause`]).

use std::ops::Range;
use std::time::{Duration, Instant};

/// How long to stay asleep: ten packets at 600 Mbit/s, and little beside any round trip that is not local.
const PAUSE: Duration = Duration::from_micros(200);

/// Over so much time the rate is measured.
const WINDOW: Duration = Duration::from_millis(1);

/// Bytes per second: two packets in a pause, and as many as one read takes.
const RATES: Range<f64> = 16e6..300e6;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Gather {
    since: Instant,
    bytes: f64,
    gathering: bool,
}

impl Gather {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0.0,
            gathering: false,
        }
    }

    /// A turn of the loop moved so many bytes.
    #[expect(clippy::cast_precision_loss, reason = "bytes of one turn")]
    pub(crate) fn note(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes as f64;
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= WINDOW {
            self.gathering = RATES.contains(&(self.bytes / elapsed.as_secs_f64()));
            self.since = now;
            self.bytes = 0.0;
        }
    }

    /// How long to stay asleep, whatever comes; zero: not at all.
    pub(crate) fn pause(&self) -> Duration {
        if self.gathering {
            PAUSE
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of `bytes` each, so far apart, for ten windows; the pause at the end.
    fn after(bytes: usize, apart: Duration) -> Duration {
        let mut now = Instant::now();
        let mut gather = Gather::new(now);
        let end = now + 10 * WINDOW;
        while now < end {
            now += apart;
            gather.note(now, bytes);
        }
        gather.pause()
    }

    #[test]
    fn a_stream_of_single_packets_is_gathered_and_goes_on_being() {
        assert_eq!(after(1500, Duration::from_micros(20)), PAUSE);
        assert_eq!(after(15_000, PAUSE), PAUSE);
    }

    #[test]
    fn a_byte_there_and_back_and_a_flood_are_not() {
        assert_eq!(after(60, Duration::from_micros(25)), Duration::ZERO);
        assert_eq!(after(64_000, Duration::from_micros(100)), Duration::ZERO);
    }

    #[test]
    fn what_comes_after_a_silence_is_looked_at_at_once() {
        let mut now = Instant::now();
        let mut gather = Gather::new(now);
        for _ in 0..100 {
            now += Duration::from_micros(20);
            gather.note(now, 1500);
        }
        assert_eq!(gather.pause(), PAUSE);
        gather.note(now + 50 * WINDOW, 1500);
        assert_eq!(gather.pause(), Duration::ZERO);
    }
}
