//! Sleeping in poll instead of on the doorbell.

use quictun_shmq::{Channel, ChannelError, Message, SleepMode};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::peer::{both, both_watched, given, is_readable, sockets, start};

#[test]
fn the_descriptor_is_readable_once_there_is_something() {
    let (mut writer, mut reader) = both_watched(0);
    for _ in 0..100 {
        assert!(reader.arm(SleepMode::Descriptor));
        assert!(!is_readable(&reader, false));
        assert!(writer.push(Message::default()).expect("the peer is alive"));
        writer.flush();
        assert!(is_readable(&reader, true));
        reader.disarm();
        assert!(!is_readable(&reader, false), "wake-up consumed");
        assert!(reader.pop().expect("the peer is alive").is_some());
        assert!(writer.push(Message::default()).expect("the peer is alive"));
        writer.flush();
        assert!(!is_readable(&reader, false), "reader is awake");
        assert!(reader.pop().expect("the peer is alive").is_some());
        assert_eq!(reader.pop(), Ok(None));
    }
    assert_eq!(writer.counters().notifications, 100);
}

#[test]
fn the_descriptor_is_readable_when_the_peer_is_killed() {
    let test = "descriptor::the_descriptor_is_readable_when_the_peer_is_killed";
    if let Some(mut channel) = given(test) {
        assert_eq!(end_of(&mut channel), ChannelError::Closed);
        return;
    }
    let (mut channel, mut child) = start(test);
    assert!(channel.arm(SleepMode::Descriptor));
    child.kill().expect("kill the process");
    assert!(is_readable(&channel, true));
    channel.disarm();
    child.wait().expect("wait for the killed process");
    assert_eq!(end_of(&mut channel), ChannelError::Died);
}

/// Sleeps until the channel is over and returns the reason.
fn end_of(channel: &mut Channel) -> ChannelError {
    loop {
        if let Err(error) = channel.pop() {
            return error;
        }
        if channel.arm(SleepMode::Futex) {
            channel.wait(None);
        } else {
            channel.disarm();
        }
    }
}

/// A sleeper that waits for edges, as tokio does, may have looked between the end of the socket and the notice of it.
/// The descriptor therefore produces further edges until the sleeper takes notice.
#[test]
fn the_descriptor_changes_until_the_death_is_noticed() {
    let (mut channel, _other) = both(0);
    let (here, there) = sockets();
    channel.watch(here).expect("start the watching thread");
    let changes = epoll::create(epoll::CreateFlags::CLOEXEC).expect("create an epoll instance");
    let descriptor = channel.descriptor().expect("the channel is watched");
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&changes, descriptor, epoll::EventData::new_u64(0), flags).expect("epoll add");
    assert!(channel.arm(SleepMode::Descriptor));
    // The kernel does the same to the descriptors of a killed process.
    drop(there);
    let patience = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    for change in 0..5 {
        let mut events = Vec::with_capacity(1);
        let found = epoll::wait(&changes, spare_capacity(&mut events), Some(&patience));
        assert_eq!(found, Ok(1), "after {change} changes");
        channel.disarm();
    }
    assert_eq!(channel.pop(), Err(ChannelError::Died));
}
