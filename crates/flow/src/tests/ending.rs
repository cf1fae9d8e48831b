//! FINs, and flows that are abandoned.

use quictun_wire::code::FlowCode;

use super::Bridge;
use crate::{Ending, ToAppStop, ToTunnelStop};

// PROTOCOL CLOSE-1.
#[test]
fn the_fin_of_an_application_finishes_the_stream_and_nothing_else() {
    let mut bridge = Bridge::new();
    bridge.app_sends(b"question");
    bridge.app_sends(b"");
    assert_eq!(bridge.pump_out(1000), ToTunnelStop::Ended);
    assert_eq!(bridge.stream.sent, b"question");
    assert!(bridge.stream.fin_sent && bridge.stream.stop_sent.is_none());
    assert_eq!(bridge.flow.ending(), None);
    assert_eq!(bridge.arrives(0, b"answer"), ToAppStop::Starved);
    assert_eq!(bridge.app.borrow().received, b"answer");
    assert_eq!(bridge.fin_arrives(6), ToAppStop::Ended);
    assert_eq!(bridge.flow.ending(), Some(Ending::Finished));
    assert!(!bridge.app.borrow().aborted);
}

// PROTOCOL CLOSE-2.
#[test]
fn a_received_fin_is_passed_on_after_the_last_byte_and_reading_goes_on() {
    let mut bridge = Bridge::new();
    bridge.app.borrow_mut().room = 3;
    bridge.stream.fin_at = Some(6);
    assert_eq!(bridge.arrives(0, b"answer"), ToAppStop::AppBlocked);
    assert!(!bridge.app.borrow().finished, "bytes are still to come");
    assert_eq!(bridge.has_room(100), ToAppStop::Ended);
    assert_eq!(bridge.app.borrow().received, b"answer");
    assert!(bridge.app.borrow().finished && bridge.flow.ending().is_none());
    bridge.app_sends(b"more");
    assert_eq!(bridge.pump_out(1000), ToTunnelStop::Starved);
    assert_eq!(bridge.stream.sent, b"more");
}

// PROTOCOL CLOSE-11: a drop is a reset unless both directions have finished, in either order.
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
        |bridge| {
            bridge.flow.handle_socket_failed();
            bridge.poll_reset(true);
        },
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
fn an_abandoned_flow_says_why_on_both_directions_once() {
    let mut bridge = Bridge::new();
    bridge.flow.abandon(&mut bridge.stream, FlowCode::Limit);
    bridge.flow.abandon(&mut bridge.stream, FlowCode::Internal);
    bridge.flow.handle_socket_failed();
    bridge.poll_reset(true);
    assert_eq!(bridge.stream.reset_sent, Some(FlowCode::Limit));
    assert_eq!(bridge.stream.stop_sent, Some(FlowCode::Limit));
    assert!(bridge.app.borrow().aborted);
    assert_eq!(
        bridge.flow.ending(),
        Some(Ending::Abandoned(FlowCode::Limit))
    );
}
