//! The cost of waiting, in numbers of wake-ups and sleeps.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use quictun_ipc::{Advance, Client, Executor, Message, Server, WaitPolicy};

use crate::pair::{channels, start};

const ROUNDS: u64 = 500;

/// If both sides sleep whenever there is nothing to do, a batch of calls costs one wake-up in each direction.
///
/// Both executors run on this thread in turns: neither runs before the other sleeps.
#[test]
fn each_batch_takes_one_notification() {
    for concurrency in [1, 8, 32] {
        let (here, there) = channels();
        let (client, mut calling) = Client::new(here, WaitPolicy::Interrupt);
        let (server, mut serving) = Server::new(there, WaitPolicy::Interrupt);
        let to_client = server.clone();
        serving.spawner().spawn(1, async move {
            while let Ok(request) = server.recv().await {
                if server.reply(request, Message::new(0)).await.is_err() {
                    break;
                }
            }
        });
        for _ in 0..concurrency {
            let client = client.clone();
            calling.spawner().spawn(1, async move {
                for _ in 0..ROUNDS {
                    client.call(Message::new(0)).await.expect("an answer");
                }
            });
        }
        while !has_ended(&mut serving) && !has_ended(&mut calling) {}
        let counts = [client.counters(), to_client.counters()];
        assert_eq!(counts[0].pushed, ROUNDS * concurrency);
        assert_eq!(
            counts.map(|counters| counters.notifications),
            [ROUNDS; 2],
            "to the server and to the client, for {ROUNDS} batches of {concurrency}"
        );
    }
}

/// Runs the executor until it sleeps. Returns whether it has ended instead.
fn has_ended(executor: &mut Executor) -> bool {
    loop {
        match executor.advance() {
            Advance::Ended => return true,
            Advance::Ready => {}
            Advance::Asleep(_) => return false,
        }
    }
}

/// A task that waits for an event that does not occur sleeps once, for the whole time.
#[test]
fn waiting_takes_no_turns() {
    let (client, mut executor, server) = start(WaitPolicy::Hybrid);
    let caller = client.clone();
    executor.spawner().spawn(1, async move {
        caller.call(Message::new(0)).await.expect("an answer");
    });
    executor.run();
    let (before, sent) = (executor.idle_counters(), client.counters().pushed);
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
    let after = executor.idle_counters();
    // One sleep, or two if the wake-up for the answer came late.
    assert!(
        (1..=2).contains(&(after.sleeps - before.sleeps)),
        "{after:?}"
    );
    assert_eq!(client.counters().pushed, sent);
    drop((client, executor));
    let server = server.join().expect("the server thread");
    // One wake-up for the call and one for the end; the server may have been awake for either.
    assert!(server.wakes <= 4, "{server:?}");
}
