//! Random use of both sides, against a model of every stream.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    Open,
    /// Streams are chosen by a number, modulo their count.
    Write(usize, usize),
    Finish(usize),
    Reset(usize, u64),
    Stop(usize, u64),
    Read(usize, usize),
    Prefer(usize, bool),
    /// Writes a record into a slot of this length.
    Transmit(usize),
    /// Delivers this many bytes in pieces of this length.
    Deliver(usize, usize),
    SetWindow(u64),
    SetKept(u64),
    GrantStreams(u32),
    Ping,
}

/// An operation and the side that performs it.
fn operations() -> impl Strategy<Value = Vec<(usize, Operation)>> {
    let pick = 0..8_usize;
    let code = 0..100_u64;
    let operation = prop_oneof![
        2 => Just(Operation::Open),
        6 => (pick.clone(), 0..3000_usize).prop_map(|(stream, len)| Operation::Write(stream, len)),
        1 => pick.clone().prop_map(Operation::Finish),
        1 => (pick.clone(), code.clone()).prop_map(|(stream, code)| Operation::Reset(stream, code)),
        1 => (pick.clone(), code).prop_map(|(stream, code)| Operation::Stop(stream, code)),
        4 => (pick.clone(), 1..2000_usize).prop_map(|(stream, max)| Operation::Read(stream, max)),
        1 => (pick, any::<bool>()).prop_map(|(stream, yes)| Operation::Prefer(stream, yes)),
        6 => (512..3000_usize).prop_map(Operation::Transmit),
        6 => (1..4000_usize, 1..2000_usize).prop_map(|(bytes, piece)| Operation::Deliver(bytes, piece)),
        1 => (1..6000_u64).prop_map(Operation::SetWindow),
        1 => (1..4000_u64).prop_map(Operation::SetKept),
        1 => (1..6_u32).prop_map(Operation::GrantStreams),
        1 => Just(Operation::Ping),
    ];
    proptest::collection::vec((0..2_usize, operation), 0..150)
}

/// One direction of a stream.
#[derive(Debug, Default)]
struct Direction {
    written: u64,
    finished: bool,
    /// The code of a reset.
    reset: Option<u64>,
    stopped: bool,
    blocked: bool,
    read: u64,
    end: Option<ReadEnd>,
}

struct World {
    now: Instant,
    sides: [Mux; 2],
    /// Bytes on their way to each side.
    pipes: [VecDeque<u8>; 2],
    /// The streams that each side knows, in order.
    known: [Vec<StreamId>; 2],
    /// The directions by stream and sending side.
    directions: BTreeMap<(StreamId, usize), Direction>,
    pongs: usize,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let config = Config {
            window: 4000,
            stream_window: 1500,
            streams: 3,
            kept: 2500,
            ..Config::default()
        };
        Self {
            now,
            sides: [
                Mux::new(Side::Client, config),
                Mux::new(Side::Server, config),
            ],
            pipes: Default::default(),
            known: Default::default(),
            directions: BTreeMap::new(),
            pongs: 0,
        }
    }

    fn pick(&self, side: usize, stream: usize) -> Option<StreamId> {
        let known = &self.known[side];
        known.get(stream.checked_rem(known.len())?).copied()
    }

    fn add(&mut self, side: usize, id: StreamId) {
        self.known[side].push(id);
        self.directions.entry((id, 0)).or_default();
        self.directions.entry((id, 1)).or_default();
    }

    fn apply(&mut self, side: usize, operation: &Operation) {
        let mux = &mut self.sides[side];
        match *operation {
            Operation::Open => {
                if let Some(id) = mux.open() {
                    self.add(side, id);
                }
            }
            Operation::Write(stream, len) => self.write(side, stream, len),
            Operation::Finish(stream) => self.finish(side, stream),
            Operation::Reset(stream, code) => {
                if let Some(id) = self.pick(side, stream) {
                    self.sides[side].reset(id, code);
                    let direction = self.directions.get_mut(&(id, side)).expect("known");
                    direction.reset.get_or_insert(code);
                }
            }
            Operation::Stop(stream, code) => {
                if let Some(id) = self.pick(side, stream) {
                    self.sides[side].stop(id, code);
                    self.directions
                        .get_mut(&(id, 1 - side))
                        .expect("known")
                        .stopped = true;
                }
            }
            Operation::Read(stream, max) => {
                if let Some(id) = self.pick(side, stream) {
                    self.read(side, id, max);
                }
            }
            Operation::Prefer(stream, preferred) => {
                if let Some(id) = self.pick(side, stream) {
                    self.sides[side].prefer(id, preferred);
                }
            }
            Operation::Transmit(slot) => {
                self.transmit(side, slot);
            }
            Operation::Deliver(bytes, piece) => self.deliver(side, bytes, piece),
            Operation::SetWindow(bytes) => mux.set_window(bytes),
            Operation::SetKept(bytes) => mux.set_kept(bytes),
            Operation::GrantStreams(limit) => mux.grant_streams(limit),
            Operation::Ping => mux.ping(),
        }
    }

    fn write(&mut self, side: usize, stream: usize, len: usize) {
        let Some(id) = self.pick(side, stream) else {
            return;
        };
        let direction = self.directions.get_mut(&(id, side)).expect("known");
        let start = direction.written;
        let data: Vec<u8> = (start..start + len as u64)
            .map(|at| byte(id, side, at))
            .collect();
        let mut chunk = Bytes::from(data);
        let end = self.sides[side].write(id, &mut chunk);
        direction.written += (len - chunk.len()) as u64;
        direction.blocked = end == WriteEnd::Blocked;
        match end {
            WriteEnd::Taken => assert!(chunk.is_empty()),
            WriteEnd::Blocked => {}
            WriteEnd::Stopped(_) => assert!(direction.stopped),
            WriteEnd::Gone => assert!(direction.finished || direction.reset.is_some()),
        }
    }

    fn finish(&mut self, side: usize, stream: usize) {
        if let Some(id) = self.pick(side, stream) {
            self.sides[side].finish(id);
            let direction = self.directions.get_mut(&(id, side)).expect("known");
            direction.finished |= direction.reset.is_none();
        }
    }

    fn read(&mut self, side: usize, id: StreamId, max: usize) -> bool {
        let sender = 1 - side;
        let direction = self.directions.get_mut(&(id, sender)).expect("known");
        let before = direction.read;
        let end = self.sides[side].read(id, max, &mut |offset, piece| {
            assert_eq!(offset, direction.read);
            for value in piece {
                assert_eq!(value, byte(id, sender, direction.read));
                direction.read += 1;
            }
        });
        assert!(direction.read <= direction.written);
        match end {
            ReadEnd::Gone => assert!(direction.stopped || direction.end.is_some()),
            ReadEnd::Finished | ReadEnd::Reset(_) => {
                assert_eq!(direction.end.replace(end), None);
            }
            ReadEnd::More | ReadEnd::Blocked => assert_eq!(direction.end, None),
        }
        direction.read > before
    }

    fn transmit(&mut self, side: usize, slot: usize) -> bool {
        let mut slot = vec![0; slot];
        let length = self.sides[side].poll_transmit(self.now, &mut slot);
        self.pipes[1 - side].extend(&slot[..length]);
        length > 0
    }

    fn deliver(&mut self, side: usize, bytes: usize, piece: usize) {
        let pipe = &mut self.pipes[side];
        let bytes: Vec<u8> = pipe.drain(..bytes.min(pipe.len())).collect();
        for piece in bytes.chunks(piece) {
            self.sides[side].handle_bytes(self.now, Bytes::copy_from_slice(piece));
        }
        self.handle_events(side);
    }

    fn handle_events(&mut self, side: usize) {
        while let Some(event) = self.sides[side].poll_event() {
            match event {
                Event::Opened => {
                    while let Some(id) = self.sides[side].accept() {
                        self.add(side, id);
                    }
                }
                Event::Writable(id) => {
                    let direction = self.directions.get_mut(&(id, side)).expect("known");
                    assert!(std::mem::take(&mut direction.blocked), "it was blocked");
                }
                Event::Stopped(id, _) => {
                    assert!(self.directions[&(id, side)].stopped);
                    self.sides[side].reset(id, 77);
                    let direction = self.directions.get_mut(&(id, side)).expect("known");
                    direction.reset.get_or_insert(77);
                }
                Event::Pong(_) => self.pongs += 1,
                Event::Lost(error) => panic!("{error}"),
                Event::Connected | Event::Available | Event::Readable(_) | Event::Datagram(_) => {}
            }
        }
    }

    /// Carries and reads everything, and finishes all streams.
    fn settle(&mut self) {
        self.carry();
        self.assert_none_is_blocked();
        // The other side learns of some streams by their end only.
        for _ in 0..2 {
            for side in 0..2 {
                for stream in 0..self.known[side].len() {
                    self.finish(side, stream);
                }
            }
            self.carry();
        }
    }

    /// Carries and reads until nothing moves.
    fn carry(&mut self) {
        let mut progress = true;
        while std::mem::take(&mut progress) {
            for side in 0..2 {
                progress |= self.transmit(side, RECORD_MAX) | !self.pipes[side].is_empty();
                self.deliver(side, usize::MAX, 5000);
                for id in self.known[side].clone() {
                    progress |= self.read(side, id, usize::MAX);
                }
            }
        }
    }

    /// Checks that each blocked writer was told that it can write.
    fn assert_none_is_blocked(&self) {
        for ((id, side), direction) in &self.directions {
            let open = !direction.finished && !direction.stopped && direction.reset.is_none();
            assert!(
                !(open && direction.blocked),
                "{id:?} of side {side} is blocked"
            );
        }
    }

    fn assert_all_arrived(&self) {
        for ((id, side), direction) in &self.directions {
            if !self.known[1 - side].contains(id) || direction.stopped {
                // The peer's limit of streams keeps it away, or nothing is to arrive.
                continue;
            }
            let all = direction.read == direction.written;
            match (direction.end, direction.reset) {
                (Some(ReadEnd::Finished), _) => assert!(all && direction.finished),
                (Some(ReadEnd::Reset(code)), Some(expected)) => assert_eq!(code, expected),
                other => panic!("{id:?} of side {side}: {other:?}, {direction:?}"),
            }
        }
        for mux in &self.sides {
            assert!(!mux.is_closed() && mux.is_idle());
            assert_eq!(
                (mux.queued(), mux.peer_streams(), mux.unsettled_streams()),
                (0, 0, 0)
            );
        }
    }
}

fn byte(id: StreamId, side: usize, at: u64) -> u8 {
    let number = id.number() * 31 + side as u64 * 7 + at * 13 + at / 251;
    number.to_le_bytes()[0]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_stream_ends_as_its_sender_has_ended_it(operations in operations()) {
        let mut world = World::new();
        for side in 0..2 {
            world.transmit(side, RECORD_MAX);
            world.deliver(1 - side, usize::MAX, 5000);
        }
        for (side, operation) in operations {
            world.apply(side, &operation);
        }
        world.settle();
        world.assert_all_arrived();
        for mux in &mut world.sides {
            let granted = mux.granted();
            mux.set_window(granted * 2 + 10);
        }
        world.settle();
        let [client, server] = &world.sides;
        prop_assert!(client.granted() > 10 && server.granted() > 10);
    }
}
