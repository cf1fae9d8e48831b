//! Tests of changes over time: scheduled changes, outages, traces, and the place of loss.

use std::sync::Arc;

use super::*;

fn out(link: &mut Link, now: Instant, length: usize) -> Duration {
    match link.send(now, length) {
        Fate::Delivered { at, .. } => at - now,
        Fate::Dropped(reason) => panic!("{reason:?}"),
    }
}

#[test]
fn a_rate_step_meets_the_packet_that_is_being_sent() {
    let start = Instant::now();
    let change = |at, rate| Change {
        at,
        to: Setting::Rate(rate),
    };
    let config = LinkConfig {
        rate: Some(1_000_000),
        changes: vec![
            change(3 * MS / 2, Some(100_000)),
            change(20 * MS, None),
            change(30 * MS, Some(1_000_000)),
        ],
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    assert_eq!(out(&mut link, start, 1000), MS);
    // Half of the packet is sent at 1 MB/s, half at a tenth of that.
    assert_eq!(out(&mut link, start, 1000), 3 * MS / 2 + 5 * MS);
    assert_eq!(out(&mut link, start, 1000), 3 * MS / 2 + 15 * MS);
    // This packet starts at a limited rate and ends without a limit, and so do all packets that wait behind it.
    assert_eq!(out(&mut link, start, 1000), 20 * MS);
    assert_eq!(out(&mut link, start, 1000), 20 * MS);
    assert_eq!(out(&mut link, start + 25 * MS, 1000), Duration::ZERO);
    assert_eq!(out(&mut link, start + 30 * MS, 1000), MS);
}

#[test]
fn delay_and_loss_change_at_the_scheduled_times() {
    let start = Instant::now();
    let config = LinkConfig {
        delay: 10 * MS,
        changes: vec![
            Change {
                at: 5 * MS,
                to: Setting::Delay(20 * MS),
            },
            Change {
                at: 6 * MS,
                to: Setting::Loss(1.0),
            },
            Change {
                at: 7 * MS,
                to: Setting::Loss(0.0),
            },
            Change {
                at: 8 * MS,
                to: Setting::Delay(MS),
            },
        ],
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    assert_eq!(out(&mut link, start + 4 * MS, 100), 10 * MS);
    assert_eq!(out(&mut link, start + 5 * MS, 100), 20 * MS);
    let fate = link.send(start + 6 * MS, 100);
    assert_eq!(fate, Fate::Dropped(DropReason::Random));
    assert_eq!(out(&mut link, start + 7 * MS, 100), 20 * MS);
    // The path became shorter, but the order is kept.
    assert_eq!(out(&mut link, start + 8 * MS, 100), 19 * MS);
}

#[test]
fn outages_that_overlap_are_one() {
    let outage = |from, until| Outage {
        from: from * MS,
        until: until * MS,
    };
    let config = LinkConfig {
        outages: vec![
            outage(20, 25),
            outage(10, 16),
            outage(12, 14),
            outage(16, 18),
        ],
        ..LinkConfig::default()
    };
    let fates = arrivals(&config, 1, 30, MS);
    let passed: Vec<usize> = delivered(&fates)
        .into_iter()
        .map(|(index, _)| index)
        .collect();
    let expected: Vec<usize> = (0..10).chain(18..20).chain(25..30).collect();
    assert_eq!(passed, expected);
}

#[test]
fn a_packet_lost_at_the_entry_takes_none_of_the_rate() {
    let time = |loss_at| {
        let start = Instant::now();
        let config = LinkConfig {
            rate: Some(1_000_000),
            loss: 0.5,
            loss_at,
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1, start);
        for _ in 0..1000 {
            link.send(start, 1000);
        }
        (link.wait(start), link.counters())
    };
    let (wait, counters) = time(LossAt::Exit);
    assert_eq!((wait, counters.transmitted), (1000 * MS, 1000));
    let (wait, counters) = time(LossAt::Entry);
    assert!((430..570).contains(&counters.random), "{}", counters.random);
    assert_eq!(counters.transmitted, counters.delivered);
    assert_eq!(wait, MS * u32::try_from(counters.delivered).expect("few"));
}

#[test]
fn a_byte_that_is_sent_makes_room_for_another() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(1_000_000),
        queue: Queue::Bytes(2000),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    out(&mut link, start, 1000);
    out(&mut link, start, 1000);
    let half = start + MS / 2;
    assert_eq!(link.backlog(half), 1500);
    let full = Fate::Dropped(DropReason::QueueFull);
    assert_eq!(link.send(half, 501), full);
    assert_eq!(out(&mut link, half, 500), 2 * MS);
}

#[test]
fn a_queue_of_packets_counts_packets() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(1_000_000),
        queue: Queue::Packets(3),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    for length in [1000, 1, 1] {
        out(&mut link, start, length);
    }
    let full = Fate::Dropped(DropReason::QueueFull);
    assert_eq!(link.send(start, 1), full);
    // A packet stays in the queue until its last bit has been sent.
    assert_eq!(link.send(start + Duration::from_nanos(999_999), 1), full);
    assert_eq!(
        out(&mut link, start + MS, 1000),
        MS + Duration::from_micros(2)
    );
}

fn traced(text: &str) -> Link {
    let trace = Trace::parse(text).expect("valid trace");
    let config = LinkConfig {
        trace: Some(Arc::new(trace)),
        ..LinkConfig::default()
    };
    Link::new(config, 1, Instant::now())
}

#[test]
fn a_trace_sends_at_its_opportunities_and_begins_again() {
    let start = Instant::now();
    let trace = Trace::parse("2\n2\n\n 10 \n").expect("valid trace");
    assert_eq!(trace.mean_rate(), 450_000);
    let config = LinkConfig {
        trace: Some(Arc::new(trace)),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    // Two opportunities at 2 ms, the second shared by two packets; then a packet that takes two.
    let lengths = [1500, 500, 1000, 1501, 1400, 99, 1];
    let times: Vec<u64> = lengths
        .iter()
        .map(|&length| u64::try_from(out(&mut link, start, length).as_millis()).expect("short"))
        .collect();
    assert_eq!(times, [2, 2, 2, 12, 12, 12, 12]);
    // Unused opportunities are lost.
    assert_eq!(out(&mut link, start + 31 * MS, 3000), MS);
    assert_eq!(out(&mut link, start + 31 * MS, 1500), 9 * MS);
    assert_eq!(out(&mut link, start + 40 * MS, 1500), 2 * MS);
}

#[test]
fn an_opportunity_at_the_end_of_a_round_can_be_used() {
    let mut link = traced("5");
    let start = Instant::now();
    let mut link_start = Link::new(link.config().clone(), 1, start);
    assert_eq!(out(&mut link_start, start + 5 * MS, 1500), Duration::ZERO);
    assert_eq!(out(&mut link_start, start + 5 * MS, 1500), 5 * MS);
    // A time far ahead is found without stepping through the rounds in between.
    let late = start + Duration::from_hours(1000);
    assert_eq!(out(&mut link_start, late, 1500), Duration::ZERO);
    link.reconfigure(LinkConfig::default());
    assert_eq!(out(&mut link, late, 1500), Duration::ZERO);
}

#[test]
fn an_invalid_trace_is_refused_with_its_line() {
    let error = |text: &str| Trace::parse(text).expect_err("not a trace").to_string();
    assert_eq!(
        error("1\nx\n"),
        "line 2 of the trace is not a time in whole milliseconds below 86400000, such as 250"
    );
    assert_eq!(
        error("1\n3\n2"),
        "line 3 of the trace is earlier than the line before; sort the file by time"
    );
    let empty =
        "the trace has no time above 0; it needs one line for each 1500 bytes, such as 1, 2, 3";
    for text in ["", "\n\n", "0\n0"] {
        assert_eq!(error(text), empty);
    }
    for text in ["-1", "+1", "1.5", "86400000", "99999999999", "1 2"] {
        assert!(error(text).starts_with("line 1"), "{text}");
    }
    let most = "7\n".repeat(MAX_OPPORTUNITIES);
    assert!(Trace::parse(&most).is_ok());
    assert_eq!(
        error(&format!("{most}7")),
        "the trace has more than 1048576 lines; shorten it: a trace repeats"
    );
}

#[test]
fn a_reconfigured_link_continues_where_it_was() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(1_000_000),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config.clone(), 1, start);
    assert_eq!(out(&mut link, start, 5000), 5 * MS);
    link.reconfigure(LinkConfig {
        rate: Some(500_000),
        ..config
    });
    assert_eq!(out(&mut link, start, 1000), 7 * MS);
    link.reconfigure(LinkConfig::default());
    assert_eq!(out(&mut link, start, 1000), 7 * MS);
    assert_eq!(out(&mut link, start + 8 * MS, 1000), Duration::ZERO);
}
