//! The last datagram of a flight, sent again where its acknowledgement is late.
//!
//! Nothing follows a last packet, so nothing shows that it is lost. The library's probe timer is a round
//! trip, the peer's delay and a millisecond at the least; its probe only asks for an acknowledgement, and
//! what is lost follows when that has come: five milliseconds for an answer that one away. Therefore the
//! datagram itself is sent again a little after its acknowledgement was due. To the peer that is a
//! duplicate as networks make them, which it must put up with (RFC 9000 section 12.3); the library knows
//! nothing of it, and its timers stay what they are.
//!
//! Where that turned out to be needed, the path loses packets, and the next flights of a single datagram are sent
//! twice without waiting for anything: an application that asks one question after the other notices nothing of a loss
//! then. Longer flights are not: a copy is worth a packet where an answer is waited for, not where more follows anyway.

use std::time::{Duration, Instant};

/// A longer datagram is not kept: an answer that is waited for is seldom more than a packet of an Ethernet.
const DATAGRAM_MAX: usize = 1500;

/// Times that one datagram is sent again. A third time would meet an outage, not a lost packet.
const REPEATS_MAX: u32 = 2;

/// Lateness over what was usual so far that is no accident: an eighth of it, and what a thread that is
/// woken by another takes.
const LATE_SHARE: u32 = 8;
const LATE_MIN: Duration = Duration::from_micros(250);

/// Flights that are sent twice after a loss; twice as many each time, up to the latter, where losses go on.
const COPIES_MIN: u32 = 64;
const COPIES_MAX: u32 = 1024;

/// Flights without loss and without copies after which what was lost before is forgotten.
const COPIES_FORGOTTEN: u32 = 512;

/// The copy follows after this part of the usual time: what is lost together is lost within some milliseconds. Where
/// that is less than [`LATE_MIN`] there is none: it would cost every answer more than it saves the few that are lost.
const COPY_SHARE: u32 = 8;
const COPY_MOST: Duration = Duration::from_millis(4);

/// An acknowledgement sooner than usual moves what is usual by this part of the difference.
const SETTLE_SHARE: u32 = 8;

/// Watches over the end of what one connection has sent. A value of type `D` says how a datagram is sent.
#[derive(Debug)]
pub struct Repeat<D> {
    /// The last datagram of the latest flight; empty: there is none to watch over.
    bytes: Vec<u8>,
    datagram: Option<D>,
    sent: Option<Instant>,
    due: Option<Instant>,
    /// Times it was sent again, and when the latest was.
    repeats: u32,
    repeated: Option<Instant>,
    /// It is still to be sent for the second time without its acknowledgement being late.
    copy: bool,
    copies: Copies,
    /// Time from a last datagram to its acknowledgement as it was lately, rather too long than too short.
    usual: Option<Duration>,
}

impl<D> Default for Repeat<D> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            datagram: None,
            sent: None,
            due: None,
            repeats: 0,
            repeated: None,
            copy: false,
            copies: Copies::default(),
            usual: None,
        }
    }
}

impl<D: Copy> Repeat<D> {
    /// A batch of data was sent after which there is nothing to send: `datagram` is its last one, `bytes` what that has, and
    /// `alone` whether it is the only one. `rtt` is the smoothed round-trip time.
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
        let early = (self.usual(rtt) / COPY_SHARE).min(COPY_MOST);
        self.copy = alone && early >= LATE_MIN && self.copies.take();
        let wait = if self.copy { early } else { self.wait(rtt) };
        self.due = Some(now + wait);
    }

    /// The flight was acknowledged. `min_rtt` tells whether that can be an answer to the repeat.
    pub fn handle_arrived(&mut self, now: Instant, min_rtt: Duration) {
        let Some(sent) = self.sent else { return };
        // Sooner than a round trip after the repeat: that was not needed, and the first one was late.
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

    /// There is no last datagram to watch over: more follows, or it was given up, or the path has changed.
    pub fn forget(&mut self) {
        // Its acknowledgement was late, and what comes now is no answer to the first one.
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

    /// When [`Repeat::poll`] wants to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// The datagram to be sent again now, put into `buffer`. `rtt` as in [`Repeat::handle_flight`].
    pub fn poll(&mut self, now: Instant, rtt: Duration, buffer: &mut Vec<u8>) -> Option<D> {
        let due = self.due.filter(|&due| due <= now)?;
        let sent = self.sent?;
        if std::mem::take(&mut self.copy) {
            self.due = Some(sent + self.wait(rtt));
        } else {
            self.repeats += 1;
            self.repeated = Some(now);
            // Twice as long as before.
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

/// How many of the next flights are sent twice.
#[derive(Debug, Default)]
struct Copies {
    left: u32,
    /// How many there were after the latest loss; 0: that is forgotten.
    latest: u32,
    /// Flights since the last copy.
    alone: u32,
}

impl Copies {
    /// Whether this flight is one of them.
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

    /// A flight of 2.5 datagrams at time 0.
    fn sent(clock: &Clock, repeat: &mut Repeat<&str>) {
        let bytes: Vec<u8> = (2000..2500u32).map(|byte| (byte % 251) as u8).collect();
        repeat.handle_flight(clock.at(0), "the last", &bytes, false, RTT);
    }

    #[test]
    fn the_last_datagram_of_a_flight_is_repeated_twice_and_each_time_later() {
        let (clock, mut repeat) = (Clock(Instant::now()), Repeat::default());
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
    fn what_was_acknowledged_or_is_followed_by_more_is_not_repeated() {
        let (clock, mut repeat) = (Clock(Instant::now()), Repeat::default());
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
    fn a_repeat_that_was_not_needed_makes_the_next_later_and_one_that_was_does_not() {
        let (clock, mut repeat) = (Clock(Instant::now()), Repeat::default());
        let mut buffer = Vec::new();
        sent(&clock, &mut repeat);
        assert!(repeat.poll(clock.at(11_250), RTT, &mut buffer).is_some());
        // Answers the repeat.
        repeat.handle_arrived(clock.at(21_250), RTT);
        sent(&clock, &mut repeat);
        assert_eq!(repeat.next_timeout(), Some(clock.at(11_250)));
        assert!(repeat.poll(clock.at(11_250), RTT, &mut buffer).is_some());
        // Answers the first.
        repeat.handle_arrived(clock.at(16_000), RTT);
        sent(&clock, &mut repeat);
        assert_eq!(repeat.next_timeout(), Some(clock.at(18_000)));
        // What was late once is forgotten again.
        repeat.handle_arrived(clock.at(10_000), RTT);
        sent(&clock, &mut repeat);
        assert!(repeat.next_timeout() < Some(clock.at(18_000)));
    }

    /// A flight of one datagram at time 0.
    fn single(clock: &Clock, repeat: &mut Repeat<&str>) {
        repeat.handle_flight(clock.at(0), "single", &[7; 900], true, RTT);
    }

    /// The flight is lost, and what was sent again arrives.
    fn lose(clock: &Clock, repeat: &mut Repeat<&str>) {
        let mut buffer = Vec::new();
        let due = repeat.next_timeout().expect("it is watched over");
        assert!(repeat.poll(due, RTT, &mut buffer).is_some());
        repeat.handle_arrived(due + RTT, RTT);
        single(clock, repeat);
    }

    /// How many flights are sent twice until one is not.
    fn copied(clock: &Clock, repeat: &mut Repeat<&str>) -> u32 {
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
        let (clock, mut repeat) = (Clock(Instant::now()), Repeat::default());
        single(&clock, &mut repeat);
        assert_eq!(copied(&clock, &mut repeat), 0, "nothing was lost yet");
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
        let (clock, mut repeat) = (Clock(Instant::now()), Repeat::default());
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
        let (clock, mut repeat) = (Clock(Instant::now()), Repeat::default());
        single(&clock, &mut repeat);
        lose(&clock, &mut repeat);
        for _ in 0..64 {
            sent(&clock, &mut repeat);
            assert_eq!(repeat.next_timeout(), Some(clock.at(11_250)));
        }
        single(&clock, &mut repeat);
        assert_eq!(copied(&clock, &mut repeat), 63, "none was used up");
    }

    #[test]
    fn on_a_short_path_nothing_is_copied() {
        let (clock, mut repeat) = (Clock(Instant::now()), Repeat::default());
        let (short, mut buffer) = (RTT / 10, Vec::new());
        for _ in 0..2 {
            repeat.handle_flight(clock.at(0), "single", &[7; 900], true, short);
            assert_eq!(repeat.next_timeout(), Some(clock.at(1250)));
            assert!(repeat.poll(clock.at(1250), short, &mut buffer).is_some());
            repeat.handle_arrived(clock.at(2250), short);
        }
    }
}
