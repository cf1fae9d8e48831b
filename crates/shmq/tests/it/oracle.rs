//! Random sequences of operations on both ends, compared with two queues.

use std::collections::VecDeque;

use proptest::prelude::*;
use quictun_shmq::{Channel, INLINE, Message, SleepMode};

use crate::check::{self, QueueStep};
use crate::peer::{ARENA, TestRng, given, start};

fn steps() -> impl Strategy<Value = Vec<QueueStep>> {
    let step = prop_oneof![
        4 => (any::<bool>(), 1_u16..300).prop_map(|(side, messages)| QueueStep::Push { side, messages }),
        4 => (any::<bool>(), 1_u16..300).prop_map(|(side, messages)| QueueStep::Pop { side, messages }),
        // Enough messages to fill a ring.
        1 => any::<bool>().prop_map(|side| QueueStep::Push { side, messages: 5000 }),
        1 => any::<bool>().prop_map(|side| QueueStep::Pop { side, messages: 5000 }),
        2 => any::<bool>().prop_map(|side| QueueStep::Sleep { side }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn two_ends_behave_as_two_queues(steps in steps()) {
        check::against_queues(&steps);
    }
}

/// Number of calls that the other process answers. `QUICTUN_SHMQ_OPERATIONS` overrides it.
const OPERATIONS: u64 = 400_000;

/// The operation of a message whose payload is in the arena.
const BY_REFERENCE: u16 = 1;

/// Returns the answer to a message: its bytes in reverse order, and a number computed from `arg`.
fn answer(message: Message, arg: u64) -> Message {
    let mut bytes = message.bytes().to_vec();
    bytes.reverse();
    let arg = arg.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    message
        .with_bytes(&bytes)
        .expect("the bytes came from a message")
        .with_arg(arg.rotate_left(message.cid()))
}

/// Returns the message after its payload has been read: only its inline bytes are left.
fn without_payload(message: Message) -> Message {
    message.with_payload(0, u32::try_from(INLINE).expect("in range"))
}

/// Answers messages until the other process closes the channel.
fn answer_all(mut channel: Channel) {
    let mut waiting = VecDeque::new();
    loop {
        while let Some(mut message) = match channel.pop() {
            Ok(message) => message,
            Err(_) => return,
        } {
            let mut arg = message.arg();
            if message.op() == BY_REFERENCE {
                let payload = channel.received(&message).expect("an honest peer");
                let payload = payload.expect("the payload has a length");
                arg = channel.fold_lines(payload, arg, |sum, line| {
                    let words = line.iter();
                    words.fold(sum, |sum, word| sum.rotate_left(1) ^ word)
                });
                message = without_payload(message);
            }
            waiting.push_back(answer(message, arg));
        }
        while let Some(message) = waiting.front() {
            match channel.push(*message) {
                Ok(true) => drop(waiting.pop_front()),
                Ok(false) => break,
                Err(_) => return,
            }
        }
        if channel.arm(SleepMode::Futex) {
            channel.wait(None);
        } else {
            channel.disarm();
        }
    }
}

/// Sends a random message, sometimes with a payload. Returns the expected answer and whether there is a payload, or
/// `None` if the ring is full.
fn send(channel: &mut Channel, rng: &mut TestRng) -> Option<(Message, bool)> {
    let cid = u32::try_from(rng.below(1 << 20)).expect("in range");
    let bytes: [u8; INLINE] = std::array::from_fn(|_| rng.next().to_le_bytes()[0]);
    let by_reference = rng.below(8) == 0;
    let message = Message::new(if by_reference { BY_REFERENCE } else { 0 })
        .with_call(cid, 0)
        .with_arg(rng.next())
        .with_bytes(&bytes)
        .expect("fits inline");
    let mut sum = message.arg();
    if !by_reference {
        let pushed = channel.push(message).expect("the peer is alive");
        return pushed.then(|| (answer(message, sum), false));
    }
    let len = u32::try_from(rng.below(3000) + 1).expect("in range");
    let payload = channel.reserve(len).expect("the arena has room");
    let bytes: Vec<u8> = (0..len).map(|_| rng.next().to_le_bytes()[1]).collect();
    channel.write(&payload, 0, &bytes);
    for chunk in bytes.chunks(64) {
        let mut line = [0; 64];
        line[..chunk.len()].copy_from_slice(chunk);
        for word in line.as_chunks().0 {
            sum = sum.rotate_left(1) ^ u64::from_le_bytes(*word);
        }
    }
    let pushed = channel.push(message.with_payload(payload.off(), len));
    // The answer arrives before any later payload can reuse this place.
    channel.release(payload);
    let pushed = pushed.expect("the peer is alive");
    pushed.then(|| (answer(without_payload(message), sum), true))
}

/// The same comparison with two processes, both of which sleep when there is nothing to do.
#[test]
fn two_processes_behave_as_two_queues() {
    let test = "oracle::two_processes_behave_as_two_queues";
    if let Some(channel) = given(test) {
        return answer_all(channel);
    }
    let operations = std::env::var("QUICTUN_SHMQ_OPERATIONS").ok();
    let operations = operations
        .and_then(|n| n.parse().ok())
        .unwrap_or(OPERATIONS);
    let (mut channel, mut child) = start(test);
    let mut rng = TestRng(0x5eed_5eed);
    let (mut sent, mut done) = (0_u64, 0_u64);
    let mut expected = VecDeque::new();
    while done < operations {
        let most = 1 << rng.below(13);
        let batch = 1 + rng.below(most);
        for _ in 0..batch.min(operations - sent) {
            // Messages with a payload are answered at once, so that the payload may be released.
            let Some((message, with_payload)) = send(&mut channel, &mut rng) else {
                break;
            };
            expected.push_back(message);
            sent += 1;
            if with_payload {
                done += receive(&mut channel, &mut expected, 0);
            }
        }
        let left = usize::try_from(rng.below(expected.len() as u64 + 1)).expect("in range");
        done += receive(&mut channel, &mut expected, left);
    }
    assert!(
        channel.reserve(ARENA).is_some(),
        "every payload was released"
    );
    drop(channel);
    assert!(child.wait().expect("wait for the other process").success());
}

/// Receives answers until only `left` are outstanding, and returns how many arrived.
fn receive(channel: &mut Channel, expected: &mut VecDeque<Message>, left: usize) -> u64 {
    let mut received = 0;
    while expected.len() > left {
        if let Some(message) = channel.pop().expect("an honest peer") {
            assert_eq!(Some(message), expected.pop_front());
            received += 1;
        } else if channel.arm(SleepMode::Futex) {
            channel.wait(None);
        } else {
            channel.disarm();
        }
    }
    received
}
