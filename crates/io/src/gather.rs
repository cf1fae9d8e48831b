//! Whether to let packets gather before they are looked at.
//!
//! At some hundred Mbit/s packets come one by one, ten or twenty microseconds apart, and a worker that is woken for
//! each spends several times as long on waking up as on the packet. So it stays asleep for a while, as a network card
//! moderates its interrupts. It does not where little comes, for the first byte should not wait, nor where so much
//! comes that the kernel has merged it into large pieces anyway.
//!
//! The longer the round trip, the longer a packet may wait without anyone noticing, and the fewer times a thread wakes.
//!
//! Tell it of every turn ([`Gather::note`]), of the round-trip time when it asks ([`Gather::asks`]), and ask before the
//! next ([`Gather::pause`]).

use std::time::{Duration, Instant};

/// How long to stay asleep at least: ten packets at 600 Mbit/s, and little beside any round trip that is not local.
const PAUSE: Duration = Duration::from_micros(200);

/// How long at most: as long as the pacing of a connection lets packets leave at once.
const PAUSE_MOST: Duration = Duration::from_millis(1);

/// The pause as a part of the round trip.
const PAUSE_SHARE: u32 = 50;

/// Bytes that may gather in a pause, because the socket's buffer has to hold them: as much as is sent at once.
const GATHERED_MOST: f64 = 64e3;

/// How long a round-trip time stays valid.
const ROUND_TRIP_AGE: Duration = Duration::from_millis(100);

/// The rate is measured over this time.
const WINDOW: Duration = Duration::from_millis(1);

/// Bytes per second from which on packets are let gather: two packets in a pause.
const RATE_LEAST: f64 = 16e6;

/// Bytes per second up to which they come one by one though the kernel merges them.
const RATE_MERGED: f64 = 300e6;

#[derive(Debug)]
pub(crate) struct Gather {
    rate_most: f64,
    since: Instant,
    bytes: f64,
    gathering: bool,
    pause: Duration,
    /// The time in which [`GATHERED_MOST`] comes.
    filled: Duration,
    /// When the round-trip time was last told.
    told: Option<Instant>,
}

impl Gather {
    /// `merges`: the kernel merges datagrams that come close together.
    pub(crate) fn new(now: Instant, merges: bool) -> Self {
        Self {
            rate_most: if merges { RATE_MERGED } else { f64::INFINITY },
            since: now,
            bytes: 0.0,
            gathering: false,
            pause: PAUSE,
            filled: PAUSE,
            told: None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of one turn")]
    pub(crate) fn note(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes as f64;
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= WINDOW {
            let rate = self.bytes / elapsed.as_secs_f64();
            self.gathering = (RATE_LEAST..self.rate_most).contains(&rate);
            self.filled = Duration::from_secs_f64(GATHERED_MOST / rate.max(RATE_LEAST));
            self.since = now;
            self.bytes = 0.0;
        }
    }

    pub(crate) fn asks(&self, now: Instant) -> bool {
        let fresh = |told| now.saturating_duration_since(told) < ROUND_TRIP_AGE;
        self.gathering && !self.told.is_some_and(fresh)
    }

    /// The shortest round-trip time of all who wait for the packets, if any is known.
    pub(crate) fn set_round_trip(&mut self, now: Instant, round_trip: Option<Duration>) {
        let round_trip = round_trip.unwrap_or_default();
        self.pause = (round_trip / PAUSE_SHARE).clamp(PAUSE, PAUSE_MOST);
        self.told = Some(now);
    }

    /// How long to stay asleep, whatever comes; zero: not at all.
    pub(crate) fn pause(&self) -> Duration {
        if self.gathering {
            self.pause.min(self.filled).max(PAUSE)
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of `bytes` each, so far apart, for ten windows; the pause at the end.
    fn after(bytes: usize, apart: Duration, merges: bool) -> Duration {
        let mut now = Instant::now();
        let mut gather = Gather::new(now, merges);
        let end = now + 10 * WINDOW;
        while now < end {
            now += apart;
            gather.note(now, bytes);
        }
        gather.pause()
    }

    #[test]
    fn a_stream_of_single_packets_is_gathered_and_goes_on_being() {
        for merges in [true, false] {
            assert_eq!(after(1500, Duration::from_micros(20), merges), PAUSE);
            assert_eq!(after(15_000, PAUSE, merges), PAUSE);
        }
    }

    #[test]
    fn packets_of_a_long_way_gather_for_longer() {
        let mut now = Instant::now();
        let mut gather = Gather::new(now, true);
        assert!(!gather.asks(now), "nothing gathers");
        for _ in 0..100 {
            now += 5 * WINDOW / 2;
            gather.note(now, 200_000);
        }
        let ms = Duration::from_millis;
        let micros = Duration::from_micros;
        for (round_trip, pause) in [
            (Some(ms(20)), micros(400)),
            (Some(ms(300)), micros(800)),
            (Some(ms(1)), PAUSE),
            (None, PAUSE),
        ] {
            assert!(gather.asks(now));
            gather.set_round_trip(now, round_trip);
            assert_eq!(gather.pause(), pause);
            assert!(!gather.asks(now));
            now += ROUND_TRIP_AGE;
        }
    }

    #[test]
    fn a_byte_there_and_back_and_a_flood_are_not() {
        let slow = Duration::from_micros(25);
        assert_eq!(after(60, slow, true), Duration::ZERO);
        assert_eq!(after(60, slow, false), Duration::ZERO);
        let flood = Duration::from_micros(100);
        assert_eq!(after(64_000, flood, true), Duration::ZERO);
        assert_eq!(after(64_000, flood, false), PAUSE, "in single packets");
    }

    #[test]
    fn what_comes_after_a_silence_is_looked_at_at_once() {
        let mut now = Instant::now();
        let mut gather = Gather::new(now, true);
        for _ in 0..100 {
            now += Duration::from_micros(20);
            gather.note(now, 1500);
        }
        assert_eq!(gather.pause(), PAUSE);
        gather.note(now + 50 * WINDOW, 1500);
        assert_eq!(gather.pause(), Duration::ZERO);
    }
}
