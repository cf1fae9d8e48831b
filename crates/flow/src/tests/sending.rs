//! Data from the application to the stream.

use std::sync::Arc;

use bytes::Bytes;

use super::{Bridge, FakeSocket, text};
use crate::{HEAD_LEN, ReadBuffer, ToTunnelStop};

#[test]
fn data_kept_for_sending_counts_until_its_last_part_is_gone() {
    let mut bridge = Bridge::new();
    bridge.app_sends(&text(20_000));
    let mut buffer = ReadBuffer::default();
    let mut chunk = buffer
        .read_from(
            &mut FakeSocket(bridge.app.clone()),
            usize::MAX,
            &Arc::default(),
        )
        .expect("invariant: the application has sent bytes");
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
fn if_memory_is_scarce_no_data_is_read_beyond_the_peers_credit() {
    let mut bridge = Bridge::new();
    bridge.buffer.set_max(Some(4096));
    bridge.app_sends(&text(20_000));
    bridge.stream.credit = 0;
    assert_eq!(bridge.pump_out(65_536), ToTunnelStop::Blocked);
    assert_eq!(bridge.buffer.kept(), 0, "the application keeps the bytes");
    bridge.stream.credit = 1;
    assert_eq!(bridge.pump_out(65_536), ToTunnelStop::Blocked);
    assert!((1..4500).contains(&bridge.buffer.kept()));
    bridge.stream.credit = usize::MAX;
    bridge.buffer.set_max(None);
    assert_eq!(bridge.pump_out(65_536), ToTunnelStop::Starved);
    assert_eq!(bridge.stream.sent, text(20_000));
}

#[test]
fn bytes_beyond_flow_control_go_later_and_the_budget_holds() {
    let mut bridge = Bridge::new();
    let bytes = text(100_000);
    bridge.flow.send_first(Bytes::from_static(b"prefix"));
    bridge.app_sends(&bytes);
    bridge.app_sends(b"");
    bridge.stream.credit = 4;
    assert_eq!(bridge.pump_out(1000), ToTunnelStop::Blocked);
    assert_eq!(
        (bridge.flow.prefix_left(), bridge.flow.bytes_to_tunnel()),
        (2, 0)
    );
    bridge.stream.credit = 40_000;
    assert_eq!(bridge.pump_out(2), ToTunnelStop::Budget);
    assert_eq!(
        (bridge.flow.prefix_left(), bridge.flow.bytes_to_tunnel()),
        (0, 0)
    );
    assert_eq!(bridge.pump_out(1000), ToTunnelStop::Budget);
    assert_eq!(bridge.flow.bytes_to_tunnel(), 1000);
    assert_eq!(bridge.pump_out(usize::MAX), ToTunnelStop::Blocked);
    bridge.stream.credit = usize::MAX;
    assert_eq!(bridge.pump_out(usize::MAX), ToTunnelStop::Ended);
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
        assert_eq!(bridge.pump_out(1000), ToTunnelStop::Blocked);
        assert_eq!(bridge.flow.bytes_to_tunnel(), 0);
        assert_eq!(bridge.flow.is_untouched(), untouched);
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
    let heads = bridge.flow.heads().expect("keep_heads was called");
    assert!(heads.from_app == bytes[..HEAD_LEN] && heads.to_app == bytes[..HEAD_LEN]);
}

#[test]
fn a_drained_socket_is_read_again_only_after_it_was_ready() {
    let mut bridge = Bridge::new();
    bridge.app.borrow_mut().tells = true;
    bridge.app_sends(b"one");
    assert_eq!(bridge.pump_out(1000), ToTunnelStop::Starved);
    assert_eq!(bridge.app.borrow().reads, 1, "no read that would block");
    bridge.app.borrow_mut().sends.push_back(b"two".to_vec());
    assert_eq!(bridge.pump_out(1000), ToTunnelStop::Starved);
    assert_eq!(bridge.app.borrow().reads, 1, "the socket was not ready");
    bridge.app_sends(b"");
    assert_eq!(bridge.pump_out(1000), ToTunnelStop::Ended);
    assert_eq!(bridge.stream.sent, b"onetwo");
    assert!(bridge.stream.fin_sent);
}

#[test]
fn a_fin_behind_the_last_bytes_is_read_at_once() {
    let mut bridge = Bridge::new();
    bridge.app.borrow_mut().tells = true;
    bridge.app_sends(b"last");
    bridge.app_sends(b"");
    assert_eq!(bridge.pump_out(1000), ToTunnelStop::Ended);
    assert_eq!(bridge.stream.sent, b"last");
    assert!(bridge.stream.fin_sent);
}
