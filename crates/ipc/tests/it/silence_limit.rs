//! Servers that owe something for too long.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use quictun_ipc::{Advance, ChannelError, Client, MAX_CALLS, Message, Violation, WaitPolicy};

use crate::pair::channels;

const SILENCE_LIMIT: Duration = Duration::from_millis(20);

const SILENT: ChannelError = ChannelError::Violation(Violation::Silent(SILENCE_LIMIT));

/// A limit that is longer than any test takes.
const LONG: Duration = Duration::from_hours(1);

#[test]
fn a_polling_client_gives_up_too() {
    let (here, _there) = channels();
    let (client, mut executor) =
        Client::with_silence_limit(here, WaitPolicy::Polling, Some(SILENCE_LIMIT));
    executor.spawner().spawn(1, async move {
        assert_eq!(client.call(Message::new(0)).await, Err(SILENT));
    });
    executor.run();
    assert_eq!(executor.idle_counters().sleeps, 0);
}

#[test]
fn a_server_that_takes_nothing_is_given_up() {
    for policy in [
        WaitPolicy::Interrupt,
        WaitPolicy::Polling,
        WaitPolicy::Hybrid,
    ] {
        let (here, _there) = channels();
        let (client, mut executor) = Client::with_silence_limit(here, policy, Some(SILENCE_LIMIT));
        executor.spawner().spawn(1, async move {
            for _ in 0..MAX_CALLS {
                client
                    .send(Message::new(0))
                    .await
                    .expect("room in the ring");
            }
            assert_eq!(client.send(Message::new(0)).await, Err(SILENT));
        });
        executor.run();
    }
}

/// Other activity in the process does not extend the time that the server has.
#[test]
fn a_foreign_wake_up_does_not_extend_the_limit() {
    for policy in [WaitPolicy::Interrupt, WaitPolicy::Hybrid] {
        let (here, _there) = channels();
        let (client, mut executor) = Client::with_silence_limit(here, policy, Some(SILENCE_LIMIT));
        let over = Arc::new(AtomicBool::new(false));
        let (seen, ended) = (over.clone(), over.clone());
        let (tell, told) = std::sync::mpsc::channel();
        executor.spawner().spawn(
            1,
            poll_fn(move |context| {
                if seen.load(Ordering::Acquire) {
                    return Poll::Ready(());
                }
                // After the end of the test the receiver is gone, and the send fails.
                let _told = tell.send(context.waker().clone());
                Poll::Pending
            }),
        );
        executor.spawner().spawn(1, async move {
            assert_eq!(client.call(Message::new(0)).await, Err(SILENT));
            over.store(true, Ordering::Release);
        });
        let thread = std::thread::spawn(move || {
            while let Ok(waker) = told.recv() {
                std::thread::park_timeout(SILENCE_LIMIT / 20);
                // Read before the wake-up: a task that is woken after the end requests no further wake-up.
                let last = ended.load(Ordering::Acquire);
                waker.wake();
                if last {
                    return;
                }
            }
        });
        executor.run();
        drop(executor);
        thread.join().expect("the thread");
    }
}

/// The time runs from the call, not from the last sleep.
#[test]
fn the_limit_runs_across_sleeps() {
    let (here, _there) = channels();
    let (client, mut executor) = Client::with_silence_limit(here, WaitPolicy::Hybrid, Some(LONG));
    executor.spawner().spawn(1, async move {
        // The executor drops this coroutine before it gets further.
        let answer = client.call(Message::new(0)).await;
        panic!("unexpected answer: {answer:?}");
    });
    let mut left = || loop {
        match executor.advance() {
            Advance::Ready => {}
            Advance::Asleep(Some(left)) => return left,
            other => panic!("{other:?}"),
        }
    };
    let (first, second) = (left(), left());
    assert!(second < first, "{second:?} after {first:?}");
}

/// The server does not owe an answer that has arrived but has not been taken yet.
#[test]
fn an_answer_in_the_ring_is_not_outstanding() {
    let (here, mut there) = channels();
    let (client, mut executor) = Client::with_silence_limit(here, WaitPolicy::Hybrid, Some(LONG));
    let go_on = Rc::new(Cell::new(false));
    let may = go_on.clone();
    executor.spawner().spawn(1, async move {
        let mut call = Box::pin(client.call(Message::new(0)));
        poll_fn(|context| {
            assert!(call.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        poll_fn(|_| {
            if may.get() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        call.await.expect("an answer");
    });
    while !matches!(executor.advance(), Advance::Asleep(Some(_))) {}
    let request = there.pop().expect("a client").expect("a call");
    let answer = request.with_call(request.cid(), 2);
    assert!(there.push(answer).expect("a client"));
    there.flush();
    let mut advance = executor.advance();
    while advance == Advance::Ready {
        advance = executor.advance();
    }
    assert_eq!(advance, Advance::Asleep(None));
}
