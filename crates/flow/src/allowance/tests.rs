use std::time::Duration;

use super::*;
use crate::meter::Meter;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the bytes that each connection moves in `time`, if each asks for as much as it can get exactly when its turn
/// comes.
fn moved(meters: &mut [Meter], start: Instant, time: Duration) -> Vec<u64> {
    let mut moved = vec![0; meters.len()];
    let mut now = start;
    while now < start + time {
        let mut next = now + time;
        for (meter, moved) in meters.iter_mut().zip(&mut moved) {
            match meter.poll(now) {
                Ok(bytes) => {
                    meter.spend(bytes);
                    *moved += bytes;
                    next = now;
                }
                Err(at) => next = next.min(at),
            }
        }
        now = next;
    }
    moved
}

fn meters(count: usize, rate: u64, start: Instant) -> (Arc<Allowance>, Vec<Meter>) {
    let allowance = Arc::new(Allowance::new(start));
    allowance.set(AllowanceLimits {
        rate_up: Some(rate),
        ..AllowanceLimits::default()
    });
    let meters = (0..count).map(|_| Meter::new(allowance.clone(), FlowDirection::Up));
    let meters = meters.collect();
    (allowance, meters)
}

#[test]
fn rates_are_held_and_connections_have_equal_parts() {
    let start = Instant::now();
    for rate in [12_500, 125_000, 2_500_000, 125_000_000, 1_250_000_000] {
        for count in [1, 2, 7] {
            let (_, mut meters) = meters(count, rate, start);
            let moved = moved(&mut meters, start, 10 * SECOND);
            let (all, want) = (moved.iter().sum::<u64>(), 10 * rate);
            assert!(all >= want - want / 100, "{rate} {count}: {all}");
            assert!(all <= want + want / 100 + 8 * 1200, "{rate} {count}: {all}");
            let (least, most) = (moved.iter().min(), moved.iter().max());
            let spread = most.unwrap_or(&0) - least.unwrap_or(&0);
            assert!(spread <= want / 50 + 2 * 1200, "{rate} {moved:?}");
        }
    }
}

#[test]
fn an_idle_client_has_a_short_burst_and_a_late_caller_catches_up() {
    let start = Instant::now();
    let (_, mut meters) = meters(1, 1_000_000, start);
    let mut burst = 0;
    let later = start + 100 * SECOND;
    while let Ok(bytes) = meters[0].poll(later) {
        meters[0].spend(bytes);
        burst += bytes;
    }
    assert!((46_000..=54_000).contains(&burst), "{burst}");
}

#[test]
fn a_new_rate_applies_at_once_even_to_waiting_connections() {
    let start = Instant::now();
    let (allowance, mut meters) = meters(50, 1000, start);
    moved(&mut meters, start, SECOND);
    let wait = meters[49].poll(start + SECOND).expect_err("rate used up");
    assert!(wait > start + 10 * SECOND);
    allowance.set(AllowanceLimits {
        rate_up: Some(1_000_000),
        ..AllowanceLimits::default()
    });
    assert!(meters[49].poll(start + SECOND).is_ok());
    allowance.set(AllowanceLimits::default());
    assert_eq!(meters[1].poll(start + SECOND), Ok(u64::MAX));
}

#[test]
fn a_transfer_is_limited_to_the_rest_of_the_quota() {
    let start = Instant::now();
    let (allowance, mut meters) = meters(1, 1_000_000, start);
    let now = start + SECOND;
    let quota = |quota| AllowanceLimits {
        rate_up: Some(1_000_000),
        quota: Some(quota),
        ..AllowanceLimits::default()
    };
    allowance.set(quota(1000));
    assert_eq!(meters[0].poll(now), Ok(1000));
    meters[0].spend(999);
    allowance.note_moved(FlowDirection::Up, 999);
    assert_eq!(meters[0].poll(now), Ok(1));
    allowance.note_moved(FlowDirection::Down, 1);
    assert!(meters[0].poll(now).is_err_and(|at| at > now));
    allowance.set(quota(1500));
    assert_eq!(meters[0].poll(now), Ok(500));
    allowance.set(AllowanceLimits {
        quota: Some(2000),
        ..AllowanceLimits::default()
    });
    assert_eq!(meters[0].poll(now), Ok(1000), "without a rate");
}

#[test]
fn workers_that_move_bytes_at_once_exceed_a_quota_by_one_turn_each_but_one() {
    let now = Instant::now();
    let turn = 64 * 1024;
    for (workers, rate) in [(1, None), (2, None), (8, None), (8, Some(1_250_000_000))] {
        for quota in [10_000_000, 7 * turn, 1000] {
            let allowance = Arc::new(Allowance::new(now));
            allowance.set(AllowanceLimits {
                rate_up: rate,
                quota: Some(quota),
                ..AllowanceLimits::default()
            });
            let meter = |_| Meter::new(allowance.clone(), FlowDirection::Up);
            let mut meters: Vec<Meter> = (0..workers).map(meter).collect();
            let mut later = now + SECOND;
            while !allowance.is_used_up() {
                // Every worker asks before any has counted what it moves.
                let turns: Vec<u64> = meters
                    .iter_mut()
                    .map(|meter| meter.poll(later).unwrap_or(0))
                    .collect();
                for (meter, moved) in meters.iter_mut().zip(turns) {
                    meter.spend(moved);
                    allowance.note_moved(FlowDirection::Up, moved);
                }
                later += SECOND / 1000;
            }
            let most = quota + (workers - 1) * turn;
            let used = allowance.used();
            assert!(used <= most, "{workers} {quota} {rate:?}: {used}");
        }
    }
}

#[test]
fn flows_are_counted_up_to_their_number_and_not_beyond() {
    let allowance = Arc::new(Allowance::new(Instant::now()));
    let free: Vec<_> = (0..5).filter_map(|_| allowance.enter()).collect();
    assert_eq!(free.len(), 5, "without a limit");
    allowance.set(AllowanceLimits {
        flows: Some(6),
        ..AllowanceLimits::default()
    });
    let sixth = allowance.enter();
    assert!(sixth.is_some() && allowance.enter().is_none());
    drop(free);
    assert_eq!(allowance.usage().flows, 1);
    assert!(allowance.enter().is_some());
}

#[test]
fn both_directions_use_up_one_quota_and_it_is_renewed() {
    let allowance = Allowance::new(Instant::now());
    allowance.note_moved(FlowDirection::Up, 60);
    assert!(!allowance.is_used_up());
    let limits = AllowanceLimits {
        quota: Some(100),
        ..AllowanceLimits::default()
    };
    allowance.set(limits);
    allowance.note_moved(FlowDirection::Down, 39);
    assert!(!allowance.is_used_up());
    allowance.note_moved(FlowDirection::Down, 1);
    assert!(allowance.is_used_up());
    let before = allowance.renewals();
    allowance.set(limits);
    assert_eq!(allowance.renewals(), before, "nothing new");
    allowance.set_used(0);
    assert!(!allowance.is_used_up() && allowance.renewals() != before);
    let usage = allowance.usage();
    assert_eq!((usage.up, usage.down, usage.used), (60, 40, 0));
}

#[test]
fn what_is_moved_beyond_the_credit_is_paid_by_later_portions() {
    let start = Instant::now();
    let (allowance, mut meters) = meters(1, 125_000, start);
    let (mut now, mut moved) = (start, 0);
    while now < start + 10 * SECOND {
        match meters[0].poll(now) {
            // A datagram cannot be cut.
            Ok(_) => {
                meters[0].spend(60_000);
                moved += 60_000;
            }
            Err(at) => now = at,
        }
    }
    assert!((1_200_000..=1_320_000).contains(&moved), "{moved}");
    // Without a rate, nothing is owed.
    allowance.set(AllowanceLimits::default());
    assert_eq!(meters[0].poll(now), Ok(u64::MAX));
    meters[0].spend(u64::MAX);
    allowance.set(AllowanceLimits {
        rate_up: Some(125_000),
        ..AllowanceLimits::default()
    });
    assert!(meters[0].poll(now).is_ok());
}
