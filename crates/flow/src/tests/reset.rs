//! Resets and stops, by the application and by the peer.

use bytes::Bytes;
use quictun_wire::code::FlowCode;

use super::{Bridge, FakeStream};
use crate::{Ending, Inlet, ToAppStop, ToTunnelStop};

// PROTOCOL CLOSE-3.
#[test]
fn a_reset_of_an_application_that_sent_nothing_cuts_both_directions_at_once() {
    for found_by in ["read", "write", "event", "finish"] {
        let mut bridge = Bridge::new();
        bridge.app.borrow_mut().broken = true;
        match found_by {
            "read" => assert_eq!(bridge.pump_out(10), ToTunnelStop::Starved),
            "write" => assert_eq!(bridge.arrives(0, b"answer"), ToAppStop::Ended),
            "finish" => assert_eq!(bridge.fin_arrives(0), ToAppStop::Ended),
            _ => bridge.flow.handle_socket_failed(),
        }
        bridge.pump_out(10);
        // Even a peer that has not answered yet: it gives up its dial.
        bridge.flow.poll_reset(&mut bridge.stream, false, true);
        assert_eq!(bridge.flow.ending(), Some(Ending::AppReset), "{found_by}");
        assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
        assert_eq!(bridge.stream.stop_sent, Some(FlowCode::AppReset));
        assert!(!bridge.stream.fin_sent);
    }
}

// PROTOCOL CLOSE-3.
#[test]
fn what_an_application_sent_before_its_reset_is_sent_and_confirmed_before_the_reset() {
    for found_by in ["read", "write", "event"] {
        let mut bridge = Bridge::new();
        bridge.flow.retain();
        bridge.app_sends(b"first");
        bridge.stream.credit = 3;
        assert_eq!(bridge.pump_out(1000), ToTunnelStop::Blocked);
        bridge.app_sends(b" and second");
        bridge.app.borrow_mut().broken = true;
        match found_by {
            "read" => {}
            "write" => assert_eq!(bridge.arrives(0, b"answer"), ToAppStop::Ended),
            _ => bridge.flow.handle_socket_failed(),
        }
        bridge.stream.credit = 100;
        assert_eq!(bridge.pump_out(1000), ToTunnelStop::Starved);
        assert_eq!(bridge.stream.sent, b"first and second", "{found_by}");
        for next in [0, 7, 15] {
            assert_eq!(bridge.flow.handle_seen(next), Ok(()));
            bridge.poll_reset(true);
            assert_eq!(bridge.stream.stop_sent, Some(FlowCode::AppReset));
            assert_eq!(
                (bridge.stream.reset_sent, bridge.flow.ending()),
                (None, None)
            );
        }
        assert!(bridge.flow.can_move(), "the rest may need another stream");
        assert_eq!(bridge.flow.handle_seen(16), Ok(()));
        bridge.poll_reset(true);
        assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
        assert!(!bridge.stream.fin_sent);
        assert_eq!(bridge.flow.ending(), Some(Ending::AppReset));
    }
}

#[test]
fn a_peer_that_has_not_answered_is_neither_stopped_nor_reset_if_there_are_bytes_for_it() {
    let mut bridge = Bridge::new();
    bridge.flow.send_first(Bytes::from_static(b"request"));
    bridge.app_sends(b"bytes");
    bridge.flow.handle_socket_failed();
    bridge.app.borrow_mut().broken = true;
    bridge.poll_reset(false);
    bridge.pump_out(1000);
    bridge.poll_reset(false);
    assert_eq!(bridge.stream.sent, b"requestbytes");
    assert_eq!(
        (bridge.stream.stop_sent, bridge.stream.reset_sent),
        (None, None)
    );
    bridge.poll_reset(true);
    assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
}

#[test]
fn a_reset_of_a_half_closed_application_leaves_its_fin_alone() {
    let mut bridge = Bridge::new();
    bridge.app_sends(b"");
    bridge.pump_out(10);
    bridge.app.borrow_mut().broken = true;
    assert_eq!(bridge.arrives(0, b"answer"), ToAppStop::Ended);
    bridge.poll_reset(true);
    assert!(bridge.stream.fin_sent && bridge.stream.reset_sent.is_none());
    assert_eq!(bridge.stream.stop_sent, Some(FlowCode::AppReset));
    assert_eq!(bridge.flow.ending(), Some(Ending::AppReset));
}

// PROTOCOL CLOSE-4.
#[test]
fn a_received_reset_follows_the_bytes_before_it_and_is_never_a_fin() {
    for gap in [false, true] {
        let mut bridge = Bridge::new();
        bridge.app.borrow_mut().room = 3;
        assert_eq!(bridge.arrives(0, b"all there is"), ToAppStop::AppBlocked);
        if gap {
            bridge.arrives(20, b"late");
        }
        assert_eq!(
            bridge.reset_arrives(FlowCode::AppReset),
            ToAppStop::AppBlocked
        );
        assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
        assert!(!bridge.app.borrow().aborted && bridge.flow.lost().is_some());
        bridge.app.borrow_mut().unsent = true;
        assert_eq!(bridge.has_room(100), ToAppStop::Ended);
        assert_eq!(bridge.app.borrow().received, b"all there is");
        assert!(
            !bridge.app.borrow().aborted,
            "its system has not got everything"
        );
        bridge.app.borrow_mut().unsent = false;
        bridge.flow.poll_parting(false);
        assert!(bridge.app.borrow().aborted && !bridge.app.borrow().finished);
        let how = Ending::PeerReset(Some(FlowCode::AppReset));
        assert_eq!(bridge.flow.ending(), Some(how));
    }
}

#[test]
fn a_received_reset_without_bytes_before_it_aborts_at_once() {
    let mut bridge = Bridge::new();
    bridge.arrives(0, b"read");
    assert_eq!(bridge.reset_arrives(FlowCode::AppReset), ToAppStop::Ended);
    assert!(bridge.app.borrow().aborted && !bridge.app.borrow().finished);
    assert_eq!(bridge.flow.arrived().buffered(), 0);
}

// PROTOCOL BOND-8.
#[test]
fn a_stopped_flow_sends_only_its_header_on_the_next_stream_and_resets_it_when_stopped_again() {
    let mut bridge = Bridge::new();
    bridge.flow.retain();
    bridge.app_sends(b"sent");
    bridge.pump_out(10);
    bridge.flow.handle_stopped(&mut bridge.stream, 1);
    bridge.arrives(0, b"some");
    assert!(bridge.flow.can_move());
    bridge.flow.detach(&mut bridge.stream);
    bridge.stream = FakeStream {
        credit: 100,
        ..FakeStream::default()
    };
    bridge.flow.attach(Bytes::from_static(b"MOVE"));
    bridge.app_sends(b"in vain");
    bridge.pump_out(100);
    // The peer has taken less than what was sent before the stop.
    assert_eq!(bridge.flow.resume(1, Inlet::new()), Ok(()));
    assert_eq!(bridge.pump_out(100), ToTunnelStop::Starved);
    assert_eq!(
        (&bridge.stream.sent[..], bridge.stream.reset_sent),
        (&b"MOVE"[..], None)
    );
    bridge.flow.handle_stopped(&mut bridge.stream, 1);
    assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
    bridge.arrives(0, b" more");
    assert_eq!(bridge.app.borrow().received, b"some more");
}

// PROTOCOL BOND-8: the peer lacks the last bytes of a flow that has finished here.
#[test]
fn a_finished_flow_that_is_stopped_on_the_next_stream_gives_up_its_last_bytes() {
    for stopped_by in ["event", "write"] {
        let mut bridge = Bridge::new();
        bridge.flow.retain();
        bridge.app_sends(b"sent");
        bridge.app_sends(b"");
        bridge.fin_arrives(0);
        bridge.pump_out(10);
        assert_eq!(bridge.flow.ending(), Some(Ending::Finished));
        bridge.flow.detach(&mut bridge.stream);
        bridge.stream = FakeStream {
            credit: 4,
            stopped: (stopped_by == "write").then_some(1),
            ..FakeStream::default()
        };
        bridge.flow.attach(Bytes::from_static(b"MOVE"));
        if stopped_by == "event" {
            bridge.pump_out(10);
        }
        assert_eq!(bridge.flow.resume(1, Inlet::new()), Ok(()));
        if stopped_by == "event" {
            bridge.flow.handle_stopped(&mut bridge.stream, 1);
        }
        assert_eq!(bridge.pump_out(10), ToTunnelStop::Ended);
        assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
    }
}

// PROTOCOL CLOSE-5.
#[test]
fn a_stopped_application_is_no_longer_read_and_is_reset_once_the_reverse_ends() {
    let mut bridge = Bridge::new();
    bridge
        .flow
        .handle_stopped(&mut bridge.stream, FlowCode::AppReset.to_u64());
    assert_eq!(bridge.stream.reset_sent, Some(FlowCode::AppReset));
    bridge.app_sends(b"in vain");
    assert_eq!(bridge.pump_out(10), ToTunnelStop::Ended);
    assert_eq!(bridge.app.borrow().sends.len(), 1, "read despite the stop");
    assert_eq!(bridge.arrives(0, b"answer"), ToAppStop::Starved);
    assert!(!bridge.app.borrow().aborted && bridge.flow.ending().is_none());
    assert_eq!(bridge.fin_arrives(6), ToAppStop::Ended);
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
            assert_eq!(bridge.pump_out(10), ToTunnelStop::Ended);
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
