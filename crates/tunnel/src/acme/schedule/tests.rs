use super::*;

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

fn at(time: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + 1000 * DAY + time
}

/// Returns the dates of a certificate for this number of days.
fn days(days: u32) -> Dates {
    Dates {
        not_before: at(Duration::ZERO),
        not_after: at(days * DAY),
    }
}

/// Follows a schedule from the beginning, as the task does. Returns the time of the order, and the number of waits.
fn run(schedule: &mut Schedule) -> (Duration, u32) {
    let (mut now, mut waits) = (at(Duration::ZERO), 0);
    loop {
        match schedule.step(now) {
            ScheduleStep::Order => {
                let since = now.duration_since(at(Duration::ZERO));
                return (since.expect("later"), waits);
            }
            ScheduleStep::AskWindow => schedule.set_window(now, None),
            ScheduleStep::Wait(time) => {
                assert!(time > Duration::ZERO && time <= HOUR, "{time:?}");
                now += time;
                waits += 1;
            }
        }
    }
}

#[test]
fn without_a_certificate_one_is_ordered_at_once() {
    let schedule = Schedule::new(None, 0.5);
    assert_eq!(schedule.step(at(Duration::ZERO)), ScheduleStep::Order);
}

#[test]
fn a_certificate_is_renewed_when_a_third_of_its_time_is_left_or_a_little_earlier() {
    for lifetime in [6, 90] {
        let of = |jitter| run(&mut Schedule::new(Some(days(lifetime)), jitter)).0;
        let third = lifetime * DAY / 3;
        assert_eq!(of(1.0), 2 * third);
        assert_eq!(of(0.0) + third / 10, 2 * third);
        assert!(of(0.3) < of(0.7));
    }
    // A minute, as test authorities issue: every second counts.
    let minute = Dates {
        not_before: at(Duration::ZERO),
        not_after: at(Duration::from_mins(1)),
    };
    let (renewed, waits) = run(&mut Schedule::new(Some(minute), 1.0));
    assert_eq!((renewed, waits), (Duration::from_secs(40), 1));
}

#[test]
fn the_authoritys_window_decides_up_to_the_last_tenth() {
    let mut schedule = Schedule::new(Some(days(90)), 0.5);
    assert_eq!(schedule.step(at(HOUR)), ScheduleStep::AskWindow);
    // The authority is about to revoke the certificate.
    schedule.set_window(at(HOUR), Some((at(HOUR), at(3 * HOUR))));
    assert_eq!(schedule.order_at(), at(2 * HOUR));
    assert_eq!(schedule.step(at(2 * HOUR)), ScheduleStep::Order);
    // An hour later than the answer the window is asked for again, not before.
    assert_eq!(schedule.step(at(HOUR)), ScheduleStep::Wait(HOUR));
    schedule.set_window(at(HOUR), Some((at(200 * DAY), at(300 * DAY))));
    assert_eq!(schedule.order_at(), at(81 * DAY));
    // An answer without a window changes nothing.
    schedule.set_window(at(7 * HOUR), None);
    assert_eq!(schedule.order_at(), at(81 * DAY));
    assert_eq!(schedule.step(at(13 * HOUR)), ScheduleStep::AskWindow);
}

#[test]
fn pauses_double_up_to_their_limit() {
    for (kind, first, most) in [
        (FailureKind::Unreachable, Duration::from_secs(10), HOUR),
        (FailureKind::Refused, Duration::from_mins(5), 6 * HOUR),
    ] {
        let mut schedule = Schedule::new(None, 0.0);
        let (mut now, mut last) = (at(Duration::ZERO), Duration::ZERO);
        for n in 0..40 {
            schedule.fail(now, kind, None);
            let pause = schedule.order_at().duration_since(now).expect("later");
            let wanted = if n == 0 { first } else { (2 * last).min(most) };
            assert_eq!(pause, wanted, "{kind:?} {n}");
            assert_eq!(schedule.step(now), ScheduleStep::Wait(pause.min(HOUR)));
            (now, last) = (now + pause, pause);
        }
        assert!(schedule.has_failed());
        schedule.hurry();
        assert_eq!(schedule.step(now), ScheduleStep::Order);
    }
    let mut schedule = Schedule::new(None, 1.0);
    schedule.fail(at(Duration::ZERO), FailureKind::Refused, None);
    assert_eq!(schedule.order_at(), at(Duration::from_secs(225)));
}

#[test]
fn the_authority_can_ask_for_a_longer_pause_up_to_a_week() {
    let after = |asked: Option<Duration>| {
        let mut schedule = Schedule::new(None, 0.0);
        let now = at(DAY);
        schedule.fail(now, FailureKind::Refused, asked.map(at));
        schedule.order_at().duration_since(now).expect("later")
    };
    assert_eq!(after(Some(DAY + 3 * HOUR)), 3 * HOUR);
    assert_eq!(
        after(Some(DAY + Duration::from_secs(1))),
        Duration::from_mins(5)
    );
    assert_eq!(after(Some(HOUR)), Duration::from_mins(5), "in the past");
    assert_eq!(after(Some(5000 * DAY)), 7 * DAY);
}

#[test]
fn a_failed_renewal_does_not_come_before_it_is_due() {
    let mut schedule = Schedule::new(Some(days(90)), 1.0);
    schedule.fail(at(HOUR), FailureKind::Unreachable, None);
    assert_eq!(schedule.order_at(), at(60 * DAY));
    schedule.fail(at(89 * DAY), FailureKind::Unreachable, None);
    assert!(schedule.order_at() > at(89 * DAY));
}

#[test]
fn after_a_success_the_authority_has_a_pause_whatever_the_dates_and_the_window_say() {
    let now = at(80 * DAY);
    let due_after = |dates: Dates| {
        let mut schedule = Schedule::after_success(now, dates, 0.5);
        schedule.set_window(now, Some((at(Duration::ZERO), at(HOUR))));
        // A person who asks for an attempt at once does so after a failure only.
        schedule.hurry();
        schedule.order_at().duration_since(now).expect("later")
    };
    assert_eq!(due_after(days(90)), HOUR);
    assert_eq!(due_after(days(1)), HOUR, "it has expired");
    let seconds = |length| Dates {
        not_before: now,
        not_after: now + Duration::from_secs(length),
    };
    assert_eq!(due_after(seconds(120)), Duration::from_secs(12));
    // Without such a window, the pause is shorter than any schedule: test authorities issue for seconds.
    let schedule = Schedule::after_success(now, seconds(12), 1.0);
    assert_eq!(schedule.order_at(), now + Duration::from_secs(8));
}
