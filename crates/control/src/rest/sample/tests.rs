use super::*;
use crate::rest::fake;
use std::sync::atomic::{AtomicU64, Ordering};

const WINDOW: Duration = Duration::from_secs(1);

/// Runs `test` beside a sampler of fake workers, in virtual time.
fn with_sampler<F: Future>(
    make: fn(u64) -> Vec<WorkerSnapshot>,
    test: impl FnOnce(mpsc::Sender<SampleRequest>, Arc<AtomicU64>) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        let (workers, asked) = fake::workers(make);
        let (requests, questions) = mpsc::channel(8);
        tokio::join!(
            Sampler::new(&workers, WINDOW).run(questions),
            test(requests, asked)
        );
    });
}

async fn ask(requests: &mpsc::Sender<SampleRequest>, detail: Detail) -> Arc<Sample> {
    let (reply, answer) = oneshot::channel();
    requests
        .send(SampleRequest { detail, reply })
        .await
        .expect("the sampler runs");
    answer.await.expect("the sampler answers")
}

fn first_rate(sample: &Sample) -> FlowRate {
    let snapshot = &sample.collected.snapshots[0];
    sample.rates.of(snapshot.worker, &snapshot.flows[0])
}

#[test]
fn only_the_first_request_for_flows_waits_a_window() {
    with_sampler(fake::snapshots, |requests, _| async move {
        let begun = Instant::now();
        let sample = ask(&requests, Detail::Flows).await;
        assert_eq!(begun.elapsed(), WINDOW);
        assert_eq!(
            first_rate(&sample),
            FlowRate {
                to_tunnel: 1024.0,
                to_app: 2_621_440.0
            }
        );
        tokio::time::advance(WINDOW / 2).await;
        let begun = Instant::now();
        let sample = ask(&requests, Detail::Flows).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(
            first_rate(&sample),
            FlowRate {
                to_tunnel: 1024.0,
                to_app: 2_621_440.0
            }
        );
    });
}

#[test]
fn requests_during_the_first_window_share_its_sample() {
    with_sampler(fake::snapshots, |requests, asked| async move {
        let second = async {
            tokio::time::advance(WINDOW / 2).await;
            ask(&requests, Detail::Flows).await
        };
        let (first, second) = tokio::join!(ask(&requests, Detail::Flows), second);
        assert!(Arc::ptr_eq(&first, &second));
        // Two workers are asked at the start and at the end of the window.
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn requests_do_not_wait_when_there_are_no_flows() {
    with_sampler(
        |_| without_flows(),
        |requests, _| async move {
            let begun = Instant::now();
            ask(&requests, Detail::Flows).await;
            assert_eq!(begun.elapsed(), Duration::ZERO);
        },
    );
}

fn without_flows() -> Vec<WorkerSnapshot> {
    let mut snapshots = fake::snapshots(0);
    for snapshot in &mut snapshots {
        snapshot.flows.clear();
    }
    snapshots
}

#[test]
fn workers_are_not_polled_after_a_while_without_requests() {
    with_sampler(fake::snapshots, |requests, asked| async move {
        ask(&requests, Detail::Flows).await;
        let before = asked.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let watched = asked.load(Ordering::Relaxed) - before;
        assert!(
            (18..=22).contains(&watched),
            "expected one request a second to each of two workers, got {watched}"
        );
        tokio::time::sleep(WATCH).await;
        let before = asked.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(asked.load(Ordering::Relaxed), before);
    });
}

#[test]
fn simultaneous_requests_share_an_answer() {
    with_sampler(fake::snapshots, |requests, asked| async move {
        for _ in 0..50 {
            ask(&requests, Detail::Counters).await;
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        tokio::time::advance(SHARE).await;
        ask(&requests, Detail::Counters).await;
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn an_answer_without_flows_does_not_serve_a_request_for_flows() {
    with_sampler(fake::snapshots, |requests, _| async move {
        let without = ask(&requests, Detail::Counters).await;
        assert!(
            without
                .collected
                .snapshots
                .iter()
                .all(|snapshot| snapshot.flows.is_empty())
        );
        let with = ask(&requests, Detail::Flows).await;
        assert_eq!(
            with.collected
                .snapshots
                .iter()
                .map(|snapshot| snapshot.flows.len())
                .sum::<usize>(),
            5
        );
    });
}

#[test]
fn the_counters_of_a_worker_that_falls_silent_are_kept() {
    // The second worker answers only once.
    let make = |round| {
        if round == 0 {
            fake::snapshots(0)
        } else {
            fake::snapshots(round)[..1].to_vec()
        }
    };
    with_sampler(make, |requests, _| async move {
        let before = ask(&requests, Detail::Counters).await;
        tokio::time::advance(SHARE).await;
        let after = ask(&requests, Detail::Counters).await;
        assert_eq!(after.collected.silent, [1]);
        let opened = |sample: &Sample| {
            sample
                .counters
                .iter()
                .map(|known| known.totals.flows_opened)
                .sum::<u64>()
        };
        assert_eq!((opened(&before), opened(&after)), (4040, 4040));
    });
}

#[test]
fn rates_follow_the_time_that_passed_and_a_new_flow_has_none() {
    let (mut early, mut late) = (fake::snapshots(0), fake::snapshots(4));
    let newcomer = late[0].flows[1].clone();
    early[0].flows.remove(1);
    let rates = Rates::default().next(&early).next(&late);
    assert_eq!(
        rates.of(0, &late[0].flows[0]),
        FlowRate {
            to_tunnel: 1024.0,
            to_app: 2_621_440.0
        }
    );
    assert_eq!(rates.of(0, &newcomer), FlowRate::default());
    // The same flow id on another worker names another flow.
    assert_eq!(rates.of(1, &newcomer), FlowRate::default());
    // Two answers at the same moment give no rate, and neither do counters that went back.
    let again = rates.next(&late);
    assert_eq!(again.of(0, &late[0].flows[0]), FlowRate::default());
    late[0].taken += WINDOW;
    late[0].flows[0].bytes_to_tunnel = 0;
    assert_eq!(
        rates.next(&late).of(0, &late[0].flows[0]),
        FlowRate::default()
    );
}
