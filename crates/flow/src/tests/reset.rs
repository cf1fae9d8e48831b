//! Resets and stops, by the application and by the peer.

use quictun_wire::code::FlowCode;

use super::Bridge;
use crate::{Ending, ToAppStop, ToTunnelStop};

#[test]
fn a_reset_of_the_application_cuts_both_directions() {
    for found_by in ["read", "write", "event", "finish"] {
        let mut bridge = Bridge::new();
        bridge.app.borrow_mut().broken = true;
        match found_by {
            "read" => assert_eq!(bridge.pump_out(10), ToTunnelStop::Ended),
            "write" => assert_eq!(bridge.arrives(0, b"answer"), ToAppStop::Ended),
            "finish" => assert_eq!(bridge.fin_arrives(0), ToAppStop::Ended),
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
    assert_eq!(bridge.arrives(0, b"answer"), ToAppStop::Ended);
    assert!(bridge.stream.fin_sent && bridge.stream.reset_sent.is_none());
    assert_eq!(bridge.stream.stop_sent, Some(FlowCode::AppReset));
}

// PROTOCOL CLOSE-4.
#[test]
fn a_received_reset_aborts_the_application_and_is_never_a_fin() {
    let mut bridge = Bridge::new();
    bridge.arrives(0, b"all there is");
    assert_eq!(bridge.reset_arrives(FlowCode::AppReset), ToAppStop::Ended);
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
    assert_eq!(bridge.arrives(0, b"unread"), ToAppStop::AppBlocked);
    assert_eq!(bridge.reset_arrives(FlowCode::AppReset), ToAppStop::Ended);
    assert!(bridge.app.borrow().aborted);
    assert_eq!(bridge.flow.arrived().buffered(), 0);
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
