//! Calls that get an answer.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use quictun_ipc::{Client, MAX_CALLS, Message, Server, WaitPolicy};

use crate::pair::{ARENA, channels, start};

const POLICIES: [WaitPolicy; 3] = [
    WaitPolicy::Interrupt,
    WaitPolicy::Polling,
    WaitPolicy::Hybrid,
];

#[test]
fn every_call_gets_its_own_answer() {
    for policy in POLICIES {
        for concurrency in [1_u64, 3, 64] {
            let (client, mut executor, server) = start(policy);
            let done = Rc::new(Cell::new(0));
            for coroutine in 0..concurrency {
                let (client, done) = (client.clone(), done.clone());
                executor.spawner().spawn(1, async move {
                    for round in 0..200 {
                        let arg = coroutine << 32 | round;
                        let bytes = [round.to_le_bytes()[0], 1, 2];
                        let message = Message::new(5)
                            .with_arg(arg)
                            .with_bytes(&bytes)
                            .expect("fits inline");
                        let answer = client.call(message).await.expect("an answer");
                        assert_eq!((answer.op(), answer.arg()), (5, arg + 1));
                        assert_eq!(answer.bytes(), [2, 1, bytes[0]]);
                        done.set(done.get() + 1);
                    }
                });
            }
            executor.run();
            assert_eq!(done.get(), 200 * concurrency);
            let counters = client.counters();
            assert_eq!((counters.pushed, counters.popped), (done.get(), done.get()));
            assert!(counters.notifications <= counters.pushed);
            drop((client, executor));
            let server = server.join().expect("the server thread");
            assert_eq!(server.popped, done.get());
            if policy == WaitPolicy::Polling {
                assert_eq!(
                    (counters.notifications, server.notifications),
                    (0, 0),
                    "both sides were awake"
                );
            }
        }
    }
}

#[test]
fn calls_beyond_the_limit_wait_for_a_place() {
    let (client, mut executor, _server) = start(WaitPolicy::Hybrid);
    let done = Rc::new(Cell::new(0));
    for _ in 0..=2 * MAX_CALLS {
        let (client, done) = (client.clone(), done.clone());
        executor.spawner().spawn(1, async move {
            client.call(Message::new(0)).await.expect("an answer");
            done.set(done.get() + 1);
        });
    }
    executor.run();
    assert_eq!(done.get(), 2 * MAX_CALLS + 1);
}

#[test]
fn the_lowest_number_goes_first() {
    let (_client, mut executor, _server) = start(WaitPolicy::Hybrid);
    let order = Rc::new(RefCell::new(Vec::new()));
    for priority in [7, 0, 3, 99, 3] {
        let order = order.clone();
        executor
            .spawner()
            .spawn(priority, async move { order.borrow_mut().push(priority) });
    }
    executor.run();
    assert_eq!(*order.borrow(), [0, 3, 3, 7, 99]);
}

#[test]
fn a_buffer_goes_there_and_back() {
    let (client, mut executor, _server) = start(WaitPolicy::Hybrid);
    let caller = client.clone();
    executor.spawner().spawn(1, async move {
        for len in [1_u32, 64, 4096, 65536, ARENA] {
            let buffer = caller.reserve(len).expect("the arena is free");
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251).to_le_bytes()[0]).collect();
            caller.with_channel(|channel| channel.write(&buffer, 0, &bytes));
            let mut call = pin!(caller.call_with(Message::new(0), buffer));
            call.as_mut().await.expect("an answer");
            let buffer = call.buffer().expect("it is answered");
            let mut back = vec![0; len as usize];
            caller.with_channel(|channel| channel.read_back(&buffer, 0, &mut back));
            back.reverse();
            assert!(back == bytes, "{len} bytes");
            caller.release(buffer);
        }
    });
    executor.run();
}

/// The place of a request's buffer does not become part of the answer.
#[test]
fn a_request_may_be_the_answer() {
    let (here, there) = channels();
    let server = std::thread::spawn(move || {
        let (server, mut executor) = Server::new(there, WaitPolicy::Hybrid);
        executor.spawner().spawn(1, async move {
            while let Ok(request) = server.recv().await {
                let message = *request.message();
                if server.reply(request, message).await.is_err() {
                    break;
                }
            }
        });
        executor.run();
    });
    let (client, mut executor) = Client::new(here, WaitPolicy::Hybrid);
    executor.spawner().spawn(1, async move {
        for len in [1, 64, 4096] {
            let buffer = client.reserve(len).expect("the arena is free");
            let mut call = pin!(client.call_with(Message::new(7).with_arg(8), buffer));
            let answer = call.as_mut().await.expect("an answer");
            assert_eq!((answer.op(), answer.arg(), answer.bytes()), (7, 8, &[][..]));
            client.release(call.buffer().expect("it is answered"));
        }
    });
    executor.run();
    drop(executor);
    server.join().expect("the server thread");
}

#[test]
fn a_dropped_call_frees_its_place_and_buffer() {
    let (client, mut executor, _server) = start(WaitPolicy::Hybrid);
    let caller = client.clone();
    executor.spawner().spawn(1, async move {
        for _ in 0..3 * MAX_CALLS {
            let buffer = caller.reserve(64).expect("dropped calls free it");
            let mut call = Box::pin(caller.call_with(Message::new(0), buffer));
            poll_fn(|context| {
                assert!(call.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            drop(call);
            // Answers arrive in order, so the answer to the dropped call has arrived.
            caller.call(Message::new(0)).await.expect("an answer");
        }
        assert!(caller.reserve(ARENA).is_some());
    });
    executor.run();
}

#[test]
fn a_foreign_waker_works_from_any_thread() {
    let (client, mut executor, _server) = start(WaitPolicy::Interrupt);
    let caller = client.clone();
    executor.spawner().spawn(1, async move {
        let mut started = false;
        let woken = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        poll_fn(|context| {
            if woken.load(std::sync::atomic::Ordering::Relaxed) {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut started, true) {
                let (waker, woken) = (context.waker().clone(), woken.clone());
                std::thread::spawn(move || {
                    woken.store(true, std::sync::atomic::Ordering::Relaxed);
                    waker.wake();
                });
            }
            Poll::Pending
        })
        .await;
        caller.call(Message::new(0)).await.expect("an answer");
    });
    executor.run();
}

#[test]
fn one_way_messages_arrive_before_later_calls() {
    let (client, mut executor, server) = start(WaitPolicy::Hybrid);
    let caller = client.clone();
    executor.spawner().spawn(1, async move {
        // More messages than the ring holds.
        for _ in 0..10_000 {
            caller.send(Message::new(1)).await.expect("a server");
        }
        caller.call(Message::new(0)).await.expect("an answer");
    });
    executor.run();
    assert_eq!(client.counters().popped, 1);
    drop((client, executor));
    assert_eq!(server.join().expect("the server thread").popped, 10_001);
}
