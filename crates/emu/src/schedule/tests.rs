use bytes::Bytes;
use quictun_link::{LinkConfig, Queue, Reorder};
use quictun_sys::VnetHeader;

use super::*;

/// Payload of a segment in bytes; with its headers it is 1000 bytes long.
const PAYLOAD: usize = 960;

/// Bytes per second at which a segment takes 10 microseconds.
const RATE: u64 = 100_000_000;

/// Builds a TCP super-packet of `segments` segments.
fn frame(segments: usize) -> Frame {
    let mut bytes = vec![0; 14 + 40 + segments * PAYLOAD];
    bytes[12] = 8;
    bytes[14] = 0x45;
    bytes[14 + 20 + 12] = 0x50;
    let header = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type: VnetHeader::GSO_TCPV4,
        gso_size: 960,
        csum_start: 34,
        csum_offset: 16,
        ..VnetHeader::default()
    };
    Frame::new(header, Bytes::from(bytes)).expect("valid super-packet")
}

struct ScheduleTest {
    schedule: Schedule,
    start: Instant,
}

impl ScheduleTest {
    fn new(config: LinkConfig, window_us: u64) -> Self {
        let start = Instant::now();
        let link = Link::new(config, 1, start);
        let schedule = Schedule::new(link, None, Duration::from_micros(window_us));
        Self { schedule, start }
    }

    fn enter(&mut self, at_us: u64, segments: usize) {
        let now = self.start + Duration::from_micros(at_us);
        self.schedule.enter(now, frame(segments)).expect("enter");
    }

    /// Returns all departures: the due time in microseconds, and the segments.
    fn departures(&mut self) -> Vec<(u128, Range<usize>)> {
        let mut all = Vec::new();
        while let Some(due) = self.schedule.next_due() {
            if let Some(before) = due.checked_sub(Duration::from_nanos(1)) {
                let early = self.schedule.poll_departure(before);
                assert!(early.is_none(), "left early");
            }
            let departure = self.schedule.poll_departure(due).expect("due");
            all.push(((departure.due - self.start).as_micros(), departure.run));
        }
        assert_eq!((self.schedule.bytes, self.schedule.segments), (0, 0));
        all
    }
}

fn rated() -> LinkConfig {
    LinkConfig {
        rate: Some(RATE),
        ..LinkConfig::default()
    }
}

#[test]
fn segments_that_are_due_within_the_window_leave_together() {
    let mut run = ScheduleTest::new(rated(), 25);
    run.enter(0, 8);
    // One segment arrives every 10 us. Three arrive within 25 us, and leave when the third has arrived.
    assert_eq!(run.departures(), [(30, 0..3), (60, 3..6), (80, 6..8)]);
}

#[test]
fn without_a_window_each_segment_leaves_when_it_is_due() {
    let mut run = ScheduleTest::new(rated(), 0);
    run.enter(0, 3);
    assert_eq!(run.departures(), [(10, 0..1), (20, 1..2), (30, 2..3)]);
}

#[test]
fn without_a_rate_a_frame_leaves_unchanged() {
    let delay = Duration::from_millis(10);
    let mut run = ScheduleTest::new(
        LinkConfig {
            delay,
            ..LinkConfig::default()
        },
        0,
    );
    run.enter(0, 40);
    run.enter(5, 2);
    assert_eq!(run.departures(), [(10_000, 0..40), (10_005, 0..2)]);
}

#[test]
fn a_frame_above_the_ip_length_limit_leaves_in_parts() {
    let mut run = ScheduleTest::new(LinkConfig::default(), 0);
    run.enter(0, 150);
    assert_eq!(run.departures(), [(0, 0..68), (0, 68..136), (0, 136..150)]);
}

#[test]
fn with_loss_per_frame_each_frame_is_whole_or_lost() {
    let mut run = ScheduleTest::new(LinkConfig::default(), 0);
    let dice = LinkConfig {
        loss: 0.5,
        ..LinkConfig::default()
    };
    run.schedule.whole = Some(Link::new(dice, 1, run.start));
    for at in 0..1000 {
        run.enter(at, 10);
    }
    let departures = run.departures();
    assert!(
        (400..600).contains(&departures.len()),
        "{}",
        departures.len()
    );
    assert!(departures.iter().all(|(_, segments)| *segments == (0..10)));
}

#[test]
fn loss_is_decided_for_each_segment_and_leaves_gaps_between_runs() {
    let config = LinkConfig {
        loss: 0.05,
        ..LinkConfig::default()
    };
    let mut run = ScheduleTest::new(config, 1000);
    for _ in 0..100 {
        run.enter(0, 40);
    }
    let departures = run.departures();
    let out: u64 = departures.iter().map(|(_, run)| run.len() as u64).sum();
    let lost = run.schedule.link.counters().random;
    assert_eq!(out + lost, 4000);
    assert!((150..250).contains(&lost), "{lost}");
    assert!(
        departures.len() > 200,
        "frames must be cut where segments are missing"
    );
}

#[test]
fn the_queue_drops_segments_and_not_frames() {
    let config = LinkConfig {
        queue: Queue::Bytes(10_000),
        ..rated()
    };
    let mut run = ScheduleTest::new(config, 0);
    run.enter(0, 40);
    assert_eq!(run.departures().len(), 10);
}

#[test]
fn late_segments_and_copies_leave_on_their_own() {
    let config = LinkConfig {
        reorder: Reorder {
            share: 0.1,
            extra: Duration::from_micros(5),
        },
        duplicate: 0.1,
        ..rated()
    };
    let mut run = ScheduleTest::new(config, 1000);
    for _ in 0..20 {
        run.enter(0, 40);
    }
    let counters = run.schedule.link.counters();
    let mut seen = [0; 40];
    for (_, run) in run.departures() {
        for index in run {
            seen[index] += 1;
        }
    }
    assert_eq!(seen.iter().sum::<u64>(), 800 + counters.duplicated);
    assert!(seen.iter().all(|times| *times >= 20), "some are lost");
    assert!(counters.reordered > 0 && counters.duplicated > 0);
}

#[test]
fn segments_with_equal_times_leave_in_order_of_arrival() {
    let mut run = ScheduleTest::new(LinkConfig::default(), 0);
    for segments in 1..=30 {
        run.enter(0, segments);
    }
    let lengths: Vec<usize> = run.departures().iter().map(|(_, run)| run.len()).collect();
    assert_eq!(lengths, (1..=30).collect::<Vec<_>>());
}

#[test]
fn a_full_schedule_refuses_segments() {
    let config = LinkConfig {
        delay: Duration::from_secs(1),
        ..LinkConfig::default()
    };
    let mut run = ScheduleTest::new(config, 0);
    let frame = frame(60);
    let enter = |run: &mut ScheduleTest| run.schedule.enter(run.start, frame.clone());
    for _ in 0..BYTES_MAX.div_ceil(60_000) {
        assert_eq!(enter(&mut run), Ok(()));
    }
    let before = run.schedule.link.counters();
    assert_eq!(enter(&mut run), Err(OverLimit));
    assert_eq!(
        run.schedule.link.counters(),
        before,
        "the link must not see a refused frame"
    );
    let due = run.schedule.next_due().expect("a departure");
    run.schedule.poll_departure(due).expect("due");
    assert_eq!(enter(&mut run), Ok(()));
}

#[test]
fn a_run_has_a_single_mark_and_no_gap() {
    let run = ScheduleTest::new(rated(), 1000);
    let at = run.start;
    let growing = PendingRun::new(4, at, true, 1000);
    let joins = |index, marked| run.schedule.joins(&growing, index, at, marked, 60);
    assert!(joins(5, true));
    assert!(!joins(5, false), "another mark");
    assert!(!joins(6, true), "a gap");
    assert!(!run.schedule.joins(&growing, 5, at, true, 1), "too long");
}
