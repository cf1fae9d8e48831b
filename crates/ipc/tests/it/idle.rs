//! What it takes to wait, in counts.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use quictun_ipc::{Message, WaitPolicy};

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use crate::pair::start;

const ROUNDS: u64 = 500;

/// Where both sides sleep whenever there is nothing to do, a batch of calls is one wake-up each way.
#[test]
fn as_many_notifications_as_batches() {
    // On one processor, where nobody runs before the other sleeps: on two, one may see what the other is about to tell.
    let mut cpus = CpuSet::new();
    cpus.set(sched_getcpu());
    sched_setaffinity(None, &cpus).expect("this thread's processor");
    for concurrency in [1_u64, 8, 32] {
        // Fewer where somebody else takes the processor between what is written and what is told; more where that makes a
        // batch take so long that a part of it is told of by itself. So not every try counts, but one has to be as it should.
        let tries = [(); 6].map(|()| notifications(concurrency));
        let expected = ROUNDS * 9 / 10..=ROUNDS * 2;
        let clean =
            |(to_server, to_client)| expected.contains(&to_server) && expected.contains(&to_client);
        assert!(
            tries.into_iter().any(clean),
            "{tries:?} notifications to the server and the client for {ROUNDS} batches of {concurrency}"
        );
    }
}

/// To the server and to the client, where so many coroutines call as often as one another.
fn notifications(concurrency: u64) -> (u64, u64) {
    let (client, mut executor, server) = start(WaitPolicy::Interrupt);
    let done = Rc::new(Cell::new(0));
    for _ in 0..concurrency {
        let (client, done) = (client.clone(), done.clone());
        executor.spawner().spawn(1, async move {
            for _ in 0..ROUNDS {
                client.call(Message::new(0)).await.expect("an answer");
                done.set(done.get() + 1);
            }
        });
    }
    executor.run();
    assert_eq!(done.get(), ROUNDS * concurrency);
    let to_server = client.counters().notifications;
    drop((client, executor));
    (to_server, server.join().expect("the server").notifications)
}

/// Who waits for something that does not come sleeps once, for all of the time.
#[test]
fn waiting_takes_no_turns() {
    let (client, mut executor, server) = start(WaitPolicy::Hybrid);
    let caller = client.clone();
    executor.spawner().spawn(1, async move {
        caller.call(Message::new(0)).await.expect("an answer");
    });
    executor.run();
    let before = executor.metrics();
    let mut thread = None;
    let start = Instant::now();
    executor.spawner().spawn(
        1,
        poll_fn(move |context| {
            if start.elapsed() >= Duration::from_millis(300) {
                return Poll::Ready(());
            }
            if thread.is_none() {
                let waker = context.waker().clone();
                thread = Some(std::thread::spawn(move || {
                    let until = start + Duration::from_millis(300);
                    while let Some(left) = until.checked_duration_since(Instant::now()) {
                        std::thread::park_timeout(left);
                    }
                    waker.wake();
                }));
            }
            Poll::Pending
        }),
    );
    executor.run();
    let after = executor.metrics();
    // Once, and once more where the wake-up for the answer came late.
    assert!(
        (1..=2).contains(&(after.idle.sleeps - before.idle.sleeps)),
        "{after:?}"
    );
    assert_eq!(after.channel.pushed, before.channel.pushed);
    drop((client, executor));
    let server = server.join().expect("the server");
    // For the call, and for the end; it may have been awake for either.
    assert!(server.wakes <= 4, "{server:?}");
}
