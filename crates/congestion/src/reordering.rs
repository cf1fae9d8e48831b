//! Decides how long to wait for a packet that later packets have overtaken.
//!
//! The library declares a packet lost when enough later packets have arrived, or when it is late by a share of the
//! round-trip time (RFC 9002 section 6.1). Both thresholds are fixed when a connection begins, and the library does
//! not report a packet that arrives after it was declared lost. So a connection learns from packets that arrive late
//! but within its thresholds, and the next connection to the same peer waits longer if that is needed.

use std::time::{Duration, Instant};

/// Degree to which later packets overtake earlier ones on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reordering {
    /// No reordering has been seen.
    #[default]
    Unseen,
    /// Packets are overtaken, and are late by at most a sixteenth of a round trip.
    Little,
    /// Packets are late by more than a sixteenth of a round trip, or by an amount that this connection cannot
    /// measure.
    Much,
}

impl Reordering {
    /// Returns how many later packets must arrive before a packet is declared lost.
    pub fn packets(self) -> u32 {
        match self {
            Self::Unseen => UNKNOWN_PACKETS,
            Self::Little | Self::Much => OVERTAKING_MAX,
        }
    }

    /// Returns the age, in round-trip times since it was sent, at which an overtaken packet is declared lost.
    ///
    /// The age is 9/8, the value of RFC 9002 section 6.1.2, or 13/8 on paths with much reordering. The larger value
    /// suffices for a packet that is late by half a round trip and whose acknowledgement is late as well.
    pub fn round_trips(self) -> f32 {
        match self {
            Self::Unseen | Self::Little => 9.0 / 8.0,
            Self::Much => 13.0 / 8.0,
        }
    }
}

/// Watches the order in which packets arrive.
#[derive(Clone, Debug)]
pub(crate) struct ReorderingMonitor {
    /// The verdict of earlier connections, which determines the thresholds of this connection.
    known: Reordering,
    /// Send time of the latest packet that earlier acknowledgements name, and of the latest that any acknowledgement
    /// names.
    before: Option<Instant>,
    newest: Option<Instant>,
    packets: u32,
    overtaken: u32,
    late: u32,
}

impl ReorderingMonitor {
    /// Creates a watch for a connection whose thresholds were chosen for `known`.
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

    /// Records that a packet sent at `sent` has arrived. `rtt` is the round-trip time so far.
    pub(crate) fn on_acked(&mut self, now: Instant, sent: Instant, rtt: Duration) {
        self.packets += 1;
        if self.before.is_some_and(|before| sent < before) {
            self.overtaken += 1;
            let age = now.saturating_duration_since(sent);
            self.late += u32::from(age > rtt + rtt / LATE);
        }
        self.newest = self.newest.max(Some(sent));
    }

    /// Ends an acknowledgement, all of whose packets have been reported.
    pub(crate) fn on_ack_end(&mut self) {
        self.before = self.newest;
        if self.packets >= MEMORY {
            self.packets /= 2;
            self.overtaken /= 2;
            self.late /= 2;
        }
    }

    /// Returns the degree of reordering, or `None` until enough packets have arrived to judge it.
    pub(crate) fn verdict(&self) -> Option<Reordering> {
        let often = |count: u32, of: u32| count >= LEAST && count * of >= self.packets;
        if often(self.late, LATE_OF) {
            Some(Reordering::Much)
        } else if often(self.overtaken, OVERTAKEN_OF) {
            // Packets overtaken by more than the threshold count as lost, so lateness beyond the threshold is not
            // visible.
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

/// About as many packets as are acknowledged together. With this threshold losses are found hardly later than with
/// the three packets of RFC 9002, and overtaken packets become visible.
const UNKNOWN_PACKETS: u32 = 16;

/// The receiving library can distinguish duplicates from late packets only among the newest 129 packets, and discards
/// older ones. So a packet that 129 others have overtaken is lost even if it arrives soon after.
const OVERTAKING_MAX: u32 = 129;

/// A packet counts as late if it is late by at least a round trip divided by this: half of the shortest time that a
/// connection waits. If some packets are later than that, others are later than the time waited.
const LATE: u32 = 16;

/// Waiting longer is worth it from one late packet in this many. Suppose that 0.8 % of the packets are late by
/// anything up to half a round trip. Then one in 1000 is late by a sixteenth to an eighth of a round trip, and 0.6 %
/// are later than that.
const LATE_OF: u32 = 1000;

/// Reordering counts from one overtaken packet in this many. Suppose that 5 % of the packets are late by anything up
/// to 50 ms. Then one in 4000 is overtaken by two to sixteen packets at 600 Mbit/s.
const OVERTAKEN_OF: u32 = 4000;

/// Minimum number of events for a verdict. Fewer may result from the change of keys in the handshake, or from one
/// pause.
const LEAST: u32 = 8;

/// Number of packets among which at least [`LEAST`] would have been overtaken on a path with reordering.
const ENOUGH: u32 = LEAST * OVERTAKEN_OF;

/// Number of packets after which the counters are halved, so that older packets count half. With fewer, chance would
/// decide.
const MEMORY: u32 = 2 * ENOUGH;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(160);
    const MS: Duration = Duration::from_millis(1);

    /// Returns the verdict after acknowledgements of one packet each, a millisecond apart, of which one in `every` is
    /// late by `late`. The connection starts with `known`.
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
        let mut overtaking = ReorderingMonitor::new(known);
        for (now, sent) in arrivals {
            overtaking.on_acked(now, sent, RTT);
            overtaking.on_ack_end();
        }
        overtaking.verdict()
    }

    /// Returns the verdict of a connection that can see how late packets are.
    fn verdict(packets: u32, every: u32, late: Duration) -> Option<Reordering> {
        verdict_of(Reordering::Little, packets, every, late)
    }

    #[test]
    fn packets_late_by_more_than_a_sixteenth_of_a_round_trip_are_much_reordering() {
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
    fn a_path_that_loses_the_latest_packets_counts_as_much_reordering() {
        let seen = |known| verdict_of(known, 1000, 10, 2 * MS);
        assert_eq!(seen(Reordering::Unseen), Some(Reordering::Much));
        assert_eq!(seen(Reordering::Little), Some(Reordering::Little));
        assert_eq!(seen(Reordering::Much), Some(Reordering::Little));
    }

    #[test]
    fn a_hardly_used_path_gets_no_verdict() {
        assert_eq!(verdict(ENOUGH - 1, 10_000, RTT / 2), None);
        assert_eq!(verdict(ENOUGH, 10_000, RTT / 2), Some(Reordering::Unseen));
    }

    #[test]
    fn packets_that_were_not_overtaken_are_not_late_however_old_they_are() {
        let start = Instant::now();
        let mut overtaking = ReorderingMonitor::new(Reordering::Unseen);
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
        let mut overtaking = ReorderingMonitor::new(Reordering::Unseen);
        for number in (0..ENOUGH).step_by(2) {
            let sent = start + number * MS;
            overtaking.on_acked(sent + 2 * RTT, sent + MS, RTT);
            overtaking.on_acked(sent + 2 * RTT, sent, RTT);
            overtaking.on_ack_end();
        }
        assert_eq!(overtaking.verdict(), Some(Reordering::Unseen));
    }

    #[test]
    fn a_path_that_stops_reordering_is_judged_anew() {
        let start = Instant::now();
        let mut overtaking = ReorderingMonitor::new(Reordering::Much);
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
