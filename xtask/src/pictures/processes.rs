//! The processes of a tunnel.

use super::canvas::{Arrow, Canvas};

const DESCRIPTION: &str = "\
    On the machine of the client: an application, or a program behind a TUN device with netstackd, reaches the \
    workers of the client process. A control plane and a keeper are beside them; a supervisor starts client and \
    netstackd. Workers of the client reach workers of the server by QUIC. The workers of the server reach the \
    target. The server has a control plane and a keeper as well.";

pub(super) fn draw() -> String {
    let mut canvas = Canvas::new(524, "Processes of a tunnel", DESCRIPTION);
    machines(&mut canvas);
    applications(&mut canvas);
    for (left, name, class, end) in [
        (26.0, "client process", "t e", 296.0),
        (386.0, "server process", "t", 12.0),
    ] {
        process(&mut canvas, left);
        canvas.text(class, [left + end, 243.0], name);
    }
    canvas.double_arrow(Arrow::Bytes, &[[320.0, 274.0], [400.0, 274.0]]);
    canvas.text("m", [360.0, 266.0], "QUIC");
    beside(&mut canvas);
    legend(&mut canvas);
    canvas.finish()
}

fn machines(canvas: &mut Canvas) {
    for (left, name) in [
        (12.0, "Machine of the client"),
        (372.0, "Machine of the server"),
    ] {
        canvas.rect("f", [left, 12.0, 336.0, 468.0], 10);
        canvas.text("h", [left + 14.0, 34.0], name);
    }
}

/// Draws the applications, and the paths of their bytes.
fn applications(canvas: &mut Canvas) {
    canvas.block([26.0, 50.0, 150.0, 40.0], "application", &[]);
    canvas.block([190.0, 50.0, 144.0, 40.0], "program", &[]);
    canvas.block(
        [190.0, 132.0, 144.0, 46.0],
        "netstackd",
        &["TCP/IP, no keys"],
    );
    canvas.double_arrow(Arrow::Bytes, &[[262.0, 90.0], [262.0, 132.0]]);
    canvas.text("e", [254.0, 116.0], "TUN device");
    canvas.double_arrow(Arrow::Bytes, &[[100.0, 90.0], [100.0, 252.0]]);
    canvas.text("", [108.0, 162.0], "TCP, Unix");
    canvas.double_arrow(Arrow::Bytes, &[[262.0, 178.0], [262.0, 252.0]]);
    canvas.text("e", [254.0, 216.0], "shared memory");
    canvas.block([464.0, 50.0, 150.0, 40.0], "target", &[]);
    canvas.double_arrow(Arrow::Bytes, &[[539.0, 90.0], [539.0, 252.0]]);
    canvas.text("", [547.0, 140.0], "TCP, Unix");
}

/// Draws the client's or the server's process, without its name.
fn process(canvas: &mut Canvas, left: f64) {
    canvas.rect("b", [left, 224.0, 308.0, 168.0], 8);
    let inner = left + 14.0;
    let workers = "one thread, epoll loop and engine each";
    canvas.block_of("f", "m", [inner, 252.0, 280.0, 44.0], "workers", &[workers]);
    let plane = "tokio: HTTP, names, tokens, reload";
    canvas.block_of(
        "f",
        "m",
        [inner, 334.0, 280.0, 44.0],
        "control plane",
        &[plane],
    );
    let middle = left + 154.0;
    canvas.double_arrow(Arrow::Control, &[[middle, 296.0], [middle, 334.0]]);
    canvas.text("", [middle + 10.0, 319.0], "bounded queues");
}

/// Draws the keepers and the supervisor.
fn beside(canvas: &mut Canvas) {
    for (left, does) in [(26.0, "opens files"), (386.0, "opens files, listens")] {
        canvas.block([left, 426.0, 142.0, 40.0], "keeper", &[does]);
        canvas.arrow(
            Arrow::Control,
            &[[left + 71.0, 392.0], [left + 71.0, 426.0]],
        );
        canvas.text("", [left + 79.0, 413.0], "by number");
    }
    canvas.block([190.0, 426.0, 144.0, 40.0], "supervisor", &["starts both"]);
    canvas.arrow(Arrow::Control, &[[285.0, 426.0], [285.0, 392.0]]);
    let to_netstackd = [
        [334.0, 446.0],
        [341.0, 446.0],
        [341.0, 155.0],
        [334.0, 155.0],
    ];
    canvas.arrow(Arrow::Control, &to_netstackd);
}

fn legend(canvas: &mut Canvas) {
    canvas.arrow(Arrow::Bytes, &[[26.0, 502.0], [64.0, 502.0]]);
    canvas.text("", [72.0, 506.0], "bytes of applications");
    canvas.arrow(Arrow::Control, &[[230.0, 502.0], [268.0, 502.0]]);
    canvas.text("", [276.0, 506.0], "control only");
    let optional = "program, netstackd, supervisor: --tun, quictun run";
    canvas.text("", [372.0, 506.0], optional);
}
