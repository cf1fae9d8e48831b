//! A peer that breaks the rules.

use proptest::prelude::*;
use quictun_shmq::{Channel, ChannelError, Message, SLOTS, SleepMode, Violation};

use crate::check;
use crate::peer::{both, both_watched, is_readable};

const SLOTS_OF_FIRST: u64 = 12288;
const SLOTS_OF_SECOND: u64 = SLOTS_OF_FIRST + 64 * SLOTS as u64;
const DOORBELL_OF_FIRST: u64 = 4096;
const STATE_OF_FIRST: u64 = DOORBELL_OF_FIRST + 8;
const HEAD_OF_FIRSTS_RING: u64 = 8192;

/// Writes to the region from outside, as a peer that holds the memory can.
fn scribble(channel: &Channel, at: u64, word: u64) {
    let bytes = word.to_le_bytes();
    assert_eq!(rustix::io::pwrite(channel.memory(), &bytes, at), Ok(8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn hostile_writes_break_only_the_channel(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        check::hostile(&bytes);
    }
}

#[test]
fn a_slot_from_the_future_is_a_violation() {
    let (mut honest, other) = both(0);
    scribble(&other, SLOTS_OF_SECOND, 2);
    let error = ChannelError::Violation(Violation::Turn {
        index: 0,
        found: 2,
        expected: 1,
    });
    assert!(!honest.arm(SleepMode::Futex), "violation is work");
    assert_eq!(honest.pop(), Err(error));
    assert_eq!(honest.push(Message::default()), Err(error));
    scribble(&other, SLOTS_OF_SECOND, 0);
    assert_eq!(honest.pop(), Err(error), "the error stays");
}

#[test]
fn a_head_beyond_the_tail_or_back_again_is_a_violation() {
    for (first, second) in [(1, 0), (SLOTS as u64 + 1, 0), (u64::MAX, 0), (4, 3)] {
        let (mut honest, other) = both(0);
        let mut found = Ok(true);
        scribble(
            &other,
            HEAD_OF_FIRSTS_RING,
            if second == 0 { first } else { 0 },
        );
        if first == 1 {
            // A valid head, as a control.
            assert!(honest.push(Message::default()).expect("the channel works"));
        }
        for round in 0..2 * SLOTS as u64 {
            found = honest.push(Message::default());
            if second != 0 && found == Ok(false) {
                scribble(
                    &other,
                    HEAD_OF_FIRSTS_RING,
                    if round > SLOTS as u64 { second } else { first },
                );
            }
            if found.is_err() {
                break;
            }
        }
        let violated = matches!(found, Err(ChannelError::Violation(Violation::Head { .. })));
        assert_eq!(violated, first != 1, "{first}, {second}: {found:?}");
    }
}

#[test]
fn a_payload_must_be_inside_the_peers_arena() {
    let (mut honest, _other) = both(8192);
    let mut received = |off, len| {
        let message = Message::default().with_payload(off, len);
        honest
            .received(&message)
            .map(|found| found.map(quictun_shmq::PeerPayload::len))
    };
    assert_eq!(received(0, 8192), Ok(Some(8192)));
    assert_eq!(received(8184, 8), Ok(Some(8)));
    assert_eq!(received(u32::MAX, 0), Ok(None));
    let mut over = None;
    for (off, len) in [
        (8184, 9),
        (0, 8193),
        (8192, 1),
        (8, u32::MAX),
        (u32::MAX - 7, 16),
        (4, 4),
    ] {
        let found = received(off, len);
        assert!(
            matches!(
                found,
                Err(ChannelError::Violation(Violation::Payload { .. }))
            ),
            "offset {off}, length {len}"
        );
        over = over.or(found.err());
    }
    let over = over.expect("a violation was found");
    assert_eq!(honest.pop(), Err(over));
    assert_eq!(honest.push(Message::default()), Err(over));
}

#[test]
fn a_peer_that_wakes_without_reason_is_given_up() {
    let (mut honest, other) = both(0);
    let mut waits = 0;
    let error = loop {
        if let Err(error) = honest.pop() {
            break error;
        }
        if honest.arm(SleepMode::Futex) {
            // This has the effect of a ring: the wait ends at once.
            scribble(&other, STATE_OF_FIRST, 0);
            honest.wait(None);
            waits += 1;
            assert!(waits < 5000, "the empty wake-ups are never rejected");
        } else {
            honest.disarm();
        }
    };
    assert!(
        matches!(error, ChannelError::Violation(Violation::EmptyWakes(_))),
        "{error}"
    );
    assert!(waits > 100, "occasional empty wake-ups must be tolerated");
}

#[test]
fn the_peer_learns_of_a_violation() {
    let (mut honest, mut other) = both(0);
    scribble(&other, SLOTS_OF_SECOND, 77);
    assert!(honest.pop().is_err());
    assert_eq!(other.pop(), Err(ChannelError::Closed));
}

/// The doorbell's state says that the thread is awake while it sleeps.
#[test]
fn an_alarm_wakes_a_thread_that_is_marked_awake() {
    let (mut honest, other) = both_watched(0);
    let alarm = honest.alarm();
    assert!(honest.arm(SleepMode::Descriptor));
    scribble(&other, STATE_OF_FIRST, 0);
    assert!(!is_readable(&honest, false));
    alarm.ring();
    assert!(is_readable(&honest, false), "local eventfd rung");
    honest.disarm();
    assert_eq!(honest.pop(), Ok(None));

    let (tell, told) = std::sync::mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        assert!(honest.arm(SleepMode::Futex), "nothing to do");
        tell.send(rustix::thread::gettid()).expect("send it");
        honest.wait(Some(std::time::Duration::from_mins(1)))
    });
    let thread = told.recv().expect("the thread");
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    while !std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S ")) {
        std::thread::yield_now();
    }
    scribble(&other, STATE_OF_FIRST, 0);
    alarm.ring();
    assert!(sleeper.join().expect("the thread"), "wait timed out");
}
