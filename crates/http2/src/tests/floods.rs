//! Clients that break rules, or do what is permitted without end.

use super::*;

/// Gives frames until the connection ends. Returns their number, and the code.
fn flood(server: &mut Server, most: u32, frame: impl Fn(u32) -> Frame) -> (u32, Option<ErrorCode>) {
    for count in 0..most {
        server.give(frame(count));
        if server.http2.is_closed() {
            return (count, server.failure());
        }
        server.sent();
    }
    (most, None)
}

const CALM: Option<ErrorCode> = Some(ErrorCode::ENHANCE_YOUR_CALM);

// CVE-2023-44487.
#[test]
fn requests_that_are_reset_before_their_answer_are_counted() {
    let mut server = Server::new();
    let rapid = |count: u32| {
        let (request, reset) = (
            request(2 * count + 1, 0),
            reset(2 * count + 1, ErrorCode::CANCEL),
        );
        [request.encode(), reset.encode()].concat()
    };
    let mut count = 0;
    while !server.http2.is_closed() && count < 1000 {
        server.take(&rapid(count));
        count += 1;
    }
    assert_eq!((count, server.failure()), (201, CALM));
    // They come back with the time, and resets of answered streams are free.
    let mut server = Server::new();
    for count in 0..1000 {
        server.now += Duration::from_millis(50);
        server.give(request(4 * count + 1, 0));
        server.give(reset(4 * count + 1, ErrorCode::CANCEL));
        let id = server.tunnel(4 * count + 3);
        server.give(reset(4 * count + 3, ErrorCode::CANCEL));
        server.read(id);
    }
    assert_eq!(server.failure(), None);
}

#[test]
fn resets_that_the_peer_provokes_are_counted_too() {
    let malformed = block(&[
        (":method", "CONNECT"),
        (":authority", "a:1"),
        ("Upper", "x"),
    ]);
    let refused = flood(&mut Server::new(), 1000, |count| {
        Frame(HEADERS, END_HEADERS, 2 * count + 1, malformed.clone())
    });
    assert_eq!(refused, (200, CALM));
    let mut server = Server::new();
    for stream in 0..100 {
        server.connect(2 * stream + 1);
    }
    server.give(request(201, 0));
    assert_eq!(
        server.sent(),
        [reset(201, ErrorCode::REFUSED_STREAM)],
        "one more than permitted"
    );
    let refused = flood(&mut server, 1000, |count| request(2 * count + 203, 0));
    assert_eq!(refused, (199, CALM));
    let mut server = Server::new();
    server.connect(1);
    server.give(reset(1, ErrorCode::CANCEL));
    server.read(StreamId::FIRST);
    // Data behind its own reset is answered once. It uses credit, and is dropped.
    server.give(data(1, 0, "x"));
    assert_eq!(server.sent(), [reset(1, ErrorCode::STREAM_CLOSED)]);
    server.give(data(1, 0, "x"));
    assert_eq!((server.sent(), server.failure()), (Vec::new(), None));
}

#[test]
fn frames_that_move_nothing_are_counted() {
    let frames = [
        Frame(PING, 0, 0, vec![0; 8]),
        Frame(PING, 1, 0, vec![0; 8]),
        Frame(SETTINGS, 0, 0, Vec::new()),
        initial_window(1),
        Frame(SETTINGS, 1, 0, Vec::new()),
        Frame(2, 0, 4, vec![0; 5]),
        Frame(99, 0, 4, vec![0; 50]),
        Frame(99, 0, 0, Vec::new()),
        data(1, 0, ""),
        // Padding alone.
        Frame(DATA, 8, 1, vec![1, 0]),
        Frame(GOAWAY, 0, 0, vec![0; 8]),
        // Streams that were reset, that have this side's end, and that have both.
        update(3, 1),
        request(3, 0),
        update(5, 1),
        update(7, 1),
        reset(7, ErrorCode::CANCEL),
    ];
    for frame in frames {
        let mut server = Server::new();
        server.tunnel(1);
        let id = server.tunnel(3);
        server.http2.reset(id, ErrorCode::CANCEL);
        server.http2.stop(id, ErrorCode::CANCEL);
        server.sent();
        for stream in [5, 7] {
            let id = server.tunnel(stream);
            server.http2.finish(id);
            server.sent();
        }
        server.give(data(7, END_STREAM, "unread"));
        let (count, code) = flood(&mut server, 2000, |_| frame.clone());
        assert!((998..=1000).contains(&count), "{frame:?}: {count}");
        assert_eq!(code, CALM, "{frame:?}");
    }
}

#[test]
fn requests_after_a_drain_are_counted() {
    let mut server = Server::new();
    server.tunnel(1);
    server.http2.drain();
    server.sent();
    let refused = flood(&mut server, 2000, |count| request(2 * count + 3, 0));
    assert_eq!(refused, (999, CALM));
}

#[test]
fn answers_that_the_peer_does_not_read_are_limited() {
    let mut server = Server::new();
    for count in 0..=256 {
        assert!(!server.http2.is_closed(), "{count}");
        server.give(Frame(PING, 0, 0, vec![0; 8]));
    }
    assert_eq!(server.failure(), CALM);
}

// CVE-2024-24549 and its kind.
#[test]
fn a_block_of_fields_has_a_limit() {
    let mut server = Server::new();
    server.give(Frame(HEADERS, 0, 1, vec![0x40; 100]));
    for _ in 0..15 {
        server.give(Frame(CONTINUATION, 0, 1, vec![0x40; 100]));
    }
    assert!(!server.http2.is_closed());
    server.give(Frame(CONTINUATION, 0, 1, vec![0x40; 100]));
    assert_eq!(server.failure(), CALM, "frames");
    let mut server = Server::new();
    server.give(Frame(HEADERS, 0, 1, vec![0x40; 16 * 1024]));
    assert!(server.http2.held() <= 40_000, "{}", server.http2.held());
    assert!(!server.http2.is_closed());
    server.give(Frame(CONTINUATION, 0, 1, vec![0x40]));
    assert_eq!(server.failure(), CALM, "bytes");
    let mut server = Server::new();
    server.give(Frame(HEADERS, 0, 1, Vec::new()));
    server.give(Frame(PING, 0, 0, vec![0; 8]));
    assert_eq!(
        server.failure(),
        Some(ErrorCode::PROTOCOL_ERROR),
        "interrupted"
    );
}

#[test]
fn a_long_list_is_answered_and_an_endless_one_ends_the_connection() {
    let mut server = Server::new();
    let long = "x".repeat(8100);
    let fields = block(&[(":method", "CONNECT"), (":authority", "a:1"), ("x", &long)]);
    server.give(Frame(HEADERS, END_HEADERS, 1, fields));
    let frames = server.sent();
    let status = vec![(":status".to_owned(), "431".to_owned())];
    assert_eq!(server.fields(&frames[0].3), status);
    assert_eq!(frames[1..], [reset(1, ErrorCode::NO_ERROR)]);
    assert_eq!(server.http2.accept(), None);
    // A field of the table, named again and again.
    let mut server = Server::new();
    let field = [&[0x40, 1, b'x', 0x7f, 0x81, 0x17][..], &[b'v'; 3072]].concat();
    let block = [&field[..], &[0xbe; 100]].concat();
    server.give(Frame(HEADERS, END_HEADERS, 1, block));
    assert_eq!(server.failure(), CALM);
}

#[test]
fn broken_rules_end_the_connection_with_their_code() {
    let protocol = ErrorCode::PROTOCOL_ERROR;
    let wrong = [
        (request(2, 0), protocol),
        (data(3, 0, "x"), protocol),
        (reset(3, ErrorCode::CANCEL), protocol),
        (update(3, 1), protocol),
        (update(0, 0), protocol),
        (Frame(5, 4, 1, vec![0; 4]), protocol),
        (Frame(CONTINUATION, 4, 1, Vec::new()), protocol),
        (Frame(DATA, 8, 1, vec![4, 0, 0]), protocol),
        (Frame(DATA, 8, 1, Vec::new()), ErrorCode::FRAME_SIZE_ERROR),
        (Frame(HEADERS, 0xc, 3, vec![1]), protocol),
        // No length of the padding, and a part of a priority.
        (
            Frame(HEADERS, 0xc, 3, Vec::new()),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            Frame(HEADERS, 0x24, 3, vec![0; 4]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            Frame(HEADERS, 0x2c, 3, vec![0; 5]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            Frame(HEADERS, 4, 3, vec![0x80]),
            ErrorCode::COMPRESSION_ERROR,
        ),
        (
            Frame(DATA, 0, 1, vec![0; 16 * 1024 + 1]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            Frame(SETTINGS, 0, 0, vec![0; 5]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
    ];
    for (frame, code) in wrong {
        let mut server = Server::new();
        server.tunnel(1);
        server.give(frame.clone());
        assert_eq!(server.failure(), Some(code), "{frame:?}");
    }
}

#[test]
fn fields_behind_a_request_end_its_stream() {
    let mut server = Server::new();
    server.tunnel(1);
    let trailers = block(&[("x", "y")]);
    server.give(Frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers));
    assert_eq!(server.sent(), [reset(1, ErrorCode::PROTOCOL_ERROR)]);
    let mut server = Server::new();
    server.tunnel(1);
    server.give(data(1, END_STREAM, ""));
    server.give(request(1, 0));
    assert_eq!(server.failure(), Some(ErrorCode::STREAM_CLOSED));
    let mut server = Server::new();
    server.tunnel(1);
    server.give(data(1, END_STREAM, ""));
    server.give(data(1, 0, "x"));
    assert_eq!(server.sent(), [reset(1, ErrorCode::STREAM_CLOSED)]);
}
