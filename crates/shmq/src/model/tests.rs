use std::sync::atomic::{AtomicUsize, Ordering as Plain};

use loom::sync::Arc;
use loom::thread;

use super::atomic::{AtomicU64, Futex};
use super::doorbell::{Doorbell, SleepMode};
use super::ring::{Consumer, Cursor, Cursors, Producer, RingMemory};
use super::ring_pair::{Doorbells, RingPair};
use super::slot::{Message, Slot};

#[derive(Debug)]
struct Ring {
    cursors: Cursors,
    slots: Vec<Slot>,
}

impl Ring {
    fn new(slots: usize) -> Arc<Self> {
        let line = || Cursor(AtomicU64::new(0));
        Arc::new(Self {
            cursors: Cursors {
                head: line(),
                message_event: line(),
                space_event: line(),
            },
            slots: std::iter::repeat_with(Slot::new).take(slots).collect(),
        })
    }
}

impl RingMemory for Arc<Ring> {
    fn cursors(&self) -> &Cursors {
        &self.cursors
    }

    fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

/// A doorbell with a check: each wake-up must use up one arming. Then no process that is awake is woken, and at most
/// one wake-up is under way. The plain atomics are not part of the model.
#[derive(Debug)]
struct CheckedDoorbell {
    bell: Doorbell,
    arms: AtomicUsize,
    wakes: AtomicUsize,
}

impl CheckedDoorbell {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bell: Doorbell::new(AtomicU64::new(0), Futex::new(), AtomicU64::new(0)),
            arms: AtomicUsize::new(0),
            wakes: AtomicUsize::new(0),
        })
    }
}

#[derive(Debug)]
struct CheckedDoorbells {
    own: Arc<CheckedDoorbell>,
    peer: Arc<CheckedDoorbell>,
}

impl Doorbells for CheckedDoorbells {
    fn own(&self) -> &Doorbell {
        &self.own.bell
    }

    fn peer(&self) -> &Doorbell {
        &self.peer.bell
    }

    fn wake_peer(&self, _sleep: SleepMode) {
        let wakes = self.peer.wakes.fetch_add(1, Plain::Relaxed) + 1;
        let arms = self.peer.arms.load(Plain::Relaxed);
        assert!(
            wakes <= arms,
            "woke a process that is awake or was woken already"
        );
        self.peer.bell.sleep_on().0.wake();
    }
}

type Model = RingPair<Arc<Ring>, CheckedDoorbells>;

fn sleep(ring_pair: &mut Model) {
    let watched = ring_pair.doorbells.own.clone();
    watched.arms.fetch_add(1, Plain::Relaxed);
    if ring_pair.arm(SleepMode::Futex) {
        let (futex, armed) = watched.bell.sleep_on();
        futex.wait(armed, None);
    }
    watched.bell.disarm();
    watched.bell.take();
}

fn ring_pairs(slots: usize) -> (Model, Model) {
    let (there, back) = (Ring::new(slots), Ring::new(slots));
    let (one, other) = (CheckedDoorbell::new(), CheckedDoorbell::new());
    let doorbells = |own: &Arc<CheckedDoorbell>, peer: &Arc<CheckedDoorbell>| CheckedDoorbells {
        own: own.clone(),
        peer: peer.clone(),
    };
    let first = RingPair::new(there.clone(), back.clone(), doorbells(&one, &other));
    let second = RingPair::new(back, there, doorbells(&other, &one));
    (first, second)
}

fn message(number: u64) -> Message {
    Message([number << 32, number])
}

/// Writes one message and publishes it at once. Returns whether there was room.
fn push(ring_pair: &mut Model, number: u64) -> bool {
    let has_room = ring_pair.tx.has_known_room() || ring_pair.has_room().expect("an honest peer");
    if has_room {
        ring_pair.stage(message(number));
        ring_pair.tx.publish();
    }
    has_room
}

/// Returns the number of the next message, if it is present.
fn pop(ring_pair: &mut Model) -> Option<u64> {
    if ring_pair.rx.has_message() {
        return Some(number(ring_pair.take()));
    }
    ring_pair.rx.check().expect("an honest peer");
    None
}

/// Writes one message, and waits for room first.
fn stage(tx: &mut Producer<Arc<Ring>>, number: u64) {
    while !tx.has_known_room() && !tx.has_room().expect("an honest peer") {
        thread::yield_now();
    }
    tx.stage(message(number));
}

/// Waits for the next message and returns its number.
fn take(rx: &mut Consumer<Arc<Ring>>) -> u64 {
    while !rx.has_message() {
        rx.check().expect("an honest peer");
        thread::yield_now();
    }
    number(rx.take())
}

fn number(message: Message) -> u64 {
    let Message(words) = message;
    assert_eq!(words[0] >> 32, words[1], "torn");
    words[1]
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Messages arrive whole, once and in order, also when the ring wraps around.
#[test]
fn messages_are_read_as_written() {
    check(3, || {
        let ring = Ring::new(2);
        let mut tx = Producer::new(ring.clone());
        let writer = thread::spawn(move || {
            for i in 1..=3 {
                stage(&mut tx, i);
                tx.publish();
            }
        });
        let mut rx = Consumer::new(ring);
        for i in 1..=3 {
            assert_eq!(take(&mut rx), i);
            rx.publish();
        }
        writer.join().expect("the writer does not panic");
    });
}

/// A reader that sees the first message of a batch sees the whole batch, also when the ring wraps around meanwhile.
#[test]
fn a_batch_is_seen_as_a_whole() {
    check(3, || {
        let ring = Ring::new(2);
        let mut tx = Producer::new(ring.clone());
        let writer = thread::spawn(move || {
            for i in [1, 3] {
                stage(&mut tx, i);
                stage(&mut tx, i + 1);
                tx.publish();
            }
        });
        let mut rx = Consumer::new(ring);
        for i in [1, 3] {
            assert_eq!(take(&mut rx), i);
            assert!(rx.has_message(), "only part of the batch is visible");
            assert_eq!(take(&mut rx), i + 1);
            rx.publish();
        }
        writer.join().expect("the writer does not panic");
    });
}

/// A reader that sleeps whenever the ring is empty gets every message. No wake-up is lost, and no process that is awake
/// is woken.
#[test]
fn a_sleeping_reader_is_woken() {
    check(3, || {
        let (mut writer, mut reader) = ring_pairs(4);
        let thread = thread::spawn(move || {
            for i in 1..=2 {
                assert!(push(&mut writer, i));
                writer.flush();
            }
        });
        for i in 1..=2 {
            let number = loop {
                if let Some(number) = pop(&mut reader) {
                    break number;
                }
                sleep(&mut reader);
            };
            assert_eq!(number, i);
        }
        thread.join().expect("the writer does not panic");
    });
}

/// A reader that never sleeps is never woken, and every notification is suppressed.
#[test]
fn a_polling_reader_is_not_notified() {
    check(3, || {
        let (mut writer, mut reader) = ring_pairs(4);
        let watched = reader.doorbells.own.clone();
        let thread = thread::spawn(move || {
            for i in 1..=3 {
                assert!(push(&mut writer, i));
                writer.flush();
            }
            assert_eq!((writer.notifications, writer.suppressed), (0, 3));
        });
        for i in 1..=3 {
            let number = loop {
                if let Some(number) = pop(&mut reader) {
                    break number;
                }
                thread::yield_now();
            };
            assert_eq!(number, i);
        }
        thread.join().expect("the writer does not panic");
        assert_eq!(watched.wakes.load(Plain::Relaxed), 0);
    });
}

/// A writer that sleeps while the ring is full and a reader that sleeps while it is empty both make progress.
#[test]
fn a_writer_without_room_is_woken() {
    check(2, || {
        let (mut writer, mut reader) = ring_pairs(1);
        let thread = thread::spawn(move || {
            for i in 1..=2 {
                while !push(&mut writer, i) {
                    sleep(&mut writer);
                }
            }
            writer.flush();
        });
        for i in 1..=2 {
            let number = loop {
                if let Some(number) = pop(&mut reader) {
                    break number;
                }
                sleep(&mut reader);
            };
            assert_eq!(number, i);
        }
        thread.join().expect("the writer does not panic");
    });
}

/// A call and its answer, with both sides asleep in between.
#[test]
fn calls_are_answered() {
    fn next(ring_pair: &mut Model) -> u64 {
        loop {
            if let Some(number) = pop(ring_pair) {
                return number;
            }
            sleep(ring_pair);
        }
    }
    check(2, || {
        let (mut client, mut server) = ring_pairs(2);
        let thread = thread::spawn(move || {
            let number = next(&mut server);
            assert!(push(&mut server, number));
            server.flush();
        });
        assert!(push(&mut client, 1));
        assert_eq!(next(&mut client), 1);
        thread.join().expect("the server does not panic");
    });
}
