//! A peer that breaks rules, or follows them to do harm.

use super::*;
use crate::event::DATAGRAMS_MAX;
use crate::mux::DATAGRAM_COST;

const CLIENT_UNI: u64 = 2;
const SERVER_BIDI: u64 = 1;
const SERVER_UNI: u64 = 3;

/// Limits that a test can reach.
fn small() -> Config {
    Config {
        window: 30,
        stream_window: 20,
        streams: 2,
        ..Config::default()
    }
}

#[test]
fn frames_before_the_parameters_are_a_violation() {
    for frame in [Frame::MaxData(7), Frame::Padding, stream(0, 0, b"a", false)] {
        Alone::unconnected(small()).assert_ends(&[frame], TransportCode::PROTOCOL_VIOLATION);
    }
}

#[test]
fn parameters_occur_once() {
    let twice = [parameters(7), parameters(7)];
    Alone::unconnected(small()).assert_ends(&twice, TransportCode::PROTOCOL_VIOLATION);
    Alone::new(small()).assert_ends(&[parameters(7)], TransportCode::PROTOCOL_VIOLATION);
}

#[test]
fn malformed_parameters_have_their_own_code() {
    let prohibited = Frame::TransportParameters(Bytes::from_static(&[0x0e, 1, 2]));
    Alone::unconnected(small())
        .assert_ends(&[prohibited], TransportCode::TRANSPORT_PARAMETER_ERROR);
}

#[test]
fn malformed_records_end_the_connection() {
    for (bytes, code) in [
        (&[0x00][..], TransportCode::PROTOCOL_VIOLATION),
        (&[0x7f, 0xff][..], TransportCode::FRAME_ENCODING_ERROR),
        // PING, and a frame that ends after its record.
        (&[0x01, 0x01][..], TransportCode::FRAME_ENCODING_ERROR),
        (
            &[0x02, 0x10, 0x40, 0x00][..],
            TransportCode::FRAME_ENCODING_ERROR,
        ),
    ] {
        let mut alone = Alone::new(small());
        alone.mux.handle_bytes(alone.now, Bytes::from_static(bytes));
        alone.assert_ended(code);
    }
}

#[test]
fn streams_are_limited_in_number() {
    let mut alone = Alone::new(small());
    alone.handle(&[stream(4, 0, b"a", false)]);
    assert_eq!(alone.mux.peer_streams(), 2);
    alone.assert_ends(
        &[stream(8, 0, b"a", false)],
        TransportCode::STREAM_LIMIT_ERROR,
    );
    for frame in [
        Frame::StopSending { stream: 8, code: 1 },
        Frame::MaxStreamData {
            stream: 8,
            limit: 1,
        },
        Frame::StreamDataBlocked {
            stream: 8,
            limit: 1,
        },
        reset(8, 1, 0),
        reset(CLIENT_UNI, 1, 0),
        stream(CLIENT_UNI, 0, b"a", false),
    ] {
        Alone::new(small()).assert_ends(&[frame], TransportCode::STREAM_LIMIT_ERROR);
    }
}

#[test]
fn frames_of_the_wrong_stream_or_direction_are_errors() {
    for frame in [
        stream(SERVER_BIDI, 0, b"a", false),
        reset(SERVER_BIDI, 1, 0),
        Frame::MaxStreamData {
            stream: SERVER_BIDI,
            limit: 1,
        },
        Frame::StopSending {
            stream: SERVER_BIDI,
            code: 1,
        },
        stream(SERVER_UNI, 0, b"a", false),
        Frame::StopSending {
            stream: SERVER_UNI,
            code: 1,
        },
        Frame::MaxStreamData {
            stream: CLIENT_UNI,
            limit: 1,
        },
        Frame::StopSending {
            stream: CLIENT_UNI,
            code: 1,
        },
    ] {
        Alone::new(small()).assert_ends(&[frame], TransportCode::STREAM_STATE_ERROR);
    }
}

#[test]
fn stream_data_is_limited() {
    let data = b"12345678901234567890x";
    let mut alone = Alone::new(small());
    alone.handle(&[stream(0, 0, &data[..20], false)]);
    assert_eq!(events(&mut alone.mux), [Event::Opened]);
    alone.assert_ends(
        &[stream(0, 20, b"x", false)],
        TransportCode::FLOW_CONTROL_ERROR,
    );
    Alone::new(small()).assert_ends(
        &[stream(0, 0, data, false)],
        TransportCode::FLOW_CONTROL_ERROR,
    );
    Alone::new(small()).assert_ends(&[reset(0, 1, 21)], TransportCode::FLOW_CONTROL_ERROR);
}

#[test]
fn data_of_the_connection_is_limited() {
    let data = b"12345678901234567890";
    let mut alone = Alone::new(small());
    alone.handle(&[stream(0, 0, data, false), stream(4, 0, &data[..10], false)]);
    assert!(!alone.mux.is_closed());
    alone.assert_ends(
        &[stream(4, 10, b"x", false)],
        TransportCode::FLOW_CONTROL_ERROR,
    );
    let over = [stream(0, 0, data, false), reset(4, 1, 11)];
    Alone::new(small()).assert_ends(&over, TransportCode::FLOW_CONTROL_ERROR);
    let exact = [stream(0, 0, data, false), reset(4, 1, 10)];
    let mut alone = Alone::new(small());
    alone.handle(&exact);
    assert!(!alone.mux.is_closed());
}

#[test]
fn stream_data_arrives_in_order() {
    for offset in [0, 1, 3, 4] {
        let mut alone = Alone::new(small());
        alone.handle(&[stream(0, 0, b"ab", false)]);
        alone.assert_ends(
            &[stream(0, offset, b"c", false)],
            TransportCode::PROTOCOL_VIOLATION,
        );
    }
    Alone::new(small()).assert_ends(
        &[stream(0, 1, b"", false)],
        TransportCode::PROTOCOL_VIOLATION,
    );
}

#[test]
fn the_final_size_stays() {
    for frame in [
        stream(0, 2, b"c", false),
        stream(0, 2, b"c", true),
        stream(0, 1, b"", true),
        reset(0, 1, 1),
        reset(0, 1, 3),
    ] {
        let mut alone = Alone::new(small());
        alone.handle(&[stream(0, 0, b"ab", true)]);
        alone.assert_ends(&[frame], TransportCode::FINAL_SIZE_ERROR);
    }
    let mut alone = Alone::new(small());
    alone.handle(&[stream(0, 0, b"ab", false)]);
    alone.assert_ends(&[reset(0, 1, 1)], TransportCode::FINAL_SIZE_ERROR);
    let mut alone = Alone::new(small());
    alone.handle(&[reset(0, 1, 5)]);
    alone.assert_ends(&[reset(0, 1, 6)], TransportCode::FINAL_SIZE_ERROR);
    let mut alone = Alone::new(small());
    alone.handle(&[stream(0, 0, b"ab", true)]);
    alone.assert_ends(
        &[stream(0, 0, b"ab", true)],
        TransportCode::PROTOCOL_VIOLATION,
    );
}

#[test]
fn what_ended_streams_may_still_cause_is_ignored() {
    let mut alone = Alone::new(small());
    alone.handle(&[
        stream(0, 0, b"ab", true),
        stream(0, 2, b"", true),
        reset(0, 1, 2),
    ]);
    let id = alone.mux.accept().expect("a stream");
    assert_eq!(
        read(&mut alone.mux, id, 10),
        (b"ab".to_vec(), ReadEnd::Finished)
    );
    alone.mux.finish(id);
    alone.written();
    assert_eq!(alone.mux.peer_streams(), 0);
    alone.handle(&[
        reset(0, 1, 2),
        Frame::StopSending { stream: 0, code: 1 },
        Frame::MaxStreamData {
            stream: 0,
            limit: 7,
        },
        Frame::StreamDataBlocked {
            stream: 0,
            limit: 7,
        },
    ]);
    assert!(!alone.mux.is_closed());
    alone.assert_ends(
        &[stream(0, 2, b"", true)],
        TransportCode::STREAM_STATE_ERROR,
    );
}

#[test]
fn no_data_follows_a_reset() {
    let mut alone = Alone::new(small());
    alone.handle(&[reset(0, 1, 5)]);
    alone.assert_ends(
        &[stream(0, 0, b"a", false)],
        TransportCode::STREAM_STATE_ERROR,
    );
}

#[test]
fn a_partial_reset_follows_its_data() {
    let partial = |reliable| Frame::ResetStream {
        stream: 0,
        code: 1,
        final_size: 5,
        reliable_size: Some(reliable),
    };
    let mut alone = Alone::new(small());
    alone.handle(&[stream(0, 0, b"abc", false), partial(3)]);
    assert!(!alone.mux.is_closed());
    let mut alone = Alone::new(small());
    alone.handle(&[stream(0, 0, b"abc", false)]);
    alone.assert_ends(&[partial(4)], TransportCode::PROTOCOL_VIOLATION);
}

#[test]
fn datagrams_are_limited() {
    let datagram = |length: usize| Frame::Datagram {
        data: vec![0; length].into(),
        frame_len: 0,
    };
    let config = Config {
        datagram_frame_max: 12,
        ..small()
    };
    let mut alone = Alone::new(config);
    alone.handle(&[datagram(10)]);
    assert_eq!(
        events(&mut alone.mux),
        [Event::Datagram(vec![0; 10].into())]
    );
    alone.assert_ends(&[datagram(11)], TransportCode::PROTOCOL_VIOLATION);
    let config = Config {
        datagram_frame_max: 0,
        ..small()
    };
    Alone::new(config).assert_ends(&[datagram(0)], TransportCode::PROTOCOL_VIOLATION);
}

// What a caller reads in one turn is kept, also if it is many short datagrams.
#[test]
fn a_flood_of_datagrams_drops_the_oldest_beyond_a_mebibyte() {
    for length in [2, 200, 10_000] {
        let mut alone = Alone::new(small());
        let most = DATAGRAMS_MAX / (length + DATAGRAM_COST);
        let numbered = |number: usize| {
            let mut data = vec![0; length];
            data[..2].copy_from_slice(&number.to_be_bytes()[6..]);
            Bytes::from(data)
        };
        for number in 0..most + 10 {
            let data = numbered(number);
            alone.handle(&[Frame::Datagram { data, frame_len: 0 }]);
        }
        let events = events(&mut alone.mux);
        assert_eq!(events.len(), most, "{length}");
        assert_eq!(events[0], Event::Datagram(numbered(10)));
    }
}

#[test]
fn pings_increase_and_answers_follow_pings() {
    let ping = |sequence| Frame::Ping {
        sequence,
        response: false,
    };
    let answer = |sequence| Frame::Ping {
        sequence,
        response: true,
    };
    let mut alone = Alone::new(small());
    alone.handle(&[ping(5), ping(7)]);
    alone.assert_ends(&[ping(7)], TransportCode::PROTOCOL_VIOLATION);
    Alone::new(small()).assert_ends(&[answer(0)], TransportCode::PROTOCOL_VIOLATION);
    let mut alone = Alone::new(small());
    alone.mux.ping();
    assert_eq!(alone.written(), [ping(0)]);
    alone.handle(&[answer(0), answer(0)]);
    assert_eq!(events(&mut alone.mux), [Event::Pong(Duration::ZERO)]);
    alone.mux.ping();
    assert_eq!(alone.written(), [ping(1)]);
    // An answer to an earlier ping says nothing about the last one.
    alone.handle(&[answer(0)]);
    assert_eq!(events(&mut alone.mux), []);
    alone.handle(&[answer(1)]);
    assert_eq!(events(&mut alone.mux), [Event::Pong(Duration::ZERO)]);
    alone.assert_ends(&[answer(2)], TransportCode::PROTOCOL_VIOLATION);
}

#[test]
fn a_flood_of_pings_has_one_answer() {
    let mut alone = Alone::new(small());
    for sequence in 0..10_000 {
        alone.handle(&[Frame::Ping {
            sequence,
            response: false,
        }]);
    }
    assert_eq!(
        alone.written(),
        [Frame::Ping {
            sequence: 9_999,
            response: true
        }]
    );
}

#[test]
fn floods_of_frames_leave_one_event_and_one_answer_each() {
    let mut alone = Alone::new(small());
    alone.handle(&[stream(0, 0, b"", false)]);
    let id = alone.mux.accept().expect("a stream");
    events(&mut alone.mux);
    for number in 0..1000 {
        alone.handle(&[
            Frame::StopSending {
                stream: 0,
                code: number,
            },
            Frame::MaxStreamData {
                stream: 0,
                limit: (1 << 40) + number,
            },
            Frame::MaxData((1 << 40) + number),
            Frame::MaxStreams {
                bidirectional: true,
                limit: (1 << 40) + number,
            },
            Frame::MaxStreams {
                bidirectional: false,
                limit: number,
            },
            Frame::DataBlocked(30),
            Frame::StreamDataBlocked {
                stream: 0,
                limit: 20,
            },
            Frame::StreamsBlocked {
                bidirectional: true,
                limit: 2,
            },
            Frame::StreamsBlocked {
                bidirectional: false,
                limit: 0,
            },
            reset(0, 7, 20),
            Frame::Padding,
        ]);
    }
    assert_eq!(
        events(&mut alone.mux),
        [Event::Available, Event::Stopped(id, 0), Event::Readable(id)]
    );
    // The reset has counted bytes that never arrive, so the connection has credit to give back.
    assert_eq!(alone.written(), [Frame::MaxData(50)]);
}

#[test]
fn streams_that_have_ended_leave_nothing() {
    let mut alone = Alone::new(small());
    for index in 0..1000 {
        let number = index * 4;
        alone.handle(&[stream(number, 0, b"a", true)]);
        let id = alone.mux.accept().expect("a stream");
        assert_eq!(id.number(), number);
        assert_eq!(
            read(&mut alone.mux, id, 10),
            (b"a".to_vec(), ReadEnd::Finished)
        );
        alone.mux.reset(id, 3);
        alone.written();
        assert_eq!(
            (alone.mux.peer_streams(), alone.mux.unsettled_streams()),
            (0, 0)
        );
    }
    assert_eq!(events(&mut alone.mux), [Event::Opened]);
}

#[test]
fn short_pieces_do_not_keep_their_records() {
    let config = Config {
        window: 1 << 20,
        stream_window: 1 << 20,
        ..small()
    };
    let mut alone = Alone::new(config);
    alone.handle(&[stream(0, 0, b"", false)]);
    let id = alone.mux.accept().expect("a stream");
    for offset in 0..10_000 {
        alone.handle(&[stream(0, offset, b"a", false)]);
    }
    let mut pieces = 0;
    let end = alone.mux.read(id, usize::MAX, &mut |_, _| pieces += 1);
    assert_eq!((pieces, end), (1, ReadEnd::Blocked));
}

#[test]
fn a_close_of_the_peer_ends_the_connection_without_an_answer() {
    let close = |application| Frame::ConnectionClose {
        application,
        code: 9,
        reason: Bytes::from_static(b"bye"),
    };
    let reason = Bytes::from_static(b"bye");
    let mut alone = Alone::new(small());
    alone.handle(&[
        stream(0, 0, b"ab", false),
        close(true),
        Frame::Ping {
            sequence: 1,
            response: false,
        },
    ]);
    let id = alone.mux.accept().expect("a stream");
    let lost = Error::ClosedByPeer {
        code: 9,
        reason: reason.clone(),
    };
    assert_eq!(events(&mut alone.mux), [Event::Opened, Event::Lost(lost)]);
    assert_eq!(alone.written(), []);
    // What has arrived can be read, and nothing can be written.
    assert_eq!(
        read(&mut alone.mux, id, 10),
        (b"ab".to_vec(), ReadEnd::Blocked)
    );
    assert_eq!(
        alone.mux.write(id, &mut Bytes::from_static(b"a")),
        WriteEnd::Blocked
    );
    assert_eq!(alone.mux.open(), None);

    let mut alone = Alone::new(small());
    alone.handle(&[close(false)]);
    let lost = Error::ReportedByPeer {
        code: TransportCode(9),
        reason,
    };
    assert_eq!(events(&mut alone.mux), [Event::Lost(lost)]);
}

#[test]
fn streams_that_end_without_credit_leave_nothing() {
    let mut alone = Alone::unconnected(small());
    alone.handle(&[parameters(0)]);
    for index in 0..1000 {
        let number = index * 4;
        alone.handle(&[
            Frame::MaxStreamData {
                stream: number,
                limit: 9,
            },
            stream(number, 0, b"a", true),
        ]);
        let id = alone.mux.accept().expect("a stream");
        assert_eq!(
            alone.mux.write(id, &mut Bytes::from_static(b"b")),
            WriteEnd::Blocked
        );
        alone.mux.stop(id, 3);
        alone.mux.reset(id, 3);
        alone.written();
        assert_eq!(alone.mux.waiting_streams(), 0);
    }
}
