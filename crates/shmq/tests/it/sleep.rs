//! Sleeping, waking up, and the counters of both.

use std::time::Duration;

use quictun_shmq::{ChannelError, Message, SLOTS, SleepMode};

use crate::peer::{both, both_watched};

fn push(channel: &mut quictun_shmq::Channel) -> bool {
    channel.push(Message::default()).expect("the peer is alive")
}

#[test]
fn one_wake_up_for_each_batch_and_none_while_awake() {
    let (mut writer, mut reader) = both(0);
    for round in 1..=10 {
        assert!(reader.arm(SleepMode::Futex));
        for _ in 0..round {
            assert!(push(&mut writer));
        }
        writer.flush();
        for _ in 0..3 {
            assert!(push(&mut writer));
            writer.flush();
        }
        // The doorbell was rung already, so this returns at once.
        reader.wait(None);
        while reader.pop().expect("the peer is alive").is_some() {}
    }
    let counters = writer.counters();
    assert_eq!((counters.notifications, counters.suppressed), (10, 30));
    assert_eq!(reader.counters().wakes, 10);
    assert_eq!(reader.counters().empty_wakes, 0);
}

#[test]
fn a_wait_ends_with_its_time() {
    let (mut one, _other) = both(0);
    assert!(one.arm(SleepMode::Futex));
    one.wait(Some(Duration::from_millis(1)));
    assert_eq!(one.counters().wakes, 0);
}

#[test]
fn a_writer_without_room_is_notified_of_room() {
    let (mut writer, mut reader) = both(0);
    for _ in 0..SLOTS {
        assert!(push(&mut writer));
    }
    assert!(!push(&mut writer), "the ring is full");
    assert!(writer.arm(SleepMode::Futex), "nothing to do");
    assert!(reader.pop().expect("the peer is alive").is_some());
    assert_eq!(
        reader.counters().notifications,
        0,
        "a single slot must not be announced"
    );
    for _ in 1..SLOTS {
        assert!(reader.pop().expect("the peer is alive").is_some());
    }
    assert_eq!(reader.counters().notifications, 1);
    writer.wait(None);
    assert!(push(&mut writer));
}

#[test]
fn a_reader_that_goes_to_sleep_gives_all_room_back() {
    let (mut writer, mut reader) = both(0);
    while push(&mut writer) {}
    assert!(writer.arm(SleepMode::Futex));
    assert!(reader.pop().expect("the peer is alive").is_some());
    assert!(!reader.arm(SleepMode::Futex), "there are messages");
    reader.disarm();
    assert_eq!(reader.counters().notifications, 1);
    writer.wait(None);
    assert!(push(&mut writer));
    assert!(!push(&mut writer));
}

#[test]
fn a_sleeper_is_woken_when_the_peer_closes() {
    let (one, mut other) = both_watched(0);
    let thread = std::thread::spawn(move || {
        loop {
            if let Err(error) = other.pop() {
                return error;
            }
            if other.arm(SleepMode::Futex) {
                other.wait(None);
            } else {
                other.disarm();
            }
        }
    });
    drop(one);
    assert_eq!(thread.join().expect("the thread"), ChannelError::Closed);
}

#[test]
fn another_thread_can_wake_a_sleeper() {
    let (mut one, _other) = both(0);
    let alarm = one.alarm();
    alarm.ring();
    assert!(!one.arm(SleepMode::Futex), "it was rung before");
    one.disarm();
    assert_eq!(one.pop(), Ok(None));
    let thread = std::thread::spawn(move || alarm.ring());
    while one.arm(SleepMode::Futex) {
        one.wait(None);
    }
    one.disarm();
    thread.join().expect("the thread");
}

/// A writer that found the ring full, but no longer wants to write, sleeps even after room appears.
#[test]
fn unused_room_is_reported_once() {
    let (mut writer, mut reader) = both(0);
    while push(&mut writer) {}
    while reader.pop().expect("the peer is alive").is_some() {}
    assert!(writer.has_work(), "there is room");
    assert!(!writer.has_work(), "room must be reported only once");
    assert!(writer.arm(SleepMode::Futex), "nothing to do");
    writer.disarm();
}
