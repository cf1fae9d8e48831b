//! How long a packet that later ones have overtaken is waited for.
//!
//! The library takes a packet for lost where enough later ones have arrived, or where it is late by a share of the
//! round-trip time (RFC 9002 section 6.1). Both thresholds are fixed when a connection begins, and of a packet that arrives
//! after it was taken for lost the library says nothing. So a connection learns from what arrives late within its
//! thresholds, and the next one to the same peer waits longer where that is needed.

use std::time::{Duration, Instant};

/// How far packets are overtaken on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reordering {
    /// Not at all, as far as is known.
    #[default]
    Unseen,
    /// Overtaken, and late by a sixteenth of a round trip at most.
    Little,
    /// Late by more than a sixteenth of a round trip, or by an amount that cannot be seen.
    Much,
}

impl Reordering {
    /// Later packets that have to arrive before one is taken for lost.
    pub fn packets(self) -> u32 {
        match self {
            Self::Unseen => UNKNOWN_PACKETS,
            Self::Little | Self::Much => OVERTAKING_MAX,
        }
    }

    /// Round-trip times from sending on after which a packet is taken for lost that a later one has overtaken: the
    /// standard's, or what half a round trip needs together with an acknowledgement that is late itself.
    pub fn round_trips(self) -> f32 {
        match self {
            Self::Unseen | Self::Little => 9.0 / 8.0,
            Self::Much => 13.0 / 8.0,
        }
    }
}

/// Watches the order in which packets arrive.
#[derive(Clone, Debug)]
pub(crate) struct Overtaking {
    /// The verdict of earlier connections, whose thresholds this one has.
    known: Reordering,
    /// The latest packet that earlier acknowledgements name, and that any does.
    before: Option<Instant>,
    newest: Option<Instant>,
    packets: u32,
    overtaken: u32,
    late: u32,
}

impl Overtaking {
    /// A watch on a connection that waits for packets as one does where this is known.
    pub(crate) fn new(known: Reordering) -> Self {
        Self {
            known,
            before: None,
            newest: None,
            packets: 0,
            overtaken: 0,
            late: 0,
        }
    }

    /// A packet sent at `sent` has arrived, where round trips took `rtt` so far.
    pub(crate) fn on_acked(&mut self, now: Instant, sent: Instant, rtt: Duration) {
        self.packets += 1;
        if self.before.is_some_and(|before| sent < before) {
            self.overtaken += 1;
            let age = now.saturating_duration_since(sent);
            self.late += u32::from(age > rtt + rtt / LATE);
        }
        self.newest = self.newest.max(Some(sent));
    }

    /// All packets of an acknowledgement were told.
    pub(crate) fn on_ack_end(&mut self) {
        self.before = self.newest;
        if self.packets >= MEMORY {
            self.packets /= 2;
            self.overtaken /= 2;
            self.late /= 2;
        }
    }

    /// How the path is, once enough has arrived to say so.
    pub(crate) fn verdict(&self) -> Option<Reordering> {
        let often = |count: u32, of: u32| count >= LEAST && count * of >= self.packets;
        if often(self.late, LATE_OF) {
            Some(Reordering::Much)
        } else if often(self.overtaken, OVERTAKEN_OF) {
            // Packets that are overtaken by more than the threshold count as lost, so lateness beyond it is not seen.
            let unseen = self.known == Reordering::Unseen;
            Some(if unseen {
                Reordering::Much
            } else {
                Reordering::Little
            })
        } else {
            (self.packets >= ENOUGH).then_some(Reordering::Unseen)
        }
    }
}

/// As many as are acknowledged together: losses are hardly found later than with the three of RFC 9002, and overtaken
/// packets are seen.
const UNKNOWN_PACKETS: u32 = 16;

/// The receiving library tells duplicates from late packets among the newest 129 only, and discards what is older: from then
/// on a packet is lost, however soon it comes.
const OVERTAKING_MAX: u32 = 129;

/// A packet counts as late from this part of a round trip on: half of what is waited for little. Where some come later than
/// that, others come later than is waited.
const LATE: u32 = 16;

/// The share of late packets from which on waiting pays: one of so many. Where 0.8 % of the packets are late by anything up to
/// half a round trip, that many are late by a sixteenth to an eighth, and 0.6 % by more.
const LATE_OF: u32 = 1000;

/// The share of overtaken packets that is followed up: one of so many. Where 5 % are late by anything up to 50 ms, that many
/// are overtaken by two to sixteen at 600 Mbit/s.
const OVERTAKEN_OF: u32 = 4000;

/// Fewer may come from the change of keys in the handshake, or from one pause.
const LEAST: u32 = 8;

/// Packets of which at least [`LEAST`] would have been overtaken.
const ENOUGH: u32 = LEAST * OVERTAKEN_OF;

/// Packets after which older ones count half: with fewer, chance would decide.
const MEMORY: u32 = 2 * ENOUGH;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(160);
    const MS: Duration = Duration::from_millis(1);

    /// The verdict after acknowledgements of one packet each, a millisecond apart, where every so many packets one
    /// is `late`, on a connection that knew `known`.
    fn verdict_of(
        known: Reordering,
        packets: u32,
        every: u32,
        late: Duration,
    ) -> Option<Reordering> {
        let start = Instant::now();
        let mut arrivals = (0..packets)
            .map(|number| {
                let sent = start + number * MS;
                let picked = number % every == 1;
                (
                    sent + RTT + if picked { late } else { Duration::ZERO },
                    sent,
                )
            })
            .collect::<Vec<_>>();
        arrivals.sort();
        let mut overtaking = Overtaking::new(known);
        for (now, sent) in arrivals {
            overtaking.on_acked(now, sent, RTT);
            overtaking.on_ack_end();
        }
        overtaking.verdict()
    }

    /// The same, on a connection that sees how late packets are.
    fn verdict(packets: u32, every: u32, late: Duration) -> Option<Reordering> {
        verdict_of(Reordering::Little, packets, every, late)
    }

    #[test]
    fn packets_late_by_more_than_a_sixteenth_of_a_round_trip_ask_for_patience() {
        assert_eq!(verdict(ENOUGH, 1000, RTT / 16), Some(Reordering::Little));
        let late = RTT / 16 + Duration::from_nanos(1);
        assert_eq!(verdict(ENOUGH, 1000, late), Some(Reordering::Much));
        assert_eq!(verdict(ENOUGH, 1000, RTT / 2), Some(Reordering::Much));
    }

    #[test]
    fn one_late_packet_of_a_thousand_is_enough_and_eight_are_needed() {
        assert_eq!(verdict(3 * ENOUGH, 1000, RTT / 2), Some(Reordering::Much));
        assert_eq!(verdict(3 * ENOUGH, 1100, RTT / 2), Some(Reordering::Little));
        assert_eq!(verdict(71, 10, RTT / 8), None);
        assert_eq!(verdict(81, 10, RTT / 8), Some(Reordering::Much));
    }

    #[test]
    fn one_overtaken_packet_of_four_thousand_is_enough() {
        assert_eq!(verdict(3 * ENOUGH, 4000, 2 * MS), Some(Reordering::Little));
        assert_eq!(verdict(3 * ENOUGH, 4400, 2 * MS), Some(Reordering::Unseen));
    }

    #[test]
    fn where_only_the_little_late_are_seen_the_others_may_be_much_later() {
        let seen = |known| verdict_of(known, 1000, 10, 2 * MS);
        assert_eq!(seen(Reordering::Unseen), Some(Reordering::Much));
        assert_eq!(seen(Reordering::Little), Some(Reordering::Little));
        assert_eq!(seen(Reordering::Much), Some(Reordering::Little));
    }

    #[test]
    fn nothing_is_said_of_a_path_that_was_hardly_used() {
        assert_eq!(verdict(ENOUGH - 1, 10_000, RTT / 2), None);
        assert_eq!(verdict(ENOUGH, 10_000, RTT / 2), Some(Reordering::Unseen));
    }

    #[test]
    fn packets_that_were_not_overtaken_are_not_late_however_old_they_are() {
        let start = Instant::now();
        let mut overtaking = Overtaking::new(Reordering::Unseen);
        for number in 0..ENOUGH {
            let sent = start + number * MS;
            overtaking.on_acked(sent + 2 * RTT, sent, RTT);
            overtaking.on_ack_end();
        }
        assert_eq!(overtaking.verdict(), Some(Reordering::Unseen));
    }

    #[test]
    fn packets_of_one_acknowledgement_have_not_overtaken_one_another() {
        let start = Instant::now();
        let mut overtaking = Overtaking::new(Reordering::Unseen);
        for number in (0..ENOUGH).step_by(2) {
            let sent = start + number * MS;
            overtaking.on_acked(sent + 2 * RTT, sent + MS, RTT);
            overtaking.on_acked(sent + 2 * RTT, sent, RTT);
            overtaking.on_ack_end();
        }
        assert_eq!(overtaking.verdict(), Some(Reordering::Unseen));
    }

    #[test]
    fn a_path_that_has_come_to_keep_the_order_is_believed() {
        let start = Instant::now();
        let mut overtaking = Overtaking::new(Reordering::Much);
        for number in 0..20 * MEMORY {
            let earlier = start + number * MS;
            let sent = earlier + RTT / 2;
            overtaking.on_acked(sent + RTT, sent, RTT);
            if number < MEMORY && number % 100 == 99 {
                overtaking.on_acked(sent + RTT, earlier, RTT);
            }
            overtaking.on_ack_end();
            if number == MEMORY {
                assert_eq!(overtaking.verdict(), Some(Reordering::Much));
            }
        }
        assert_eq!(overtaking.verdict(), Some(Reordering::Unseen));
    }
}
