//! A flow that moves from one stream to the next, checked against a model. Each application receives the other's bytes
//! once and in order, then the end, whatever is lost with a stream and in whatever order the rest arrives.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use proptest::prelude::*;

use super::{FakeApp, FakeSocket, FakeStream, text};
use crate::{Ending, Flow, Inlet, NoStream, ReadBuffer, ResumeError};

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Length of MOVE and of `MOVE_ACK` in this test.
const HEADER: usize = 3;

/// An event at one of the two ends. The first `usize`, or `at`, names the end: 0 or 1.
#[derive(Clone, Debug)]
enum TestEvent {
    /// The application sends this many bytes.
    Sends(usize, usize),
    /// The application ends its direction.
    Ends(usize),
    /// The application has room for this many more bytes.
    HasRoom(usize, usize),
    /// The peer's flow control allows this many more bytes.
    Credit(usize, usize),
    /// The flow hands at most this many bytes to its stream.
    PumpsOut(usize, usize),
    /// This many bytes arrive. With `late`, later bytes overtake them.
    Arrives { at: usize, count: usize, late: bool },
    /// The end tells the other end what it has received.
    Tells(usize),
    /// The end learns that its stream is gone.
    Loses(usize),
    /// The client asks to continue on another stream.
    Moves,
    /// The end drops what it keeps for the other end.
    Forgets(usize),
    /// Another process takes the flow of this end over, if the flow is on no stream.
    HandsOver(usize),
}

fn event() -> impl Strategy<Value = TestEvent> {
    let end = 0..2usize;
    let count = prop_oneof![0..10usize, 0..300usize, Just(100_000)];
    prop_oneof![
        4 => (end.clone(), 1..400usize).prop_map(|(at, count)| TestEvent::Sends(at, count)),
        1 => end.clone().prop_map(TestEvent::Ends),
        2 => (end.clone(), count.clone()).prop_map(|(at, count)| TestEvent::HasRoom(at, count)),
        3 => (end.clone(), count.clone()).prop_map(|(at, count)| TestEvent::Credit(at, count)),
        5 => (end.clone(), count.clone()).prop_map(|(at, count)| TestEvent::PumpsOut(at, count)),
        8 => (end.clone(), count, any::<bool>())
            .prop_map(|(at, count, late)| TestEvent::Arrives { at, count, late }),
        3 => end.clone().prop_map(TestEvent::Tells),
        2 => end.clone().prop_map(TestEvent::Loses),
        2 => end.clone().prop_map(TestEvent::HandsOver),
        2 => Just(TestEvent::Moves),
    ]
}

fn rare_event() -> impl Strategy<Value = TestEvent> {
    prop_oneof![20 => event(), 1 => (0..2usize).prop_map(TestEvent::Forgets)]
}

/// One end of the flow.
struct TestEnd {
    flow: Flow<FakeSocket>,
    app: Rc<RefCell<FakeApp>>,
    buffer: ReadBuffer,
    /// Number of bytes that the application has sent; `ended` says whether it has ended its direction.
    sends: usize,
    ended: bool,
    /// The leg that carries the flow.
    on: Option<usize>,
    /// The inlet of a leg whose header has not arrived. At the client it is always the current leg.
    early: Option<Inlet>,
    /// The last number that was confirmed to the other end.
    told: u64,
    forgot: bool,
}

impl TestEnd {
    /// Replaces the flow by one that another process would make of its state.
    fn hand_over(&mut self) {
        let state = self.flow.hand_over().filter(|_| self.on.is_none());
        if let Some((sent, received)) = state {
            let socket = FakeSocket(self.app.clone());
            self.flow = Flow::take_over(socket, &sent, &received, &self.buffer);
        }
    }
}

/// A stream, seen from both ends.
struct Leg {
    streams: [FakeStream; 2],
    /// Number of bytes that have left the other end's stream, and the late ones among them; both by the end at which
    /// they arrive.
    passed: [usize; 2],
    late: [Option<(u64, Bytes)>; 2],
    /// The numbers that MOVE and `MOVE_ACK` name.
    asks: u64,
    answers: u64,
}

struct MovingFlow {
    ends: [TestEnd; 2],
    legs: Vec<Leg>,
    /// The last leg on which the server was.
    served: usize,
    /// A move was refused, which ended the flow.
    refused: bool,
}

impl TestEnd {
    fn new() -> Self {
        let app = FakeApp {
            room: 500,
            call_max: usize::MAX,
            ..FakeApp::default()
        };
        let app = Rc::new(RefCell::new(app));
        let mut flow = Flow::new(FakeSocket(app.clone()), Inlet::new());
        flow.retain();
        Self {
            flow,
            app,
            buffer: ReadBuffer::default(),
            sends: 0,
            ended: false,
            on: Some(0),
            early: None,
            told: 0,
            forgot: false,
        }
    }
}

impl Leg {
    fn new() -> Self {
        let stream = || FakeStream {
            credit: 200,
            ..FakeStream::default()
        };
        Self {
            streams: [stream(), stream()],
            passed: [0; 2],
            late: [None, None],
            asks: 0,
            answers: 0,
        }
    }

    /// Lets `count` bytes arrive at an end, and the FIN after the last one.
    fn pass(&mut self, at: usize, count: usize, late: bool) {
        let from = &self.streams[1 - at];
        let start = self.passed[at];
        let end = from.sent.len().min(start.saturating_add(count));
        let chunk = Bytes::copy_from_slice(&from.sent[start..end]);
        let last = from.fin_sent && end == from.sent.len();
        self.passed[at] = end;
        let mut arrived = Vec::new();
        if late && !chunk.is_empty() && self.late[at].is_none() {
            self.late[at] = Some((start as u64, chunk));
        } else {
            arrived.push((start as u64, chunk));
            if !late {
                arrived.extend(self.late[at].take());
            }
        }
        let to = &mut self.streams[at];
        for (offset, chunk) in arrived {
            if !chunk.is_empty() {
                to.arrived.insert(offset, chunk);
            }
        }
        if last {
            to.fin_at = Some(end as u64);
        }
    }
}

impl MovingFlow {
    fn new() -> Self {
        Self {
            ends: [TestEnd::new(), TestEnd::new()],
            legs: vec![Leg::new()],
            served: 0,
            refused: false,
        }
    }

    fn take(&mut self, event: &TestEvent) {
        match *event {
            TestEvent::Sends(at, count) => {
                let end = &mut self.ends[at];
                if !end.ended {
                    let bytes = text(end.sends + count).split_off(end.sends);
                    end.sends += count;
                    end.app.borrow_mut().sends.push_back(bytes);
                    end.flow.handle_socket_ready(true, false);
                }
            }
            TestEvent::Ends(at) => {
                let end = &mut self.ends[at];
                if !std::mem::replace(&mut end.ended, true) {
                    end.app.borrow_mut().sends.push_back(Vec::new());
                    end.flow.handle_socket_ready(true, false);
                }
            }
            TestEvent::HasRoom(at, count) => {
                self.ends[at].app.borrow_mut().room += count;
                self.ends[at].flow.handle_socket_ready(false, true);
                self.pump_in(at);
            }
            TestEvent::Credit(at, count) => {
                if let Some(on) = self.ends[at].on {
                    self.legs[on].streams[at].credit += count;
                }
            }
            TestEvent::PumpsOut(at, count) => self.pump_out(at, count),
            TestEvent::Arrives { at, count, late } => self.arrives(at, count, late),
            TestEvent::Tells(at) => self.tells(at),
            TestEvent::Loses(at) => self.loses(at),
            TestEvent::Moves => self.moves(),
            TestEvent::Forgets(at) => {
                self.ends[at].flow.forget_retained();
                self.ends[at].forgot = true;
            }
            TestEvent::HandsOver(at) => self.ends[at].hand_over(),
        }
    }

    fn pump_out(&mut self, at: usize, mut budget: usize) {
        let end = &mut self.ends[at];
        if let Some(on) = end.on {
            let stream = &mut self.legs[on].streams[at];
            end.flow
                .pump_to_tunnel(stream, &mut end.buffer, &mut budget);
        }
    }

    fn pump_in(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let moving = at == CLIENT && end.early.is_some();
        match end.on.filter(|_| !moving) {
            Some(on) => end.flow.pump_to_app(&mut self.legs[on].streams[at]),
            None => end.flow.pump_to_app(&mut NoStream),
        };
    }

    fn arrives(&mut self, at: usize, count: usize, late: bool) {
        let newest = self.legs.len() - 1;
        if at == CLIENT {
            let Some(on) = self.ends[at].on else { return };
            self.legs[on].pass(at, count, late);
            if self.ends[at].early.is_some() {
                return self.read_answer(on);
            }
            self.ends[at].flow.inlet().handle_readable(1500);
            self.pump_in(at);
        } else if self.ends[at].on == Some(newest) {
            self.legs[newest].pass(at, count, late);
            self.ends[at].flow.inlet().handle_readable(1500);
            self.pump_in(at);
        } else if let Some(old) = self.ends[at].on.filter(|_| count.is_multiple_of(2)) {
            // The server does not know yet that the client has left.
            self.legs[old].pass(at, count, late);
            self.ends[at].flow.inlet().handle_readable(1500);
            self.pump_in(at);
        } else if newest > self.served {
            // The client's newest stream begins with MOVE.
            self.legs[newest].pass(at, count, late);
            self.read_move(newest);
        }
    }

    fn loses(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let Some(on) = end.on.take() else { return };
        // Without the answer, the offsets of these bytes are not known.
        if at == CLIENT && end.early.take().is_some() {
            end.flow.detach(&mut NoStream);
        } else {
            end.flow.detach(&mut self.legs[on].streams[at]);
        }
        self.pump_in(at);
    }

    fn moves(&mut self) {
        self.loses(CLIENT);
        let client = &mut self.ends[CLIENT];
        if self.refused || !client.flow.can_move() {
            return;
        }
        let mut leg = Leg::new();
        leg.asks = client.flow.next();
        client.flow.attach(Bytes::from(vec![b'M'; HEADER]));
        client.early = Some(Inlet::new());
        client.on = Some(self.legs.len());
        self.legs.push(leg);
        self.ends[SERVER].early = None;
    }

    /// Takes what has arrived on a leg. Returns the inlet once the header is complete.
    fn read_header(&mut self, at: usize, on: usize) -> Option<Inlet> {
        let early = self.ends[at].early.get_or_insert_default();
        early.handle_readable(1500);
        early.take_in(&mut self.legs[on].streams[at], usize::MAX);
        if early.ready() < HEADER {
            return None;
        }
        let mut inlet = self.ends[at].early.take()?;
        let expected = if at == SERVER { b'M' } else { b'A' };
        assert_eq!(inlet.header(HEADER), [expected; HEADER]);
        inlet.skip_header(HEADER);
        Some(inlet)
    }

    fn read_move(&mut self, on: usize) {
        let Some(inlet) = self.read_header(SERVER, on) else {
            return;
        };
        self.served = on;
        // The fence: from now on, nothing from the old stream counts.
        if let Some(old) = self.ends[SERVER].on.take() {
            let stream = &mut self.legs[old].streams[SERVER];
            self.ends[SERVER].flow.detach(stream);
        }
        let server = &mut self.ends[SERVER];
        let leg = &mut self.legs[on];
        leg.answers = server.flow.next();
        match server.flow.resume(leg.asks, inlet) {
            Ok(()) => {}
            Err(bad) => {
                assert!(bad == ResumeError::TooOld && server.forgot, "{bad:?}");
                return self.refused = true;
            }
        }
        server.flow.attach(Bytes::from(vec![b'A'; HEADER]));
        server.on = Some(on);
        self.ends[CLIENT].told = leg.asks;
        self.pump_in(SERVER);
    }

    fn read_answer(&mut self, on: usize) {
        let Some(inlet) = self.read_header(CLIENT, on) else {
            return;
        };
        let client = &mut self.ends[CLIENT];
        match client.flow.resume(self.legs[on].answers, inlet) {
            Ok(()) => {
                self.ends[SERVER].told = self.legs[on].answers;
                self.pump_in(CLIENT);
            }
            Err(bad) => {
                assert!(bad == ResumeError::TooOld && client.forgot, "{bad:?}");
                self.refused = true;
            }
        }
    }

    /// Delivers a SEEN. It arrives only if the same connection carries both ends.
    fn tells(&mut self, at: usize) {
        let together = self.ends[CLIENT].on == self.ends[SERVER].on;
        let moving = self.ends.iter().any(|end| end.early.is_some());
        if together && self.ends[CLIENT].on.is_some() && !moving {
            let next = self.ends[at].flow.next();
            self.ends[at].told = next;
            let seen = self.ends[1 - at].flow.handle_seen(next);
            assert_eq!(seen, Ok(()));
        }
    }

    /// Checks what must hold at any moment.
    fn check(&self) {
        for at in [CLIENT, SERVER] {
            let (here, there) = (&self.ends[at], &self.ends[1 - at]);
            let app = here.app.borrow();
            let count = app.received.len();
            assert!(count <= there.sends, "more than was sent");
            assert_eq!(app.received, text(there.sends)[..count]);
            assert!(!app.finished || there.ended && count == there.sends);
            assert!(!app.aborted, "the application was reset");
            let next = here.flow.next();
            assert!(next <= there.flow.sent());
            assert!(here.told <= next);
            let kept = there.flow.check_next(next);
            assert!(
                kept == Ok(()) || there.forgot && kept == Err(ResumeError::TooOld),
                "{kept:?}"
            );
            // Nothing is kept that the other end has confirmed, and nothing that was not sent.
            let least = u64::try_from(there.sends).expect("invariant: a test sends few bytes");
            assert!(there.flow.retained() <= least.saturating_sub(here.told));
            let ended = matches!(here.flow.ending(), None | Some(Ending::Finished));
            assert!(ended, "{:?}", here.flow.ending());
        }
    }

    /// Gives both ends room and lets everything arrive. Lost data is sent again on another stream.
    fn settle(&mut self) {
        self.take(&TestEvent::Ends(CLIENT));
        self.take(&TestEvent::Ends(SERVER));
        self.moves();
        for _ in 0..40 {
            for at in [CLIENT, SERVER] {
                for event in [
                    TestEvent::HasRoom(at, 100_000),
                    TestEvent::Credit(at, 100_000),
                    TestEvent::PumpsOut(at, 100_000),
                    TestEvent::Arrives {
                        at: 1 - at,
                        count: 100_001,
                        late: false,
                    },
                ] {
                    self.take(&event);
                    if self.refused {
                        return;
                    }
                    self.check();
                }
            }
        }
        self.tells(CLIENT);
        self.tells(SERVER);
    }

    fn check_done(&self) {
        for at in [CLIENT, SERVER] {
            let (here, there) = (&self.ends[at], &self.ends[1 - at]);
            let app = here.app.borrow();
            assert_eq!(app.received.len(), there.sends, "bytes are missing");
            assert!(app.finished);
            assert_eq!(here.flow.ending(), Some(Ending::Finished));
            assert_eq!(here.flow.retained(), 0);
            assert_eq!(here.flow.bytes_to_tunnel(), here.sends as u64);
            assert_eq!(here.flow.bytes_to_app(), there.sends as u64);
            assert_eq!(here.flow.next(), there.sends as u64 + 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// As long as neither end has dropped kept bytes, the flow continues after any sequence of events.
    #[test]
    fn a_flow_loses_nothing_on_its_way_over_many_streams(
        events in proptest::collection::vec(event(), 1..120),
    ) {
        let mut bridge = MovingFlow::new();
        for event in &events {
            bridge.take(event);
            bridge.check();
        }
        bridge.settle();
        prop_assert!(!bridge.refused);
        bridge.check_done();
    }

    /// If data was dropped that the other end lacks, the move is refused. Nothing is skipped.
    #[test]
    fn a_flow_that_has_dropped_too_much_is_refused_and_skips_nothing(
        events in proptest::collection::vec(rare_event(), 1..120),
    ) {
        let mut bridge = MovingFlow::new();
        for event in &events {
            if bridge.refused {
                break;
            }
            bridge.take(event);
            bridge.check();
        }
        if !bridge.refused {
            bridge.settle();
        }
        if !bridge.refused {
            bridge.check_done();
        }
    }
}
