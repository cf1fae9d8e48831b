use std::sync::Arc;

use super::error::{MAX_CHANGES, MAX_DELAY};
use super::*;

const MS: Duration = Duration::from_millis(1);

fn limited() -> LinkConfig {
    LinkConfig {
        rate: Some(75_000_000),
        overhead: crate::overhead::ETHERNET,
        delay: 10 * MS,
        queue: Queue::Bytes(64_000),
        ..LinkConfig::default()
    }
}

/// A change that makes a valid configuration invalid, and the expected error message.
type InvalidChange = (fn(&mut LinkConfig), &'static str);

#[test]
fn impossible_values_are_refused_with_the_reason() {
    let cases: &[InvalidChange] = &[
        (
            |c| c.loss = 1.5,
            "a loss of 150% is impossible; a share lies between 0% and 100%",
        ),
        (
            |c| c.duplicate = f64::NAN,
            "duplication of NaN% is impossible; a share lies between 0% and 100%",
        ),
        (
            |c| c.rate = Some(0),
            "a rate of 0 lets nothing through; leave it out for no limit, or plan an outage",
        ),
        (
            |c| c.rate = Some(2_000_000_000_000),
            "a rate of 16000gbit is too high; the maximum is 8000gbit; leave it out for no limit",
        ),
        (
            |c| c.queue = Queue::Bytes(1537),
            "a queue of 1537B does not hold one packet of 1538B; give at least that",
        ),
        (
            |c| c.queue = Queue::Packets(0),
            "a queue of 0p does not hold one packet of 1538B; give at least that",
        ),
        (
            |c| c.delay = 60_001 * MS,
            "a delay of 60.001s is too long; the maximum is 60s",
        ),
        (
            |c| c.rate = None,
            "a queue has no effect without a rate, because no packet waits; give a rate too",
        ),
        (
            |c| c.reorder.share = 0.01,
            "reordering needs a time by which the picked packets are delayed, such as 5ms",
        ),
        (
            |c| c.reorder.extra = 5 * MS,
            "reordering by 5ms needs a share of packets, such as 1%",
        ),
        (
            |c| c.trace = Trace::parse("1").ok().map(Arc::new),
            "a trace already sets when bytes are sent; give a trace or a rate, not both",
        ),
        (
            |c| c.bursts = Some(GilbertElliott::from_mean(1.0, 3.0)),
            "a chance to become bad of inf% is impossible; a share lies between 0% and 100%",
        ),
        (
            |c| {
                c.stall = Some(Stall {
                    lasts: 5 * MS,
                    every: 5 * MS,
                });
            },
            "pauses of 5ms every 5ms make no sense; a pause must be above 0 and shorter than its period, such as 5ms:25ms",
        ),
        (
            |c| {
                c.codel = Some(Codel {
                    target: 100 * MS,
                    ..Codel::default()
                });
            },
            "CoDel's target (100ms) must be above 0 and below its interval (100ms); RFC 8289 has 5ms and 100ms",
        ),
        (
            |c| {
                c.policer = Some(Policer {
                    rate: 1000,
                    burst: 1000,
                });
            },
            "a policer's burst of 1000B is smaller than one packet of 1538B; give at least that",
        ),
        (
            |c| {
                c.outages.push(Outage {
                    from: 2 * MS,
                    until: MS,
                });
            },
            "an outage from 2ms until 1ms has no length; it must end after it begins",
        ),
        (
            |c| {
                let to = Setting::Delay(MS);
                c.changes = vec![Change { at: 2 * MS, to }, Change { at: MS, to }];
            },
            "the change at 1ms is earlier than the one listed before it; sort changes by time",
        ),
        (
            |c| {
                let to = Setting::Rate(Some(0));
                c.changes = vec![Change { at: MS, to }];
            },
            "a later rate of 0 lets nothing through; leave it out for no limit, or plan an outage",
        ),
    ];
    assert_eq!(limited().check(), Ok(()));
    for (change, message) in cases {
        let mut config = limited();
        change(&mut config);
        let error = config.check().expect_err(message);
        assert_eq!(error.to_string(), *message);
    }
}

#[test]
fn limits_themselves_are_accepted() {
    let mut config = limited();
    config.loss = 1.0;
    config.delay = MAX_DELAY;
    config.queue = Queue::Bytes(1538);
    config.changes = vec![
        Change {
            at: MS,
            to: Setting::Loss(0.0)
        };
        MAX_CHANGES
    ];
    config.bursts = Some(GilbertElliott::from_mean(0.05, 4.0));
    assert_eq!(config.check(), Ok(()));
    config.changes.push(config.changes[0]);
    let error = config.check().expect_err("one change above the limit");
    assert_eq!(
        error.to_string(),
        "8641 changes are too many; the maximum is 8640"
    );
}

#[test]
fn a_policer_above_the_rate_gets_a_remark() {
    let mut config = limited();
    config.policer = Some(Policer {
        rate: 80_000_000,
        burst: 10_000,
    });
    assert_eq!(config.check(), Ok(()));
    assert_eq!(
        config.remark().expect("a remark"),
        "a policer of 640mbit before a link of 600mbit limits only bursts: the link's queue fills first"
    );
    config.policer = Some(Policer {
        rate: 75_000_000,
        burst: 10_000,
    });
    assert_eq!(config.remark(), None);
}

#[test]
fn a_configuration_is_one_line() {
    assert_eq!(LinkConfig::default().to_string(), "a perfect wire");
    let mut config = limited();
    config.loss = 0.01;
    config.loss_at = LossAt::Entry;
    config.codel = Some(Codel::default());
    config.stall = Some(Stall {
        lasts: 5 * MS,
        every: 25 * MS,
    });
    assert_eq!(
        config.to_string(),
        "600mbit, delay 10ms, stalls 5ms/25ms, loss 1%, lost before the queue, queue 64kB, CoDel 5ms/100ms"
    );
}
