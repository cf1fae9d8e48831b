//! Detects whether applications talk: they exchange messages and wait for answers, so that every millisecond counts.
//!
//! The opening of a connection or a flow counts as talk. A flow also talks while it moves little data at a time
//! ([`MessageDetector`]). While no flow talks, packets may be gathered.

use std::time::{Duration, Instant};

use quictun_flow::MessageDetector;

/// Length of a detector's span.
const SPAN: Duration = Duration::from_millis(100);

/// Time after an opening during which messages are expected: a greeting, a request and its answer.
/// `OPENING_ROUND_TRIPS` is the same in round trips, which a connection needs to find the capacity of the path.
const OPENING: Duration = Duration::from_millis(500);
const OPENING_ROUND_TRIPS: u32 = 10;

/// Time without data of any flow after which nothing is expected to follow within microseconds.
const QUIET: Duration = Duration::from_millis(100);

/// Time after a message during which more are expected, because a person who types pauses to think.
const MORE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Talk {
    began: Option<Instant>,
    /// Time of the latest opening.
    opened: Option<Instant>,
    /// Time until which more messages are expected.
    until: Option<Instant>,
    /// Time at which data of a flow moved last.
    moved: Option<Instant>,
    /// The shortest round trip of all connections.
    round_trip: Duration,
}

impl Talk {
    pub(crate) fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    /// Records that a connection or a flow opens, or has completed a step of its opening.
    pub(crate) fn note_opening(&mut self, now: Instant) {
        self.opened = Some(now);
    }

    /// Records that `bytes` of a flow move, and counts them in its detector.
    pub(crate) fn note_moved(
        &mut self,
        now: Instant,
        detector: &mut MessageDetector,
        bytes: usize,
    ) {
        if bytes == 0 {
            return;
        }
        self.moved = Some(now);
        let began = *self.began.get_or_insert(now);
        let spans = now.saturating_duration_since(began).as_millis() / SPAN.as_millis();
        // Spans start at 1. A detector that has counted nothing stands at 0.
        let span = u32::try_from(spans).unwrap_or(u32::MAX).saturating_add(1);
        if detector.add(span, bytes) {
            self.until = Some(now + MORE);
        }
    }

    /// Returns whether messages are expected.
    pub(crate) fn expects_messages(&self, now: Instant) -> bool {
        self.opens(now) || self.until.is_some_and(|until| now < until)
    }

    /// Returns whether nothing opens, and no data of a flow has moved for a while.
    pub(crate) fn is_quiet(&self, now: Instant) -> bool {
        let moves = |at| now.saturating_duration_since(at) < QUIET;
        !self.opens(now) && !self.moved.is_some_and(moves)
    }

    fn opens(&self, now: Instant) -> bool {
        let opening = OPENING.max(self.round_trip * OPENING_ROUND_TRIPS);
        let recent = |at| now.saturating_duration_since(at) < opening;
        self.opened.is_some_and(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves `bytes` at intervals of `apart` for `lasts`, after a flow has opened. Returns whether messages are
    /// expected at the end.
    fn after(bytes: usize, apart: Duration, lasts: Duration) -> bool {
        let begin = Instant::now();
        let (mut talk, mut detector) = (Talk::default(), MessageDetector::default());
        talk.set_round_trip(Duration::from_millis(40));
        talk.note_opening(begin);
        assert!(talk.expects_messages(begin));
        let mut now = begin;
        while now < begin + lasts {
            now += apart;
            talk.note_moved(now, &mut detector, bytes);
        }
        talk.expects_messages(now)
    }

    #[test]
    fn keystrokes_are_talk_and_a_transfer_is_not() {
        let ms = Duration::from_millis;
        assert!(after(1, ms(1), ms(5000)), "echoes without a pause");
        assert!(after(40, ms(300), ms(5000)), "typing");
        assert!(after(40, ms(7000), ms(60_000)), "thinking");
        assert!(!after(1400, ms(3), ms(5000)), "3.7 Mbit/s");
        assert!(!after(64_000, ms(100), ms(5000)), "5 Mbit/s in blocks");
    }

    #[test]
    fn a_transfer_is_not_talk_once_it_has_opened() {
        let ms = Duration::from_millis;
        assert!(after(1400, ms(1), ms(480)));
        assert!(!after(1400, ms(1), ms(520)));
    }

    #[test]
    fn it_is_quiet_once_nothing_opens_and_nothing_has_moved_for_a_while() {
        let ms = Duration::from_millis;
        let begin = Instant::now();
        let (mut talk, mut detector) = (Talk::default(), MessageDetector::default());
        assert!(talk.is_quiet(begin));
        talk.note_opening(begin);
        assert!(!talk.is_quiet(begin + ms(499)));
        assert!(talk.is_quiet(begin + ms(500)));
        talk.note_moved(begin + ms(5000), &mut detector, 1);
        assert!(!talk.is_quiet(begin + ms(5099)));
        assert!(
            talk.is_quiet(begin + ms(5100)),
            "though messages may follow"
        );
    }

    #[test]
    fn a_long_round_trip_takes_longer_to_open() {
        let begin = Instant::now();
        let mut talk = Talk::default();
        talk.set_round_trip(Duration::from_millis(200));
        talk.note_opening(begin);
        assert!(talk.expects_messages(begin + Duration::from_millis(1900)));
        assert!(!talk.expects_messages(begin + Duration::from_millis(2100)));
    }
}
