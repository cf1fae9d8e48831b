//! Streams of items that a server returns for one request.

use std::cell::Cell;
use std::rc::Rc;

use quictun_ipc::{ChannelError, Client, LAST, Message, Server, WaitPolicy};

use crate::pair::channels;

/// Starts a server whose items are the squares of their numbers; a request's op is the number of items. The thread
/// returns the number of requests.
fn squares(channel: quictun_ipc::Channel) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let (server, mut executor) = Server::new(channel, WaitPolicy::Hybrid);
        let requests = Rc::new(Cell::new(0));
        let count = requests.clone();
        executor.spawner().spawn(1, async move {
            while let Ok(request) = server.recv().await {
                count.set(count.get() + 1);
                let (number, items) = (request.message().arg(), u64::from(request.message().op()));
                let answer = if number < items {
                    Message::new(0).with_arg(number * number)
                } else {
                    Message::default().with_call(0, LAST)
                };
                if server.reply(request, answer).await.is_err() {
                    break;
                }
            }
        });
        executor.run();
        requests.get()
    })
}

#[test]
fn items_come_in_order_and_end() {
    for ahead in [0, 1, 7, 1000] {
        let (here, there) = channels();
        let server = squares(there);
        let (client, mut executor) = Client::new(here, WaitPolicy::Hybrid);
        let seen = Rc::new(Cell::new(0));
        for items in [0_u16, 1, 300] {
            let (client, seen) = (client.clone(), seen.clone());
            executor.spawner().spawn(1, async move {
                let mut stream = client.stream(Message::new(items), ahead);
                for number in 0..u64::from(items) {
                    let item = stream.next().await.expect("an item").expect("a server");
                    assert_eq!(
                        (item.arg(), item.flags() & LAST != 0),
                        (number * number, false)
                    );
                    seen.set(seen.get() + 1);
                }
                assert_eq!(stream.next().await, None, "after {items}");
                assert_eq!(stream.next().await, None, "the stream stays ended");
            });
        }
        executor.run();
        assert_eq!(seen.get(), 301);
        drop((client, executor));
        let requests = server.join().expect("the server thread");
        // The requests are: each item, each end, and those beyond the ends.
        let beyond = 3 * ahead.clamp(1, quictun_ipc::MAX_AHEAD) as u64;
        assert!(
            (304..=301 + beyond).contains(&requests),
            "{requests} requests with {ahead} ahead"
        );
    }
}

#[test]
fn a_dropped_stream_leaves_nothing_behind() {
    let (here, there) = channels();
    let server = squares(there);
    let (client, mut executor) = Client::new(here, WaitPolicy::Hybrid);
    let caller = client.clone();
    executor.spawner().spawn(1, async move {
        for _ in 0..100 {
            let mut stream = caller.stream(Message::new(1000), 100);
            let item = stream.next().await.expect("an item").expect("a server");
            assert_eq!(item.arg(), 0);
        }
        let answer = caller.call(Message::new(9).with_arg(5)).await;
        assert_eq!(answer.expect("an answer").arg(), 25);
    });
    executor.run();
    drop((client, executor));
    assert_eq!(server.join().expect("the server thread"), 10_001);
}

#[test]
fn a_stream_fails_when_the_server_closes() {
    let (here, there) = channels();
    let (client, mut executor) = Client::new(here, WaitPolicy::Hybrid);
    executor.spawner().spawn(1, async move {
        let mut stream = client.stream(Message::new(5), 3);
        assert_eq!(stream.next().await, Some(Err(ChannelError::Closed)));
        assert_eq!(stream.next().await, None);
    });
    drop(there);
    executor.run();
}

/// Answers to later calls may arrive first. They are kept, and each is returned once.
#[test]
fn items_arrive_in_order_whatever_the_order_of_answers() {
    let (here, mut there) = channels();
    let (client, mut executor) = Client::new(here, WaitPolicy::Interrupt);
    let seen = Rc::new(Cell::new(0_u64));
    let count = seen.clone();
    executor.spawner().spawn(1, async move {
        let mut stream = client.stream(Message::new(0), 3);
        for number in 0..9 {
            let item = stream.next().await.expect("an item").expect("a server");
            assert_eq!(item.arg(), 100 + number);
            count.set(count.get() + 1);
        }
    });
    for round in 0..3 {
        executor.advance();
        let mut requests = Vec::new();
        while let Some(request) = there.pop().expect("a client") {
            requests.push(request);
        }
        assert_eq!(requests.len(), 3, "round {round}");
        for request in requests.iter().rev() {
            let answer = request
                .with_call(request.cid(), 2)
                .with_payload(0, 0)
                .with_arg(100 + request.arg());
            assert!(there.push(answer).expect("a client"));
            there.flush();
            executor.advance();
        }
    }
    assert_eq!(seen.get(), 9);
}
