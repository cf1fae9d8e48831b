//! Flows whose connection is lost.

use quictun_wire::code::FlowCode;

use super::Bridge;
use crate::{Ending, LostStream, ToAppStop};

// PROTOCOL CLOSE-6.
#[test]
fn a_lost_connection_resets_the_application_after_what_has_arrived_and_touches_no_stream() {
    for room in [usize::MAX, 0] {
        let mut bridge = Bridge::new();
        bridge.app.borrow_mut().room = room;
        bridge.arrives(0, b"unread");
        bridge.lose();
        assert_eq!(bridge.app.borrow().aborted, room > 0);
        bridge.app.borrow_mut().room = 100;
        bridge.flow.handle_socket_ready(true, true);
        bridge.flow.pump_to_app(&mut LostStream);
        assert_eq!(bridge.app.borrow().received, b"unread");
        assert!(bridge.app.borrow().aborted && !bridge.app.borrow().finished);
        let lost = Ending::Abandoned(FlowCode::ConnectionLost);
        assert_eq!(bridge.flow.ending(), Some(lost));
        let sent = (bridge.stream.reset_sent, bridge.stream.stop_sent);
        assert_eq!(sent, (None, None));
    }
}

// PROTOCOL CLOSE-12.
#[test]
fn complete_data_is_delivered_after_the_connection_is_lost() {
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
        assert_eq!(bridge.flow.pump_to_app(&mut LostStream), ToAppStop::Ended);
        assert_eq!(bridge.app.borrow().received, b"all of it");
        assert!(bridge.app.borrow().finished && !bridge.app.borrow().aborted);
        // If both directions have ended, nothing is cut. Otherwise the application is reset, but only once a reset
        // cannot discard data.
        assert_eq!(bridge.flow.is_parting(), !finished);
        if !finished {
            bridge.flow.poll_parting(false);
            assert!(!bridge.app.borrow().aborted && bridge.flow.ending().is_none());
            bridge.app.borrow_mut().unsent = false;
            bridge.flow.poll_parting(false);
        }
        assert_eq!(bridge.app.borrow().aborted, !finished);
        let ending = bridge.flow.ending();
        let cut = Ending::Abandoned(FlowCode::ConnectionLost);
        assert_eq!(ending, Some(if finished { Ending::Finished } else { cut }));
    }
}

// PROTOCOL CLOSE-12: every byte up to the FIN must have arrived.
#[test]
fn a_lost_connection_is_a_reset_if_a_byte_is_missing() {
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
        bridge.app.borrow_mut().room = 100;
        bridge.flow.handle_socket_ready(true, true);
        bridge.flow.pump_to_app(&mut LostStream);
        assert_eq!(bridge.app.borrow().received, b"all");
        assert!(bridge.app.borrow().aborted && !bridge.app.borrow().finished);
        assert!(matches!(bridge.flow.ending(), Some(Ending::Abandoned(_))));
    }
}

// PROTOCOL CLOSE-5, CLOSE-12.
#[test]
fn an_abort_waits_until_the_socket_has_sent_its_data() {
    let mut bridge = Bridge::new();
    bridge.arrives(0, b"answer");
    bridge.fin_arrives(6);
    bridge.app.borrow_mut().unsent = true;
    bridge.flow.handle_stopped(&mut bridge.stream, 1);
    assert!(bridge.flow.is_parting() && !bridge.app.borrow().aborted);
    bridge.lose();
    assert!(bridge.flow.is_parting() && !bridge.app.borrow().aborted);
    bridge.app.borrow_mut().unsent = false;
    bridge.flow.poll_parting(false);
    assert!(bridge.app.borrow().aborted && bridge.flow.ending().is_some());
}
