//! Whether applications talk: send messages and wait for answers, in which every millisecond counts.
//!
//! A flow that opens counts as talk. So does each one that moves a little at a time, as its [`Tally`] tells. While none
//! does, packets of transfers may gather before they are looked at.

use std::time::{Duration, Instant};

use quictun_flow::Tally;

/// The length of a tally's span.
const SPAN: Duration = Duration::from_millis(100);

/// After a flow has opened, messages are expected for so long: a greeting, a request and its answer. In as many round
/// trips a connection has found what the path carries.
const OPENING: Duration = Duration::from_millis(500);
const OPENING_ROUND_TRIPS: u32 = 10;

/// After a message, more of them are expected for so long: a person types every few hundred milliseconds.
const MORE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Talk {
    began: Option<Instant>,
    /// When the latest flow opened.
    opened: Option<Instant>,
    /// Until when messages are expected.
    until: Option<Instant>,
}

impl Talk {
    /// Notes that a flow opens.
    pub(crate) fn note_opening(&mut self, now: Instant) {
        self.opened = Some(now);
    }

    /// Notes that `bytes` of a flow move, and counts them in its tally.
    pub(crate) fn note_moved(&mut self, now: Instant, tally: &mut Tally, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let began = *self.began.get_or_insert(now);
        let spans = now.saturating_duration_since(began).as_millis() / SPAN.as_millis();
        // The first span is 1: a tally that has counted nothing stands at 0.
        let span = u32::try_from(spans).unwrap_or(u32::MAX).saturating_add(1);
        if tally.add(span, bytes) {
            self.until = Some(now + MORE);
        }
    }

    /// Whether messages are expected on a path of this round-trip time.
    pub(crate) fn goes_on(&self, now: Instant, round_trip: Duration) -> bool {
        let opening = OPENING.max(round_trip * OPENING_ROUND_TRIPS);
        let opens = |at| now.saturating_duration_since(at) < opening;
        self.opened.is_some_and(opens) || self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves `bytes` so far apart for `lasts`, after a flow has opened. Returns whether messages are expected then.
    fn after(bytes: usize, apart: Duration, lasts: Duration) -> bool {
        let begin = Instant::now();
        let (mut talk, mut tally) = (Talk::default(), Tally::default());
        talk.note_opening(begin);
        let round_trip = Duration::from_millis(40);
        assert!(talk.goes_on(begin, round_trip));
        let mut now = begin;
        while now < begin + lasts {
            now += apart;
            talk.note_moved(now, &mut tally, bytes);
        }
        talk.goes_on(now, round_trip)
    }

    #[test]
    fn keystrokes_are_talk_and_a_transfer_is_none() {
        let ms = Duration::from_millis;
        assert!(after(1, ms(1), ms(5000)), "echoes without a pause");
        assert!(after(40, ms(300), ms(5000)), "typing");
        assert!(!after(1400, ms(3), ms(5000)), "3.7 Mbit/s");
        assert!(!after(64_000, ms(100), ms(5000)), "5 Mbit/s in blocks");
    }

    #[test]
    fn a_transfer_is_none_once_it_has_opened() {
        let ms = Duration::from_millis;
        assert!(after(1400, ms(1), ms(480)));
        assert!(!after(1400, ms(1), ms(520)));
    }
}
