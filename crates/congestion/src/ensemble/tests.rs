use super::*;

const MS: Duration = Duration::from_millis(1);

fn busy(rtt_ms: u32, bandwidth: f64) -> Standing {
    Standing {
        busy: true,
        rtt: rtt_ms * MS,
        bandwidth,
        ..Standing::default()
    }
}

fn join(ensemble: &Ensemble) -> Member {
    ensemble.join().expect("a slot is free")
}

#[test]
fn busy_members_of_one_path_are_company() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let [one, other, idle] = std::array::from_fn(|_| join(&ensemble));
    other.tell(now, &busy(30, 7.0));
    idle.tell(
        now,
        &Standing {
            busy: false,
            ..busy(30, 5.0)
        },
    );
    let company = one.look(now, 30 * MS, None);
    assert_eq!((company.busy, company.settled), (1, 1));
    assert!((company.bandwidth - 7.0).abs() < 1e-9);
    assert!(
        other.look(now, 30 * MS, None).is_none(),
        "the only other busy member published nothing"
    );
    // The difference may be a quarter of the shorter round-trip time plus five milliseconds.
    assert_eq!(one.look(now, 42 * MS, None).busy, 1);
    assert!(one.look(now, 43 * MS, None).is_none());
    assert_eq!(one.look(now, 20 * MS, None).busy, 1);
    assert!(one.look(now, 19 * MS, None).is_none());
}

#[test]
fn a_member_that_is_not_busy_any_more_leaves_the_path_to_others() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let (one, other) = (join(&ensemble), join(&ensemble));
    other.tell(now, &busy(30, 7.0));
    let last = now + BUSY + BUSY_ROUNDS * 30 * MS;
    assert_eq!(one.look(last, 30 * MS, None).busy, 1);
    let later = last + Duration::from_nanos(1);
    assert!(one.look(later, 30 * MS, None).is_none());
}

#[test]
fn the_latest_of_what_they_tell_counts() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let [one, first, second] = std::array::from_fn(|_| join(&ensemble));
    let told = Standing {
        window: 4000.0,
        probed: Some(now + 2 * MS),
        parted: Some(now + MS),
        overflowed: Some(now + 4 * MS),
        rested: Some((now + 2 * MS, true)),
        stance: Some((now + MS, Stance::Holding)),
        ..busy(30, 0.0)
    };
    first.tell(now + 5 * MS, &told);
    let told = Standing {
        overflowed: Some(now + 3 * MS),
        rested: Some((now + 3 * MS, false)),
        stance: Some((now, Stance::Beside)),
        parted: Some(now + 3 * MS),
        rate: 3.0,
        ..busy(30, 5.0)
    };
    second.tell(now + 5 * MS, &told);
    let company = one.look(now + 6 * MS, 30 * MS, Some(now + MS));
    let expected = Company {
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
        parted: Some(now + 3 * MS),
    };
    assert_eq!(company, expected);
}

#[test]
fn a_clone_is_the_same_member_and_the_last_one_leaves() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let (one, other) = (join(&ensemble), join(&ensemble));
    let clone = other.clone();
    other.tell(now, &busy(30, 7.0));
    clone.tell(now, &busy(30, 7.0));
    assert_eq!(one.look(now, 30 * MS, None).busy, 1);
    drop(other);
    assert_eq!(one.look(now, 30 * MS, None).busy, 1);
    drop(clone);
    assert!(one.look(now, 30 * MS, None).is_none());
    let next = join(&ensemble);
    assert!(
        one.look(now, 30 * MS, None).is_none(),
        "the new member has published nothing"
    );
    next.tell(now, &busy(30, 3.0));
    assert_eq!(one.look(now, 30 * MS, None).busy, 1);
}

#[test]
fn there_are_so_many_places_and_no_more() {
    let ensemble = Ensemble::new(Instant::now());
    let mut members: Vec<_> = (0..PLACES).map(|_| join(&ensemble)).collect();
    assert!(ensemble.join().is_none());
    members.swap_remove(3);
    assert!(ensemble.join().is_some());
}

#[test]
fn it_lives_as_long_as_its_members() {
    let ensemble = Ensemble::new(Instant::now());
    let faint = ensemble.faint();
    let member = join(&ensemble);
    drop(ensemble);
    assert!(faint.get().is_some());
    drop(member);
    assert!(faint.is_gone());
}

#[test]
fn members_in_threads_come_and_go_and_are_counted_once() {
    let now = Instant::now();
    let ensemble = Ensemble::new(now);
    let watcher = join(&ensemble);
    let round = || {
        let member = join(&ensemble);
        member.tell(now, &busy(30, 1.0));
        let company = member.look(now, 30 * MS, None);
        // The watcher publishes nothing, and each of the eight threads has one member.
        assert!(company.busy < 8, "{company:?}");
        assert!(watcher.look(now, 30 * MS, None).busy <= 8);
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
    let company = watcher.look(now, 30 * MS, None);
    assert_eq!((company.busy, company.settled), (8, 8));
    assert!((company.bandwidth - 8.0).abs() < 1e-9);
    drop(kept);
    assert!(watcher.look(now, 30 * MS, None).is_none());
}
