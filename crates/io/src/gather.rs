//! Whether to let packets gather before they are looked at.
//!
//! Waking a thread costs several times as much as a packet does, and packets come one by one. So a worker that moves a
//! transfer stays asleep for a while, as a network card moderates its interrupts: what has come, and what the pacers have
//! come to allow, is done in one go. It does not where little comes, for the first byte should not wait, nor where so
//! much comes that the kernel has merged it into large pieces anyway.
//!
//! The longer the round trip, the longer a packet may wait without anyone noticing. It is a small part of it, and much less
//! while applications talk to one another.
//!
//! Tell it of every turn ([`Gather::note`]), of the path when it asks ([`Gather::asks`]), and ask before the next
//! ([`Gather::pause`]).

use std::time::{Duration, Instant};

use quictun_engine::Path;

/// How long to stay asleep at least: ten packets at 600 Mbit/s, and little beside any round trip that is not local.
const PAUSE: Duration = Duration::from_micros(200);

/// The pause as a part of the round trip: half of the queue that a path may hold.
const PAUSE_SHARE: f64 = 0.15;

/// How long at most: to wake some 150 times a second costs little.
const PAUSE_MOST: Duration = Duration::from_millis(6);

/// The same while applications talk, and how long it is at most then.
const TALK_SHARE: u32 = 50;
const TALK_MOST: Duration = Duration::from_millis(1);

/// Bytes that may gather in a pause, and where they come within [`GATHERED_SOON`]. The socket's buffer has to hold them, and
/// a path's queue what is sent for them at once.
const GATHERED_MOST: f64 = 32e3;
const GATHERED_FAST: f64 = 64e3;
const GATHERED_SOON: f64 = 0.001;

/// Bytes that gather at least: of two packets the second needs no waking, and rates differ from one moment to the next.
const GATHERED_LEAST: f64 = 2400.0;

/// Bytes per second from which on packets are let gather while applications talk.
const TALK_RATE_LEAST: f64 = 16e6;

/// How long what was told of the path stays valid.
const PATH_AGE: Duration = Duration::from_millis(100);

/// The rate is measured over this time, or as many pauses.
const WINDOW: Duration = Duration::from_millis(1);
const WINDOW_PAUSES: u32 = 4;

/// After as many windows without a turn, the rate tells nothing of what comes now.
const SILENCE_WINDOWS: u32 = 4;
const SILENCE_LEAST: Duration = Duration::from_millis(20);

/// Bytes per second up to which they come one by one though the kernel merges them.
const RATE_MERGED: f64 = 300e6;

/// Part of a pause, and time, by which timers may be early, so that they need no waking of their own: acknowledgements
/// wait for a millisecond.
const EARLY_SHARE: u32 = 3;
const EARLY_MOST: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Gather {
    rate_most: f64,
    since: Instant,
    bytes: f64,
    rate: f64,
    path: Path,
    /// When the path was last told.
    told: Option<Instant>,
}

impl Gather {
    /// `merges`: the kernel merges datagrams that come close together.
    pub(crate) fn new(now: Instant, merges: bool) -> Self {
        Self {
            rate_most: if merges { RATE_MERGED } else { f64::INFINITY },
            since: now,
            bytes: 0.0,
            rate: 0.0,
            path: Path::default(),
            told: None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of one turn")]
    pub(crate) fn note(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes as f64;
        let elapsed = now.saturating_duration_since(self.since);
        let window = (self.longest() * WINDOW_PAUSES).max(WINDOW);
        if elapsed >= window {
            let silent = elapsed >= (window * SILENCE_WINDOWS).max(SILENCE_LEAST);
            let rate = self.bytes / elapsed.as_secs_f64();
            self.rate = if silent { 0.0 } else { rate };
            self.since = now;
            self.bytes = 0.0;
        }
    }

    /// Whether it wants to know the path: where packets may gather, and not again at once.
    pub(crate) fn asks(&self, now: Instant) -> bool {
        let fresh = |told| now.saturating_duration_since(told) < PATH_AGE;
        self.rate > 0.0 && !self.told.is_some_and(fresh)
    }

    pub(crate) fn set_path(&mut self, now: Instant, path: Path) {
        self.path = path;
        self.told = Some(now);
    }

    /// The longest pause on this path.
    fn longest(&self) -> Duration {
        let round_trip = self.path.round_trip.unwrap_or_default();
        if self.path.talk {
            (round_trip / TALK_SHARE).clamp(PAUSE, TALK_MOST)
        } else {
            round_trip.mul_f64(PAUSE_SHARE).clamp(PAUSE, PAUSE_MOST)
        }
    }

    /// How long to stay asleep, whatever comes; zero: not at all.
    pub(crate) fn pause(&self) -> Duration {
        let longest = self.longest();
        let gathered = self.rate * longest.as_secs_f64();
        let least = if self.path.talk { TALK_RATE_LEAST } else { 0.0 };
        if gathered < GATHERED_LEAST || !(least..self.rate_most).contains(&self.rate) {
            return Duration::ZERO;
        }
        let soon = (self.rate * GATHERED_SOON).min(GATHERED_FAST);
        let most = soon.max(GATHERED_MOST);
        longest.mul_f64((most / gathered).min(1.0)).max(PAUSE)
    }

    /// How early timers may be.
    pub(crate) fn early(&self) -> Duration {
        (self.pause() / EARLY_SHARE).min(EARLY_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TALK: Path = Path {
        round_trip: Some(Duration::from_millis(40)),
        talk: false,
    };

    /// Turns of `bytes` each, so far apart, for half a second; the gatherer at the end.
    fn after(path: Path, bytes: usize, apart: Duration, merges: bool) -> Gather {
        let mut now = Instant::now();
        let mut gather = Gather::new(now, merges);
        let end = now + Duration::from_millis(500);
        while now < end {
            now += apart;
            gather.note(now, bytes);
            if gather.asks(now) {
                gather.set_path(now, path);
            }
        }
        gather
    }

    fn local(bytes: usize, apart: Duration, merges: bool) -> Duration {
        after(Path::default(), bytes, apart, merges).pause()
    }

    #[test]
    fn a_stream_of_single_packets_is_gathered_and_goes_on_being() {
        for merges in [true, false] {
            assert_eq!(local(1500, Duration::from_micros(20), merges), PAUSE);
            assert_eq!(local(15_000, PAUSE, merges), PAUSE);
        }
    }

    #[test]
    fn packets_of_a_long_way_gather_for_longer() {
        let ms = Duration::from_millis;
        let longest = ms(6);
        // 5 and 20 Mbit/s, one packet at a time and a pause's at once.
        for (bytes, apart) in [(1462, 2339), (1462, 585), (3125, 5000), (12_500, 5000)] {
            let gather = after(NO_TALK, bytes, Duration::from_micros(apart), true);
            assert_eq!(gather.pause(), longest, "{bytes} bytes in {apart} us");
            assert_eq!(gather.early(), EARLY_MOST);
        }
        let slow = after(NO_TALK, 1462, ms(6), true);
        assert_eq!(slow.pause(), Duration::ZERO, "one packet in a pause");
        assert_eq!(slow.early(), Duration::ZERO);
        let fast = after(NO_TALK, 75_000, ms(1), true).pause();
        assert!(fast < ms(1) && fast > 4 * PAUSE, "64 KB: {fast:?}");
    }

    #[test]
    fn talk_is_kept_from_waiting() {
        let micros = Duration::from_micros;
        let pause = |round_trip_ms, bytes, apart_us| {
            let path = Path {
                round_trip: Some(Duration::from_millis(round_trip_ms)),
                talk: true,
            };
            after(path, bytes, micros(apart_us), true).pause()
        };
        assert_eq!(pause(40, 1500, 600), Duration::ZERO, "20 Mbit/s");
        assert_eq!(pause(40, 15_000, 400), micros(800));
        assert_eq!(pause(1, 15_000, 200), PAUSE);
    }

    #[test]
    fn a_byte_there_and_back_and_a_flood_are_not() {
        let slow = Duration::from_micros(25);
        assert_eq!(local(60, slow, true), Duration::ZERO);
        assert_eq!(local(60, slow, false), Duration::ZERO);
        let flood = Duration::from_micros(100);
        assert_eq!(local(64_000, flood, true), Duration::ZERO);
        assert_eq!(local(64_000, flood, false), PAUSE, "in single packets");
    }

    #[test]
    fn what_comes_after_a_silence_is_looked_at_at_once() {
        let mut gather = after(NO_TALK, 1500, Duration::from_micros(20), true);
        assert!(gather.pause() > Duration::ZERO);
        let later = gather.since + Duration::from_secs(1);
        gather.note(later, 1500);
        assert_eq!(gather.pause(), Duration::ZERO);
    }
}
