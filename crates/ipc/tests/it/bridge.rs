//! Executors as part of other event loops.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use quictun_ipc::{
    Advance, ChannelError, Client, Executor, Message, Server, Violation, WaitPolicy,
};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::pair::{channels, start};

/// Starts coroutines that make `calls` calls each. Returns the count of answered calls.
fn callers(client: &Client, executor: &Executor, coroutines: u64, calls: u64) -> Rc<Cell<u64>> {
    let done = Rc::new(Cell::new(0));
    for _ in 0..coroutines {
        let (client, done) = (client.clone(), done.clone());
        executor.spawner().spawn(1, async move {
            for round in 0..calls {
                let answer = client.call(Message::new(0).with_arg(round)).await;
                assert_eq!(answer.expect("an answer").arg(), round + 1);
                done.set(done.get() + 1);
            }
        });
    }
    done
}

/// Runs the executor in a loop that waits in poll. Returns the number of waits.
fn poll_loop(executor: &mut Executor) -> u64 {
    let descriptor = executor.descriptor().expect("it is connected");
    let mut waits = 0;
    loop {
        match executor.advance() {
            Advance::Ended => return waits,
            Advance::Ready => {}
            Advance::Asleep(limit) => {
                let timeout = limit.map(|time| Timespec::try_from(time).expect("in range"));
                let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
                rustix::event::poll(&mut fds, timeout.as_ref()).expect("poll");
                waits += 1;
            }
        }
    }
}

#[test]
fn an_event_loop_makes_calls() {
    for policy in [WaitPolicy::Interrupt, WaitPolicy::Hybrid] {
        let (client, mut executor, server) = start(policy);
        let done = callers(&client, &executor, 7, 300);
        let waits = poll_loop(&mut executor);
        assert_eq!(done.get(), 2100);
        assert_eq!(executor.idle_counters().sleeps, waits);
        assert!(waits > 0, "no wait for an answer");
        let counters = client.counters();
        assert!(
            (1..=waits).contains(&counters.wakes),
            "{counters:?} after {waits} waits"
        );
        drop((client, executor));
        assert_eq!(server.join().expect("the server thread").popped, 2100);
    }
}

#[test]
fn tokio_makes_calls_and_does_other_things() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .expect("a runtime");
    let (client, mut executor, server) = start(WaitPolicy::Hybrid);
    let done = callers(&client, &executor, 7, 300);
    let local = tokio::task::LocalSet::new();
    let others = Rc::new(Cell::new(0_u64));
    let counting = others.clone();
    let other = local.spawn_local(async move {
        loop {
            counting.set(counting.get() + 1);
            tokio::task::yield_now().await;
        }
    });
    local.block_on(&runtime, async {
        executor.run_in_tokio().await.expect("it is connected");
        other.abort();
    });
    assert_eq!(done.get(), 2100);
    assert!(others.get() > 100, "other tasks had {} turns", others.get());
    drop((client, executor));
    assert_eq!(server.join().expect("the server thread").popped, 2100);
}

#[test]
fn another_thread_wakes_an_event_loop() {
    let (_client, mut executor, _server) = start(WaitPolicy::Interrupt);
    let woken = Arc::new(AtomicBool::new(false));
    let seen = woken.clone();
    let (tell, told) = std::sync::mpsc::channel();
    executor.spawner().spawn(
        1,
        poll_fn(move |context| {
            if seen.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            tell.send(context.waker().clone()).expect("the thread");
            Poll::Pending
        }),
    );
    let thread = std::thread::spawn(move || {
        let waker = told.recv().expect("a waker");
        woken.store(true, Ordering::Release);
        waker.wake();
    });
    poll_loop(&mut executor);
    thread.join().expect("the thread");
}

#[test]
fn an_event_loop_gives_up_a_silent_server() {
    let (here, there) = channels();
    let limit = Duration::from_millis(20);
    let (client, mut executor) = Client::with_silence_limit(here, WaitPolicy::Hybrid, Some(limit));
    executor.spawner().spawn(1, async move {
        let error = client.call(Message::new(0)).await.expect_err("no answer");
        assert_eq!(error, ChannelError::Violation(Violation::Silent(limit)));
    });
    poll_loop(&mut executor);
    drop(there);
}

#[test]
fn an_event_loop_detects_that_the_server_is_gone() {
    let (here, there) = channels();
    let (client, mut executor) = Client::new(here, WaitPolicy::Hybrid);
    executor.spawner().spawn(1, async move {
        let error = client.call(Message::new(0)).await.expect_err("no answer");
        assert_eq!(error, ChannelError::Closed);
    });
    assert_eq!(executor.advance(), Advance::Asleep(None));
    drop(there);
    poll_loop(&mut executor);
}

#[test]
fn a_polling_peer_is_not_notified() {
    let (here, there) = channels();
    let (client, mut calling) = Client::new(here, WaitPolicy::Hybrid);
    let (server, mut answering) = Server::new(there, WaitPolicy::Hybrid);
    let serving = server.clone();
    answering.spawner().spawn(1, async move {
        while let Ok(request) = serving.recv().await {
            let answer = Message::new(0).with_arg(request.message().arg() + 1);
            if serving.reply(request, answer).await.is_err() {
                break;
            }
        }
    });
    let done = callers(&client, &calling, 3, 100);
    while done.get() < 300 {
        calling.try_advance();
        answering.try_advance();
    }
    assert_eq!(answering.try_advance(), None, "there is nothing to do");
    let rung = || {
        (
            client.counters().notifications,
            server.counters().notifications,
        )
    };
    assert_eq!(rung(), (0, 0));
    assert_eq!(answering.advance(), Advance::Asleep(None));
    let done = callers(&client, &calling, 1, 1);
    assert_eq!(calling.try_advance(), Some(Advance::Ready));
    assert_eq!(rung(), (1, 0), "a sleeping side is woken at once");
    while done.get() < 1 {
        calling.try_advance();
        answering.try_advance();
    }
    assert_eq!(rung(), (1, 0), "no ring while it is awake");
}
