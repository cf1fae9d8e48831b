//! Tests when an executor sleeps, and what keeps it awake.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use quictun_ipc::{
    Advance, Channel, ChannelError, Client, Executor, MAX_CALLS, Message, Server, WaitPolicy,
};

use crate::pair::{SILENCE_LIMIT, channels};

/// More coroutines than an executor runs in one turn.
const MANY: usize = 129;

/// Largest number of turns before an executor with nothing to do sleeps.
const TURNS: usize = 1000;

/// Runs turns until the executor sleeps.
fn fall_asleep(executor: &mut Executor) {
    let slept = (0..TURNS).any(|_| matches!(executor.advance(), Advance::Asleep(None)));
    assert!(slept, "it never sleeps: {:?}", executor.idle_counters());
}

/// An event that a coroutine waits for and that the test sets from outside.
#[derive(Clone, Default)]
struct Event(Rc<(Cell<bool>, RefCell<Option<Waker>>)>);

impl Event {
    fn set(&self) {
        self.0.0.set(true);
        self.0.1.take().into_iter().for_each(Waker::wake);
    }

    async fn wait(&self) {
        poll_fn(|context| {
            if self.0.0.get() {
                return Poll::Ready(());
            }
            self.0.1.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

fn call(cid: u32) -> Message {
    Message::default().with_call(cid, 1)
}

fn push(channel: &mut Channel, message: Message) {
    assert!(channel.push(message).expect("a peer"), "there is room");
    channel.flush();
}

fn pop_all(channel: &mut Channel) -> Vec<Message> {
    std::iter::from_fn(|| channel.pop().expect("a peer")).collect()
}

#[test]
fn many_receivers_sleep_until_something_comes() {
    let (mut here, there) = channels();
    let (server, mut executor) = Server::new(there, WaitPolicy::Hybrid);
    let (requests, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for _ in 0..MANY {
        let (server, requests, ends) = (server.clone(), requests.clone(), ends.clone());
        executor.spawner().spawn(1, async move {
            while server.recv().await.is_ok() {
                requests.set(requests.get() + 1);
            }
            ends.set(ends.get() + 1);
        });
    }
    fall_asleep(&mut executor);
    assert_eq!(executor.idle_counters().sleeps, 1);
    push(&mut here, call(1));
    fall_asleep(&mut executor);
    assert_eq!(requests.get(), 1);
    drop(here);
    executor.run();
    assert_eq!(ends.get(), MANY, "every receiver must get the end");
}

#[test]
fn many_callers_without_a_place_sleep_until_there_is_one() {
    let (here, mut there) = channels();
    let (client, mut executor) = Client::new(here, WaitPolicy::Hybrid);
    let done = Rc::new(Cell::new(0));
    for _ in 0..MAX_CALLS + MANY {
        let (client, done) = (client.clone(), done.clone());
        executor.spawner().spawn(1, async move {
            client.call(Message::new(0)).await.expect("an answer");
            done.set(done.get() + 1);
        });
    }
    fall_asleep(&mut executor);
    for calls in [MAX_CALLS, MANY] {
        let requests = pop_all(&mut there);
        assert_eq!(requests.len(), calls);
        // The ring has room now, but all places are taken.
        fall_asleep(&mut executor);
        for request in requests {
            push(&mut there, request.with_call(request.cid(), 2));
        }
        if calls == MAX_CALLS {
            fall_asleep(&mut executor);
        }
    }
    executor.run();
    assert_eq!(done.get(), MAX_CALLS + MANY);
}

#[test]
fn many_senders_without_room_sleep_until_there_is_some() {
    let (here, mut there) = channels();
    let (client, mut executor) = Client::new(here, WaitPolicy::Hybrid);
    let sent = Rc::new(Cell::new(0));
    for _ in 0..MAX_CALLS + MANY {
        let (client, sent) = (client.clone(), sent.clone());
        executor.spawner().spawn(1, async move {
            client.send(Message::new(0)).await.expect("a server");
            sent.set(sent.get() + 1);
        });
    }
    fall_asleep(&mut executor);
    assert_eq!(sent.get(), MAX_CALLS);
    assert_eq!(pop_all(&mut there).len(), MAX_CALLS);
    executor.run();
    assert_eq!(sent.get(), MAX_CALLS + MANY);
}

/// A receive that is started and dropped repeatedly leaves no waiter behind.
#[test]
fn a_cancelled_wait_keeps_no_process_awake() {
    let (mut here, there) = channels();
    let (server, mut executor) = Server::new(there, WaitPolicy::Hybrid);
    let event = Event::default();
    let set = event.clone();
    executor.spawner().spawn(1, async move {
        for _ in 0..10 {
            let mut recv = Box::pin(server.recv());
            poll_fn(|context| {
                assert!(recv.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        event.wait().await;
        server.recv().await.expect("a request");
    });
    fall_asleep(&mut executor);
    push(&mut here, call(1));
    fall_asleep(&mut executor);
    fall_asleep(&mut executor);
    set.set();
    executor.run();
}

/// Messages stay in the ring if no coroutine receives. A coroutine that waits for another event does not keep the
/// executor awake.
#[test]
fn unreceived_messages_keep_no_process_awake() {
    let (mut here, there) = channels();
    let (server, mut executor) = Server::new(there, WaitPolicy::Hybrid);
    let event = Event::default();
    let set = event.clone();
    executor.spawner().spawn(1, async move {
        server.recv().await.expect("the first");
        event.wait().await;
        server.recv().await.expect("the second");
    });
    push(&mut here, call(1));
    push(&mut here, call(2));
    fall_asleep(&mut executor);
    push(&mut here, call(3));
    fall_asleep(&mut executor);
    set.set();
    executor.run();
}

/// The client is notified of an answer even though the ring holds further messages that no coroutine takes.
#[test]
fn an_answer_is_published_before_its_sender_waits() {
    let (mut here, there) = channels();
    push(&mut here, call(1));
    push(&mut here, call(2));
    assert!(here.arm(quictun_shmq::SleepMode::Futex), "no answer yet");
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let (server, mut executor) = Server::new(there, WaitPolicy::Interrupt);
        let (answered, waits) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        executor.spawner().spawn(1, async move {
            let request = server.recv().await.expect("the first");
            server
                .reply(request, Message::new(0))
                .await
                .expect("a client");
            answered.set(true);
            poll_fn(|context| {
                if waits.replace(true) {
                    return Poll::Ready(());
                }
                tell.send(context.waker().clone()).expect("the client");
                Poll::Pending
            })
            .await;
            let request = server.recv().await.expect("the second");
            server
                .reply(request, Message::new(0))
                .await
                .expect("a client");
        });
        executor.run();
    });
    let woken = here.wait(Some(SILENCE_LIMIT));
    // Wake the server even if the wait failed, so that its thread ends.
    told.recv().expect("the server thread").wake();
    assert!(woken, "no wake-up for the answer");
    assert_eq!(
        here.pop().expect("a server").map(|answer| answer.cid()),
        Some(1)
    );
    thread.join().expect("the server thread");
}

/// The end of a channel is reported once. From then on, only the process itself wakes the executor.
#[test]
fn the_end_of_a_channel_keeps_no_process_awake() {
    let (here, there) = channels();
    let (client, mut clients) = Client::new(here, WaitPolicy::Hybrid);
    let (server, mut servers) = Server::new(there, WaitPolicy::Hybrid);
    let event = Event::default();
    let (waits, set) = (event.clone(), event.clone());
    servers.spawner().spawn(1, async move {
        server.recv().await.expect("a call");
        waits.wait().await;
        let end = server.recv().await.expect_err("the client is gone");
        assert_eq!(end, ChannelError::Closed);
    });
    clients.spawner().spawn(1, async move {
        client.call(Message::new(0)).await.expect("an answer");
    });
    fall_asleep(&mut clients);
    fall_asleep(&mut servers);
    drop(clients);
    for _ in 0..3 {
        fall_asleep(&mut servers);
    }
    let descriptor = servers.descriptor().expect("it is connected");
    let is_readable = || {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("poll") > 0
    };
    assert!(!is_readable(), "nothing arrives any more");
    set.set();
    assert!(is_readable(), "local wake-ups still work");
    servers.run();
}

/// The same after a violation by the peer, and on the client side.
#[test]
fn a_violation_keeps_no_process_awake() {
    let (here, mut there) = channels();
    let (client, mut executor) = Client::new(here, WaitPolicy::Hybrid);
    let event = Event::default();
    let (waits, set) = (event.clone(), event.clone());
    executor.spawner().spawn(1, async move {
        let error = client.call(Message::new(0)).await.expect_err("no answer");
        assert!(matches!(error, ChannelError::Violation(_)), "{error}");
        waits.wait().await;
    });
    fall_asleep(&mut executor);
    push(&mut there, call(77));
    for _ in 0..3 {
        fall_asleep(&mut executor);
    }
    // The peer's death is not reported after the violation.
    drop(there);
    for _ in 0..3 {
        fall_asleep(&mut executor);
    }
    set.set();
    executor.run();
}
