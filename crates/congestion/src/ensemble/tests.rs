use super::*;

const MS: Duration = Duration::from_millis(1);

fn busy(rtt_ms: u32, bandwidth: f64) -> MemberState {
    MemberState {
        busy: true,
        rtt: rtt_ms * MS,
        bandwidth,
        ..MemberState::default()
    }
}

fn join(ensemble: &Ensemble) -> Member {
    ensemble.join().expect("a slot is free")
}

#[test]
fn busy_members_on_one_path_see_each_other() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let [one, other, idle] = std::array::from_fn(|_| join(&ensemble));
    other.publish(now, &busy(30, 7.0));
    idle.publish(
        now,
        &MemberState {
            busy: false,
            ..busy(30, 5.0)
        },
    );
    let summary = one.summarize(now, 30 * MS, None);
    assert_eq!((summary.busy, summary.settled), (1, 1));
    assert!((summary.bandwidth - 7.0).abs() < 1e-9);
    assert!(
        other.summarize(now, 30 * MS, None).is_none(),
        "the only other busy member published nothing"
    );
    // The difference may be a quarter of the shorter round-trip time plus five milliseconds.
    assert_eq!(one.summarize(now, 42 * MS, None).busy, 1);
    assert!(one.summarize(now, 43 * MS, None).is_none());
    assert_eq!(one.summarize(now, 20 * MS, None).busy, 1);
    assert!(one.summarize(now, 19 * MS, None).is_none());
}

#[test]
fn an_idle_member_leaves_the_path_to_others() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let (one, other) = (join(&ensemble), join(&ensemble));
    other.publish(now, &busy(30, 7.0));
    let last = now + BUSY + BUSY_ROUNDS * 30 * MS;
    assert_eq!(one.summarize(last, 30 * MS, None).busy, 1);
    let later = last + Duration::from_nanos(1);
    assert!(one.summarize(later, 30 * MS, None).is_none());
}

#[test]
fn the_latest_published_event_counts() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let [one, first, second] = std::array::from_fn(|_| join(&ensemble));
    let state = MemberState {
        window: 4000.0,
        probed: Some(now + 2 * MS),
        part_taken: Some(now + MS),
        overflowed: Some(now + 4 * MS),
        rested: Some((now + 2 * MS, true)),
        stance: Some((now + MS, Stance::Holding)),
        ..busy(30, 0.0)
    };
    first.publish(now + 5 * MS, &state);
    let state = MemberState {
        overflowed: Some(now + 3 * MS),
        rested: Some((now + 3 * MS, false)),
        stance: Some((now, Stance::Beside)),
        part_taken: Some(now + 3 * MS),
        rate: 3.0,
        ..busy(30, 5.0)
    };
    second.publish(now + 5 * MS, &state);
    let summary = one.summarize(now + 6 * MS, 30 * MS, Some(now + MS));
    let expected = SiblingSummary {
        busy: 2,
        settled: 1,
        bandwidth: 5.0,
        beside: 1,
        window: 4000.0,
        overflowed: Some(now + 4 * MS),
        rested: Some((now + 3 * MS, false)),
        stance: Some((now + MS, Stance::Holding)),
        rate: 5.0,
        probed: Some(now + 2 * MS),
        begun: 1,
        part_taken: Some(now + 3 * MS),
    };
    assert_eq!(summary, expected);
}

#[test]
fn a_clone_is_the_same_member_and_the_last_one_leaves() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let (one, other) = (join(&ensemble), join(&ensemble));
    let clone = other.clone();
    other.publish(now, &busy(30, 7.0));
    clone.publish(now, &busy(30, 7.0));
    assert_eq!(one.summarize(now, 30 * MS, None).busy, 1);
    drop(other);
    assert_eq!(one.summarize(now, 30 * MS, None).busy, 1);
    drop(clone);
    assert!(one.summarize(now, 30 * MS, None).is_none());
    let next = join(&ensemble);
    assert!(
        one.summarize(now, 30 * MS, None).is_none(),
        "the new member has published nothing"
    );
    next.publish(now, &busy(30, 3.0));
    assert_eq!(one.summarize(now, 30 * MS, None).busy, 1);
}

#[test]
fn an_ensemble_has_one_member_per_slot_at_most() {
    let ensemble = Ensemble::new(Instant::now());
    let mut members: Vec<_> = (0..SLOTS).map(|_| join(&ensemble)).collect();
    assert!(ensemble.join().is_none());
    members.swap_remove(3);
    assert!(ensemble.join().is_some());
}

#[test]
fn an_ensemble_lives_as_long_as_its_members() {
    let ensemble = Ensemble::new(Instant::now());
    let weak = ensemble.downgrade();
    let member = join(&ensemble);
    drop(ensemble);
    assert!(weak.upgrade().is_some());
    drop(member);
    assert!(weak.is_gone());
}

#[test]
fn members_in_threads_come_and_go_and_are_counted_once() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let watcher = join(&ensemble);
    let round = || {
        let member = join(&ensemble);
        member.publish(now, &busy(30, 1.0));
        let summary = member.summarize(now, 30 * MS, None);
        // The watcher publishes nothing, and each of the eight threads has one member.
        assert!(summary.busy < 8, "{summary:?}");
        assert!(watcher.summarize(now, 30 * MS, None).busy <= 8);
        member
    };
    let kept: Vec<Member> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        drop(round());
                    }
                    round()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    let summary = watcher.summarize(now, 30 * MS, None);
    assert_eq!((summary.busy, summary.settled), (8, 8));
    assert!((summary.bandwidth - 8.0).abs() < 1e-9);
    drop(kept);
    assert!(watcher.summarize(now, 30 * MS, None).is_none());
}
