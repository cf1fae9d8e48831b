//! Tests that each field of the configuration has its documented effect and no other.

mod codel;
pub(crate) mod golden;
mod properties;
mod schedule;

use std::time::{Duration, Instant};

use super::*;

const MS: Duration = Duration::from_millis(1);

fn arrivals(config: &LinkConfig, seed: u64, packets: u32, every: Duration) -> Vec<Fate> {
    let start = Instant::now();
    let mut link = Link::new(config.clone(), seed, start);
    (0..packets)
        .map(|index| link.send(start + every * index, 1000))
        .collect()
}

fn delivered(fates: &[Fate]) -> Vec<(usize, Instant)> {
    let delivered = fates
        .iter()
        .enumerate()
        .filter_map(|(index, fate)| match fate {
            Fate::Delivered { at, .. } => Some((index, *at)),
            Fate::Dropped(_) => None,
        });
    delivered.collect()
}

#[test]
fn a_perfect_wire_delivers_at_once() {
    let start = Instant::now();
    let mut link = Link::new(LinkConfig::default(), 1, start);
    let fate = link.send(start + MS, 1500);
    assert_eq!(
        fate,
        Fate::Delivered {
            at: start + MS,
            copy: None,
            marked: false,
        }
    );
}

#[test]
fn rate_and_overhead_space_packets_and_delay_shifts_them() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(1_000_000),
        overhead: 50,
        delay: 10 * MS,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    for index in 1..=3u32 {
        let at = start + 10 * MS + Duration::from_millis(1) * index;
        assert_eq!(
            link.send(start, 950),
            Fate::Delivered {
                at,
                copy: None,
                marked: false
            }
        );
    }
    assert_eq!(link.backlog(start + MS), 2000);
    assert_eq!(link.counters().queued_max, 2 * MS);
    assert_eq!(link.counters().queued_mean(), MS);
}

#[test]
fn the_queue_takes_its_bytes_and_not_one_more() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(1_000_000),
        queue: Queue::Bytes(3000),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    for _ in 0..3 {
        assert!(matches!(link.send(start, 1000), Fate::Delivered { .. }));
    }
    assert_eq!(link.send(start, 1), Fate::Dropped(DropReason::QueueFull));
    assert!(matches!(
        link.send(start + MS, 1000),
        Fate::Delivered { .. }
    ));
    assert_eq!(
        link.send(start + MS, 1),
        Fate::Dropped(DropReason::QueueFull)
    );
}

#[test]
fn an_idle_link_takes_a_packet_longer_than_its_queue() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(1_000_000),
        queue: Queue::Bytes(10),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    assert!(matches!(link.send(start, 1000), Fate::Delivered { .. }));
}

#[test]
fn packets_up_to_the_mtu_pass_and_longer_ones_do_not() {
    let start = Instant::now();
    let mut link = Link::new(
        LinkConfig {
            mtu: 1400,
            overhead: 28,
            ..LinkConfig::default()
        },
        1,
        start,
    );
    assert!(matches!(link.send(start, 1400), Fate::Delivered { .. }));
    assert_eq!(link.send(start, 1401), Fate::Dropped(DropReason::TooLong));
}

#[test]
fn losses_come_at_the_stated_rate_and_follow_from_the_seed_alone() {
    let config = LinkConfig {
        loss: 0.05,
        ..LinkConfig::default()
    };
    let fates = arrivals(&config, 7, 20_000, MS);
    let lost = 20_000 - delivered(&fates).len();
    assert!((900..1100).contains(&lost), "{lost} of 20000, not 5 %");
    let pattern = |config: &LinkConfig, seed| -> Vec<bool> {
        let fates = arrivals(config, seed, 1000, MS);
        fates
            .iter()
            .map(|fate| matches!(fate, Fate::Dropped(_)))
            .collect()
    };
    let delayed = LinkConfig {
        delay: 30 * MS,
        jitter: 5 * MS,
        duplicate: 0.5,
        ..config.clone()
    };
    assert_eq!(pattern(&config, 7), pattern(&delayed, 7));
    assert_ne!(pattern(&config, 7), pattern(&config, 8));
}

#[test]
fn jitter_keeps_the_order_within_its_bounds() {
    let config = LinkConfig {
        delay: 20 * MS,
        jitter: 10 * MS,
        ..LinkConfig::default()
    };
    let every = MS / 2;
    let start = Instant::now();
    let mut link = Link::new(config, 3, start);
    let mut last = start;
    let mut extremes = (Duration::MAX, Duration::ZERO);
    for index in 0..2000u32 {
        let now = start + every * index;
        let Fate::Delivered { at, .. } = link.send(now, 100) else {
            panic!("the link must not lose packets")
        };
        assert!(at >= last);
        last = at;
        extremes = (extremes.0.min(at - now), extremes.1.max(at - now));
    }
    assert!(
        extremes.0 >= 20 * MS && extremes.1 <= 30 * MS,
        "{extremes:?}"
    );
    assert!(
        extremes.1 > extremes.0 + 4 * MS,
        "jitter must vary the delay: {extremes:?}"
    );
}

#[test]
fn packets_due_in_a_stall_leave_at_its_end() {
    let config = LinkConfig {
        delay: 10 * MS,
        stall: Some(Stall {
            lasts: 5 * MS,
            every: 25 * MS,
        }),
        ..LinkConfig::default()
    };
    let start = Instant::now();
    let mut link = Link::new(config, 1, start);
    let outs = (0..60).map(|index| {
        let Fate::Delivered { at, .. } = link.send(start + MS * index, 100) else {
            panic!("the link must not lose packets")
        };
        (at - start).as_millis()
    });
    let due = |at: u128| if at % 25 < 5 { at - at % 25 + 5 } else { at };
    let expected: Vec<u128> = (10..70).map(due).collect();
    assert_eq!(outs.collect::<Vec<_>>(), expected);
}

#[test]
fn reordered_packets_come_late_and_the_others_do_not_wait() {
    let extra = 3 * MS;
    let config = LinkConfig {
        delay: 10 * MS,
        reorder: Reorder { share: 0.1, extra },
        ..LinkConfig::default()
    };
    let start = Instant::now();
    let mut link = Link::new(config, 5, start);
    let mut late = 0;
    for index in 0..1000u32 {
        let now = start + MS * index;
        match link.send(now, 100) {
            Fate::Delivered { at, .. } if at == now + 10 * MS + extra => late += 1,
            Fate::Delivered { at, .. } => assert_eq!(at, now + 10 * MS),
            Fate::Dropped(reason) => panic!("{reason:?}"),
        }
    }
    assert!((60..140).contains(&late), "{late} of 1000, not 10 %");
    assert_eq!(link.counters().reordered, late);
}

#[test]
fn duplicates_follow_their_packet() {
    let config = LinkConfig {
        duplicate: 0.2,
        delay: MS,
        ..LinkConfig::default()
    };
    let fates = arrivals(&config, 11, 2000, MS);
    let copies = fates.iter().filter_map(|fate| match fate {
        Fate::Delivered { at, copy, .. } => copy.map(|copy| copy - *at),
        Fate::Dropped(_) => None,
    });
    let gaps: Vec<Duration> = copies.collect();
    assert!(
        (330..470).contains(&gaps.len()),
        "{} copies of 2000 packets, expected 20 %",
        gaps.len()
    );
    assert!(gaps.iter().all(|&gap| gap < 2 * MS));
}

#[test]
fn outages_begin_and_end_on_time() {
    let outage = Outage {
        from: 10 * MS,
        until: 20 * MS,
    };
    let config = LinkConfig {
        delay: 5 * MS,
        outages: vec![outage],
        ..LinkConfig::default()
    };
    let fates = arrivals(&config, 1, 30, MS);
    let passed: Vec<usize> = delivered(&fates)
        .into_iter()
        .map(|(index, _)| index)
        .collect();
    assert_eq!(passed, (0..10).chain(20..30).collect::<Vec<_>>());
    assert_eq!(fates[15], Fate::Dropped(DropReason::Outage));
}
