//! Peers that are gone, silent or hostile, and processes that are not peers at all.

use std::cell::Cell;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::time::Duration;

use quictun_ipc::{
    Channel, ChannelError, Client, HandshakeError, Message, Server, Violation, WaitPolicy, accept,
    connect, sockets,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};

use crate::pair::{SILENCE_LIMIT, channels, start};

/// Makes calls from ten coroutines on a channel whose other end runs `act` after it has received the first call.
/// Returns the error with which all of them end.
fn ends(
    limit: Option<Duration>,
    act: impl FnOnce(Channel) -> Option<Channel> + Send + 'static,
) -> ChannelError {
    let (here, mut there) = channels();
    let (client, mut executor) = Client::with_silence_limit(here, WaitPolicy::Hybrid, limit);
    let ends = Rc::new(Cell::new((0, None)));
    for _ in 0..10 {
        let (client, ends) = (client.clone(), ends.clone());
        executor.spawner().spawn(1, async move {
            let error = client.call(Message::new(0)).await.expect_err("no answer");
            let (count, before) = ends.get();
            assert!(before.is_none_or(|before| before == error));
            ends.set((count + 1, Some(error)));
            assert_eq!(
                client.call(Message::new(0)).await,
                Err(error),
                "the error stays"
            );
            assert_eq!(client.send(Message::new(0)).await, Err(error));
        });
    }
    let peer = std::thread::spawn(move || {
        while there.pop().expect("a client").is_none() {
            std::thread::yield_now();
        }
        act(there)
    });
    executor.run();
    drop(peer.join().expect("the peer"));
    let (count, error) = ends.get();
    assert_eq!(count, 10);
    error.expect("ten of them")
}

#[test]
fn every_call_fails_when_the_server_closes() {
    assert_eq!(ends(None, |_| None), ChannelError::Closed);
}

#[test]
fn every_call_fails_after_a_violation() {
    let error = ends(None, |mut channel| {
        let message = answer_to(77);
        assert!(channel.push(message).expect("a client"));
        channel.flush();
        Some(channel)
    });
    assert!(
        matches!(
            error,
            ChannelError::Violation(Violation::Senseless { cid: 77, .. })
        ),
        "{error}"
    );
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let limit = Duration::from_millis(50);
    let error = ends(Some(limit), Some);
    assert_eq!(error, ChannelError::Violation(Violation::Silent(limit)));
}

/// Creates an answer to a call that was never made.
fn answer_to(cid: u32) -> Message {
    Message::default().with_call(cid, 2)
}

#[test]
fn a_client_that_answers_violates_the_protocol() {
    let (mut here, there) = channels();
    assert!(here.push(answer_to(1)).expect("a server"));
    here.flush();
    let (server, mut executor) = Server::new(there, WaitPolicy::Hybrid);
    executor.spawner().spawn(1, async move {
        let error = server.recv().await.expect_err("no request");
        assert!(
            matches!(error, ChannelError::Violation(Violation::Senseless { .. })),
            "{error}"
        );
    });
    executor.run();
}

#[test]
fn a_server_learns_that_the_client_has_closed() {
    let (here, there) = channels();
    let (server, mut executor) = Server::new(there, WaitPolicy::Interrupt);
    executor.spawner().spawn(1, async move {
        assert_eq!(
            server.recv().await.expect_err("no request"),
            ChannelError::Closed
        );
    });
    drop(here);
    executor.run();
}

#[test]
fn a_stranger_gets_no_channel() {
    let say = |bytes: &'static [u8]| {
        let (here, there) = sockets().expect("sockets");
        let flags = rustix::net::SendFlags::empty();
        rustix::net::send(&here, bytes, flags).expect("a message");
        (accept(there, SILENCE_LIMIT).expect_err("no offer"), here)
    };
    assert!(matches!(say(b"hello").0, HandshakeError::Protocol));
    assert!(matches!(say(&[0; 24]).0, HandshakeError::Descriptors(0)));
    assert!(matches!(say(&[0; 25]).0, HandshakeError::Protocol));
    assert!(matches!(say(&[0; 23]).0, HandshakeError::Protocol));
    let (here, there) = sockets().expect("sockets");
    drop(here);
    assert!(matches!(
        accept(there, SILENCE_LIMIT),
        Err(HandshakeError::Closed)
    ));
    let (here, silent) = sockets().expect("sockets");
    let limit = Duration::from_millis(20);
    assert!(matches!(
        connect(here, 0, 1, limit),
        Err(HandshakeError::Timeout(_))
    ));
    drop(silent);
}

#[test]
fn the_handshake_answer_must_equal_the_offer() {
    let answer = |change: fn(&mut Vec<u8>), with_descriptor: bool| {
        let (here, there) = sockets().expect("sockets");
        let peer = std::thread::spawn(move || {
            let mut fds = [rustix::event::PollFd::new(
                &there,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, None).expect("an offer");
            let mut bytes = [0; 64];
            let flags = rustix::net::RecvFlags::empty();
            let (_, length) = rustix::net::recv(&there, &mut bytes[..], flags).expect("an offer");
            let mut answer = bytes[..length].to_vec();
            change(&mut answer);
            let descriptors = [there.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if with_descriptor {
                ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            }
            let parts = [IoSlice::new(&answer)];
            let flags = rustix::net::SendFlags::empty();
            rustix::net::sendmsg(&there, &parts, &mut ancillary, flags).expect("an answer");
            there
        });
        let outcome = connect(here, 0, 7, SILENCE_LIMIT);
        drop(peer.join().expect("the peer"));
        outcome
    };
    assert!(answer(|_| {}, false).is_ok());
    assert!(matches!(
        answer(|bytes| bytes[16] ^= 1, false),
        Err(HandshakeError::Protocol)
    ));
    assert!(matches!(
        answer(|_| {}, true),
        Err(HandshakeError::Descriptors(1))
    ));
}

#[test]
fn a_coroutine_that_never_ran_does_not_keep_the_channel() {
    let (client, executor, server) = start(WaitPolicy::Hybrid);
    let spawner = executor.spawner();
    let (later, held) = (executor.spawner(), Rc::new(client.clone()));
    let left = Rc::downgrade(&held);
    assert!(spawner.spawn(1, async move {
        // A coroutine that starts others holds a spawner in the same way.
        drop((held, later));
    }));
    drop((client, executor));
    assert!(left.upgrade().is_none(), "it was dropped");
    // The server detects the end and exits.
    server.join().expect("the server thread");
    assert!(!spawner.spawn(1, async {}), "the executor is gone");
}
