//! The way of a byte from an application to the target.

use super::canvas::{Arrow, Canvas};

const DESCRIPTION: &str = "\
    Down on the client: the application, the application socket, the flow, gauge and pacer, quinn-proto, the UDP \
    port. Across the network to the server. Up on the server: the UDP port, quinn-proto, inlet and reassembly, \
    the part of the flow that writes to the application, the application socket, the target. Credit returns from \
    the server to the flow of the client.";

/// The boxes of the client from top to bottom. The box [`LIMITS`] is not on the way of the bytes.
const CLIENT: [(&str, &str); 6] = [
    ("application", "writes to its socket"),
    (
        "AppSocket: tunnel/app_socket.rs",
        "reads into a pooled buffer",
    ),
    (
        "Flow: flow/flow/pump.rs",
        "is asked when a packet may leave",
    ),
    ("Gauge, Pacer: congestion", "allow the next packet"),
    (
        "quinn-proto: engine/carrier/quic/stream.rs",
        "encrypts a batch of packets",
    ),
    (
        "UdpPort: io/udp_port.rs",
        "sends the batch in one call (GSO)",
    ),
];

/// The boxes of the server from top to bottom.
const SERVER: [(&str, &str); 6] = [
    ("target", "reads from its socket"),
    (
        "AppSocket: tunnel/app_socket.rs",
        "writes what the socket takes",
    ),
    (
        "ToApp: flow/to_app.rs",
        "hands on the bytes that are in order",
    ),
    (
        "Inlet, Reassembly: flow/inlet.rs",
        "bring bytes into order, bounded",
    ),
    (
        "quinn-proto: engine/engine.rs",
        "finds the connection, decrypts",
    ),
    (
        "UdpPort: io/udp_port.rs",
        "receives a batch in one call (GRO)",
    ),
];

const LIMITS: usize = 3;

/// Top of the first boxes, their height, and the distance from box to box.
const TOP: f64 = 46.0;
const HEIGHT: f64 = 48.0;
const STEP: f64 = 74.0;

pub(super) fn draw() -> String {
    let title = "The way of a byte from an application to the target";
    let mut canvas = Canvas::new(544, title, DESCRIPTION);
    canvas.text("h m", [165.0, 30.0], "Client: bytes go down");
    canvas.text("h m", [555.0, 30.0], "Server: bytes go up");
    let tops = (0..).map(|row| TOP + STEP * f64::from(row));
    for (row, (top, (title, line))) in tops.clone().zip(CLIENT).enumerate() {
        let before = top - (STEP - HEIGHT);
        if row == LIMITS {
            canvas.block([100.0, top, 210.0, HEIGHT], title, &[line]);
            canvas.arrow(Arrow::Control, &[[205.0, top], [205.0, before]]);
            continue;
        }
        canvas.block([20.0, top, 290.0, HEIGHT], title, &[line]);
        match row {
            0 => {}
            // The bytes pass the limits.
            4 => canvas.arrow(Arrow::Bytes, &[[60.0, before - STEP], [60.0, top]]),
            _ => canvas.arrow(Arrow::Bytes, &[[165.0, before], [165.0, top]]),
        }
    }
    for (row, (top, (title, line))) in tops.zip(SERVER).enumerate() {
        canvas.block([410.0, top, 290.0, HEIGHT], title, &[line]);
        if row > 0 {
            let before = top - (STEP - HEIGHT);
            canvas.arrow(Arrow::Bytes, &[[555.0, top], [555.0, before]]);
        }
    }
    between(&mut canvas);
    canvas.finish()
}

/// Draws the arrows between client and server, and the legend.
fn between(canvas: &mut Canvas) {
    let bottom = TOP + 5.0 * STEP + HEIGHT;
    let below = bottom + 34.0;
    let network = [
        [165.0, bottom],
        [165.0, below],
        [555.0, below],
        [555.0, bottom],
    ];
    canvas.arrow(Arrow::Bytes, &network);
    canvas.text(
        "m",
        [360.0, bottom + 26.0],
        "UDP datagrams across the network",
    );
    let credit = TOP + 2.0 * STEP + HEIGHT / 2.0;
    canvas.arrow(Arrow::Control, &[[410.0, credit], [310.0, credit]]);
    canvas.text("m", [360.0, credit - 8.0], "credit");
    canvas.text("s m", [360.0, credit + 18.0], "(back-pressure)");
    let (from, to) = (credit + 2.0 * STEP, credit + STEP);
    let acks = [[410.0, from], [360.0, from], [360.0, to], [310.0, to]];
    canvas.arrow(Arrow::Control, &acks);
    canvas.text("", [368.0, TOP + 3.5 * STEP + 10.0], "ACKs");
    canvas.arrow(Arrow::Bytes, &[[20.0, 526.0], [58.0, 526.0]]);
    canvas.text("", [66.0, 530.0], "bytes");
    canvas.arrow(Arrow::Control, &[[130.0, 526.0], [168.0, 526.0]]);
    canvas.text("", [176.0, 530.0], "control");
}
