//! A flow between a socket and a stream that do exactly what a test says.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::rc::Rc;

use bytes::{Buf, Bytes};
use proptest::prelude::*;
use quictun_wire::code::FlowCode;

use crate::{
    Drained, Ending, Flow, HEAD_LEN, Inlet, LostStream, Pumped, ReadBuffer, ReadEnd, Socket,
    Stream, WriteEnd,
};

/// The application's side.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
struct App {
    /// What it sends; an empty piece is its FIN.
    sends: VecDeque<Vec<u8>>,
    received: Vec<u8>,
    /// How many bytes it takes before it blocks.
    room: usize,
    /// Most bytes it takes in one call.
    call_max: usize,
    finished: bool,
    aborted: bool,
    closed: bool,
    broken: bool,
    /// Its system has not yet received all that was written.
    unsent: bool,
}

#[derive(Clone, Debug)]
struct FakeSocket(Rc<RefCell<App>>);

impl Socket for FakeSocket {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let mut app = self.0.borrow_mut();
        if app.broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let Some(piece) = app.sends.front_mut() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let count = piece.len().min(into.capacity() - into.len());
        into.extend(piece.drain(..count));
        if piece.is_empty() && count > 0 {
            app.sends.pop_front();
        }
        Ok(count)
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut app = self.0.borrow_mut();
        if app.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let most = app.room.min(app.call_max);
        let bytes = chunks.iter().flat_map(|chunk| chunk.iter().copied());
        let before = app.received.len();
        app.received.extend(bytes.take(most));
        let written = app.received.len() - before;
        app.room -= written;
        if written == 0 {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(written)
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut app = self.0.borrow_mut();
        if app.broken {
            return Err(io::ErrorKind::NotConnected.into());
        }
        app.finished = true;
        Ok(())
    }

    fn is_sent(&self) -> bool {
        !self.0.borrow().unsent
    }

    fn abort(&mut self) {
        self.0.borrow_mut().aborted = true;
    }

    fn close(&mut self) {
        self.0.borrow_mut().closed = true;
    }
}

/// The tunnel's side.
#[derive(Debug, Default)]
struct FakeStream {
    sent: Vec<u8>,
    credit: usize,
    fin_sent: bool,
    reset_sent: Option<FlowCode>,
    stop_sent: Option<FlowCode>,
    stopped: Option<u64>,
    /// Chunks that have arrived and were not read, by offset.
    arrived: BTreeMap<u64, Bytes>,
    read: u64,
    unordered: bool,
    fin_at: Option<u64>,
    reset: Option<u64>,
    reads: usize,
}

impl Stream for FakeStream {
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd {
        assert!(
            !self.fin_sent && self.reset_sent.is_none(),
            "nothing is written after the end"
        );
        if let Some(code) = self.stopped {
            return WriteEnd::Stopped(code);
        }
        if self.credit == 0 {
            return WriteEnd::Blocked;
        }
        let count = chunk.len().min(self.credit);
        self.credit -= count;
        self.sent.extend_from_slice(&chunk.split_to(count));
        if chunk.is_empty() {
            WriteEnd::Taken
        } else {
            WriteEnd::Blocked
        }
    }

    fn finish(&mut self) {
        assert!(self.reset_sent.is_none() && !self.fin_sent);
        self.fin_sent = true;
    }

    fn reset(&mut self, code: FlowCode) {
        assert!(self.reset_sent.is_none());
        self.reset_sent = Some(code);
    }

    fn read(&mut self, ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        assert!(
            !(ordered && self.unordered),
            "an ordered read after an unordered one"
        );
        self.unordered |= !ordered;
        self.reads += 1;
        if let Some(code) = self.reset {
            return ReadEnd::Reset(code);
        }
        let mut left = max;
        loop {
            if left == 0 {
                return ReadEnd::More;
            }
            let next = self.arrived.first_entry();
            let Some(entry) = next.filter(|entry| !ordered || *entry.key() == self.read) else {
                let end = self.fin_at == Some(self.read) && self.arrived.is_empty();
                return if end {
                    ReadEnd::Finished
                } else {
                    ReadEnd::Blocked
                };
            };
            let (offset, mut chunk) = entry.remove_entry();
            let part = chunk.split_to(chunk.len().min(left));
            if chunk.has_remaining() {
                self.arrived.insert(offset + part.len() as u64, chunk);
            }
            left -= part.len();
            self.read += part.len() as u64;
            sink(offset, part);
        }
    }

    fn stop(&mut self, code: FlowCode) {
        assert!(self.stop_sent.is_none());
        self.stop_sent = Some(code);
    }
}

/// A flow with its two ends.
struct Bridge {
    flow: Flow<FakeSocket>,
    app: Rc<RefCell<App>>,
    stream: FakeStream,
    buffer: ReadBuffer,
}

impl Bridge {
    fn new() -> Self {
        let app = App {
            room: usize::MAX,
            call_max: usize::MAX,
            ..App::default()
        };
        let app = Rc::new(RefCell::new(app));
        Self {
            flow: Flow::new(FakeSocket(app.clone()), Inlet::new()),
            app,
            stream: FakeStream {
                credit: usize::MAX,
                ..FakeStream::default()
            },
            buffer: ReadBuffer::default(),
        }
    }

    fn app_sends(&mut self, bytes: &[u8]) {
        self.app.borrow_mut().sends.push_back(bytes.to_vec());
        self.flow.handle_socket_ready(true, false);
    }

    fn pump_out(&mut self, budget: usize) -> Pumped {
        let mut left = budget;
        self.flow
            .pump_to_tunnel(&mut self.stream, &mut self.buffer, &mut left)
    }

    fn arrives(&mut self, offset: u64, bytes: &[u8]) -> Drained {
        self.stream
            .arrived
            .insert(offset, Bytes::copy_from_slice(bytes));
        self.flow.inlet().handle_readable(1500);
        self.pump_in()
    }

    fn fin_arrives(&mut self, at: u64) -> Drained {
        self.stream.fin_at = Some(at);
        self.flow.inlet().handle_readable(1500);
        self.pump_in()
    }

    fn reset_arrives(&mut self, code: FlowCode) -> Drained {
        self.stream.reset = Some(code.to_u64());
        self.flow.inlet().handle_readable(1500);
        self.pump_in()
    }

    fn lose(&mut self) {
        self.flow
            .handle_connection_lost(&mut self.stream, FlowCode::ConnectionLost);
    }

    fn pump_in(&mut self) -> Drained {
        self.flow.pump_to_app(&mut self.stream)
    }

    fn has_room(&mut self, room: usize) -> Drained {
        self.app.borrow_mut().room = room;
        self.flow.handle_socket_ready(false, true);
        self.pump_in()
    }
}

fn text(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at * 31 % 251).expect("below 251"))
        .collect()
}

// PROTOCOL CLOSE-1.
#[test]
fn the_fin_of_an_application_finishes_the_stream_and_nothing_else() {
    let mut bridge = Bridge::new();
    bridge.app_sends(b"question");
    bridge.app_sends(b"");
    assert_eq!(bridge.pump_out(1000), Pumped::Ended);
    assert_eq!(bridge.stream.sent, b"question");
    assert!(bridge.stream.fin_sent && bridge.stream.stop_sent.is_none());
    assert_eq!(bridge.flow.ending(), None);
    assert_eq!(bridge.arrives(0, b"answer"), Drained::Starved);
    assert_eq!(bridge.app.borrow().received, b"answer");
    assert_eq!(bridge.fin_arrives(6), Drained::Ended);
    assert_eq!(bridge.flow.ending(), Some(Ending::Finished));
    assert!(!bridge.app.borrow().aborted);
}

// PROTOCOL CLOSE-2.
#[test]
fn a_received_fin_is_passed_on_after_the_last_byte_and_reading_goes_on() {
    let mut bridge = Bridge::new();
    bridge.app.borrow_mut().room = 3;
    bridge.stream.fin_at = Some(6);
    assert_eq!(bridge.arrives(0, b"answer"), Drained::AppBlocked);
    assert!(!bridge.app.borrow().finished, "bytes are still to come");
    assert_eq!(bridge.has_room(100), Drained::Ended);
    assert_eq!(bridge.app.borrow().received, b"answer");
    assert!(bridge.app.borrow().finished && bridge.flow.ending().is_none());
    bridge.app_sends(b"more");
    assert_eq!(bridge.pump_out(1000), Pumped::Starved);
    assert_eq!(bridge.stream.sent, b"more");
}

// PROTOCOL CLOSE-11: a drop is a reset unless both directions have finished, whichever of them did so last.
#[test]
fn a_socket_is_closed_in_order_once_both_directions_have_finished() {
    for order in [["application", "peer"], ["peer", "application"]] {
        let mut bridge = Bridge::new();
        for (who, over) in order.into_iter().zip([false, true]) {
            if who == "peer" {
                bridge.fin_arrives(0);
            } else {
                bridge.app_sends(b"");
                bridge.pump_out(10);
            }
            assert_eq!(bridge.app.borrow().closed, over, "{order:?}: {who}");
        }
    }
}

#[test]
fn a_socket_whose_flow_was_cut_is_never_closed_in_order() {
    let cuts: [fn(&mut Bridge); 5] = [
        |bridge| bridge.lose(),
        |bridge| bridge.flow.abandon(&mut bridge.stream, FlowCode::Limit),
        |bridge| bridge.flow.handle_socket_error(&mut bridge.stream),
        |bridge| {
            bridge.reset_arrives(FlowCode::AppReset);
        },
        |bridge| bridge.flow.handle_stopped(&mut bridge.stream, 77),
    ];
    for (number, cut) in cuts.into_iter().enumerate() {
        let mut bridge = Bridge::new();
        bridge.app_sends(b"");
        bridge.pump_out(10);
        cut(&mut bridge);
        bridge.fin_arrives(0);
        assert!(bridge.flow.ending().is_some(), "cut {number}");
        assert!(!bridge.app.borrow().closed, "cut {number}");
    }
}

#[test]
fn a_reset_of_the_application_cuts_both_directions() {
    for found_by in ["read", "write", "event", "finish"] {
        let mut bridge = Bridge::new();
        bridge.app.borrow_mut().broken = true;
        match found_by {
            "read" => assert_eq!(bridge.pump_out(10), Pumped::Ended),
            "write" => assert_eq!(bridge.arrives(0, b"answer"), Drained::Ended),
            "finish" => assert_eq!(bridge.fin_arrives(0), Drained::Ended),
            _ => bridge.flow.handle_socket_error(&mut bridge.stream),
        }
        assert_eq!(bridge.flow.ending(), Some(Ending::AppReset), "{found_by}");
        assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
        assert_eq!(bridge.stream.stop_sent, Some(FlowCode::AppReset));
        assert!(!bridge.stream.fin_sent);
    }
}

#[test]
fn a_reset_of_a_half_closed_application_leaves_its_fin_alone() {
    let mut bridge = Bridge::new();
    bridge.app_sends(b"");
    bridge.pump_out(10);
    bridge.app.borrow_mut().broken = true;
    assert_eq!(bridge.arrives(0, b"answer"), Drained::Ended);
    assert!(bridge.stream.fin_sent && bridge.stream.reset_sent.is_none());
    assert_eq!(bridge.stream.stop_sent, Some(FlowCode::AppReset));
}

// PROTOCOL CLOSE-4.
#[test]
fn a_received_reset_aborts_the_application_and_is_never_a_fin() {
    let mut bridge = Bridge::new();
    bridge.arrives(0, b"all there is");
    assert_eq!(bridge.reset_arrives(FlowCode::AppReset), Drained::Ended);
    assert!(bridge.app.borrow().aborted && !bridge.app.borrow().finished);
    assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
    assert_eq!(
        bridge.flow.ending(),
        Some(Ending::PeerReset(Some(FlowCode::AppReset)))
    );
}

#[test]
fn a_received_reset_reaches_an_application_that_does_not_read() {
    let mut bridge = Bridge::new();
    bridge.app.borrow_mut().room = 0;
    assert_eq!(bridge.arrives(0, b"unread"), Drained::AppBlocked);
    assert_eq!(bridge.reset_arrives(FlowCode::AppReset), Drained::Ended);
    assert!(bridge.app.borrow().aborted);
    assert_eq!(bridge.flow.arrived().buffered(), 0);
}

// PROTOCOL CLOSE-5.
#[test]
fn a_stopped_application_is_read_no_more_and_reset_once_the_reverse_ends() {
    let mut bridge = Bridge::new();
    bridge
        .flow
        .handle_stopped(&mut bridge.stream, FlowCode::AppReset.to_u64());
    assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
    bridge.app_sends(b"in vain");
    assert_eq!(bridge.pump_out(10), Pumped::Ended);
    assert_eq!(bridge.app.borrow().sends.len(), 1, "it is not read");
    assert_eq!(bridge.arrives(0, b"answer"), Drained::Starved);
    assert!(!bridge.app.borrow().aborted && bridge.flow.ending().is_none());
    assert_eq!(bridge.fin_arrives(6), Drained::Ended);
    assert_eq!(bridge.app.borrow().received, b"answer");
    assert!(bridge.app.borrow().aborted && !bridge.app.borrow().finished);
    assert!(matches!(bridge.flow.ending(), Some(Ending::PeerReset(_))));
}

// PROTOCOL CLOSE-5, CODE-1.
#[test]
fn a_stop_after_the_reverse_has_ended_resets_at_once() {
    for told_by in ["event", "write"] {
        let mut bridge = Bridge::new();
        bridge.fin_arrives(0);
        bridge.app_sends(b"question");
        if told_by == "event" {
            bridge.flow.handle_stopped(&mut bridge.stream, 77);
        } else {
            bridge.stream.stopped = Some(77);
            assert_eq!(bridge.pump_out(10), Pumped::Ended);
        }
        assert!(bridge.app.borrow().aborted);
        assert_eq!(
            bridge.stream.reset_sent,
            Some(FlowCode::AppReset),
            "an unknown code is still a reset"
        );
        assert_eq!(bridge.flow.ending(), Some(Ending::PeerReset(None)));
    }
}

#[test]
fn a_lost_connection_aborts_the_application_and_touches_no_stream() {
    let mut bridge = Bridge::new();
    bridge.app.borrow_mut().room = 0;
    bridge.arrives(0, b"unread");
    bridge.lose();
    assert!(bridge.app.borrow().aborted && !bridge.app.borrow().finished);
    assert_eq!(
        bridge.flow.ending(),
        Some(Ending::Abandoned(FlowCode::ConnectionLost))
    );
    assert_eq!(
        (bridge.stream.reset_sent, bridge.stream.stop_sent),
        (None, None)
    );
}

// PROTOCOL CLOSE-12.
#[test]
fn what_has_arrived_whole_is_delivered_whole_after_the_connection_is_lost() {
    for finished in [false, true] {
        let mut bridge = Bridge::new();
        bridge.app.borrow_mut().room = 3;
        if finished {
            bridge.app_sends(b"");
            bridge.pump_out(10);
        }
        bridge.arrives(0, b"all ");
        bridge.arrives(4, b"of it");
        bridge.stream.fin_at = Some(9);
        bridge.lose();
        assert_eq!(bridge.flow.ending(), None);
        bridge.app.borrow_mut().room = 100;
        bridge.app.borrow_mut().unsent = true;
        bridge.flow.handle_socket_ready(true, true);
        assert_eq!(bridge.flow.pump_to_app(&mut LostStream), Drained::Ended);
        assert_eq!(bridge.app.borrow().received, b"all of it");
        assert!(bridge.app.borrow().finished && !bridge.app.borrow().aborted);
        // Both ends are with the application: nothing is cut. Otherwise it is reset, but only once a reset
        // cannot take anything back.
        assert_eq!(bridge.flow.is_parting(), !finished);
        if !finished {
            bridge.flow.poll_parting();
            assert!(!bridge.app.borrow().aborted && bridge.flow.ending().is_none());
            bridge.app.borrow_mut().unsent = false;
            bridge.flow.poll_parting();
        }
        assert_eq!(bridge.app.borrow().aborted, !finished);
        let ending = bridge.flow.ending();
        let cut = Ending::Abandoned(FlowCode::ConnectionLost);
        assert_eq!(ending, Some(if finished { Ending::Finished } else { cut }));
    }
}

// PROTOCOL CLOSE-12: whole means every byte up to the FIN.
#[test]
fn where_a_byte_is_missing_a_lost_connection_is_a_reset() {
    let arrivals: [&dyn Fn(&mut Bridge); 3] = [
        &|bridge| bridge.stream.fin_at = Some(9),
        &|bridge| {
            bridge.arrives(5, b"late");
            bridge.stream.fin_at = Some(9);
        },
        &|bridge| bridge.stream.reset = Some(1),
    ];
    for arrive in arrivals {
        let mut bridge = Bridge::new();
        bridge.app.borrow_mut().room = 0;
        bridge.arrives(0, b"all");
        arrive(&mut bridge);
        bridge.lose();
        assert!(bridge.app.borrow().aborted && !bridge.app.borrow().finished);
        assert!(matches!(bridge.flow.ending(), Some(Ending::Abandoned(_))));
    }
}

// PROTOCOL CLOSE-5, CLOSE-12.
#[test]
fn an_abort_waits_until_the_socket_has_sent_what_it_holds() {
    let mut bridge = Bridge::new();
    bridge.arrives(0, b"answer");
    bridge.fin_arrives(6);
    bridge.app.borrow_mut().unsent = true;
    bridge.flow.handle_stopped(&mut bridge.stream, 1);
    assert!(bridge.flow.is_parting() && !bridge.app.borrow().aborted);
    bridge.lose();
    assert!(bridge.flow.is_parting() && !bridge.app.borrow().aborted);
    bridge.app.borrow_mut().unsent = false;
    bridge.flow.poll_parting();
    assert!(bridge.app.borrow().aborted && bridge.flow.ending().is_some());
}

#[test]
fn an_abandoned_flow_says_why_on_both_directions_once() {
    let mut bridge = Bridge::new();
    bridge.flow.abandon(&mut bridge.stream, FlowCode::Limit);
    bridge.flow.abandon(&mut bridge.stream, FlowCode::Internal);
    bridge.flow.handle_socket_error(&mut bridge.stream);
    assert_eq!(bridge.stream.reset_sent, Some(FlowCode::Limit));
    assert_eq!(bridge.stream.stop_sent, Some(FlowCode::Limit));
    assert!(bridge.app.borrow().aborted);
    assert_eq!(
        bridge.flow.ending(),
        Some(Ending::Abandoned(FlowCode::Limit))
    );
}

#[test]
fn the_header_is_taken_off_the_front_and_what_follows_is_the_applications() {
    let mut bridge = Bridge::new();
    for (offset, bytes) in [(0, &b"HEA"[..]), (3, b"DERso"), (12, b"end")] {
        let bytes = Bytes::copy_from_slice(bytes);
        bridge.stream.arrived.insert(offset, bytes);
    }
    let inlet = bridge.flow.inlet();
    assert_eq!(inlet.take_in(&mut bridge.stream, 100), ReadEnd::Blocked);
    assert_eq!(
        (inlet.header(4), inlet.header(100)),
        (b"HEAD".to_vec(), b"HEADERso".to_vec())
    );
    inlet.skip_header(6);
    assert_eq!(bridge.arrives(8, b" far"), Drained::Starved);
    assert_eq!(bridge.app.borrow().received, b"so farend");
    assert_eq!(bridge.flow.end_taken(), None);
    bridge.fin_arrives(15);
    // Nine bytes and the FIN are the application's.
    assert_eq!(bridge.flow.end_taken(), Some(10));
    let reads = bridge.stream.reads;
    bridge.pump_in();
    assert_eq!(
        bridge.stream.reads, reads,
        "the stream is gone once its FIN was read"
    );
}

#[test]
fn what_is_kept_for_sending_counts_until_its_last_part_is_gone() {
    let mut bridge = Bridge::new();
    bridge.app_sends(&text(20_000));
    let mut buffer = ReadBuffer::default();
    let mut chunk = buffer
        .read_from(&mut FakeSocket(bridge.app.clone()), usize::MAX)
        .expect("there is something");
    assert!(
        (65_536..70_000).contains(&buffer.kept()),
        "the whole allocation"
    );
    let part = chunk.split_to(10);
    drop(chunk);
    assert!(buffer.kept() > 65_536);
    drop(part);
    assert_eq!(buffer.kept(), 0);
}

// PROTOCOL MEMORY-1.
#[test]
fn where_memory_is_scarce_nothing_is_read_that_the_peer_gives_no_credit_for() {
    let mut bridge = Bridge::new();
    bridge.buffer.set_max(Some(4096));
    bridge.app_sends(&text(20_000));
    bridge.stream.credit = 0;
    assert_eq!(bridge.pump_out(65_536), Pumped::Blocked);
    assert_eq!(bridge.buffer.kept(), 0, "it stays with the application");
    bridge.stream.credit = 1;
    assert_eq!(bridge.pump_out(65_536), Pumped::Blocked);
    assert!((1..4500).contains(&bridge.buffer.kept()));
    bridge.stream.credit = usize::MAX;
    bridge.buffer.set_max(None);
    assert_eq!(bridge.pump_out(65_536), Pumped::Starved);
    assert_eq!(bridge.stream.sent, text(20_000));
}

#[test]
fn what_flow_control_does_not_take_goes_later_and_the_budget_holds() {
    let mut bridge = Bridge::new();
    let bytes = text(100_000);
    bridge.flow.send_first(Bytes::from_static(b"prefix"));
    bridge.app_sends(&bytes);
    bridge.app_sends(b"");
    bridge.stream.credit = 4;
    assert_eq!(bridge.pump_out(1000), Pumped::Blocked);
    assert_eq!(
        (bridge.flow.prefix_left(), bridge.flow.bytes_to_tunnel()),
        (2, 0)
    );
    bridge.stream.credit = 40_000;
    assert_eq!(bridge.pump_out(2), Pumped::Budget);
    assert_eq!(
        (bridge.flow.prefix_left(), bridge.flow.bytes_to_tunnel()),
        (0, 0)
    );
    assert_eq!(bridge.pump_out(1000), Pumped::Budget);
    assert_eq!(bridge.flow.bytes_to_tunnel(), 1000);
    assert_eq!(bridge.pump_out(usize::MAX), Pumped::Blocked);
    bridge.stream.credit = usize::MAX;
    assert_eq!(bridge.pump_out(usize::MAX), Pumped::Ended);
    assert_eq!(bridge.stream.sent, [b"prefix", bytes.as_slice()].concat());
    assert!(bridge.stream.fin_sent);
}

#[test]
fn a_flow_is_untouched_until_a_byte_of_the_application_is_read() {
    let mut bridge = Bridge::new();
    bridge.flow.send_first(Bytes::from_static(b"prefix"));
    bridge.app_sends(b"bytes");
    for (credit, untouched) in [(2, true), (4, false)] {
        bridge.stream.credit = credit;
        assert_eq!(bridge.pump_out(1000), Pumped::Blocked);
        assert_eq!(bridge.flow.bytes_to_tunnel(), 0);
        assert_eq!(bridge.flow.is_untouched(), untouched);
    }
}

#[test]
fn an_application_that_takes_little_at_a_time_gets_every_byte_once() {
    let bytes = text(20_000);
    let mut bridge = Bridge::new();
    bridge.app.borrow_mut().call_max = 7;
    for (index, piece) in bytes.chunks(1000).enumerate() {
        bridge.has_room(300);
        bridge.arrives(index as u64 * 1000, piece);
    }
    bridge.fin_arrives(20_000);
    while bridge.flow.bytes_to_app() < 20_000 {
        bridge.has_room(999);
    }
    assert!(bridge.app.borrow().received == bytes);
    assert_eq!(
        (bridge.flow.bytes_to_app(), bridge.flow.arrived().buffered()),
        (20_000, 0)
    );
}

#[test]
fn of_a_blocked_application_nothing_is_left_in_the_library() {
    let mut bridge = Bridge::new();
    bridge.has_room(0);
    for index in (0..700).rev() {
        bridge.arrives(index * 100, &[1; 100]);
        assert!(bridge.stream.arrived.is_empty());
    }
    assert_eq!(bridge.flow.arrived().buffered(), 70_000);
    assert!(bridge.flow.arrived().held() > 70_000, "pieces count");
    bridge.fin_arrives(70_000);
    bridge.has_room(usize::MAX);
    assert_eq!(bridge.app.borrow().received.len(), 70_000);
    assert!(bridge.app.borrow().finished);
    assert_eq!(bridge.flow.arrived().held(), 0);
}

#[test]
fn what_is_held_counts_with_what_keeping_it_costs() {
    let mut bridge = Bridge::new();
    for index in 0..1000 {
        bridge.arrives(1 + 2 * index, b"x");
    }
    assert_eq!(bridge.flow.arrived().buffered(), 1000);
    // A piece of one byte takes a place in a tree and an allocation.
    assert!(
        bridge.flow.arrived().held() > 100_000,
        "{}",
        bridge.flow.arrived().held()
    );
    assert!(
        !bridge.flow.is_parked(),
        "it does not wait for the application"
    );
}

// A small piece of a large packet does not keep the packet.
#[test]
fn pieces_that_have_to_wait_are_copied_where_they_are_small() {
    for (waits, length, packet_max, copied) in [
        ("behind a gap", 1023, 1500, true),
        ("behind a gap", 59_000, 60_000, true),
        ("for the application", 1023, 1500, true),
        ("for the application", 1024, 1500, false),
        ("for the application", 29_999, 60_000, true),
    ] {
        let mut bridge = Bridge::new();
        let packet = Bytes::from(vec![7; 60_000]);
        let offset = u64::from(waits == "behind a gap");
        bridge.app.borrow_mut().room = 0;
        bridge.stream.arrived.insert(offset, packet.slice(..length));
        bridge.flow.inlet().handle_readable(packet_max);
        bridge.pump_in();
        assert_eq!(bridge.flow.arrived().buffered(), length);
        assert_eq!(
            packet.is_unique(),
            copied,
            "{waits}: {length} of {packet_max}"
        );
    }
}

#[test]
fn heads_are_the_first_bytes_of_each_direction_and_no_more() {
    let mut bridge = Bridge::new();
    assert!(bridge.flow.heads().is_none());
    bridge.flow.keep_heads();
    bridge.flow.send_first(Bytes::from_static(b"prefix"));
    let bytes = text(3000);
    for (index, piece) in bytes.chunks(700).enumerate() {
        bridge.app_sends(piece);
        bridge.pump_out(usize::MAX);
        bridge.app.borrow_mut().call_max = 333;
        bridge.arrives(index as u64 * 700, piece);
    }
    let heads = bridge.flow.heads().expect("asked for");
    assert!(heads.from_app == bytes[..HEAD_LEN] && heads.to_app == bytes[..HEAD_LEN]);
}

proptest! {
    /// Whatever arrives in whatever order, however the application reads: the bytes come out once, in
    /// order, and the FIN after them.
    #[test]
    fn any_arrival_and_any_reader_yield_the_stream(
        order in proptest::collection::vec((0usize..40, 0usize..3000), 40..120),
        call_max in 1usize..2000,
    ) {
        let bytes = text(40 * 500);
        let mut bridge = Bridge::new();
        bridge.app.borrow_mut().call_max = call_max;
        let mut seen = std::collections::BTreeSet::new();
        for (piece, room) in order.into_iter().chain((0..40).map(|piece| (piece, 1000))) {
            bridge.has_room(room);
            if seen.insert(piece) {
                bridge.arrives(piece as u64 * 500, &bytes[piece * 500..][..500]);
            }
        }
        bridge.fin_arrives(bytes.len() as u64);
        for _ in 0..2000 {
            bridge.has_room(5000);
        }
        prop_assert!(bridge.app.borrow().received == bytes);
        prop_assert!(bridge.app.borrow().finished);
    }
}
