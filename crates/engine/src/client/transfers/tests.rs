use super::hold::HOLD;
use super::*;

const MS: Duration = Duration::from_millis(1);
const MIB: u64 = 1 << 20;

/// Transfers, and a clock.
struct Driver {
    transfers: Transfers,
    now: Instant,
}

impl Driver {
    fn new() -> Self {
        Self {
            transfers: Transfers::new(),
            now: Instant::now(),
        }
    }

    fn sample(&mut self, sample: Sample) -> TransferStep {
        self.now += SAMPLE;
        self.transfers.handle_sample(self.now, SAMPLE, sample)
    }

    /// Moves `bytes` a sample until a step other than `Stay`, at most for `time`.
    fn run(&mut self, bytes: u64, time: Duration) -> TransferStep {
        let until = self.now + time;
        while self.now < until {
            let step = self.sample(clean(bytes));
            if step != TransferStep::Stay {
                return step;
            }
        }
        TransferStep::Stay
    }

    /// Returns the time since the first sample, after the next one.
    fn lasted(&self) -> Duration {
        self.transfers
            .since
            .map_or(SAMPLE, |since| self.now + SAMPLE - since)
    }

    /// Moves the transfers to TLS by a trial.
    fn onto_tls(&mut self) -> TransfersOverTls {
        assert_eq!(self.run(20 * MIB, TRIAL), TransferStep::Connect);
        assert!(self.transfers.handle_connected(self.now));
        match self.run(40 * MIB, TRIAL) {
            TransferStep::Keep(kept) => kept,
            other => panic!("{other:?}"),
        }
    }
}

fn clean(bytes: u64) -> Sample {
    Sample {
        bytes,
        min_rtt: MS,
        ..Sample::default()
    }
}

#[test]
fn a_fast_clean_transfer_moves_if_tls_is_faster_and_returns_if_losses_slow_it_down() {
    let mut it = Driver::new();
    let kept = it.onto_tls();
    assert_eq!(kept.reason, TransferReason::Cheaper);
    assert_eq!((kept.quic, kept.tls), (200 * MIB, 400 * MIB));
    assert_eq!(it.transfers.over_tls(), Some(kept));
    assert_eq!(it.run(40 * MIB, 20 * TRIAL), TransferStep::Stay);
    // TCP that fills a queue loses some segments, and is fast all the same.
    let lost = |lost, bytes| Sample {
        lost,
        ..clean(bytes)
    };
    for _ in 0..100 {
        assert_eq!(it.sample(lost(100, 40 * MIB)), TransferStep::Stay);
    }
    let back = TransferStep::Return(Some(TransferReason::Loss));
    let steps: Vec<_> = (0..RUN).map(|_| it.sample(lost(50, 20 * MIB))).collect();
    assert!(steps.contains(&back), "{steps:?}");
    assert!(!it.transfers.uses_tls());
}

#[test]
fn transfers_return_if_tls_stays_slow_without_loss_and_not_for_a_moment() {
    let mut it = Driver::new();
    it.onto_tls();
    let moment = Duration::from_millis(500);
    for _ in 0..10 {
        assert_eq!(it.run(5 * MIB, moment), TransferStep::Stay);
        assert_eq!(it.run(40 * MIB, 4 * moment), TransferStep::Stay);
    }
    let back = TransferStep::Return(Some(TransferReason::Slower));
    assert_eq!(it.run(15 * MIB, 6 * moment), back);
}

#[test]
fn a_carrier_that_is_hardly_faster_does_not_keep_the_transfers() {
    let mut it = Driver::new();
    for hold in [HOLD, HOLD * 2, HOLD * 4] {
        assert_eq!(it.run(20 * MIB, TRIAL), TransferStep::Connect);
        assert!(it.transfers.handle_connected(it.now));
        assert!(it.transfers.uses_tls());
        assert_eq!(it.run(21 * MIB, TRIAL), TransferStep::Return(None));
        let early = hold.saturating_sub(SAMPLE);
        assert_eq!(
            it.run(20 * MIB, early),
            TransferStep::Stay,
            "held for {hold:?}"
        );
    }
}

#[test]
fn a_slow_a_lossy_or_a_long_path_gets_no_trial() {
    let lossy = Sample {
        lost: 200,
        ..clean(20 * MIB)
    };
    let long = Sample {
        min_rtt: SHORT + MS,
        ..clean(20 * MIB)
    };
    for sample in [clean(FAST - 1), lossy, long] {
        let mut it = Driver::new();
        while it.lasted() < LASTS {
            assert_eq!(it.sample(sample), TransferStep::Stay, "{sample:?}");
        }
    }
}

#[test]
fn small_buffers_are_a_reason_to_try_transfers_on_longer_paths() {
    let least = |bytes, min_rtt, small_buffers| Sample {
        min_rtt,
        small_buffers,
        ..clean(bytes)
    };
    let (bytes, rtt) = (FAST, SHORT_IN_SMALL_BUFFERS);
    for (sample, tried) in [
        (least(bytes, rtt, true), true),
        (least(bytes, rtt, false), false),
        (least(bytes - 1, rtt, true), false),
        (least(bytes, rtt + MS, true), false),
    ] {
        let mut it = Driver::new();
        let steps: Vec<_> = (0..100).map(|_| it.sample(sample)).collect();
        assert_eq!(steps.contains(&TransferStep::Connect), tried, "{sample:?}");
    }
}

#[test]
fn a_throttled_transfer_is_on_tls_in_five_seconds_and_stays_for_minutes() {
    let mut it = Driver::new();
    // 20 Mbit/s for a second, then 1 Mbit/s.
    assert_eq!(it.run(250_000, Duration::from_secs(1)), TransferStep::Stay);
    let throttled = it.now;
    assert_eq!(it.run(12_500, 2 * TRIAL), TransferStep::Connect);
    assert!(it.transfers.handle_connected(it.now));
    let TransferStep::Keep(kept) = it.run(250_000, 2 * TRIAL) else {
        panic!("not kept");
    };
    assert_eq!(kept.reason, TransferReason::Throttled);
    assert!(it.now < throttled + 8 * Duration::from_secs(1));
    // Neither losses nor a slow application are a reason to go back to a carrier that is throttled.
    let lossy = Sample {
        lost: 50,
        ..clean(250_000)
    };
    let kept_until = it.now + THROTTLED;
    assert_eq!(it.run(100, TRIAL), TransferStep::Stay);
    while it.now + SAMPLE < kept_until {
        assert_eq!(it.sample(lossy), TransferStep::Stay);
    }
    let again = TransferStep::Return(Some(TransferReason::TriedAgain));
    assert_eq!(it.sample(lossy), again);
    // QUIC is still throttled: the transfers are back in seconds, for twice as long.
    assert_eq!(it.run(12_500, 2 * TRIAL), TransferStep::Connect);
    assert!(it.transfers.handle_connected(it.now));
    assert!(matches!(it.run(250_000, 2 * TRIAL), TransferStep::Keep(_)));
    assert_eq!(
        it.run(250_000, (2 * THROTTLED).saturating_sub(SAMPLE)),
        TransferStep::Stay
    );
}

#[test]
fn another_network_ends_the_hold_and_the_verdict_on_a_throttle() {
    let mut it = Driver::new();
    assert_eq!(it.run(20 * MIB, TRIAL), TransferStep::Connect);
    it.transfers.handle_failed(it.now);
    assert_eq!(it.run(20 * MIB, TRIAL), TransferStep::Stay);
    it.transfers.handle_network_change(it.now);
    assert_eq!(it.run(250_000, TRIAL), TransferStep::Stay);
    assert_eq!(it.run(12_500, 2 * TRIAL), TransferStep::Connect);
    assert!(it.transfers.handle_connected(it.now));
    assert!(matches!(it.run(250_000, 2 * TRIAL), TransferStep::Keep(_)));
    assert_eq!(it.run(250_000, 10 * TRIAL), TransferStep::Stay);
    it.transfers.handle_network_change(it.now);
    let again = TransferStep::Return(Some(TransferReason::TriedAgain));
    assert_eq!(it.sample(clean(250_000)), again);
}

#[test]
fn a_transfer_that_rests_or_ends_has_not_collapsed() {
    let mut it = Driver::new();
    assert_eq!(it.run(250_000, Duration::from_secs(1)), TransferStep::Stay);
    assert_eq!(it.run(0, 10 * TRIAL), TransferStep::Stay);
    assert_eq!(it.run(20 * MIB, TRIAL), TransferStep::Connect);
    assert!(it.transfers.handle_connected(it.now));
    let ended = Sample {
        ended: true,
        ..Sample::default()
    };
    assert_eq!(it.sample(ended), TransferStep::Return(None));
    // The trial has proven nothing, so that the next transfer may soon have one.
    let early = AFTER_VOID.saturating_sub(SAMPLE);
    assert_eq!(it.run(20 * MIB, early), TransferStep::Stay);
    assert_eq!(it.run(20 * MIB, TRIAL), TransferStep::Connect);
    // A transfer that ends after a clear result changes nothing.
    assert!(it.transfers.handle_connected(it.now));
    assert_eq!(it.run(40 * MIB, SETTLE + 3 * SAMPLE), TransferStep::Stay);
    let kept = it.sample(Sample {
        ended: true,
        ..clean(40 * MIB)
    });
    assert!(matches!(kept, TransferStep::Keep(_)), "{kept:?}");
}

#[test]
fn a_trial_that_fails_for_one_sign_does_not_delay_the_others() {
    let mut it = Driver::new();
    for _ in 0..6 {
        assert_eq!(it.run(20 * MIB, HOLD_MAX), TransferStep::Connect);
        assert!(it.transfers.handle_connected(it.now));
        assert_eq!(it.run(20 * MIB, TRIAL), TransferStep::Return(None));
    }
    assert_eq!(it.run(20 * MIB, TRIAL), TransferStep::Stay);
    assert_eq!(
        it.run(12_500, 2 * TRIAL),
        TransferStep::Connect,
        "throttled"
    );
    assert!(it.transfers.handle_connected(it.now));
    assert!(matches!(it.run(20 * MIB, TRIAL), TransferStep::Keep(_)));
}

#[test]
fn a_connection_that_fails_ends_the_trial_and_delays_the_next_one() {
    let mut it = Driver::new();
    assert_eq!(it.run(20 * MIB, TRIAL), TransferStep::Connect);
    it.transfers.handle_failed(it.now);
    assert!(!it.transfers.handle_connected(it.now));
    assert_eq!(
        it.run(20 * MIB, HOLD.saturating_sub(SAMPLE)),
        TransferStep::Stay
    );
    assert_eq!(it.run(20 * MIB, 2 * SAMPLE), TransferStep::Connect);
}

#[test]
fn samples_before_and_after_a_pause_belong_to_different_runs() {
    let mut it = Driver::new();
    for _ in 0..RUN - 1 {
        assert_eq!(it.sample(clean(20 * MIB)), TransferStep::Stay);
    }
    let late = it
        .transfers
        .handle_sample(it.now + TRIAL, TRIAL, clean(20 * MIB));
    assert_eq!(late, TransferStep::Stay);
    for _ in 0..RUN - 1 {
        assert_eq!(it.sample(clean(20 * MIB)), TransferStep::Stay);
    }
    assert_eq!(it.sample(clean(20 * MIB)), TransferStep::Connect);
}

#[test]
fn a_transfer_that_lasts_gets_a_trial_and_each_failure_doubles_the_time_until_the_next_one() {
    for bytes in [12_500, 110_000] {
        let mut it = Driver::new();
        for doubled in [1, 2, 4] {
            let early = (LASTS * doubled).saturating_sub(SAMPLE);
            assert_eq!(it.run(bytes, early), TransferStep::Stay, "{doubled}");
            assert_eq!(it.run(bytes, 2 * SAMPLE), TransferStep::Connect);
            assert!(it.transfers.handle_connected(it.now));
            // TLS has half of the rate: the trial ends early.
            let hopeless = it.run(bytes * 2 / 5, HOPELESS + SAMPLE);
            assert_eq!(hopeless, TransferStep::Return(None));
        }
        // A collapse is noticed all the same.
        assert_eq!(
            it.run(bytes * 30, Duration::from_secs(1)),
            TransferStep::Stay
        );
        assert_eq!(it.run(bytes, 2 * TRIAL), TransferStep::Connect);
        assert!(it.transfers.handle_connected(it.now));
        assert!(matches!(
            it.run(bytes * 3, 2 * TRIAL),
            TransferStep::Keep(_)
        ));
    }
}

#[test]
fn a_transfer_that_rests_has_not_lasted() {
    let mut it = Driver::new();
    for _ in 0..20 {
        assert_eq!(it.run(12_500, LASTS / 2), TransferStep::Stay);
        it.transfers.rest();
    }
}
