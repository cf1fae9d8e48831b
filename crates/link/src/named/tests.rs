//! Tests that named links match the table in the module documentation, for any seed.
#![expect(clippy::cast_precision_loss, reason = "counts of packets in a minute")]

use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::config::{Change, Queue, Setting, Stall};
use crate::packet::{DropReason, Fate};
use crate::tests::golden::digest;
use crate::{Counters, GilbertElliott, Link, Trace};

const MS: Duration = Duration::from_millis(1);
const PACKET: usize = 1500;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// The deliveries of a link with a sender that always has data to send.
struct SaturatedRun {
    /// Delivery times of the packets, in order.
    out: Vec<Duration>,
    counters: Counters,
}

impl SaturatedRun {
    fn run(config: &LinkConfig, seed: u64, seconds: u32) -> Self {
        let start = Instant::now();
        let mut link = Link::new(config.clone(), seed, start);
        let Queue::Bytes(room) = config.queue else {
            panic!("named links must have a queue in bytes");
        };
        let mut out = Vec::new();
        for ms in 0..seconds * 1000 {
            let now = start + MS * ms;
            while link.backlog(now) + PACKET <= room {
                if let Fate::Delivered { at, .. } = link.send(now, PACKET) {
                    out.push(at - start);
                }
            }
        }
        let end = MS * seconds * 1000;
        out.retain(|&at| at < end);
        Self {
            out,
            counters: link.counters(),
        }
    }

    /// Returns the rate between two times, in Mbit/s.
    fn rate(&self, from: Duration, until: Duration) -> f64 {
        let count = |time| self.out.partition_point(|&at| at < time);
        let packets = u32::try_from(count(until) - count(from)).expect("few");
        f64::from(packets) * 0.012 / until.abs_diff(from).as_secs_f64()
    }

    /// Returns the rate in Mbit/s in each window of length `window`, without the first second.
    fn rates(&self, window: Duration) -> Vec<f64> {
        let last = *self.out.last().expect("packets");
        let mut rates = Vec::new();
        let mut from = MS * 1000;
        while from + window <= last {
            rates.push(self.rate(from, from + window));
            from += window;
        }
        rates
    }

    /// Returns the longest time without a delivery, from the first second on.
    fn longest_silence(&self) -> Duration {
        let pairs = self.out.iter().zip(&self.out[1..]);
        let gaps = pairs.filter(|(before, _)| **before >= 1000 * MS);
        let gaps = gaps.map(|(before, after)| after.abs_diff(*before));
        gaps.max().expect("packets")
    }
}

/// Runs `check` for each direction of every named link, drawn from each of the seeds.
fn each(check: impl Fn(NamedLink, usize, &LinkConfig, u64)) {
    for (_, named) in NamedLink::ALL {
        for seed in SEEDS {
            for (direction, config) in named.directions(seed).iter().enumerate() {
                check(*named, direction, config, seed);
            }
        }
    }
}

/// Returns the mean, minimum and maximum rate in Mbit/s, up and down, as documented.
fn stated(named: NamedLink) -> [[f64; 3]; 2] {
    match named {
        NamedLink::Lte => [[10.0, 2.0, 20.0], [30.0, 5.0, 60.0]],
        NamedLink::FiveG => [[50.0, 10.0, 100.0], [300.0, 50.0, 600.0]],
        NamedLink::Satellite => [[15.0, 9.0, 21.0], [100.0, 60.0, 140.0]],
        NamedLink::Wifi => [[80.0, 20.0, 140.0]; 2],
    }
}

#[test]
fn every_seed_draws_a_valid_link() {
    for (name, named) in NamedLink::ALL {
        for seed in (0..30).chain([u64::MAX]) {
            for direction in named.directions(seed) {
                direction
                    .check()
                    .unwrap_or_else(|why| panic!("{name}: {why}"));
            }
        }
    }
}

#[test]
fn a_full_link_carries_its_mean_rate_between_the_least_and_the_most() {
    each(|named, direction, config, seed| {
        let [mean, least, most] = stated(named)[direction];
        let full = SaturatedRun::run(config, seed, 60);
        let what = format!("{named:?} {direction} of seed {seed}");
        // Four draws of the satellite's rate in a minute say little about their mean. The next test checks that mean.
        if named != NamedLink::Satellite {
            let rate = full.rate(MS * 1000, MS * 59_000);
            let off = (rate / mean - 1.0).abs();
            assert!(off < 0.15, "{what}: {rate} Mbit/s");
        }
        // A window of 200 ms contains the rates of ten steps; at its edges, one grant more or less falls into it.
        let rates = full.rates(MS * 200);
        let high = rates.iter().copied().fold(0.0, f64::max);
        assert!(
            (mean * 0.7..most * 1.11).contains(&high),
            "{what}: {high} Mbit/s"
        );
        let low = rates.iter().copied().fold(f64::MAX, f64::min);
        let least = match named {
            NamedLink::FiveG => least * 0.04,
            NamedLink::Satellite => least * 0.45,
            NamedLink::Lte | NamedLink::Wifi => least * 0.89,
        };
        assert!((least..mean).contains(&low), "{what}: {low} Mbit/s");
    });
}

#[test]
fn the_satellites_mean_rate_over_many_handovers_is_the_stated_one() {
    for seed in SEEDS {
        for (config, [mean, ..]) in NamedLink::Satellite
            .directions(seed)
            .iter()
            .zip(stated(NamedLink::Satellite))
        {
            let later = config.changes.iter().filter_map(|change| match change.to {
                Setting::Rate(rate) => rate,
                _ => None,
            });
            let rates: Vec<u64> = config.rate.into_iter().chain(later).collect();
            assert_eq!(rates.len(), 1920, "eight hours");
            let sum: u64 = rates.iter().sum();
            let drawn = sum as f64 / 1920.0 / mbit(1) as f64;
            assert!((drawn / mean - 1.0).abs() < 0.02, "seed {seed}: {drawn}");
        }
    }
}

#[test]
fn an_idle_round_trip_takes_the_stated_time() {
    for (name, named) in NamedLink::ALL {
        let stated: f64 = match named {
            NamedLink::Lte => 50.0,
            NamedLink::FiveG => 25.0,
            NamedLink::Satellite => 44.0,
            NamedLink::Wifi => 18.0,
        };
        let mut sum = 0.0;
        for seed in SEEDS {
            let start = Instant::now();
            let mut links = named
                .directions(seed)
                .map(|direction| Link::new(direction, seed, start));
            let (mut total, mut count) = (0.0, 0.0);
            // The interval is not a multiple of the grants, and all pings fit in a minute.
            for ping in 0..600u32 {
                let sent = start + Duration::from_micros(98_765) * ping;
                let Fate::Delivered { at, .. } = links[0].send(sent, 84) else {
                    continue;
                };
                if let Fate::Delivered { at, .. } = links[1].send(at, 84) {
                    total += (at - sent).as_secs_f64() * 1e3;
                    count += 1.0;
                }
            }
            sum += total / count;
        }
        let mean = sum / 5.0;
        assert!((mean / stated - 1.0).abs() < 0.1, "{name}: {mean} ms");
    }
}

#[test]
fn a_full_queue_drains_in_the_stated_time() {
    each(|named, direction, config, seed| {
        let full = SaturatedRun::run(config, seed, 30);
        let queued = full.counters.queued_mean().as_secs_f64();
        let stated = named.queue_time().as_secs_f64();
        let what = format!("{named:?} {direction} of seed {seed}: {queued} s");
        // Packets that arrive while the rate is low wait longer than the stated time.
        assert!((stated * 0.7..stated * 1.6).contains(&queued), "{what}");
    });
}

#[test]
fn wifi_stalls_for_up_to_20_ms_and_lte_for_a_grant() {
    let silence = |named: NamedLink, direction: usize, seed| {
        SaturatedRun::run(&named.directions(seed)[direction], seed, 60).longest_silence()
    };
    for seed in SEEDS {
        for direction in [0, 1] {
            let wifi = silence(NamedLink::Wifi, direction, seed);
            assert!((15 * MS..=20 * MS).contains(&wifi), "{direction}: {wifi:?}");
        }
        assert_eq!(silence(NamedLink::Lte, 0, seed), 10 * MS, "up");
        assert!(silence(NamedLink::Lte, 1, seed) <= 3 * MS, "down");
    }
    let out = SaturatedRun::run(&NamedLink::Wifi.directions(1)[1], 1, 60).out;
    let mut bursts = out.clone();
    bursts.dedup();
    let (packets, bursts) = (out.len(), bursts.len());
    let apart = 60_000 / bursts;
    assert!((6..=7).contains(&apart), "bursts {apart} ms apart");
    assert!(
        packets / bursts > 30,
        "{packets} packets in {bursts} bursts"
    );
}

#[test]
fn a_blockage_of_5g_affects_both_directions_at_once() {
    for seed in SEEDS {
        let directions = NamedLink::FiveG.directions(seed);
        let blocked = directions.map(|direction| {
            let rates = SaturatedRun::run(&direction, seed, 30).rates(MS * 100);
            let whole = rates.iter().sum::<f64>() / rates.len() as f64;
            let is_blocked = rates.iter().map(|rate| *rate < whole * 0.15);
            is_blocked.collect::<Vec<_>>()
        });
        let [up, down] = &blocked;
        let both = up.iter().zip(down).filter(|(up, down)| **up && **down);
        let share = both.count() as f64 / down.len() as f64;
        assert!((0.01..0.07).contains(&share), "seed {seed}: {share}");
        let one = up.iter().zip(down).filter(|(up, down)| up != down);
        assert!(one.count() <= 4, "seed {seed}: the directions differ");
    }
}

#[test]
fn a_satellite_hands_over_every_15_s() {
    for seed in SEEDS {
        let directions = NamedLink::Satellite.directions(seed);
        for config in &directions {
            let full = SaturatedRun::run(config, seed, 62);
            for handover in 1..=4 {
                let at = MS * 15_000 * handover;
                let still = full.rate(at + MS, at + 99 * MS);
                assert!(still < f64::EPSILON, "seed {seed}: {still} Mbit/s");
                assert!(full.rate(at + 100 * MS, at + 110 * MS) > 10.0, "stalled");
            }
            let lost = full.counters.random as f64 / full.counters.transmitted as f64;
            assert!((0.003..0.01).contains(&lost), "seed {seed}: {lost}");
        }
        let delays = directions.map(|direction| {
            let later = direction
                .changes
                .into_iter()
                .filter_map(|change| match change.to {
                    Setting::Delay(delay) => Some(delay),
                    _ => None,
                });
            later.collect::<Vec<_>>()
        });
        assert_eq!(delays[0], delays[1], "the same in both directions");
        let [least, most] = [delays[0].iter().min(), delays[0].iter().max()];
        let range = Duration::from_micros(12_500)..=Duration::from_micros(27_500);
        assert!(range.contains(least.expect("some")) && range.contains(most.expect("some")));
        assert!(*most.expect("some") > *least.expect("some") + 14 * MS);
    }
}

#[test]
fn most_losses_of_the_satellite_occur_in_handovers() {
    let start = Instant::now();
    let mut link = Link::new(NamedLink::Satellite.directions(3)[1].clone(), 3, start);
    let mut lost = [0, 0];
    for ms in 0..600_000u32 {
        if link.send(start + MS * ms, 100) == Fate::Dropped(DropReason::Random) {
            lost[usize::from(ms % 15_000 < 400)] += 1;
        }
    }
    let [else_, in_handovers] = lost;
    // Expected: 40 handovers of 400 packets at 15 %, and 584 000 packets at 0.1 %.
    assert!((2100..2700).contains(&in_handovers), "{lost:?}");
    assert!((480..690).contains(&else_), "{lost:?}");
}

#[test]
fn a_seed_draws_the_same_link_everywhere_and_another_seed_another() {
    let fates = |config: &LinkConfig, seed| {
        let full = SaturatedRun::run(config, seed, 10);
        let lines: Vec<String> = full
            .out
            .iter()
            .map(|at| at.as_nanos().to_string())
            .collect();
        digest(&lines)
    };
    let stories = NamedLink::ALL.iter().flat_map(|(name, named)| {
        let directions = named.directions(1);
        assert_eq!(directions, named.directions(1), "{name}");
        assert_ne!(directions[0], directions[1], "{name}");
        for (direction, other) in directions.iter().zip(named.directions(2)) {
            assert_ne!(*direction, other, "{name}");
        }
        directions.map(|direction| fates(&direction, 1))
    });
    assert_eq!(stories.collect::<Vec<_>>(), DIGESTS);
}

/// Digests of the named links, computed once. A change that alters a digest alters the link that each user's seed
/// draws, and the commit must state that.
const DIGESTS: [u64; 8] = [
    1_958_054_726_923_907_681,
    14_105_320_644_929_129_852,
    12_623_205_617_558_905_916,
    16_912_613_408_029_098_663,
    14_062_305_015_216_676_803,
    10_338_997_752_400_008_507,
    10_084_654_156_045_696_515,
    16_232_470_525_510_461_028,
];

#[test]
fn an_override_replaces_the_named_value_and_stays_constant() {
    let [_, named] = NamedLink::Satellite.directions(1);
    let kinds = |config: &LinkConfig| {
        let count = |of: fn(&Setting) -> bool| {
            config
                .changes
                .iter()
                .filter(|change| of(&change.to))
                .count()
        };
        [
            count(|to| matches!(to, Setting::Rate(_))),
            count(|to| matches!(to, Setting::Delay(_))),
            count(|to| matches!(to, Setting::Loss(_))),
        ]
    };
    assert_eq!(kinds(&named), [1919, 1919, 3839]);
    assert_eq!(Overrides::default().over(named.clone()), named);

    let stall = Stall {
        lasts: MS,
        every: 5 * MS,
    };
    let said = Overrides {
        delay: Some(MS),
        stall: Some(stall),
        ..Overrides::default()
    };
    let config = said.over(named.clone());
    assert_eq!((config.delay, kinds(&config)), (MS, [1919, 0, 3839]));
    assert_eq!((config.rate, config.stall), (named.rate, Some(stall)));

    let bursts = GilbertElliott::from_mean(0.01, 3.0);
    let said = Overrides {
        rate: Some(1000),
        loss: Some((0.0, Some(bursts))),
        overhead: Some(38),
        ..Overrides::default()
    };
    let config = said.over(named.clone());
    assert!(said.sets_rate());
    assert_eq!((config.rate, kinds(&config)), (Some(1000), [0, 1919, 0]));
    assert_eq!((config.loss, config.bursts), (0.0, Some(bursts)));
    assert_eq!((config.overhead, config.jitter), (38, named.jitter));
    assert_eq!(config.queue, Queue::default(), "sized for another rate");

    let loss = Change {
        at: MS,
        to: Setting::Loss(0.5),
    };
    let said = Overrides {
        changes: vec![loss],
        ..Overrides::default()
    };
    let config = said.over(named.clone());
    assert_eq!((config.changes[0], kinds(&config)), (loss, [1919, 1919, 1]));
    assert!((config.loss - named.loss).abs() < f64::EPSILON);
}

#[test]
fn an_overriding_rate_or_trace_replaces_either() {
    let [_, lte] = NamedLink::Lte.directions(1);
    let rate = Overrides {
        rate: Some(1000),
        ..Overrides::default()
    };
    let config = rate.over(lte.clone());
    assert_eq!((config.rate, config.trace), (Some(1000), None));

    let trace = Trace::parse("1\n2\n").map(Arc::new).expect("valid trace");
    let said = Overrides {
        trace: Some(trace.clone()),
        ..Overrides::default()
    };
    let [_, satellite] = NamedLink::Satellite.directions(1);
    let config = said.over(satellite);
    assert_eq!((config.rate, &config.trace), (None, &Some(trace)));
    config.check().expect("no change of the rate may remain");
}
