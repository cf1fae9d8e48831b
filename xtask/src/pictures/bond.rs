//! The life of a bond, and of a flow in it.

use super::canvas::{Arrow, Canvas};

const DESCRIPTION: &str = "\
    A bond is asked for, is connected, is without a connection after a loss, is connected again by a ticket, and \
    is forgotten when its time is over. A flow of the bond is unanswered, then attached, then detached when the \
    connection is lost, attached again by MOVE, lingering when both directions have ended here, and over when \
    SEEN confirms each FIN. A detached flow is reset when its time is over.";

pub(super) fn draw() -> String {
    let title = "Life of a bond and of a flow in it";
    let mut canvas = Canvas::new(560, title, DESCRIPTION);
    bond(&mut canvas);
    canvas.rect("f", [20.0, 228.0, 680.0, 1.0], 0);
    flow(&mut canvas);
    flow_ends(&mut canvas);
    canvas.finish()
}

fn bond(canvas: &mut Canvas) {
    canvas.text("h", [20.0, 30.0], "The bond");
    canvas.block([20.0, 60.0, 140.0, 48.0], "asked for", &["HELLO with BOND"]);
    canvas.block(
        [270.0, 60.0, 150.0, 48.0],
        "connected",
        &["flows are attached"],
    );
    canvas.block(
        [550.0, 60.0, 150.0, 48.0],
        "unconnected",
        &["flows are detached"],
    );
    canvas.arrow(Arrow::Bytes, &[[160.0, 84.0], [270.0, 84.0]]);
    canvas.text("m", [215.0, 76.0], "HELLO_ACK");
    canvas.arrow(Arrow::Bytes, &[[420.0, 74.0], [550.0, 74.0]]);
    canvas.text("m", [485.0, 66.0], "connection lost");
    canvas.arrow(Arrow::Bytes, &[[550.0, 96.0], [420.0, 96.0]]);
    canvas.text("m", [485.0, 112.0], "id and ticket");
    canvas.text("m", [485.0, 127.0], "are accepted");
    canvas.block([550.0, 166.0, 150.0, 40.0], "forgotten", &[]);
    canvas.arrow(Arrow::Bytes, &[[625.0, 108.0], [625.0, 166.0]]);
    canvas.text("e", [617.0, 142.0], "after ttl_s, or");
    canvas.text("e", [617.0, 157.0], "another id");
}

fn flow(canvas: &mut Canvas) {
    canvas.text("h", [20.0, 256.0], "A flow of the bond");
    canvas.block(
        [20.0, 286.0, 140.0, 48.0],
        "unanswered",
        &["OPEN with FLOW"],
    );
    canvas.block([270.0, 286.0, 150.0, 48.0], "attached", &["has a leg"]);
    canvas.block([550.0, 286.0, 150.0, 48.0], "detached", &["has no leg"]);
    canvas.arrow(Arrow::Bytes, &[[160.0, 310.0], [270.0, 310.0]]);
    canvas.text("m", [215.0, 302.0], "OPEN_ACK");
    canvas.arrow(Arrow::Bytes, &[[420.0, 300.0], [550.0, 300.0]]);
    canvas.text("m", [485.0, 292.0], "connection lost");
    canvas.arrow(Arrow::Bytes, &[[550.0, 322.0], [420.0, 322.0]]);
    canvas.text("m", [485.0, 338.0], "MOVE, MOVE_ACK");
    canvas.block([20.0, 398.0, 140.0, 48.0], "ended", &["or asked for again"]);
    canvas.arrow(Arrow::Bytes, &[[90.0, 334.0], [90.0, 398.0]]);
    canvas.text("", [98.0, 363.0], "connection");
    canvas.text("", [98.0, 378.0], "lost");
}

fn flow_ends(canvas: &mut Canvas) {
    canvas.block(
        [260.0, 398.0, 170.0, 48.0],
        "lingering",
        &["keeps unconfirmed bytes"],
    );
    canvas.arrow(Arrow::Bytes, &[[345.0, 334.0], [345.0, 398.0]]);
    canvas.text("", [353.0, 363.0], "both directions");
    canvas.text("", [353.0, 378.0], "have ended here");
    canvas.block(
        [550.0, 398.0, 150.0, 48.0],
        "reset",
        &["the application sees it"],
    );
    canvas.arrow(Arrow::Bytes, &[[625.0, 334.0], [625.0, 398.0]]);
    canvas.text("e", [617.0, 356.0], "ttl_s, ENDED,");
    canvas.text("e", [617.0, 371.0], "NoBond, or MOVE");
    canvas.text("e", [617.0, 386.0], "is refused");
    canvas.block([260.0, 500.0, 170.0, 40.0], "over", &[]);
    canvas.arrow(Arrow::Bytes, &[[345.0, 446.0], [345.0, 500.0]]);
    canvas.text("", [353.0, 477.0], "SEEN confirms each FIN");
    canvas.text("e", [700.0, 520.0], "A lingering flow detaches");
    canvas.text("e", [700.0, 535.0], "and moves as others do.");
}
