//! Decides whether packets gather before the worker handles them.
//!
//! Waking a thread costs several times as much as handling a packet, and packets arrive one by one. So a worker that
//! moves a transfer sleeps for a while, as a network card moderates its interrupts. In one turn it then handles
//! everything that has arrived, and sends everything that pacing allows. The worker does not sleep if little arrives,
//! because the first byte should not wait. It does not sleep either if the kernel merges packets into large pieces.
//!
//! On a long round trip a short wait is not noticeable. The pause is a small part of the round trip, and a much smaller
//! one while applications talk.
//!
//! Call [`Gather::note`] in every turn and [`Gather::pause`] before the next one. If [`Gather::needs_path`] returns
//! true, call [`Gather::set_path`].

use std::time::{Duration, Instant};

use quictun_engine::PathSummary;

/// The shortest pause: ten packets at 600 Mbit/s, and short compared to any round trip that is not local.
const PAUSE: Duration = Duration::from_micros(200);

/// The pause as a part of the round trip: half of the queue that a path may hold.
const PAUSE_SHARE: f64 = 0.15;

/// The longest pause: a thread that wakes 150 times per second costs little.
const PAUSE_MOST: Duration = Duration::from_millis(6);

/// The pause as a part of the round trip while applications talk, and the longest pause then.
const TALK_SHARE: u32 = 50;
const TALK_MOST: Duration = Duration::from_millis(1);

/// Maximum number of bytes that gather in a pause. The larger limit applies if they arrive within [`GATHERED_SOON`]
/// seconds. The socket's buffer must hold these bytes, and a path's queue must hold the answer to them.
const GATHERED_MOST: f64 = 32e3;
const GATHERED_FAST: f64 = 64e3;
const GATHERED_SOON: f64 = 0.001;

/// Fewest bytes that are worth a pause. Of two packets, the second needs no wake-up. The rest is margin, because rates
/// vary.
const GATHERED_LEAST: f64 = 2400.0;

/// Rate in bytes per second from which packets gather while applications talk.
const TALK_RATE_LEAST: f64 = 16e6;

/// The path is asked for again after this time.
const PATH_AGE: Duration = Duration::from_millis(100);

/// The rate is measured over this time, or over this many pauses if that is longer.
const WINDOW: Duration = Duration::from_millis(1);
const WINDOW_PAUSES: u32 = 4;

/// After this many windows without a turn, the measured rate says nothing about new arrivals.
const SILENCE_WINDOWS: u32 = 4;
const SILENCE_LEAST: Duration = Duration::from_millis(20);

/// Above this rate, in bytes per second, the kernel merges packets, and a pause saves nothing.
const RATE_MERGED: f64 = 300e6;

/// Acknowledgements may be sent early by this part of a pause, at most by this time. They wait for a millisecond, so
/// they are sent in the turn in which packets arrived.
const EARLY_SHARE: u32 = 3;
const EARLY_MOST: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Gather {
    rate_most: f64,
    since: Instant,
    bytes: f64,
    rate: f64,
    /// No packet should wait: applications talk, a connection probes for the path's bandwidth, or other flows keep the
    /// path's queue full.
    talk: bool,
    path: PathSummary,
    /// Time of the last call of [`Gather::set_path`].
    path_set: Option<Instant>,
}

impl Gather {
    /// Makes the decision for a socket. `merges` says whether the kernel merges datagrams that arrive close together.
    pub(crate) fn new(now: Instant, merges: bool) -> Self {
        Self {
            rate_most: if merges { RATE_MERGED } else { f64::INFINITY },
            since: now,
            bytes: 0.0,
            rate: 0.0,
            talk: false,
            path: PathSummary::default(),
            path_set: None,
        }
    }

    /// Notes the bytes of a turn, and whether applications talk.
    #[expect(clippy::cast_precision_loss, reason = "bytes of one turn")]
    pub(crate) fn note(&mut self, now: Instant, bytes: usize, talk: bool) {
        self.talk = talk || self.path.send_at_once;
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

    /// Returns whether the caller should call [`Gather::set_path`] now.
    pub(crate) fn needs_path(&self, now: Instant) -> bool {
        let fresh = |path_set| now.saturating_duration_since(path_set) < PATH_AGE;
        self.rate > 0.0 && !self.path_set.is_some_and(fresh)
    }

    pub(crate) fn set_path(&mut self, now: Instant, path: PathSummary) {
        self.path = path;
        self.path_set = Some(now);
    }

    /// Returns the longest pause on this path.
    fn longest(&self) -> Duration {
        let round_trip = self.path.round_trip.unwrap_or_default();
        if self.talk {
            (round_trip / TALK_SHARE).clamp(PAUSE, TALK_MOST)
        } else {
            round_trip.mul_f64(PAUSE_SHARE).clamp(PAUSE, PAUSE_MOST)
        }
    }

    /// Returns how long to sleep, regardless of arrivals. Zero means not to sleep.
    pub(crate) fn pause(&self) -> Duration {
        let longest = self.longest();
        let gathered = self.rate * longest.as_secs_f64();
        let least = if self.talk { TALK_RATE_LEAST } else { 0.0 };
        if gathered < GATHERED_LEAST || !(least..self.rate_most).contains(&self.rate) {
            return Duration::ZERO;
        }
        let soon = (self.rate * GATHERED_SOON).min(GATHERED_FAST);
        let most = soon.max(GATHERED_MOST);
        longest.mul_f64((most / gathered).min(1.0)).max(PAUSE)
    }

    /// Returns how early acknowledgements may be sent.
    pub(crate) fn early(&self) -> Duration {
        (self.pause() / EARLY_SHARE).min(EARLY_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: PathSummary = PathSummary {
        round_trip: Some(Duration::from_millis(40)),
        send_at_once: false,
    };

    /// Notes turns of `bytes` each, `apart` from each other, for half a second. Returns the state after that.
    fn after(path: PathSummary, talk: bool, bytes: usize, apart: Duration, merges: bool) -> Gather {
        let mut now = Instant::now();
        let mut gather = Gather::new(now, merges);
        let end = now + Duration::from_millis(500);
        while now < end {
            now += apart;
            gather.note(now, bytes, talk);
            if gather.needs_path(now) {
                gather.set_path(now, path);
            }
        }
        gather
    }

    fn local(bytes: usize, apart: Duration, merges: bool) -> Duration {
        after(PathSummary::default(), false, bytes, apart, merges).pause()
    }

    #[test]
    fn single_packets_are_gathered_steadily() {
        for merges in [true, false] {
            assert_eq!(local(1500, Duration::from_micros(20), merges), PAUSE);
            assert_eq!(local(15_000, PAUSE, merges), PAUSE);
        }
    }

    #[test]
    fn packets_gather_longer_on_a_long_round_trip() {
        let ms = Duration::from_millis;
        let longest = ms(6);
        // 5 and 20 Mbit/s, first one packet at a time, then a pause's worth at once.
        for (bytes, apart) in [(1462, 2339), (1462, 585), (3125, 5000), (12_500, 5000)] {
            let gather = after(FAR, false, bytes, Duration::from_micros(apart), true);
            assert_eq!(gather.pause(), longest, "{bytes} bytes in {apart} us");
            assert_eq!(gather.early(), EARLY_MOST);
        }
        let slow = after(FAR, false, 1462, ms(6), true);
        assert_eq!(slow.pause(), Duration::ZERO, "one packet in a pause");
        assert_eq!(slow.early(), Duration::ZERO);
        let fast = after(FAR, false, 75_000, ms(1), true).pause();
        assert!(fast < ms(1) && fast > 4 * PAUSE, "64 KB: {fast:?}");
    }

    #[test]
    fn talk_waits_only_at_high_rates() {
        let micros = Duration::from_micros;
        let pause = |round_trip_ms, bytes, apart_us| {
            let path = PathSummary {
                round_trip: Some(Duration::from_millis(round_trip_ms)),
                send_at_once: false,
            };
            after(path, true, bytes, micros(apart_us), true).pause()
        };
        assert_eq!(pause(40, 1500, 600), Duration::ZERO, "20 Mbit/s");
        assert_eq!(pause(40, 15_000, 400), micros(800));
        assert_eq!(pause(1, 15_000, 200), PAUSE);
    }

    #[test]
    fn talk_that_begins_ends_the_pause_at_once() {
        let apart = Duration::from_micros(600);
        let mut gather = after(FAR, false, 1500, apart, true);
        assert!(gather.pause() > Duration::ZERO);
        gather.note(gather.since + apart, 1500, true);
        assert_eq!(gather.pause(), Duration::ZERO);
        gather.note(gather.since + apart, 1500, false);
        assert!(gather.pause() > Duration::ZERO);
        let path = PathSummary {
            send_at_once: true,
            ..FAR
        };
        gather.set_path(gather.since, path);
        gather.note(gather.since + apart, 1500, false);
        assert_eq!(gather.pause(), Duration::ZERO);
    }

    #[test]
    fn ping_pong_and_merged_floods_are_not_gathered() {
        let slow = Duration::from_micros(25);
        assert_eq!(local(60, slow, true), Duration::ZERO);
        assert_eq!(local(60, slow, false), Duration::ZERO);
        let flood = Duration::from_micros(100);
        assert_eq!(local(64_000, flood, true), Duration::ZERO);
        assert_eq!(local(64_000, flood, false), PAUSE, "in single packets");
    }

    #[test]
    fn packets_after_a_silence_do_not_wait() {
        let mut gather = after(FAR, false, 1500, Duration::from_micros(20), true);
        assert!(gather.pause() > Duration::ZERO);
        let later = gather.since + Duration::from_secs(1);
        gather.note(later, 1500, false);
        assert_eq!(gather.pause(), Duration::ZERO);
    }
}
