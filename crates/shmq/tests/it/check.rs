//! Invariants of a channel that hold for every sequence of operations. There is one function for each kind of peer, and
//! it panics if an invariant is broken.
//!
//! The tests call these functions. The fuzz targets in `fuzz/` include this file and call them, too.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the tests and each fuzz target use only a part of the functions"
)]

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use quictun_shmq::{Channel, ChannelError, INLINE, Message, PeerPayload, SLOTS, SleepMode};

/// Size in bytes of a region with arenas of one page: the range that a hostile peer can write to.
const REGION: u64 = 536_576 + 2 * 4096;

/// An action of one of the two ends.
#[derive(Clone, Copy, Debug)]
pub enum QueueStep {
    /// Writes as many of the messages as there is room for, and wakes the other end.
    Push {
        /// The end that acts.
        side: bool,
        /// Number of messages in this step.
        messages: u16,
    },
    /// Reads up to this many messages.
    Pop {
        /// The end that acts.
        side: bool,
        /// Number of messages in this step.
        messages: u16,
    },
    /// Goes to sleep, unless there is something to do.
    Sleep {
        /// The end that acts.
        side: bool,
    },
}

/// Runs [`against_queues`] with steps that are decoded from bytes, four bytes for each step.
pub fn queues(bytes: &[u8]) {
    let step = |[kind, side, low, high]: &[u8; 4]| {
        let (side, messages) = (side & 1 == 1, u16::from_le_bytes([*low, *high]) % 6000);
        match kind % 4 {
            0 => QueueStep::Push { side, messages },
            1 => QueueStep::Pop { side, messages },
            2 => QueueStep::Push {
                side,
                messages: messages % 64,
            },
            _ => QueueStep::Sleep { side },
        }
    };
    let steps: Vec<QueueStep> = bytes.as_chunks().0.iter().map(step).collect();
    against_queues(&steps);
}

/// Both ends and the state that each of them must observe.
struct ChannelPair {
    channels: [Channel; 2],
    /// Messages that each end wrote and the other has not read yet.
    queues: [VecDeque<Message>; 2],
    /// True if the end sleeps and may be woken.
    asleep: [bool; 2],
    /// True if the end's last message found no room.
    blocked: [bool; 2],
    next: u64,
}

/// Compares two ends with two queues, each as long as a ring. An end that sleeps must be woken exactly when there is
/// something for it.
pub fn against_queues(steps: &[QueueStep]) {
    let mut ends = ChannelPair {
        channels: pair(0),
        queues: [VecDeque::new(), VecDeque::new()],
        asleep: [false; 2],
        blocked: [false; 2],
        next: 0,
    };
    for step in steps {
        match *step {
            QueueStep::Push { side, messages } => ends.push(usize::from(side), messages),
            QueueStep::Pop { side, messages } => ends.pop(usize::from(side), messages),
            QueueStep::Sleep { side } => ends.sleep(usize::from(side)),
        }
    }
    ends.close();
}

impl ChannelPair {
    fn awake(&mut self, side: usize) {
        if std::mem::take(&mut self.asleep[side]) {
            self.channels[side].disarm();
        }
    }

    fn push(&mut self, side: usize, messages: u16) {
        self.awake(side);
        let before = self.channels[side].counters();
        let (mut pushed, slept) = (0, self.asleep[1 - side]);
        for _ in 0..messages {
            self.next += 1;
            let message = Message::default()
                .with_bytes(&[self.next.to_le_bytes()[0]; INLINE])
                .expect("fits inline")
                .with_call(7, 0)
                .with_arg(self.next);
            let done = self.channels[side].push(message).expect("an honest peer");
            self.blocked[side] = !done;
            if !done {
                // The reader announces room in batches, and when it goes to sleep.
                let told = if slept { SLOTS } else { SLOTS - SLOTS / 8 };
                assert!(
                    self.queues[side].len() >= told,
                    "the ring is full with only {} messages",
                    self.queues[side].len()
                );
                break;
            }
            pushed += 1;
            self.queues[side].push_back(message);
        }
        assert!(self.queues[side].len() <= SLOTS);
        self.channels[side].flush();
        let after = self.channels[side].counters();
        let woken = after.notifications - before.notifications;
        assert_eq!(
            woken,
            u64::from(slept && pushed > 0),
            "wake-ups after {pushed} messages, reader asleep: {slept}"
        );
        assert_eq!(after.pushed - before.pushed, pushed);
        self.asleep[1 - side] &= woken == 0;
    }

    fn pop(&mut self, side: usize, messages: u16) {
        self.awake(side);
        for _ in 0..messages {
            let popped = self.channels[side].pop().expect("an honest peer");
            assert_eq!(popped, self.queues[1 - side].pop_front());
            if popped.is_none() {
                break;
            }
        }
        self.note_room(side);
    }

    fn sleep(&mut self, side: usize) {
        self.awake(side);
        let idle = self.channels[side].arm(SleepMode::Futex);
        assert!(
            !idle || self.queues[1 - side].is_empty(),
            "the end sleeps although it has messages"
        );
        if idle {
            self.asleep[side] = true;
        } else {
            self.channels[side].disarm();
        }
        self.note_room(side);
    }

    /// Wakes the other end if it sleeps, was blocked, and now has room.
    fn note_room(&mut self, side: usize) {
        let other = 1 - side;
        if self.asleep[other] && self.blocked[other] && self.channels[other].has_work() {
            self.awake(other);
        }
    }

    /// Closes one end. The other reads what was sent before the end, and then the end itself.
    fn close(self) {
        let [one, mut other] = self.channels;
        drop(one);
        for message in &self.queues[0] {
            assert_eq!(other.pop(), Ok(Some(*message)));
        }
        assert_eq!(other.pop(), Err(ChannelError::Closed));
        assert_eq!(other.push(Message::default()), Err(ChannelError::Closed));
        assert!(!other.arm(SleepMode::Futex), "the channel is closed");
    }
}

/// Simulates a peer that writes anything anywhere. Of each 16 bytes, eight select the place and eight are written
/// there. After each write, the honest end does everything it can. Nothing panics, and a channel that is over stays
/// over.
pub fn hostile(bytes: &[u8]) {
    let [mut honest, mut other] = pair(4096);
    let memory = honest.memory().try_clone_to_owned();
    let memory = File::from(memory.expect("a descriptor"));
    let mut error = None;
    for (round, chunk) in bytes.as_chunks::<16>().0.iter().enumerate() {
        let (place, what) = chunk.split_at(8);
        let place = u64::from_le_bytes(place.try_into().unwrap_or_default());
        // Half of the writes go to the cursors and the first slots.
        let at = place >> 1;
        let at = if place & 1 == 0 {
            4096 + at % 8704
        } else {
            at % REGION
        };
        memory
            .write_at(what, at.min(REGION - 8) & !7)
            .expect("a sealed region keeps its length");
        if round % 3 == 0 {
            let (off, len) = (u32::from(what[1]) << 8, u32::from(what[2]) << 4);
            let message = Message::new(u16::from(what[0])).with_payload(off, len);
            let _pushed = other.push(message);
        }
        let done = busy(&mut honest);
        // A peer that has closed the channel may still break the rules in the messages left in the ring.
        let stays = match error {
            None => true,
            Some(ChannelError::Violation(_)) => done == error,
            Some(_) => done.is_some(),
        };
        assert!(stays, "{error:?} became {done:?}");
        error = done;
    }
}

/// Does everything that an honest end does in a turn. Returns the error, if any.
fn busy(channel: &mut Channel) -> Option<ChannelError> {
    let mut failed = None;
    for _ in 0..SLOTS / 64 {
        match channel.pop() {
            Ok(Some(message)) => match channel.received(&message) {
                Ok(Some(payload)) => touch(channel, payload),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            },
            Ok(None) => break,
            Err(error) => failed = Some(error),
        }
    }
    if let Some(payload) = channel.reserve(100) {
        channel.write(&payload, 3, b"bytes");
        channel.release(payload);
    }
    match channel.push(Message::default()) {
        Ok(_) => {}
        Err(error) => failed = Some(error),
    }
    channel.flush();
    // Without a limit, it would sleep for as long as the peer likes, as is the peer's right.
    if channel.arm(SleepMode::Futex) {
        channel.wait(Some(std::time::Duration::from_micros(1)));
    } else {
        channel.disarm();
    }
    failed
}

fn touch(channel: &Channel, payload: PeerPayload) {
    let mut copy = vec![0; payload.len() as usize];
    channel.read(payload, 0, &mut copy);
    channel.fold_lines(payload, 0, |sum: u64, line| {
        line.iter().fold(sum, |sum, word| sum.wrapping_add(*word))
    });
}

/// Opens both ends in this process.
fn pair(arena: u32) -> [Channel; 2] {
    let one = Channel::create(arena, 1).expect("a channel");
    let memory = one.memory().as_fd().try_clone_to_owned();
    let other = Channel::open(memory.expect("a descriptor"));
    [one, other.expect("the other end")]
}
