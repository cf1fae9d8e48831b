//! Repeats the last datagram of a flight if its acknowledgement is late.
//!
//! No packet follows the last one, so nothing shows that it is lost. The library's probe timer takes at least a round
//! trip plus the peer's acknowledgement delay plus a millisecond. Its probe only asks for an acknowledgement, and
//! lost data is retransmitted only when that has arrived: that costs five milliseconds for an answer that is one
//! millisecond away. Therefore this module sends the datagram itself again, a little after its acknowledgement was
//! due. To the peer that is a duplicate, as networks create them too, and the peer must accept it (RFC 9000 section
//! 12.3). The library does not know about the repeat, and its timers stay unchanged.
//!
//! If a repeat turned out to be needed, the path loses packets. The next flights that consist of a single datagram
//! are then sent twice without waiting, so that an application that asks one question after another does not notice a
//! loss. Longer flights are not sent twice: a copy is worth a packet only if an application waits for the answer, not
//! if more data follows anyway.

use std::time::{Duration, Instant};

/// Maximum size of a datagram that is kept. A request or response that an application waits for is rarely larger than
/// an Ethernet packet.
const DATAGRAM_MAX: usize = 1500;

/// Maximum number of times that one datagram is repeated. A third repeat would meet an outage rather than a lost
/// packet.
const REPEATS_MAX: u32 = 2;

/// Lateness, relative to the usual time, that is not due to chance: an eighth of that time, and at least the time for
/// which the peer may delay an acknowledgement (1 ms) and [`COPY_LEAST`].
const LATE_SHARE: u32 = 8;
const LATE_MIN: Duration = Duration::from_micros(1250);

/// Number of flights that are sent twice after a loss. It doubles after each further loss, up to `COPIES_MAX`.
const COPIES_MIN: u32 = 64;
const COPIES_MAX: u32 = 1024;

/// Number of flights, without losses or copies, after which earlier losses are forgotten.
const COPIES_FORGOTTEN: u32 = 512;

/// Delay of the copy, as a divisor of the usual time, and its limits: the time that one thread takes to wake another, and
/// the few milliseconds within which the packets of one burst are lost.
const COPY_SHARE: u32 = 8;
const COPY_LEAST: Duration = Duration::from_micros(250);
const COPY_MOST: Duration = Duration::from_millis(4);

/// If the usual time is shorter, no copy is sent: it would cost every answer more than it saves for the few that are
/// lost.
const COPIED_FROM: Duration = Duration::from_micros(750);

/// An acknowledgement that is sooner than usual moves the usual time by the difference divided by this.
const SETTLE_SHARE: u32 = 8;

/// Watches the end of what one connection has sent. A value of type `D` describes how a datagram is sent.
#[derive(Debug)]
pub struct TailRepeat<D> {
    /// Contents of the last datagram of the latest flight; empty if there is no datagram to watch.
    bytes: Vec<u8>,
    datagram: Option<D>,
    sent: Option<Instant>,
    due: Option<Instant>,
    /// Number of times the datagram was repeated, and the time of the latest repeat.
    repeats: u32,
    repeated: Option<Instant>,
    /// True if the datagram is still to be copied regardless of whether its acknowledgement is late.
    copy: bool,
    copies: CopyBudget,
    /// Recent time from a last datagram to its acknowledgement. The estimate tends to be too long rather than too
    /// short.
    usual: Option<Duration>,
}

impl<D> Default for TailRepeat<D> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            datagram: None,
            sent: None,
            due: None,
            repeats: 0,
            repeated: None,
            copy: false,
            copies: CopyBudget::default(),
            usual: None,
        }
    }
}

impl<D: Copy> TailRepeat<D> {
    /// Records that a batch of data was sent, after which there is nothing more to send. `datagram` describes how to
    /// send its last datagram, `bytes` is the content of that datagram, and `alone` says whether it is the only one.
    /// `rtt` is the smoothed round-trip time.
    pub fn handle_flight(
        &mut self,
        now: Instant,
        datagram: D,
        bytes: &[u8],
        alone: bool,
        rtt: Duration,
    ) {
        self.forget();
        if bytes.is_empty() || bytes.len() > DATAGRAM_MAX {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        self.datagram = Some(datagram);
        self.sent = Some(now);
        let usual = self.usual(rtt);
        let early = (usual / COPY_SHARE).clamp(COPY_LEAST, COPY_MOST);
        self.copy = alone && usual >= COPIED_FROM && self.copies.take();
        let wait = if self.copy { early } else { self.wait(rtt) };
        self.due = Some(now + wait);
    }

    /// Records that the flight was acknowledged. `min_rtt` decides whether the acknowledgement can be an answer to
    /// the repeat.
    pub fn handle_arrived(&mut self, now: Instant, min_rtt: Duration) {
        let Some(sent) = self.sent else { return };
        // An acknowledgement that arrives sooner than a round trip after the repeat is late, and answers the first
        // transmission: the repeat was not needed.
        let needless = |at: Instant| now.saturating_duration_since(at) < min_rtt * 7 / 8;
        if self.repeats < 2 && self.repeated.is_none_or(needless) {
            let took = now.saturating_duration_since(sent);
            self.usual = Some(match self.usual {
                Some(usual) => took.max((usual * (SETTLE_SHARE - 1) + took) / SETTLE_SHARE),
                None => took,
            });
        }
        if self.repeated.is_some_and(needless) {
            self.repeats = 0;
        }
        self.forget();
    }

    /// Stops watching the last datagram: more data follows, or the datagram was given up, or the path has changed.
    pub fn forget(&mut self) {
        // The datagram was repeated, and no acknowledgement of the first transmission arrived: count it as lost.
        if self.repeats > 0 {
            self.copies.on_lost();
        }
        self.bytes.clear();
        self.datagram = None;
        self.sent = None;
        self.due = None;
        self.repeats = 0;
        self.repeated = None;
        self.copy = false;
    }

    /// Returns the time at which [`TailRepeat::poll`] should be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Writes the datagram that is due for another transmission into `buffer`, and returns how to send it. `rtt` is
    /// the smoothed round-trip time, as in [`TailRepeat::handle_flight`].
    pub fn poll(&mut self, now: Instant, rtt: Duration, buffer: &mut Vec<u8>) -> Option<D> {
        let due = self.due.filter(|&due| due <= now)?;
        let sent = self.sent?;
        if std::mem::take(&mut self.copy) {
            self.due = Some(sent + self.wait(rtt));
        } else {
            self.repeats += 1;
            self.repeated = Some(now);
            // Wait twice as long as before.
            let waited = due.saturating_duration_since(sent);
            self.due = (self.repeats < REPEATS_MAX).then(|| now + waited * 2);
        }
        buffer.clear();
        buffer.extend_from_slice(&self.bytes);
        self.datagram
    }

    fn wait(&self, rtt: Duration) -> Duration {
        let usual = self.usual(rtt);
        usual + (usual / LATE_SHARE).max(LATE_MIN)
    }

    fn usual(&self, rtt: Duration) -> Duration {
        self.usual.unwrap_or(rtt).max(rtt)
    }
}

/// Decides how many of the next flights are sent twice.
#[derive(Debug, Default)]
struct CopyBudget {
    left: u32,
    /// Number of copies granted after the latest loss; 0 if that loss is forgotten.
    latest: u32,
    /// Number of flights since the last copy.
    alone: u32,
}

impl CopyBudget {
    /// Returns whether this flight is sent twice, and uses up one copy if so.
    fn take(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            self.alone = 0;
            return true;
        }
        self.alone = self.alone.saturating_add(1);
        if self.alone > COPIES_FORGOTTEN {
            self.latest = 0;
        }
        false
    }

    fn on_lost(&mut self) {
        self.latest = (self.latest * 2).clamp(COPIES_MIN, COPIES_MAX);
        self.left = self.latest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    struct Clock(Instant);

    impl Clock {
        fn at(&self, micros: u64) -> Instant {
            self.0 + Duration::from_micros(micros)
        }
    }

    /// Sends the 500-byte last datagram of a longer flight at time 0.
    fn sent(clock: &Clock, repeat: &mut TailRepeat<&str>) {
        let bytes: Vec<u8> = (2000..2500u32).map(|byte| (byte % 251) as u8).collect();
        repeat.handle_flight(clock.at(0), "the last", &bytes, false, RTT);
    }

    #[test]
    fn the_last_datagram_of_a_flight_is_repeated_twice_and_each_time_later() {
        let (clock, mut repeat) = (Clock(Instant::now()), TailRepeat::default());
        let mut buffer = Vec::new();
        sent(&clock, &mut repeat);
        assert_eq!(repeat.next_timeout(), Some(clock.at(11_250)));
        assert_eq!(repeat.poll(clock.at(11_249), RTT, &mut buffer), None);
        let again = repeat.poll(clock.at(11_250), RTT, &mut buffer);
        assert_eq!(again, Some("the last"));
        assert_eq!(buffer.len(), 500);
        assert_eq!(buffer[0], (2000 % 251) as u8);
        assert_eq!(repeat.next_timeout(), Some(clock.at(33_750)));
        assert!(repeat.poll(clock.at(33_750), RTT, &mut buffer).is_some());
        assert_eq!(repeat.next_timeout(), None);
    }

    #[test]
    fn a_datagram_that_was_acknowledged_or_followed_by_more_is_not_repeated() {
        let (clock, mut repeat) = (Clock(Instant::now()), TailRepeat::default());
        sent(&clock, &mut repeat);
        repeat.handle_arrived(clock.at(10_000), RTT);
        assert_eq!(repeat.next_timeout(), None);
        sent(&clock, &mut repeat);
        repeat.forget();
        assert_eq!(repeat.next_timeout(), None);
        repeat.handle_flight(clock.at(0), "nothing", &[], true, RTT);
        assert_eq!(repeat.next_timeout(), None);
    }

    #[test]
    fn a_datagram_is_not_repeated_while_the_peer_may_delay_its_acknowledgement() {
        let (clock, mut repeat) = (Clock(Instant::now()), TailRepeat::default());
        let rtt = Duration::from_micros(60);
        for _ in 0..100 {
            repeat.handle_flight(clock.at(0), "single", &[7; 900], true, rtt);
            assert!(repeat.next_timeout() > Some(clock.at(1060)));
            repeat.handle_arrived(clock.at(1060), rtt);
        }
    }

    #[test]
    fn only_an_unneeded_repeat_delays_the_next_one() {
        let (clock, mut repeat) = (Clock(Instant::now()), TailRepeat::default());
        let mut buffer = Vec::new();
        sent(&clock, &mut repeat);
        assert!(repeat.poll(clock.at(11_250), RTT, &mut buffer).is_some());
        // The acknowledgement answers the repeat.
        repeat.handle_arrived(clock.at(21_250), RTT);
        sent(&clock, &mut repeat);
        assert_eq!(repeat.next_timeout(), Some(clock.at(11_250)));
        assert!(repeat.poll(clock.at(11_250), RTT, &mut buffer).is_some());
        // The acknowledgement answers the first transmission.
        repeat.handle_arrived(clock.at(16_000), RTT);
        sent(&clock, &mut repeat);
        assert_eq!(repeat.next_timeout(), Some(clock.at(18_000)));
        // The usual time falls again after a single late acknowledgement.
        repeat.handle_arrived(clock.at(10_000), RTT);
        sent(&clock, &mut repeat);
        assert!(repeat.next_timeout() < Some(clock.at(18_000)));
    }

    /// Sends a flight of one datagram at time 0.
    fn single(clock: &Clock, repeat: &mut TailRepeat<&str>) {
        repeat.handle_flight(clock.at(0), "single", &[7; 900], true, RTT);
    }

    /// Loses the flight and delivers its repeat. Then sends the next flight.
    fn lose(clock: &Clock, repeat: &mut TailRepeat<&str>) {
        let mut buffer = Vec::new();
        let due = repeat.next_timeout().expect("a datagram to repeat");
        assert!(repeat.poll(due, RTT, &mut buffer).is_some());
        repeat.handle_arrived(due + RTT, RTT);
        single(clock, repeat);
    }

    /// Returns how many flights are sent twice before one is sent only once.
    fn copied(clock: &Clock, repeat: &mut TailRepeat<&str>) -> u32 {
        let mut count = 0;
        while repeat.next_timeout() == Some(clock.at(1250)) {
            count += 1;
            repeat.handle_arrived(clock.at(10_000), RTT);
            single(clock, repeat);
        }
        count
    }

    #[test]
    fn after_a_loss_single_datagrams_are_sent_twice_at_once_and_longer_each_time() {
        let (clock, mut repeat) = (Clock(Instant::now()), TailRepeat::default());
        single(&clock, &mut repeat);
        assert_eq!(copied(&clock, &mut repeat), 0, "nothing has been lost yet");
        for expected in [64, 128, 256, 512, 1024, 1024] {
            lose(&clock, &mut repeat);
            assert_eq!(copied(&clock, &mut repeat), expected);
        }
        for _ in 0..=512 {
            repeat.handle_arrived(clock.at(10_000), RTT);
            single(&clock, &mut repeat);
        }
        lose(&clock, &mut repeat);
        assert_eq!(copied(&clock, &mut repeat), 64);
    }

    #[test]
    fn a_copy_that_is_lost_too_is_followed_by_another_when_that_is_late() {
        let (clock, mut repeat) = (Clock(Instant::now()), TailRepeat::default());
        let mut buffer = Vec::new();
        single(&clock, &mut repeat);
        lose(&clock, &mut repeat);
        assert!(repeat.poll(clock.at(1250), RTT, &mut buffer).is_some());
        assert_eq!(buffer.len(), 900);
        assert_eq!(repeat.next_timeout(), Some(clock.at(11_250)));
        assert!(repeat.poll(clock.at(11_250), RTT, &mut buffer).is_some());
        assert_eq!(repeat.next_timeout(), Some(clock.at(33_750)));
    }

    #[test]
    fn the_end_of_a_longer_flight_is_not_copied() {
        let (clock, mut repeat) = (Clock(Instant::now()), TailRepeat::default());
        single(&clock, &mut repeat);
        lose(&clock, &mut repeat);
        for _ in 0..64 {
            sent(&clock, &mut repeat);
            assert_eq!(repeat.next_timeout(), Some(clock.at(11_250)));
        }
        single(&clock, &mut repeat);
        assert_eq!(copied(&clock, &mut repeat), 63, "no copy was used up");
    }

    /// Loses a flight of one datagram on a path of `micros` microseconds, and returns after what time the next flight
    /// is sent again.
    fn sent_again_after(micros: u64) -> Duration {
        let (clock, mut repeat) = (Clock(Instant::now()), TailRepeat::default());
        let (rtt, mut buffer) = (Duration::from_micros(micros), Vec::new());
        repeat.handle_flight(clock.at(0), "single", &[7; 900], true, rtt);
        let due = repeat.next_timeout().expect("a datagram to repeat");
        assert_eq!(due, clock.at(micros + 1250));
        assert!(repeat.poll(due, rtt, &mut buffer).is_some());
        repeat.handle_arrived(due + rtt, rtt);
        repeat.handle_flight(clock.at(0), "single", &[7; 900], true, rtt);
        repeat.next_timeout().expect("a datagram to repeat") - clock.at(0)
    }

    #[test]
    fn on_a_short_path_copies_wait_for_a_thread_and_on_a_shorter_one_nothing_is_copied() {
        let micros = Duration::from_micros;
        assert_eq!(sent_again_after(1000), micros(250));
        assert_eq!(sent_again_after(750), micros(250));
        assert_eq!(sent_again_after(700), micros(1950));
    }
}
