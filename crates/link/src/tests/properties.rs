//! Properties of any link with any traffic.

use proptest::prelude::*;

use super::*;

/// Generates a configuration that uses some of every feature.
fn any_config() -> impl Strategy<Value = LinkConfig> {
    let queue = prop_oneof![
        (1500..200_000usize).prop_map(Queue::Bytes),
        (1..100usize).prop_map(Queue::Packets),
    ];
    let flow = (
        proptest::option::of(100_000..200_000_000u64),
        queue,
        any::<bool>(),
        proptest::option::of((100_000..50_000_000u64, 1500..100_000u64)),
    );
    let accidents = (0.0..0.2f64, 0.0..0.2f64, 1.5..8.0f64, any::<bool>());
    let times = (0..50u64, 0..20u64, 0.0..0.2f64, 1..10u64);
    let later = proptest::collection::vec((0..400u64, 0..3usize, 100_000..9_000_000u64), 0..6);
    let parts = (flow, accidents, times, later, 0..60usize);
    parts.prop_map(|(flow, accidents, times, later, overhead)| {
        let mut changes: Vec<Change> = later
            .iter()
            .map(|&(at, what, value)| Change {
                at: Duration::from_millis(at),
                to: match what {
                    0 => Setting::Rate(Some(value)),
                    1 => Setting::Delay(Duration::from_nanos(value)),
                    _ => Setting::Loss(0.1),
                },
            })
            .collect();
        changes.sort_by_key(|change| change.at);
        LinkConfig {
            rate: flow.0,
            queue: flow.1,
            codel: flow.2.then(Codel::default),
            policer: flow.3.map(|(rate, burst)| Policer { rate, burst }),
            overhead,
            loss: accidents.0,
            bursts: Some(GilbertElliott::from_mean(accidents.1, accidents.2)),
            loss_at: if accidents.3 {
                LossAt::Entry
            } else {
                LossAt::Exit
            },
            delay: Duration::from_millis(times.0),
            jitter: Duration::from_millis(times.1),
            stall: (times.1 > 10).then_some(Stall {
                lasts: 5 * MS,
                every: 25 * MS,
            }),
            duplicate: times.2,
            reorder: Reorder {
                share: times.2,
                extra: Duration::from_millis(times.3),
            },
            mark_above: Some(MS),
            mtu: 1400,
            outages: vec![Outage {
                from: 100 * MS,
                until: 150 * MS,
            }],
            changes,
            ..LinkConfig::default()
        }
    })
}

/// Generates gaps between packets, in microseconds, and packet lengths.
fn any_traffic() -> impl Strategy<Value = Vec<(u64, usize)>> {
    proptest::collection::vec((0..2000u64, 1..1500usize), 1..600)
}

proptest! {
    #[test]
    fn every_packet_has_one_fate_and_it_is_counted(config in any_config(), traffic in any_traffic(), seed: u64) {
        let start = Instant::now();
        let mut link = Link::new(config, seed, start);
        let (mut now, mut delivered, mut dropped, mut marked, mut copies) = (start, 0, 0, 0, 0);
        for &(gap, length) in &traffic {
            now += Duration::from_micros(gap);
            match link.send(now, Packet::ecn_capable(length)) {
                Fate::Delivered { at, copy, marked: mark } => {
                    prop_assert!(at >= now && copy.is_none_or(|copy| copy >= at));
                    delivered += 1;
                    marked += u64::from(mark);
                    copies += u64::from(copy.is_some());
                }
                Fate::Dropped(_) => dropped += 1,
            }
        }
        let counters = link.counters();
        prop_assert_eq!(counters.sent, traffic.len() as u64);
        prop_assert_eq!((counters.delivered, counters.dropped()), (delivered, dropped));
        prop_assert_eq!(counters.sent, counters.delivered + counters.dropped());
        prop_assert_eq!(counters.duplicated, copies);
        prop_assert!(counters.marked >= marked);
        prop_assert_eq!(link.waits().count(), counters.transmitted);
    }

    #[test]
    fn the_order_is_kept_unless_reordering_is_asked_for(config in any_config(), traffic in any_traffic(), seed: u64) {
        let start = Instant::now();
        let mut link = Link::new(LinkConfig { reorder: Reorder::default(), ..config }, seed, start);
        let (mut now, mut last) = (start, start);
        for &(gap, length) in &traffic {
            now += Duration::from_micros(gap);
            if let Fate::Delivered { at, .. } = link.send(now, length) {
                prop_assert!(at >= last);
                last = at;
            }
        }
    }

    #[test]
    fn the_queue_is_never_above_its_limit(config in any_config(), traffic in any_traffic(), seed: u64) {
        let start = Instant::now();
        let mut link = Link::new(config.clone(), seed, start);
        let mut now = start;
        for &(gap, length) in &traffic {
            now += Duration::from_micros(gap);
            link.send(now, length);
            let backlog = link.backlog(now);
            match config.queue {
                Queue::Bytes(limit) => prop_assert!(backlog <= limit.max(length + config.overhead)),
                Queue::Packets(limit) => prop_assert!(backlog <= limit * (1400 + config.overhead)),
            }
        }
    }

    /// Checks every window from the start of one packet's transmission to the end of a later one's.
    #[test]
    fn the_rate_is_never_exceeded(
        rate in 10_000..2_000_000_000u64,
        later in 10_000..2_000_000_000u64,
        traffic in any_traffic(),
    ) {
        let change = 200 * MS;
        let config = LinkConfig {
            rate: Some(rate),
            changes: vec![Change { at: change, to: Setting::Rate(Some(later)) }],
            ..LinkConfig::default()
        };
        let start = Instant::now();
        let mut link = Link::new(config, 1, start);
        let mut now = start;
        // Entry, exit and length of each packet.
        let mut sent = Vec::new();
        for &(gap, length) in &traffic {
            now += Duration::from_micros(gap);
            let Fate::Delivered { at, .. } = link.send(now, length) else {
                return Err(TestCaseError::fail("the link must not lose packets"));
            };
            sent.push((now, at, length as u128));
        }
        // Computes how much the two rates let through within a window, in billionths of a byte.
        let allowed = |from: Instant, until: Instant| {
            let nanos = |time: Duration| time.as_nanos();
            let (from, until) = (from - start, until - start);
            let first = nanos(until.min(change)).saturating_sub(nanos(from));
            let second = nanos(until).saturating_sub(nanos(from.max(change)));
            first * u128::from(rate) + second * u128::from(later)
        };
        let mut busy_since = start;
        let mut bytes = 0;
        let mut last = start;
        for &(entry, exit, length) in &sent {
            // At the exact moment of the last exit, the link may still have been busy for part of that nanosecond.
            if entry > last {
                (busy_since, bytes) = (entry, 0);
            }
            bytes += length;
            let (allowed, needed) = (allowed(busy_since, exit), bytes * 1_000_000_000);
            prop_assert!(needed <= allowed, "sent {needed}, allowed {allowed}");
            // The rate is also used fully: less than a nanosecond is wasted, however long the link is busy.
            let spare = u128::from(rate.max(later)) * 2;
            prop_assert!(allowed - needed <= spare, "sent {needed}, allowed {allowed}");
            last = exit;
        }
    }

    #[test]
    fn a_policer_passes_its_rate_and_its_burst_and_not_a_byte_more(
        rate in 1_000..100_000_000u64,
        burst in 1_500..100_000u64,
        traffic in any_traffic(),
    ) {
        let config = LinkConfig { policer: Some(Policer { rate, burst }), ..LinkConfig::default() };
        let start = Instant::now();
        let mut link = Link::new(config, 1, start);
        let mut now = start;
        // Tokens in billionths of a byte, computed from the definition.
        let full = u128::from(burst) * 1_000_000_000;
        let mut tokens = full;
        for &(gap, length) in &traffic {
            now += Duration::from_micros(gap);
            tokens = (tokens + u128::from(rate) * u128::from(gap) * 1000).min(full);
            let needs = length as u128 * 1_000_000_000;
            let passed = link.send(now, length) != Fate::Dropped(DropReason::Policer);
            prop_assert_eq!(passed, tokens >= needs);
            tokens -= if passed { needs } else { 0 };
        }
    }

    #[test]
    fn a_histogram_is_right_to_a_thirtysecond(times in proptest::collection::vec(0..1u64 << 41, 1..200), q in 0.0..1.0f64) {
        let mut histogram: LogHistogram = LogHistogram::default();
        let mut sorted = times.clone();
        sorted.sort_unstable();
        for &time in &times {
            histogram.record(Duration::from_nanos(time));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "small")]
        let rank = ((times.len() as f64 * q).ceil() as usize).max(1);
        let (exact, shown) = (u128::from(sorted[rank - 1]), histogram.quantile(q).as_nanos());
        prop_assert!(exact <= shown && shown <= exact + exact / 32, "{exact} shown as {shown}");
        prop_assert_eq!(histogram.quantile(1.0).as_nanos(), u128::from(sorted[sorted.len() - 1]));
        prop_assert_eq!(histogram.max(), histogram.quantile(1.0));
        let count = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
        let longer = |than: u128| count(times.iter().filter(|time| u128::from(**time) > than).count()) / count(times.len());
        let beyond = histogram.share_beyond(Duration::from_nanos(sorted[rank - 1]));
        prop_assert!((longer(shown)..=longer(exact)).contains(&beyond), "{beyond} beyond {exact}");
    }

    #[test]
    fn any_text_is_a_trace_or_refused(text in "([0-9]{1,3}\n){0,30}|\\PC*") {
        check::trace_parse(text.as_bytes());
    }
}

/// Returns the number of packets lost of 100 000 sent at 800 Mbit/s, and all counters.
fn losses(config: LinkConfig) -> (u64, Counters) {
    let start = Instant::now();
    let mut link = Link::new(config, 5, start);
    for index in 0..PACKETS {
        link.send(start + Duration::from_micros(10) * index, 1000);
    }
    (link.counters().lost(), link.counters())
}

const PACKETS: u32 = 100_000;

#[test]
fn losses_are_within_the_interval_that_999_of_1000_seeds_keep() {
    for loss in [0.001, 0.01, 0.05, 0.5] {
        let config = LinkConfig {
            loss,
            ..LinkConfig::default()
        };
        let (lost, _) = losses(config);
        let expected = f64::from(PACKETS) * loss;
        let margin = 3.29 * (expected * (1.0 - loss)).sqrt();
        let off = (f64::from(u32::try_from(lost).expect("few")) - expected).abs();
        assert!(
            off <= margin,
            "{lost} lost at {loss}: off by {off}, margin {margin}"
        );
    }
}

/// The losses of a burst model depend on each other. The variance of their number grows by the correlation, whose sum
/// over all distances is `(1 - a) / a` on either side, where `a` is the sum of both transition probabilities.
#[test]
fn bursts_have_the_configured_loss_and_length() {
    for (loss, burst) in [(0.01, 2.0), (0.01, 5.0), (0.05, 3.0), (0.2, 10.0)] {
        let model = GilbertElliott::from_mean(loss, burst);
        let config = LinkConfig {
            bursts: Some(model),
            ..LinkConfig::default()
        };
        assert_eq!(config.check(), Ok(()));
        assert!((model.mean_loss() - loss).abs() < 1e-12);
        let (lost, counters) = losses(config.clone());
        assert_eq!(counters.random, 0);
        let turns = model.to_bad + model.to_good;
        let expected = f64::from(PACKETS) * loss;
        let variance = expected * (1.0 - loss) * (2.0 - turns) / turns;
        let lost = f64::from(u32::try_from(lost).expect("few"));
        let off = (lost - expected).abs();
        assert!(
            off <= 3.29 * variance.sqrt(),
            "{lost} lost at {loss}: off by {off}, margin {}",
            3.29 * variance.sqrt()
        );
        let fates = arrivals(&config, 5, PACKETS, MS);
        let begins = fates.windows(2).filter(|pair| {
            !matches!(pair[0], Fate::Dropped(_)) && matches!(pair[1], Fate::Dropped(_))
        });
        let bursts = f64::from(u32::try_from(begins.count()).expect("few"));
        let mean = lost / bursts;
        // The burst length is geometric, so its standard deviation is below its mean.
        let margin = 3.29 * burst / bursts.sqrt();
        assert!(
            (mean - burst).abs() <= margin,
            "mean burst length {mean}, expected {burst} ± {margin}"
        );
    }
}
