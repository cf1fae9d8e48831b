//! The place of a flow: state that belongs to a stream ends with it.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;

use super::{Bridge, FakeSocket};
use crate::{
    ConnectionId, ConnectionKey, FlowEntry, FlowId, FlowRequest, Leg, StreamId, StreamKey,
};

fn on(connection: usize) -> StreamKey {
    StreamKey {
        connection: ConnectionKey(connection),
        stream: StreamId::from_number(0).expect("a bidirectional stream"),
    }
}

/// Returns a flow whose request was sent on the first connection.
fn opened() -> FlowEntry<FakeSocket> {
    let request = FlowRequest {
        token: String::new(),
        client_app: String::new(),
        source: None,
    };
    let socket = FakeSocket(Bridge::new().app.clone());
    let mut entry = FlowEntry::waiting(FlowId(1), socket, request, Instant::now());
    assert!(entry.open_on(on(0), Bytes::new(), false));
    entry
}

fn leg() -> Leg {
    Leg {
        connection: ConnectionId(1),
        stream_id: 0,
        remote: SocketAddr::from(([192, 0, 2, 1], 7500)),
        client: None,
    }
}

#[test]
fn a_flow_that_starts_again_is_in_no_queue_and_not_held() {
    let mut entry = opened();
    assert!(entry.enqueue() && !entry.enqueue());
    entry.set_paused_by_peer(true);
    entry.note_credit(0, true, 7);
    assert!(entry.is_paused_by_peer() && entry.blocked() == Some(7));
    assert_eq!(entry.reopen(), Some(on(0)));
    assert!(entry.stream_key().is_none() && !entry.enqueue());
    assert!(entry.open_on(on(1), Bytes::new(), false));
    assert!(!entry.is_paused_by_peer() && entry.blocked().is_none() && entry.enqueue());
}

#[test]
fn a_lost_flow_knows_whether_its_move_was_answered() {
    let (mut moving, mut moved, now) = (opened(), opened(), Instant::now());
    for entry in [&mut moving, &mut moved] {
        assert!(entry.attach(on(1)).is_none());
        entry.begin_moving();
        assert!(entry.is_moving() && entry.has_unread_move());
    }
    assert!(moved.end_moving().is_some() && moved.end_moving().is_none());
    for entry in [&mut moving, &mut moved] {
        entry.begin_salvage(now, leg());
        assert!(entry.salvage().is_some() && entry.stream_key().is_none() && !entry.is_moving());
    }
    assert!(moving.has_unread_move() && !moved.has_unread_move());
}
