//! Ends of streams and of the connection.

use super::*;

#[test]
fn each_direction_ends_by_itself() {
    let mut server = Server::new();
    let id = server.tunnel(1);
    server.give(data(1, END_STREAM, "last"));
    assert_eq!(server.read(id), ("last".to_owned(), ReadEnd::Finished));
    server.write(id, "more");
    server.http2.finish(id);
    assert_eq!(server.http2.open_streams(), 1);
    assert_eq!(server.sent(), [data(1, END_STREAM, "more")]);
    assert_eq!(
        (
            server.http2.open_streams(),
            server.http2.unsettled_streams()
        ),
        (0, 0)
    );
    let id = server.tunnel(3);
    server.http2.finish(id);
    assert_eq!(server.sent(), [data(3, END_STREAM, "")]);
    assert_eq!(server.http2.open_streams(), 1);
}

#[test]
fn a_reset_of_the_peer_is_read_after_what_arrived_before_it() {
    let mut server = Server::new();
    let id = server.tunnel(1);
    server.give(data(1, 0, "bytes"));
    server.give(reset(1, ErrorCode::NO_ERROR));
    let stopped = WriteEnd::Stopped(quictun_wire::code::FlowCode::AppReset.to_u64());
    assert_eq!(server.http2.write(id, &mut Bytes::from("x")), stopped);
    assert_eq!(server.events(), [Event::Opened, Event::Readable(id)]);
    let code = quictun_wire::code::FlowCode::AppReset.to_u64();
    assert_eq!(server.read(id), ("bytes".to_owned(), ReadEnd::Reset(code)));
    assert_eq!(
        server.http2.write(id, &mut Bytes::from("x")),
        WriteEnd::Gone
    );
    assert_eq!(server.sent(), []);
    // An end that was not read is no end any more.
    let id = server.tunnel(3);
    server.give(data(3, END_STREAM, "bytes"));
    server.give(reset(3, ErrorCode::CANCEL));
    assert_eq!(server.read(id).1, ReadEnd::Reset(code));
}

#[test]
fn a_reset_of_the_peer_after_its_end_stops_the_other_direction() {
    let mut server = Server::new();
    let id = server.tunnel(1);
    server.give(data(1, END_STREAM, ""));
    assert_eq!(server.read(id), (String::new(), ReadEnd::Finished));
    server.events();
    server.give(reset(1, ErrorCode::CANCEL));
    assert_eq!(server.events(), [Event::Stopped(id)]);
}

#[test]
fn a_reset_of_this_side_follows_what_was_sent_and_is_never_an_end() {
    let mut server = Server::new();
    let id = server.tunnel(1);
    server.write(id, "sent");
    let mut frames = server.sent();
    server.write(id, "dropped");
    server.http2.reset(id, ErrorCode::CONNECT_ERROR);
    server.http2.stop(id, ErrorCode::CONNECT_ERROR);
    frames.extend(server.sent());
    assert_eq!(
        frames,
        [data(1, 0, "sent"), reset(1, ErrorCode::CONNECT_ERROR)]
    );
    assert_eq!((server.http2.queued(), server.http2.open_streams()), (0, 0));
    // The peer's last frames are on their way.
    server.give(data(1, END_STREAM, "late"));
    server.give(update(1, 5));
    assert_eq!((server.sent(), server.failure()), (Vec::new(), None));
}

#[test]
fn a_stop_resets_the_stream_after_the_end_of_this_side() {
    let mut server = Server::new();
    let id = server.tunnel(1);
    server.http2.stop(id, ErrorCode::CONNECT_ERROR);
    server.give(data(1, 0, "dropped"));
    assert_eq!(server.read(id), (String::new(), ReadEnd::Gone));
    assert_eq!(server.sent(), []);
    server.write(id, "last");
    server.http2.finish(id);
    let frames = [
        data(1, END_STREAM, "last"),
        reset(1, ErrorCode::CONNECT_ERROR),
    ];
    assert_eq!(server.sent(), frames);
    assert_eq!(server.http2.open_streams(), 0);
}

#[test]
fn a_refusal_has_a_status_and_a_text_and_asks_for_nothing_more() {
    let refusal = "HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwhy\n";
    let mut server = Server::new();
    let refuse = |server: &mut Server, stream| {
        let id = server.connect(stream);
        server.write(id, refusal);
        server.http2.finish(id);
        server.http2.stop(id, ErrorCode::CONNECT_ERROR);
        server.sent()
    };
    let frames = refuse(&mut server, 1);
    assert_eq!(
        frames[1..],
        [data(1, END_STREAM, "why\n"), reset(1, ErrorCode::NO_ERROR)]
    );
    let status = vec![(":status".to_owned(), "403".to_owned())];
    assert_eq!(server.fields(&frames[0].3), status);
    assert_eq!(frames[0].1, END_HEADERS);
    assert_eq!(server.http2.open_streams(), 0);
    // Without credit, the status is all.
    server.give(initial_window(3));
    server.sent();
    let frames = refuse(&mut server, 3);
    assert_eq!(frames[0].1, END_HEADERS | END_STREAM);
    assert_eq!(frames[1..], [reset(3, ErrorCode::NO_ERROR)]);
}

/// Fields behind a request, which a stream of CONNECT may not have.
fn trailers(stream: u32) -> Frame {
    let fields = block(&[("x", "y")]);
    Frame(HEADERS, END_HEADERS | END_STREAM, stream, fields)
}

#[test]
fn an_error_of_a_stream_after_the_end_of_this_side_resets_it() {
    let mut server = Server::new();
    let id = server.tunnel(1);
    server.http2.finish(id);
    assert_eq!(server.sent(), [data(1, END_STREAM, "")]);
    server.give(trailers(1));
    assert_eq!(server.sent(), [reset(1, ErrorCode::PROTOCOL_ERROR)]);
    assert_eq!(server.http2.open_streams(), 0);
    assert!(matches!(server.read(id).1, ReadEnd::Reset(_)));
    // The stream leaves nothing behind, and its last frames are ignored.
    server.give(data(1, END_STREAM, "late"));
    assert_eq!((server.sent(), server.failure()), (Vec::new(), None));
    // The reset after a refusal waits for the transport.
    let id = server.connect(3);
    server.write(id, "HTTP/1.1 403 Forbidden\r\n\r\nwhy\n");
    server.http2.finish(id);
    server.http2.stop(id, ErrorCode::CONNECT_ERROR);
    assert!(server.http2.poll_transmit(server.now, &mut [0; 2048]) > 0);
    assert_eq!(server.http2.open_streams(), 1);
    server.give(trailers(3));
    assert_eq!(server.sent(), [reset(3, ErrorCode::PROTOCOL_ERROR)]);
    assert_eq!(server.http2.open_streams(), 0);
}

#[test]
fn frames_behind_both_ends_of_a_stream_change_neither() {
    let late = [
        (reset(1, ErrorCode::NO_ERROR), Vec::new()),
        (update(1, 0), Vec::new()),
        (data(1, 0, "x"), vec![reset(1, ErrorCode::STREAM_CLOSED)]),
    ];
    for (frame, answer) in late {
        let mut server = Server::new();
        let id = server.tunnel(1);
        server.http2.finish(id);
        server.sent();
        // One record has the bytes, their end, and the frame.
        let bytes = [data(1, END_STREAM, "bytes").encode(), frame.encode()].concat();
        server.take(&bytes);
        assert_eq!(server.read(id), ("bytes".to_owned(), ReadEnd::Finished));
        assert_eq!(server.sent(), answer, "{frame:?}");
        assert_eq!(server.events(), [Event::Opened, Event::Readable(id)]);
    }
}

#[test]
fn fields_for_a_stream_that_was_reset_are_ignored_before_and_after_it_is_read() {
    let mut server = Server::new();
    let id = server.tunnel(1);
    server.http2.reset(id, ErrorCode::CANCEL);
    assert_eq!(server.sent(), [reset(1, ErrorCode::CANCEL)]);
    server.give(trailers(1));
    server.http2.stop(id, ErrorCode::CANCEL);
    server.give(trailers(1));
    assert_eq!((server.sent(), server.failure()), (Vec::new(), None));
}

#[test]
fn the_last_200_resets_are_remembered_and_a_drain_takes_none_of_their_places() {
    let mut server = Server::new();
    for stream in (1..2 * 200).step_by(2) {
        server.now += Duration::from_millis(50);
        let id = server.tunnel(stream);
        server.give(trailers(stream));
        assert_eq!(server.sent(), [reset(stream, ErrorCode::PROTOCOL_ERROR)]);
        server.read(id);
    }
    server.tunnel(401);
    server.tunnel(403);
    server.http2.drain();
    server.sent();
    for stream in (405..405 + 2 * 300).step_by(2) {
        server.give(request(stream, 0));
        server.give(data(stream, 0, "x"));
    }
    server.give(data(1, END_STREAM, "late"));
    server.give(data(405, END_STREAM, "late"));
    assert_eq!((server.sent(), server.failure()), (Vec::new(), None));
    // The last stream that is served can be reset too, and takes the place of the first.
    server.give(trailers(403));
    assert_eq!(server.sent(), [reset(403, ErrorCode::PROTOCOL_ERROR)]);
    server.give(data(3, 0, "late"));
    assert_eq!(server.sent(), []);
    server.give(data(1, 0, "late"));
    assert_eq!(server.sent(), [reset(1, ErrorCode::STREAM_CLOSED)]);
}

#[test]
fn a_stream_that_nothing_was_read_of_may_be_tried_elsewhere() {
    let mut server = Server::new();
    server.give(request(1, 0));
    let id = server.http2.accept().expect("a stream");
    server.http2.reset(id, ErrorCode::CANCEL);
    server.http2.stop(id, ErrorCode::CANCEL);
    assert_eq!(server.sent(), [reset(1, ErrorCode::REFUSED_STREAM)]);
    // A request that the client takes back at once is not offered.
    server.give(request(3, 0));
    server.give(reset(3, ErrorCode::CANCEL));
    assert_eq!(server.http2.accept(), None);
    assert_eq!(server.http2.open_streams(), 0);
}

#[test]
fn a_drained_connection_serves_its_streams_and_no_others() {
    let mut server = Server::new();
    let id = server.tunnel(5);
    server.http2.drain();
    let goaway =
        |last: u8, text: &[u8]| Frame(GOAWAY, 0, 0, [&[0, 0, 0, last, 0, 0, 0, 0], text].concat());
    assert_eq!(server.sent(), [goaway(5, b"the server ends")]);
    server.give(request(7, 0));
    server.give(data(7, END_STREAM, "dropped"));
    assert_eq!((server.http2.accept(), server.sent()), (None, Vec::new()));
    server.give(data(5, END_STREAM, "served"));
    assert_eq!(server.read(id), ("served".to_owned(), ReadEnd::Finished));
    server.events();
    server.http2.finish(id);
    assert_eq!(server.sent(), [data(5, END_STREAM, ""), goaway(5, b"")]);
    assert_eq!(server.events(), [Event::Lost(End::Done)]);
}

#[test]
fn a_peer_that_leaves_is_served_to_the_end() {
    let mut server = Server::new();
    let id = server.tunnel(1);
    server.give(Frame(GOAWAY, 0, 0, vec![0; 8]));
    assert!(!server.http2.is_closed());
    server.give(reset(1, ErrorCode::CANCEL));
    assert!(server.http2.is_closed());
    assert!(matches!(server.read(id).1, ReadEnd::Reset(_)));
    assert_eq!(server.events().last(), Some(&Event::Lost(End::Done)));
}

#[test]
fn a_close_answers_what_waits_and_resets_the_rest() {
    let mut server = Server::new();
    server.tunnel(1);
    server.connect(3);
    let answer = b"HTTP/1.1 503 Service Unavailable\r\n\r\nwhy\n";
    server
        .http2
        .close(ErrorCode::NO_ERROR, Bytes::from_static(b"text"), answer);
    let frames = server.sent();
    assert_eq!(frames[0], reset(1, ErrorCode::CANCEL));
    assert_eq!(
        (frames[1].0, frames[1].1, frames[1].2),
        (HEADERS, END_HEADERS | END_STREAM, 3)
    );
    let goaway = Frame(GOAWAY, 0, 0, b"\0\0\0\x03\0\0\0\0text".to_vec());
    assert_eq!(frames[2..], [goaway]);
    assert!(
        server.http2.is_idle()
            && server
                .events()
                .iter()
                .all(|it| !matches!(it, Event::Lost(_)))
    );
}

#[test]
fn an_idle_connection_knows_since_when() {
    let mut server = Server::new();
    assert_eq!(server.http2.idle_since(), Some(server.now));
    let id = server.tunnel(1);
    assert_eq!(server.http2.idle_since(), None);
    server.http2.reset(id, ErrorCode::CANCEL);
    server.now += Duration::from_secs(1);
    server.sent();
    assert_eq!(server.http2.idle_since(), Some(server.now));
}

#[test]
fn requests_beyond_the_streams_permitted_now_wait() {
    let config = Config {
        streams: 2,
        ..Config::default()
    };
    let mut server = Server::begin(config);
    server.sent();
    for stream in [1, 3, 5, 7, 9] {
        server.give(request(stream, 0));
    }
    let accept = |server: &mut Server| -> Vec<StreamId> {
        std::iter::from_fn(|| server.http2.accept()).collect()
    };
    let first = accept(&mut server);
    assert_eq!((first.len(), server.events()), (2, vec![Event::Opened]));
    server.http2.reset(first[0], ErrorCode::CANCEL);
    server.http2.stop(first[0], ErrorCode::CANCEL);
    server.sent();
    assert_eq!(server.events(), [Event::Opened]);
    assert_eq!(accept(&mut server).len(), 1);
    server.http2.grant_streams(100);
    assert_eq!(server.events(), [Event::Opened]);
    assert_eq!(accept(&mut server).len(), 2);
    // The heads that wait have a limit.
    let mut server = Server::begin(config);
    server.sent();
    let long = "x".repeat(4000);
    let fields = block(&[(":method", "CONNECT"), (":authority", "a:1"), ("x", &long)]);
    for count in 0..11 {
        let frame = Frame(HEADERS, END_HEADERS, 2 * count + 1, fields.clone());
        server.give(frame);
        accept(&mut server);
    }
    assert_eq!(server.sent(), [reset(21, ErrorCode::REFUSED_STREAM)]);
    assert!(server.http2.held() > 32_000);
}

// RFC 9113 section 5.1.2.
#[test]
fn requests_beyond_a_limit_that_the_peer_has_acknowledged_are_refused() {
    let config = Config {
        streams: 2,
        ..Config::default()
    };
    let mut server = Server::begin(config);
    server.sent();
    server.give(Frame(SETTINGS, ACK, 0, Vec::new()));
    for stream in [1, 3, 5] {
        server.give(request(stream, 0));
    }
    let refused = reset(5, ErrorCode::REFUSED_STREAM);
    assert_eq!(server.sent(), [refused]);
    // A stream that has ended makes room for another one.
    server.give(reset(1, ErrorCode::CANCEL));
    server.give(request(7, 0));
    assert_eq!(server.sent(), []);
    // The peer does not know a higher limit at once.
    server.http2.grant_streams(3);
    server.give(request(9, 0));
    server.give(request(11, 0));
    let settings = server.sent();
    assert_eq!((settings.len(), settings[0].0), (1, SETTINGS));
    server.give(Frame(SETTINGS, ACK, 0, Vec::new()));
    server.give(request(13, 0));
    assert_eq!(server.sent(), [reset(13, ErrorCode::REFUSED_STREAM)]);
}
