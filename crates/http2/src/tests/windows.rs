//! Credit in both directions.

use super::*;

const INITIAL: usize = 65_535;

/// Data for a stream, in frames of the greatest length.
fn fill(server: &mut Server, stream: u32, mut bytes: usize) {
    while bytes > 0 {
        let length = bytes.min(16 * 1024);
        server.give(Frame(DATA, 0, stream, vec![b'x'; length]));
        bytes -= length;
    }
}

/// Returns by how much the limits of the connection and of a stream grow.
fn updates(frames: &[Frame]) -> Vec<(u32, u32)> {
    let update = |frame: &Frame| {
        let number = u32::from_be_bytes(frame.3[..].try_into().expect("four bytes"));
        (frame.2, number)
    };
    let updates = frames.iter().filter(|frame| frame.0 == WINDOW_UPDATE);
    updates.map(update).collect()
}

#[test]
fn a_stream_whose_application_takes_nothing_stops_alone() {
    let mut server = Server::new();
    let (stalled, other) = (server.tunnel(1), server.tunnel(3));
    fill(&mut server, 1, INITIAL);
    server.read(stalled);
    server.http2.note_held(stalled, INITIAL as u64);
    assert_eq!(
        updates(&server.sent()),
        [],
        "the connection has credit, and the stream gets none"
    );
    server.give(data(1, 0, "x"));
    let flow_control = [reset(1, ErrorCode::FLOW_CONTROL_ERROR)];
    assert_eq!(server.sent(), flow_control);
    assert!(matches!(server.read(stalled).1, ReadEnd::Reset(_)));
    // The other stream gets credit as its application takes bytes, and a larger window once it has shown that.
    fill(&mut server, 3, INITIAL);
    server.read(other);
    server.http2.note_held(other, INITIAL as u64);
    assert_eq!(updates(&server.sent()), []);
    server.http2.note_held(other, INITIAL as u64 / 2 + 1);
    let more = (1 << 18) - 65_535 / 2;
    let grown = updates(&server.sent());
    assert_eq!(grown.len(), 1);
    assert!(
        grown[0].0 == 3 && grown[0].1.abs_diff(more) <= 2,
        "{grown:?}"
    );
}

#[test]
fn the_connection_has_credit_of_its_own() {
    let config = Config {
        window: 100_000,
        ..Config::default()
    };
    let mut server = Server::begin(config);
    assert_eq!(updates(&server.sent()), [(0, 100_000 - 65_535)]);
    let one = server.tunnel(1);
    server.tunnel(3);
    fill(&mut server, 1, INITIAL);
    fill(&mut server, 3, 100_000 - INITIAL);
    assert_eq!(server.http2.granted(), 100_000);
    server.read(one);
    server.http2.note_held(one, INITIAL as u64);
    assert_eq!(server.http2.granted(), 100_000 - INITIAL as u64);
    assert_eq!(updates(&server.sent()), [(0, 65_535)]);
    server.http2.set_window(0);
    fill(&mut server, 3, 30_000);
    server.give(Frame(DATA, 0, 3, vec![0; 1000]));
    assert_eq!(
        updates(&server.sent()),
        [],
        "a smaller window takes effect as bytes are taken"
    );
    fill(&mut server, 3, 65_535 - 31_000 - (100_000 - INITIAL));
    assert_eq!(server.failure(), None);
}

#[test]
fn too_much_data_for_the_connection_ends_it() {
    let config = Config {
        window: 1000,
        ..Config::default()
    };
    let mut server = Server::begin(config);
    assert_eq!(updates(&server.sent()), []);
    server.tunnel(1);
    server.tunnel(3);
    assert_eq!(
        server.http2.granted(),
        INITIAL as u64,
        "every connection begins with that"
    );
    fill(&mut server, 1, 40_000);
    fill(&mut server, 3, INITIAL - 40_000);
    assert_eq!(server.failure(), None);
    server.give(data(3, 0, "x"));
    assert_eq!(server.failure(), Some(ErrorCode::FLOW_CONTROL_ERROR));
}

#[test]
fn dropped_data_and_padding_give_their_credit_back() {
    let mut server = Server::new();
    let id = server.tunnel(1);
    server.http2.stop(id, ErrorCode::CANCEL);
    fill(&mut server, 1, INITIAL);
    assert_eq!(server.http2.granted(), (1 << 20) - INITIAL as u64);
    server.tunnel(3);
    let padded = [&[200][..], &[0; 200]].concat();
    for _ in 0..INITIAL / 201 {
        server.give(Frame(DATA, 8, 3, padded.clone()));
    }
    let taken = INITIAL + INITIAL / 201 * 201;
    assert_eq!(server.http2.granted(), (1 << 20) - taken as u64);
    let given = updates(&server.sent());
    assert_eq!(
        given.iter().filter(|(stream, _)| *stream == 3).count(),
        1,
        "{given:?}"
    );
}

#[test]
fn a_stream_without_credit_of_the_peer_waits_alone() {
    let mut server = Server::new();
    server.give(initial_window(10));
    server.sent();
    let (one, two) = (server.tunnel(1), server.tunnel(3));
    let mut chunk = Bytes::from_static(b"0123456789abcdef");
    assert_eq!(server.http2.write(one, &mut chunk), WriteEnd::Blocked);
    assert_eq!(chunk, "abcdef");
    assert_eq!(server.sent(), [data(1, 0, "0123456789")]);
    server.write(two, "other");
    assert_eq!(server.sent(), [data(3, 0, "other")]);
    server.events();
    server.give(update(1, 4));
    assert_eq!(server.events(), [Event::Writable(one)]);
    assert_eq!(server.http2.write(one, &mut chunk), WriteEnd::Blocked);
    assert_eq!(server.sent(), [data(1, 0, "abcd")]);
    // A lower setting takes credit back, which later updates restore.
    server.give(initial_window(0));
    server.give(update(1, 5));
    server.sent();
    assert_eq!(server.http2.write(one, &mut chunk), WriteEnd::Blocked);
    assert_eq!(server.sent(), []);
    server.give(update(1, 7));
    assert_eq!(server.http2.write(one, &mut chunk), WriteEnd::Taken);
    assert_eq!(server.sent(), [data(1, 0, "ef")]);
}

#[test]
fn the_end_waits_for_the_bytes_before_it() {
    let mut server = Server::new();
    server.give(initial_window(4));
    server.sent();
    let id = server.tunnel(1);
    server.write(id, "abcd");
    server.http2.finish(id);
    server.give(initial_window(1));
    assert_eq!(server.sent()[1..], [data(1, 0, "a")]);
    server.give(update(1, 3));
    assert_eq!(server.sent(), [data(1, END_STREAM, "bcd")]);
}

#[test]
fn what_waits_for_the_transport_is_limited_over_all_streams() {
    let mut server = Server::new();
    server.http2.set_kept(10);
    let (one, two) = (server.tunnel(1), server.tunnel(3));
    server.write(one, "12345678");
    let mut chunk = Bytes::from_static(b"abcd");
    assert_eq!(server.http2.write(two, &mut chunk), WriteEnd::Blocked);
    assert_eq!(chunk, "cd");
    server.events();
    assert_eq!(server.sent().len(), 2);
    assert_eq!(server.events(), [Event::Writable(two)]);
}

#[test]
fn too_much_credit_is_an_error_of_its_stream_or_of_the_connection() {
    let mut server = Server::new();
    server.tunnel(1);
    server.give(update(1, 0x7fff_ffff));
    assert_eq!(server.sent(), [reset(1, ErrorCode::FLOW_CONTROL_ERROR)]);
    server.tunnel(3);
    server.give(update(3, 0));
    assert_eq!(server.sent(), [reset(3, ErrorCode::PROTOCOL_ERROR)]);
    server.give(update(0, 0x7fff_ffff));
    assert_eq!(server.failure(), Some(ErrorCode::FLOW_CONTROL_ERROR));
    let mut server = Server::new();
    server.tunnel(1);
    server.give(update(1, 100));
    server.give(initial_window(0x7fff_ffff));
    assert_eq!(server.failure(), Some(ErrorCode::FLOW_CONTROL_ERROR));
}
