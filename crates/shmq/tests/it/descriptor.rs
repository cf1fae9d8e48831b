//! Sleeping in poll instead of on the doorbell.

use quictun_shmq::{ChannelError, Item, Sleep};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::peer::{both_watched, start};

fn is_readable(channel: &quictun_shmq::Channel, wait: bool) -> bool {
    let fd = channel.descriptor().expect("it is watched");
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, (!wait).then_some(&none)).expect("poll") > 0
}

#[test]
fn the_descriptor_is_readable_once_there_is_something() {
    let (mut writer, mut reader) = both_watched(0);
    for _ in 0..100 {
        assert!(reader.arm(Sleep::Descriptor));
        assert!(!is_readable(&reader, false));
        assert!(writer.push(&Item::default()).expect("a peer"));
        writer.flush();
        assert!(is_readable(&reader, true));
        reader.disarm();
        assert!(!is_readable(&reader, false), "one wake-up, taken");
        assert!(reader.pop().expect("a peer").is_some());
        assert!(writer.push(&Item::default()).expect("a peer"));
        writer.flush();
        assert!(!is_readable(&reader, false), "it is awake");
        assert!(reader.pop().expect("a peer").is_some());
        assert_eq!(reader.pop(), Ok(None));
    }
    assert_eq!(writer.counters().notifications, 100);
}

#[test]
fn the_descriptor_is_readable_when_the_peer_is_killed() {
    let (mut channel, mut child) = start("killed::idle_process");
    assert!(channel.arm(Sleep::Descriptor));
    child.kill().expect("to kill it");
    assert!(is_readable(&channel, true));
    channel.disarm();
    child.wait().expect("it is dead");
    let error = loop {
        if let Err(error) = channel.pop() {
            break error;
        }
        if channel.arm(Sleep::Futex) {
            channel.wait(None);
        } else {
            channel.disarm();
        }
    };
    assert_eq!(error, ChannelError::Died);
}
