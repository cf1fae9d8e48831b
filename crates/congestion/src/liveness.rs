//! Decides whether the peer still answers.
//!
//! The idle timeout decides when a connection is dead. Long before that, silence decides that new flows should use
//! another connection. While the peer is silent it is probed repeatedly, because the library's probe timer backs off
//! exponentially. After 30 s of outage its next probe may be 20 s away, and after 2 s more than a second. If data is in
//! flight, an outage costs applications time, so the peer is then probed sooner and more often. The PINGs are small,
//! there is at most one per round trip, and they become less and less frequent.
//!
//! Only silence to which this side has listened counts. A process that did not run when a PING was due has not asked,
//! and its own pause says nothing about the peer. If the peer answers a datagram that left during the silence, and does so
//! late, then the path is well, and the peer was busy: the next answers get twice that time, so that the clients of a busy
//! server do not all dial. An outage loses such datagrams.

use std::time::{Duration, Instant};

/// Time that the peer may stay silent after it was first probed, before it counts as unresponsive.
const PATIENCE: Duration = Duration::from_millis(2500);

/// The keep-alive to an idle peer may be sent early, by the keep-alive time divided by this, so that one wake-up serves
/// many peers.
const EARLY_PART: u32 = 8;

/// Interval between two PINGs to a silent peer when no data is in flight.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Timing of PINGs while data is in flight. The first PING leaves after `ASK_UNACKED` or `ASK_UNACKED_ROUNDS` round
/// trips, whichever is later; by then the library has sent its first probes. Each interval after that is the length of
/// the silence divided by `ASK_UNACKED_PART`, but at least `ASK_UNACKED_LEAST` and at least one round trip.
const ASK_UNACKED: Duration = Duration::from_millis(200);
const ASK_UNACKED_ROUNDS: u32 = 4;
const ASK_UNACKED_PART: u32 = 32;
const ASK_UNACKED_LEAST: Duration = Duration::from_millis(50);

/// A path becomes suspect when data has been in flight for this long without any acknowledgement. The time is that of
/// two probe timeouts (RFC 9002 section 6.2.1) on a path whose round-trip times vary by a quarter, and at least
/// `SUSPECT`. If the peer was sending data, `SUSPECT` counts from its last datagram: its data is in flight, too.
const SUSPECT: Duration = Duration::from_millis(600);
const SUSPECT_ROUNDS: u32 = 4;
const SUSPECT_DELAY: Duration = Duration::from_millis(50);

/// Limits how long the answers of a late peer are waited for, and how long a late answer is remembered.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(3);
const LATE_ANSWER_AGE: Duration = Duration::from_mins(1);

/// A peer that was sending data is probed after this much silence: it may have paused between two messages, or the
/// path may be dead.
const PAUSE: Duration = Duration::from_millis(250);

/// A timeout that is handled later than this is late: the process did not run meanwhile. Shorter delays are those of
/// timers and of a busy event loop.
const LATE: Duration = Duration::from_millis(50);

/// Tracks the liveness of one connection's peer.
#[derive(Debug)]
pub struct Liveness {
    keep_alive: Duration,
    heard: Instant,
    asked: Option<Instant>,
    /// Send time of the first datagram that is still unacknowledged, and the time that its answer may take: at least the
    /// smoothed round-trip time at that moment.
    unacked: Option<(Instant, Duration)>,
    /// True if the peer was sending data when it was last heard.
    expecting: bool,
    /// Time at which the peer was last heard, if it was sending data then and has been probed since.
    paused: Option<Instant>,
    suspect: bool,
    unresponsive: bool,
    late_answer: LateAnswer,
    ended: Option<Silence>,
}

/// A silence that made the path suspect.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// An outage that is the reason has lost what left at this time or later.
    asked: Instant,
    /// An answer that took this time was late.
    late: Duration,
    end: Instant,
    length: Duration,
}

/// The longest recent silence that was suspicious, and by which the peer, not the path, was late. A later one is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LateAnswer {
    until: Option<Instant>,
    silence: Duration,
}

impl LateAnswer {
    /// Returns the time that an answer may take on a path whose round trip takes `rtt`.
    pub fn answer_time(&self, now: Instant, rtt: Duration) -> Duration {
        let late = self.until.is_some_and(|until| now < until);
        if late { rtt.max(self.silence / 2) } else { rtt }
    }

    fn note(&mut self, now: Instant, silence: Duration) {
        let longest = self.answer_time(now, Duration::ZERO) * 2;
        self.silence = silence.min(LATE_ANSWER_MAX).max(longest);
        self.until = Some(now + LATE_ANSWER_AGE);
    }
}

/// The state that the peer's silence had reached before something from it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The silence was not suspicious.
    None,
    /// The silence was long enough for the path to be suspect.
    FromSuspicion,
    /// The silence was long enough for the peer to count as unresponsive.
    FromSilence,
}

/// The action that a timeout asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutAction {
    /// No action is needed.
    Fine,
    /// The caller should send a PING.
    Ask,
    /// Send a PING; the path has just become suspect.
    Suspect,
    /// Send a PING; the peer has just become unresponsive.
    Lost,
}

impl Liveness {
    /// Creates the state for a peer that was heard just now, and that is probed after `keep_alive` of silence.
    pub fn new(now: Instant, keep_alive: Duration) -> Self {
        Self {
            keep_alive,
            heard: now,
            asked: None,
            unacked: None,
            expecting: false,
            paused: None,
            suspect: false,
            unresponsive: false,
            late_answer: LateAnswer::default(),
            ended: None,
        }
    }

    /// Takes the late answer of another connection to the peer.
    pub fn remember(&mut self, late_answer: LateAnswer) {
        self.late_answer = late_answer;
    }

    /// Records that a datagram left, and that something is in flight that the peer will acknowledge, even if it is
    /// only a PING. `rtt` is the smoothed round-trip time.
    pub fn handle_sent(&mut self, now: Instant, rtt: Duration) {
        let late_answer = self.late_answer;
        self.unacked
            .get_or_insert_with(|| (now, late_answer.answer_time(now, rtt)));
    }

    /// Returns the late answer of the peer, for other connections.
    pub fn late_answer(&self) -> LateAnswer {
        self.late_answer
    }

    /// Records that the peer sends data and may send more.
    pub fn expect_more(&mut self) {
        self.expecting = true;
    }

    /// Handles a datagram of the connection that acknowledges nothing.
    ///
    /// The data in flight may still not have arrived: a path can be dead in one direction, and the peer then sends
    /// the same data again and again.
    pub fn handle_heard_without_ack(&mut self, now: Instant) -> Recovery {
        if self.unacked.is_none() {
            return self.handle_heard(now);
        }
        self.heard = now;
        self.paused = None;
        Recovery::None
    }

    /// Handles a datagram of the connection that acknowledges data in flight. `oldest` is the greatest age of what it
    /// acknowledges, among what is not older than [`Liveness::asked_for`]. Returns what state the peer's silence had
    /// reached before.
    pub fn handle_acked(&mut self, now: Instant, oldest: Duration) -> Recovery {
        let recovery = self.handle_heard(now);
        if let Some(silence) = self.ended.take_if(|it| oldest >= it.late) {
            self.late_answer.note(now, silence.length);
        }
        recovery
    }

    /// Returns for how long the peer has been asked in vain, or was until a moment ago, if the silence is suspicious.
    pub fn asked_for(&self, now: Instant) -> Duration {
        let recent = |it: &Silence| now < it.end + it.length;
        let silence = self.silence(now).or(self.ended.filter(recent));
        silence.map_or(Duration::ZERO, |it| now.saturating_duration_since(it.asked))
    }

    fn silence(&self, now: Instant) -> Option<Silence> {
        let since = self.stalled_since().filter(|_| self.suspect)?;
        let (sent, rtt) = self.unacked?;
        Some(Silence {
            asked: sent + 2 * rtt + SUSPECT_DELAY,
            late: (2 * rtt).max(SUSPECT / 2),
            end: now,
            length: now.saturating_duration_since(since),
        })
    }

    /// Handles something of the peer that shows that data in flight has arrived. Returns what state the peer's silence had
    /// reached before.
    pub fn handle_heard(&mut self, now: Instant) -> Recovery {
        self.ended = self.silence(now).or(self.ended);
        self.heard = now;
        self.asked = None;
        self.unacked = None;
        self.paused = None;
        let suspect = std::mem::take(&mut self.suspect);
        match std::mem::take(&mut self.unresponsive) {
            true => Recovery::FromSilence,
            false if suspect => Recovery::FromSuspicion,
            false => Recovery::None,
        }
    }

    /// Withdraws the verdict that the peer is unresponsive, because the caller does not probe the peer.
    pub fn withdraw_unresponsive(&mut self) {
        self.unresponsive = false;
    }

    /// Returns when the last datagram of the peer arrived.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// Returns since when the path has carried nothing: the send time of the first datagram that the peer has not
    /// acknowledged since, or the arrival of the last one from a peer that was sending data, if that was earlier.
    pub fn stalled_since(&self) -> Option<Instant> {
        let (since, _) = self.unacked?;
        Some(self.paused.map_or(since, |heard| heard.min(since)))
    }

    /// Returns whether data has been in flight for longer than the path explains.
    pub fn suspect(&self) -> bool {
        self.suspect
    }

    /// Returns whether the peer has stopped answering.
    pub fn unresponsive(&self) -> bool {
        self.unresponsive
    }

    /// Returns whether no answer of the peer is due. The next timeout then only checks that the peer is still there,
    /// and may be handled earlier by [`Liveness::early`].
    pub fn is_idle(&self) -> bool {
        self.asked.is_none() && self.unacked.is_none() && !self.expecting
    }

    /// Returns how much earlier than after `keep_alive` an idle peer may be probed.
    pub fn early(keep_alive: Duration) -> Duration {
        keep_alive / EARLY_PART
    }

    /// Returns the time at which [`Liveness::handle_timeout`] should be called.
    pub fn next_timeout(&self) -> Instant {
        let ask = match self.asked {
            None if self.expecting => self.heard + PAUSE.min(self.keep_alive),
            None => self.heard + self.keep_alive,
            Some(asked) => asked + ASK_AGAIN,
        };
        let ask = self
            .ask_unacked_at()
            .map_or(ask, |unacked| unacked.min(ask));
        let ask = match self.suspect_at() {
            Some(at) if !self.suspect => ask.min(at),
            _ => ask,
        };
        let judged = self.asked.is_some_and(|at| at >= self.patience_ends());
        if judged {
            ask
        } else {
            ask.min(self.patience_ends())
        }
    }

    /// Returns when to ask for an acknowledgement of the data in flight.
    fn ask_unacked_at(&self) -> Option<Instant> {
        let (since, rtt) = self.unacked?;
        let Some(asked) = self.asked.filter(|asked| *asked > since) else {
            return Some(since + ASK_UNACKED.max(ASK_UNACKED_ROUNDS * rtt));
        };
        let part = asked.saturating_duration_since(since) / ASK_UNACKED_PART;
        Some(asked + part.max(ASK_UNACKED_LEAST).max(rtt))
    }

    fn suspect_at(&self) -> Option<Instant> {
        let (since, rtt) = self.unacked?;
        let silent = self.stalled_since()? + SUSPECT;
        Some(silent.max(since + SUSPECT_ROUNDS * rtt + SUSPECT_DELAY))
    }

    fn patience_ends(&self) -> Instant {
        self.heard + self.keep_alive + PATIENCE
    }

    /// Takes the time by which a timeout was late out of the silence. The peer has the rest of its time from now on.
    fn excuse(&mut self, now: Instant, late: Duration) {
        if late <= LATE {
            return;
        }
        let unacked = self.unacked.as_mut().map(|(since, _)| since);
        let times = [Some(&mut self.heard), unacked, self.paused.as_mut()];
        for time in times.into_iter().flatten() {
            *time = now.min(*time + late);
        }
    }

    /// Handles a timeout, and returns the action that it asks for. Returns [`TimeoutAction::Fine`] if the timeout is
    /// not due yet.
    pub fn handle_timeout(&mut self, now: Instant) -> TimeoutAction {
        let early = if self.is_idle() {
            Self::early(self.keep_alive)
        } else {
            Duration::ZERO
        };
        let due = self.next_timeout();
        if now + early < due {
            return TimeoutAction::Fine;
        }
        self.excuse(now, now.saturating_duration_since(due));
        self.asked = Some(now);
        if std::mem::take(&mut self.expecting) {
            self.paused = Some(self.heard);
        }
        if !self.unresponsive && now >= self.patience_ends() {
            self.suspect = true;
            self.unresponsive = true;
            return TimeoutAction::Lost;
        }
        if !self.suspect && self.suspect_at().is_some_and(|at| now >= at) {
            self.suspect = true;
            return TimeoutAction::Suspect;
        }
        TimeoutAction::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idle_peer_may_be_asked_a_little_earlier() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut liveness = Liveness::new(start, ms(2000));
        assert_eq!(Liveness::early(ms(2000)), ms(250));
        assert_eq!(
            liveness.handle_timeout(start + ms(1749)),
            TimeoutAction::Fine
        );
        assert_eq!(
            liveness.handle_timeout(start + ms(1750)),
            TimeoutAction::Ask
        );
        assert!(!liveness.is_idle(), "the PING expects an answer");
        assert_eq!(liveness.next_timeout(), start + ms(2750));
        assert_eq!(
            liveness.handle_timeout(start + ms(2749)),
            TimeoutAction::Fine
        );
    }

    #[test]
    fn a_peer_is_asked_for_a_while_before_it_is_given_up() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start, Duration::from_secs(1));
        let mut verdicts = Vec::new();
        while verdicts
            .last()
            .is_none_or(|(_, verdict)| *verdict == TimeoutAction::Ask)
        {
            let at = liveness.next_timeout();
            verdicts.push((at - start, liveness.handle_timeout(at)));
        }
        let ms = Duration::from_millis;
        let asked = [
            (ms(1000), TimeoutAction::Ask),
            (ms(2000), TimeoutAction::Ask),
            (ms(3000), TimeoutAction::Ask),
        ];
        assert_eq!(verdicts[..3], asked);
        assert_eq!(verdicts[3..], [(ms(3500), TimeoutAction::Lost)]);
        assert!(liveness.unresponsive());
        assert_eq!(
            liveness.handle_heard(start + ms(3600)),
            Recovery::FromSilence
        );
        assert!(!liveness.unresponsive());
    }

    #[test]
    fn a_peer_with_unacknowledged_data_is_asked_ever_more_rarely() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut liveness = Liveness::new(start, Duration::from_secs(2));
        liveness.handle_sent(start + ms(1500), ms(20));
        let mut asked = Vec::new();
        while !liveness.unresponsive() {
            let at = liveness.next_timeout();
            assert_ne!(liveness.handle_timeout(at), TimeoutAction::Fine);
            asked.push(at - start);
        }
        assert_eq!(asked[..3], [ms(1700), ms(1750), ms(1800)]);
        assert_eq!(asked.last(), Some(&ms(4500)), "patience ends as usual");
        let [.., one, next, _] = asked[..] else {
            panic!("{asked:?}");
        };
        assert!(one + ms(80) < next && next < one + ms(100), "{asked:?}");

        liveness.handle_heard(start + ms(5000));
        assert_eq!(liveness.next_timeout(), start + ms(7000), "keep-alive only");
        liveness.handle_sent(start + ms(5000), ms(300));
        let first = liveness.next_timeout();
        liveness.handle_timeout(first);
        assert_eq!(first, start + ms(6200), "after four round trips");
        let suspect = liveness.next_timeout();
        assert_eq!(suspect, start + ms(6250), "four round trips and the delay");
        assert_eq!(liveness.handle_timeout(suspect), TimeoutAction::Suspect);
        assert_eq!(liveness.next_timeout(), suspect + ms(300), "a round trip");
    }

    #[test]
    fn a_path_with_data_in_flight_is_suspect_once_and_until_the_peer_is_heard() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut liveness = Liveness::new(start, Duration::from_secs(2));
        liveness.handle_sent(start, ms(20));
        let mut suspected = Vec::new();
        while !liveness.unresponsive() {
            let at = liveness.next_timeout();
            if liveness.handle_timeout(at) == TimeoutAction::Suspect {
                suspected.push(at - start);
            }
        }
        assert_eq!(suspected, [ms(600)]);
        assert!(liveness.suspect());
        assert_eq!(
            liveness.handle_heard(start + ms(5000)),
            Recovery::FromSilence
        );
        liveness.handle_sent(start + ms(5000), ms(20));
        while !liveness.suspect() {
            liveness.handle_timeout(liveness.next_timeout());
        }
        assert_eq!(
            liveness.handle_heard(start + ms(5700)),
            Recovery::FromSuspicion
        );
        assert_eq!(liveness.handle_heard(start + ms(5701)), Recovery::None);
    }

    #[test]
    fn a_process_that_did_not_run_asks_the_peer_before_it_judges_the_silence() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        // The keep-alive was due after two seconds.
        let mut liveness = Liveness::new(start, Duration::from_secs(2));
        assert_eq!(
            liveness.handle_timeout(start + ms(7000)),
            TimeoutAction::Ask
        );
        let mut lost = None;
        while lost.is_none() {
            let at = liveness.next_timeout();
            lost = (liveness.handle_timeout(at) == TimeoutAction::Lost).then_some(at - start);
        }
        assert_eq!(lost, Some(ms(9500)), "the patience begins with the PING");

        // The first PING about the data was due after 200 ms.
        let mut liveness = Liveness::new(start, Duration::from_secs(2));
        liveness.handle_sent(start, ms(20));
        assert_eq!(
            liveness.handle_timeout(start + ms(1500)),
            TimeoutAction::Ask
        );
        let mut suspected = None;
        while suspected.is_none() {
            let at = liveness.next_timeout();
            let suspect = liveness.handle_timeout(at) == TimeoutAction::Suspect;
            suspected = suspect.then_some(at - start);
        }
        assert_eq!(suspected, Some(ms(1900)), "the rest of 600 ms");
    }

    #[test]
    fn a_peer_that_was_sending_is_asked_once_when_it_pauses() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut liveness = Liveness::new(start, Duration::from_secs(2));
        liveness.handle_heard(start + ms(100));
        liveness.expect_more();
        assert!(!liveness.is_idle());
        assert_eq!(liveness.next_timeout(), start + ms(350));
        assert_eq!(
            liveness.handle_timeout(start + ms(349)),
            TimeoutAction::Fine
        );
        assert_eq!(liveness.handle_timeout(start + ms(350)), TimeoutAction::Ask);
        liveness.handle_sent(start + ms(350), ms(20));
        liveness.handle_heard(start + ms(370));
        assert!(liveness.is_idle());
        assert_eq!(liveness.next_timeout(), start + ms(2370));
    }

    #[test]
    fn a_path_is_suspect_a_while_after_the_last_datagram_of_a_peer_that_was_sending() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let suspected = |rtt, heard_again: Option<Duration>| {
            let mut liveness = Liveness::new(start, Duration::from_secs(2));
            liveness.expect_more();
            assert_eq!(liveness.handle_timeout(start + ms(250)), TimeoutAction::Ask);
            liveness.handle_sent(start + ms(250), rtt);
            if let Some(after) = heard_again {
                liveness.handle_heard_without_ack(start + after);
            }
            loop {
                let at = liveness.next_timeout();
                if liveness.handle_timeout(at) == TimeoutAction::Suspect {
                    return at - start;
                }
            }
        };
        assert_eq!(suspected(ms(20), None), ms(600));
        assert_eq!(suspected(ms(100), None), ms(700), "an answer needs time");
        // The peer's data arrives, so only the answer to the PING is missing.
        assert_eq!(suspected(ms(20), Some(ms(300))), ms(850));
    }

    #[test]
    fn a_path_that_is_dead_one_way_is_suspect_though_the_peer_is_heard() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut liveness = Liveness::new(start, Duration::from_secs(2));
        liveness.handle_sent(start, ms(20));
        let mut suspected = Vec::new();
        for tick in 1..1000 {
            let now = start + ms(10 * tick);
            assert_eq!(liveness.handle_heard_without_ack(now), Recovery::None);
            if liveness.handle_timeout(now) == TimeoutAction::Suspect {
                suspected.push(now - start);
            }
        }
        assert_eq!(suspected, [ms(600)]);
        assert!(liveness.suspect() && !liveness.unresponsive());
        let now = start + ms(10_000);
        assert_eq!(liveness.handle_heard(now), Recovery::FromSuspicion);
        assert_eq!(
            liveness.handle_heard_without_ack(now + ms(1)),
            Recovery::None
        );
        assert!(liveness.is_idle(), "the peer owes no acknowledgement");
    }

    /// Returns how long a path takes to become suspect, if data left at `start` and nothing arrives.
    fn suspected_after(liveness: &mut Liveness, start: Instant) -> Duration {
        liveness.handle_heard(start);
        liveness.handle_sent(start, Duration::from_millis(20));
        loop {
            let at = liveness.next_timeout();
            if liveness.handle_timeout(at) == TimeoutAction::Suspect {
                return at - start;
            }
        }
    }

    #[test]
    fn a_peer_whose_answer_was_late_gets_more_time_for_a_minute() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut liveness = Liveness::new(start, Duration::from_secs(20));
        assert_eq!(suspected_after(&mut liveness, start), ms(600));
        assert_eq!(liveness.asked_for(start + ms(1000)), ms(910));
        let back = liveness.handle_acked(start + ms(1000), Duration::ZERO);
        assert_eq!(back, Recovery::FromSuspicion);
        assert_eq!(liveness.late_answer(), LateAnswer::default());
        liveness.handle_acked(start + ms(1001), ms(800));
        let (late, second) = (liveness.late_answer(), start + ms(5000));
        assert_eq!(suspected_after(&mut liveness, second), ms(2050));
        liveness.handle_acked(second + ms(4000), ms(2000));
        let third = second + ms(6000);
        assert_eq!(suspected_after(&mut liveness, third), ms(6050), "the limit");

        // Other connections take what this one knows.
        let mut next = Liveness::new(start, Duration::from_secs(20));
        next.remember(late);
        assert_eq!(suspected_after(&mut next, second), ms(2050));
        let forgotten = start + ms(62_000);
        next.handle_heard(forgotten);
        assert_eq!(suspected_after(&mut next, forgotten), ms(600));
    }

    #[test]
    fn an_outage_and_a_short_silence_are_no_late_answers() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut liveness = Liveness::new(start, Duration::from_secs(20));
        liveness.handle_sent(start, ms(20));
        assert_eq!(liveness.asked_for(start + ms(500)), Duration::ZERO);
        liveness.handle_acked(start + ms(500), ms(400));
        let second = start + ms(5000);
        assert_eq!(suspected_after(&mut liveness, second), SUSPECT);
        // The answer is that to data from after the outage, and that to data from before it does not count.
        assert_eq!(liveness.asked_for(second + ms(4900)), ms(4810));
        liveness.handle_acked(second + ms(4900), ms(20));
        liveness.handle_acked(second + ms(4950), ms(70));
        assert_eq!(liveness.asked_for(second + ms(9799)), ms(9709));
        assert_eq!(liveness.asked_for(second + ms(9800)), Duration::ZERO);
        let third = second + ms(10_000);
        assert_eq!(suspected_after(&mut liveness, third), SUSPECT);
    }
}
