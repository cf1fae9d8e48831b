//! Data from the stream to the application.

use bytes::Bytes;
use proptest::prelude::*;

use super::{Bridge, text};
use crate::{ReadEnd, ToAppStop};

#[test]
fn the_header_is_removed_and_the_application_gets_the_rest() {
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
    assert_eq!(bridge.arrives(8, b" far"), ToAppStop::Starved);
    assert_eq!(bridge.app.borrow().received, b"so farend");
    assert_eq!(bridge.flow.arrived().end(), None);
    bridge.fin_arrives(15);
    // Nine bytes and the FIN belong to the application.
    assert_eq!(bridge.flow.arrived().end(), Some(10));
    let reads = bridge.stream.reads;
    bridge.pump_in();
    assert_eq!(
        bridge.stream.reads, reads,
        "the stream is gone once its FIN was read"
    );
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
fn no_data_of_a_blocked_application_stays_in_the_library() {
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
fn held_data_counts_with_its_overhead() {
    let mut bridge = Bridge::new();
    for index in 0..1000 {
        bridge.arrives(1 + 2 * index, b"x");
    }
    assert_eq!(bridge.flow.arrived().buffered(), 1000);
    // A piece of one byte takes a tree node and an allocation.
    assert!(
        bridge.flow.arrived().held() > 100_000,
        "{}",
        bridge.flow.arrived().held()
    );
    assert!(
        !bridge.flow.is_parked(),
        "the bytes wait for a gap, not for the application"
    );
}

// A small piece of a large packet does not keep the packet in memory.
#[test]
fn small_pieces_that_wait_are_copied() {
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

proptest! {
    /// The bytes come out once and in order, and the FIN after them, whatever the order of arrival and however the
    /// application reads.
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
