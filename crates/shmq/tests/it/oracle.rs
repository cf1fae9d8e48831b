//! Any sequence of operations, on both ends, against two queues.

use std::collections::VecDeque;

use proptest::prelude::*;
use quictun_shmq::check::{self, Step};
use quictun_shmq::{Channel, Sleep};

use crate::peer::{ARENA, Dice, given, start};

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<bool>(), 1_u16..300).prop_map(|(side, items)| Step::Push { side, items }),
        4 => (any::<bool>(), 1_u16..300).prop_map(|(side, items)| Step::Pop { side, items }),
        // Enough to fill a ring.
        1 => any::<bool>().prop_map(|side| Step::Push { side, items: 5000 }),
        1 => any::<bool>().prop_map(|side| Step::Pop { side, items: 5000 }),
        2 => any::<bool>().prop_map(|side| Step::Sleep { side }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn two_ends_are_two_queues(steps in steps()) {
        check::against_queues(&steps);
    }
}

/// Calls that the other process answers. More with `QUICTUN_SHMQ_OPERATIONS`.
const OPERATIONS: u64 = 400_000;

/// What the answer to an item is.
fn answer(item: &mut quictun_shmq::Item) {
    item.arg = item
        .arg
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(item.cid);
    item.inline.reverse();
}

#[test]
fn answering_process() {
    let Some(mut channel) = given("oracle::answering_process") else {
        return;
    };
    let mut waiting = VecDeque::new();
    loop {
        while let Some(mut item) = match channel.pop() {
            Ok(item) => item,
            Err(_) => return,
        } {
            if let Some(payload) = channel.received(&item).expect("an honest peer") {
                item.arg = channel.fold(payload, item.arg, |sum, word| sum.rotate_left(1) ^ word);
                item.len = 0;
            }
            answer(&mut item);
            waiting.push_back(item);
        }
        while let Some(item) = waiting.front() {
            match channel.push(item) {
                Ok(true) => drop(waiting.pop_front()),
                Ok(false) => break,
                Err(_) => return,
            }
        }
        if channel.arm(Sleep::Futex) {
            channel.wait(None);
        } else {
            channel.disarm();
        }
    }
}

/// Sends an item of random content, with a payload now and then; the answer that must come, and whether there is a payload.
fn send(channel: &mut Channel, dice: &mut Dice) -> Option<(quictun_shmq::Item, bool)> {
    let mut item = quictun_shmq::Item {
        cid: u32::try_from(dice.below(1 << 20)).expect("small"),
        arg: dice.next(),
        inline: std::array::from_fn(|_| dice.next().to_le_bytes()[0]),
        ..quictun_shmq::Item::default()
    };
    let mut expected = item;
    if dice.below(8) == 0 {
        let len = u32::try_from(dice.below(3000) + 1).expect("small");
        let payload = channel.reserve(len).expect("payloads are released");
        let bytes: Vec<u8> = (0..len).map(|_| dice.next().to_le_bytes()[1]).collect();
        channel.write(&payload, 0, &bytes);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            expected.arg = expected.arg.rotate_left(1) ^ u64::from_le_bytes(word);
        }
        (item.off, item.len) = (payload.off(), len);
        expected.off = item.off;
        let pushed = channel.push(&item).expect("a peer");
        answer(&mut expected);
        // The answer comes before anything else that takes this place is sent.
        channel.release(payload);
        return pushed.then_some((expected, true));
    }
    let pushed = channel.push(&item).expect("a peer");
    answer(&mut expected);
    pushed.then_some((expected, false))
}

/// The same in two processes, both of which sleep when there is nothing to do.
#[test]
fn two_processes_are_two_queues() {
    let operations = std::env::var("QUICTUN_SHMQ_OPERATIONS").ok();
    let operations = operations
        .and_then(|n| n.parse().ok())
        .unwrap_or(OPERATIONS);
    let (mut channel, mut child) = start("oracle::answering_process");
    let mut dice = Dice(0x5eed_5eed);
    let (mut sent, mut done) = (0_u64, 0_u64);
    let mut expected = VecDeque::new();
    while done < operations {
        let most = 1 << dice.below(13);
        let batch = 1 + dice.below(most);
        for _ in 0..batch.min(operations - sent) {
            // Payloads are answered at once, so that they may be released.
            let Some((item, with_payload)) = send(&mut channel, &mut dice) else {
                break;
            };
            expected.push_back(item);
            sent += 1;
            if with_payload {
                done += receive(&mut channel, &mut expected, 0);
            }
        }
        let left = usize::try_from(dice.below(expected.len() as u64 + 1)).expect("small");
        done += receive(&mut channel, &mut expected, left);
    }
    assert!(
        channel.reserve(ARENA).is_some(),
        "every payload was released"
    );
    drop(channel);
    assert!(child.wait().expect("the other process").success());
}

/// Receives answers until only `left` are to come.
fn receive(channel: &mut Channel, expected: &mut VecDeque<quictun_shmq::Item>, left: usize) -> u64 {
    let mut received = 0;
    while expected.len() > left {
        if let Some(item) = channel.pop().expect("an honest peer") {
            assert_eq!(Some(item), expected.pop_front());
            received += 1;
        } else if channel.arm(Sleep::Futex) {
            channel.wait(None);
        } else {
            channel.disarm();
        }
    }
    received
}
