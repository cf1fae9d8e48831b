//! Compares `CoDel` with the pseudo-code of RFC 8289, section 5, and tests that it serves its purpose.

use std::collections::VecDeque;

use super::*;

const BYTES: u64 = 1000;
const RATE: u64 = 1_250_000;

/// The RFC's queue with packets in it. The code is nearly the RFC's, word for word.
#[derive(Default)]
struct RfcQueue {
    /// Time of entry, and bytes found on entry.
    queue: VecDeque<(u64, u64)>,
    first_above_time: u64,
    drop_next: u64,
    count: u64,
    lastcount: u64,
    dropping: bool,
    drops: u64,
}

const TARGET: u64 = 5_000_000;
const INTERVAL: u64 = 100_000_000;

impl RfcQueue {
    fn control_law(t: u64, count: u64) -> u64 {
        let root = (u128::from(count) << 32).isqrt();
        t + u64::try_from((u128::from(INTERVAL) << 16) / root).expect("small")
    }

    fn dodequeue(&mut self, now: u64) -> (Option<u64>, bool) {
        let Some((entered, found)) = self.queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        let sojourn = now - entered;
        if sojourn < TARGET || found <= BYTES {
            self.first_above_time = 0;
            (Some(entered), false)
        } else if self.first_above_time == 0 {
            self.first_above_time = now + INTERVAL;
            (Some(entered), false)
        } else {
            (Some(entered), now >= self.first_above_time)
        }
    }

    fn deque(&mut self, now: u64) -> Option<u64> {
        let (mut packet, mut ok_to_drop) = self.dodequeue(now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                self.drops += 1;
                self.count += 1;
                (packet, ok_to_drop) = self.dodequeue(now);
                if ok_to_drop {
                    self.drop_next = Self::control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            self.drops += 1;
            (packet, _) = self.dodequeue(now);
            self.dropping = true;
            let delta = self.count - self.lastcount;
            let recent = now.saturating_sub(self.drop_next) < 16 * INTERVAL;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = Self::control_law(now, self.count);
            self.lastcount = self.count;
        }
        packet
    }
}

/// Gaps between packets, in microseconds, that overload the link, underload it, or stop. A packet takes 800 µs.
fn gaps() -> impl Iterator<Item = u64> {
    let phases = [
        (700, 2500),
        (900, 400),
        (650, 3000),
        (3000, 30),
        (400, 4000),
        (1000, 900),
    ];
    phases
        .into_iter()
        .cycle()
        .take(18)
        .flat_map(|(gap, packets)| (0..packets).map(move |index| gap + (index * 7919 % 101)))
}

#[test]
fn codel_decides_as_the_pseudo_code_of_the_rfc() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(RATE),
        codel: Some(Codel::default()),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    let mut entries = Vec::new();
    let mut now = 0;
    for gap in gaps() {
        now += gap * 1000;
        let time = start + Duration::from_nanos(now);
        let found = link.backlog(time) as u64;
        let fate = link.send(time, 1000);
        entries.push((now, found, fate));
    }

    let mut rfc = RfcQueue::default();
    let mut passed = Vec::new();
    let mut coming = entries.iter().map(|&(at, found, _)| (at, found)).peekable();
    let mut free = 0;
    while coming.peek().is_some() || !rfc.queue.is_empty() {
        if rfc.queue.is_empty() {
            // The transmitter asked for a packet and found the queue empty.
            rfc.deque(free);
            free = free.max(coming.peek().map_or(free, |&(at, _)| at));
        }
        while let Some(entry) = coming.next_if(|&(at, _)| at <= free) {
            rfc.queue.push_back(entry);
        }
        if let Some(entered) = rfc.deque(free) {
            free += BYTES * 1_000_000_000 / RATE;
            passed.push((entered, free));
        }
    }

    let delivered: Vec<(u64, u64)> = entries
        .iter()
        .filter_map(|&(entered, _, fate)| match fate {
            Fate::Delivered { at, .. } => {
                let at = (at - start).as_nanos();
                Some((entered, u64::try_from(at).expect("short")))
            }
            Fate::Dropped(_) => None,
        })
        .collect();
    assert!(rfc.drops > 300, "only {} drops", rfc.drops);
    assert_eq!(link.counters().codel, rfc.drops);
    assert!(
        delivered == passed,
        "the delivered packets or their times differ from the RFC's"
    );
}

/// A sender that overloads the link by 2 %, as a sender does for a while when it probes for bandwidth.
fn overloaded(codel: Option<Codel>, packet: Packet) -> (Vec<Duration>, Counters) {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(RATE),
        codel,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    // Half a second's worth of packets at once creates the standing queue.
    for _ in 0..625 {
        link.send(start, packet);
    }
    let mut waits = Vec::new();
    for index in 0..60_000u32 {
        let now = start + Duration::from_micros(784) * index;
        link.send(now, packet);
        waits.push(link.wait(now));
    }
    (waits, link.counters())
}

#[test]
fn codel_brings_a_standing_queue_down_and_keeps_it_there() {
    let (waits, counters) = overloaded(Some(Codel::default()), Packet::from(1000));
    assert!(waits[0] > 490 * MS);
    let (without, _) = overloaded(None, Packet::from(1000));
    assert!(without[59_999] > 1000 * MS);
    // As in the RFC, drops become more and more frequent until they match the excess load.
    let late = &waits[40_000..];
    let mean = late.iter().sum::<Duration>() / u32::try_from(late.len()).expect("few");
    assert!(mean < 15 * MS, "mean wait {mean:?}, expected below 15 ms");
    assert!(
        counters.codel > 1200 && counters.codel < 3000,
        "{}",
        counters.codel
    );
}

#[test]
fn codel_marks_ecn_capable_packets_instead_of_dropping_them() {
    let codel = Codel {
        ecn: true,
        ..Codel::default()
    };
    let (_, counters) = overloaded(Some(codel), Packet::ecn_capable(1000));
    assert_eq!((counters.codel, counters.dropped()), (0, 0));
    assert!(counters.marked > 100);
    let (_, counters) = overloaded(Some(codel), Packet::from(1000));
    assert_eq!(counters.marked, 0);
    assert!(counters.codel > 1000);
}

#[test]
fn codel_drops_nothing_where_one_packet_takes_longer_than_its_target() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(100_000),
        codel: Some(Codel::default()),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    link.send(start, 1000);
    for index in 0..100u32 {
        // Each packet waits only for the one ahead of it.
        let now = start + 10 * MS * index;
        assert_eq!(link.wait(now), 10 * MS);
        let fate = link.send(now, 1000);
        assert!(matches!(fate, Fate::Delivered { .. }), "{index}");
    }
}

#[test]
fn a_threshold_marks_ecn_capable_packets_that_waited_longer() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(1_000_000),
        mark_above: Some(2 * MS),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    let marked = |fate| matches!(fate, Fate::Delivered { marked: true, .. });
    let marks: Vec<bool> = (0..5)
        .map(|_| marked(link.send(start, Packet::ecn_capable(1000))))
        .collect();
    // The packets wait 0, 1, 2, 3 and 4 ms.
    assert_eq!(marks, [false, false, false, true, true]);
    assert!(!marked(link.send(start, 1000)));
    assert_eq!(link.counters().marked, 2);
}
