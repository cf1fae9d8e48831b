//! What must hold of a channel for every sequence of operations: one function for each kind of peer, panicking where it does
//! not.
//!
//! The tests call these, and so do the fuzz targets in `fuzz/`, which include this file.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the tests and each fuzz target use a part of it"
)]

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use quictun_shmq::{Channel, ChannelError, INLINE, Message, Received, SLOTS, Sleep};

/// Bytes of the region with an arena of one page: what a hostile peer can write to.
const REGION: u64 = 536_576 + 2 * 4096;

/// Something that one of two ends does.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Writes messages, as many as there is room for, and wakes the other.
    Push {
        /// Which end.
        side: bool,
        /// How many.
        messages: u16,
    },
    /// Reads messages, as many as there are.
    Pop {
        /// Which end.
        side: bool,
        /// How many.
        messages: u16,
    },
    /// Goes to sleep, unless there is something to do.
    Sleep {
        /// Which end.
        side: bool,
    },
}

/// [`against_queues`] for steps that are read from bytes, four for each.
pub fn queues(bytes: &[u8]) {
    let step = |[kind, side, low, high]: &[u8; 4]| {
        let (side, messages) = (side & 1 == 1, u16::from_le_bytes([*low, *high]) % 6000);
        match kind % 4 {
            0 => Step::Push { side, messages },
            1 => Step::Pop { side, messages },
            2 => Step::Push {
                side,
                messages: messages % 64,
            },
            _ => Step::Sleep { side },
        }
    };
    let steps: Vec<Step> = bytes.as_chunks().0.iter().map(step).collect();
    against_queues(&steps);
}

/// What each end does, and what it must see.
struct Ends {
    channels: [Channel; 2],
    /// What was written by each and is not read yet.
    queues: [VecDeque<Message>; 2],
    /// Whether it may be woken.
    asleep: [bool; 2],
    /// Whether it found no room.
    blocked: [bool; 2],
    next: u64,
}

/// Two ends are two queues, each as long as a ring; who sleeps is woken exactly when there is something for it.
pub fn against_queues(steps: &[Step]) {
    let Some(channels) = pair(0) else { return };
    let mut ends = Ends {
        channels,
        queues: [VecDeque::new(), VecDeque::new()],
        asleep: [false; 2],
        blocked: [false; 2],
        next: 0,
    };
    for step in steps {
        match *step {
            Step::Push { side, messages } => ends.push(usize::from(side), messages),
            Step::Pop { side, messages } => ends.pop(usize::from(side), messages),
            Step::Sleep { side } => ends.sleep(usize::from(side)),
        }
    }
    ends.close();
}

impl Ends {
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
                .expect("as many as it carries")
                .with_call(7, 0)
                .with_arg(self.next);
            let done = self.channels[side].push(message).expect("an honest peer");
            self.blocked[side] = !done;
            if !done {
                // The reader tells of room in batches, and when it sleeps.
                let told = if slept { SLOTS } else { SLOTS - SLOTS / 8 };
                assert!(
                    self.queues[side].len() >= told,
                    "full with {}",
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
            "{pushed} messages for one who sleeps: {slept}"
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
        let idle = self.channels[side].arm(Sleep::Futex);
        assert!(
            !idle || self.queues[1 - side].is_empty(),
            "it sleeps beside messages"
        );
        if idle {
            self.asleep[side] = true;
        } else {
            self.channels[side].disarm();
        }
        self.note_room(side);
    }

    /// The other one may have been woken since there is room now.
    fn note_room(&mut self, side: usize) {
        let other = 1 - side;
        if self.asleep[other] && self.blocked[other] && self.channels[other].has_work() {
            self.awake(other);
        }
    }

    /// What was sent before the end is read, then the end.
    fn close(self) {
        let [one, mut other] = self.channels;
        drop(one);
        for message in &self.queues[0] {
            assert_eq!(other.pop(), Ok(Some(*message)));
        }
        assert_eq!(other.pop(), Err(ChannelError::Closed));
        assert_eq!(other.push(Message::default()), Err(ChannelError::Closed));
        assert!(!other.arm(Sleep::Futex), "nobody would wake it");
    }
}

/// A peer that writes anything anywhere: eight bytes say where, eight what, and between two such the honest end does
/// all it can. Nothing panics, and what is over stays over.
pub fn hostile(bytes: &[u8]) {
    let Some([mut honest, mut other]) = pair(4096) else {
        return;
    };
    let memory = honest.memory().try_clone_to_owned();
    let memory = File::from(memory.expect("a descriptor"));
    let mut error = None;
    for (round, chunk) in bytes.as_chunks::<16>().0.iter().enumerate() {
        let (place, what) = chunk.split_at(8);
        let place = u64::from_le_bytes(place.try_into().unwrap_or_default());
        // Half of the writes go to where the cursors and the first slots are.
        let at = place >> 1;
        let at = if place & 1 == 0 {
            4096 + at % 8704
        } else {
            at % REGION
        };
        memory
            .write_at(what, at.min(REGION - 8) & !7)
            .expect("a region that is sealed has its length");
        if round % 3 == 0 {
            let (off, len) = (u32::from(what[1]) << 8, u32::from(what[2]) << 4);
            let message = Message::new(u16::from(what[0])).with_payload(off, len);
            let _pushed = other.push(message);
        }
        let done = busy(&mut honest);
        // A peer that says goodbye may still break the rules in what is left in the ring.
        let stays = match error {
            None => true,
            Some(ChannelError::Violation(_)) => done == error,
            Some(_) => done.is_some(),
        };
        assert!(stays, "{error:?} became {done:?}");
        error = done;
    }
}

/// Everything that an honest end does in a turn; how it failed.
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
    // It would sleep for as long as the peer likes, as is the peer's right.
    if channel.arm(Sleep::Futex) {
        channel.wait(Some(std::time::Duration::from_micros(1)));
    } else {
        channel.disarm();
    }
    failed
}

fn touch(channel: &Channel, payload: Received) {
    let mut copy = vec![0; payload.len() as usize];
    channel.read(payload, 0, &mut copy);
    channel.fold_lines(payload, 0, |sum: u64, line| {
        line.iter().fold(sum, |sum, word| sum.wrapping_add(*word))
    });
}

/// Both ends here; nothing where the system has no memory or descriptors left.
fn pair(arena: u32) -> Option<[Channel; 2]> {
    let one = Channel::create(arena, 1).ok()?;
    let memory = one.memory().as_fd().try_clone_to_owned().ok()?;
    Some([one, Channel::open(memory).ok()?])
}
