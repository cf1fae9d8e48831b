//! Credit of connections, streams and their number.

use super::*;

fn config() -> Config {
    Config {
        window: 1000,
        stream_window: 400,
        streams: 4,
        kept: 1 << 20,
        ..Config::default()
    }
}

/// Writes as much as possible, and returns its length.
fn fill(mux: &mut Mux, id: StreamId) -> usize {
    let mut chunk = Bytes::from(vec![7; 100_000]);
    assert_eq!(mux.write(id, &mut chunk), WriteEnd::Blocked);
    100_000 - chunk.len()
}

#[test]
fn a_stream_is_limited_and_resumes_after_half_of_its_window() {
    let mut pair = Pair::new(config(), config());
    let id = pair.stream();
    assert_eq!(fill(&mut pair.client, id), 399);
    pair.exchange();
    assert_eq!(pair.client.poll_event(), None);
    // The byte with which the stream was opened counts, too.
    assert_eq!(read(&mut pair.server, id, 198).0.len(), 198);
    pair.exchange();
    assert_eq!(pair.client.poll_event(), None);
    read(&mut pair.server, id, 1);
    pair.exchange();
    assert_eq!(pair.client.poll_event(), Some(Event::Writable(id)));
    assert_eq!(pair.client.poll_event(), None);
}

#[test]
fn a_blocked_stream_is_told_of_once() {
    let mut alone = Alone::unconnected(config());
    alone.handle(&[parameters(100)]);
    let id = alone.mux.open().expect("a stream");
    assert_eq!(fill(&mut alone.mux, id), 100);
    fill(&mut alone.mux, id);
    let told = |frames: Vec<Frame>| {
        let blocked = |frame: &Frame| {
            matches!(
                frame,
                Frame::DataBlocked(_) | Frame::StreamDataBlocked { .. }
            )
        };
        frames.into_iter().filter(blocked).collect::<Vec<_>>()
    };
    let number = id.number();
    assert_eq!(
        told(alone.written()),
        [
            Frame::DataBlocked(100),
            Frame::StreamDataBlocked {
                stream: number,
                limit: 100
            }
        ]
    );
    fill(&mut alone.mux, id);
    assert_eq!(told(alone.written()), []);
    alone.handle(&[Frame::MaxStreamData {
        stream: number,
        limit: 150,
    }]);
    assert_eq!(events(&mut alone.mux), [Event::Connected]);
    alone.handle(&[Frame::MaxData(120)]);
    assert_eq!(events(&mut alone.mux), [Event::Writable(id)]);
    assert_eq!(fill(&mut alone.mux, id), 20);
    assert_eq!(told(alone.written()), [Frame::DataBlocked(120)]);
    // Lower limits change nothing (RFC 9000 section 4.1).
    alone.handle(&[
        Frame::MaxData(7),
        Frame::MaxStreamData {
            stream: number,
            limit: 7,
        },
    ]);
    assert_eq!(fill(&mut alone.mux, id), 0);
}

#[test]
fn an_empty_chunk_asks_for_credit() {
    let mut alone = Alone::unconnected(config());
    alone.handle(&[parameters(5)]);
    let id = alone.mux.open().expect("a stream");
    assert_eq!(alone.mux.write(id, &mut Bytes::new()), WriteEnd::Taken);
    write(&mut alone.mux, id, b"12345");
    assert_eq!(alone.mux.write(id, &mut Bytes::new()), WriteEnd::Blocked);
}

#[test]
fn the_window_of_the_connection_is_announced_after_half_of_it() {
    let mut alone = Alone::new(config());
    alone.handle(&[
        stream(0, 0, &[7; 400], false),
        stream(4, 0, &[7; 400], false),
    ]);
    let ids = [alone.mux.accept(), alone.mux.accept()].map(|id| id.expect("a stream"));
    read(&mut alone.mux, ids[0], 199);
    assert_eq!(alone.written(), []);
    read(&mut alone.mux, ids[0], 1);
    assert_eq!(
        alone.written(),
        [Frame::MaxStreamData {
            stream: 0,
            limit: 600
        }]
    );
    assert_eq!(alone.mux.granted(), 800);
    read(&mut alone.mux, ids[1], 299);
    assert_eq!(
        alone.written(),
        [Frame::MaxStreamData {
            stream: 4,
            limit: 699
        }]
    );
    read(&mut alone.mux, ids[1], 1);
    assert_eq!(alone.written(), [Frame::MaxData(1500)]);
    assert_eq!(alone.mux.granted(), 1000);
}

#[test]
fn a_larger_window_is_announced_at_once_and_a_smaller_one_as_bytes_are_taken() {
    let mut alone = Alone::new(config());
    alone.mux.set_window(1001);
    assert_eq!(alone.written(), [Frame::MaxData(1001)]);
    alone.mux.set_window(100);
    assert_eq!((alone.written(), alone.mux.granted()), (vec![], 1001));
    alone.handle(&[stream(0, 0, &[7; 400], true)]);
    let id = alone.mux.accept().expect("a stream");
    read(&mut alone.mux, id, 1000);
    assert_eq!((alone.written(), alone.mux.granted()), (vec![], 601));
}

#[test]
fn streams_that_end_early_give_their_credit_back() {
    let mut alone = Alone::new(config());
    alone.handle(&[stream(0, 0, &[7; 400], false), reset(0, 1, 400)]);
    alone.handle(&[stream(4, 0, &[7; 50], false)]);
    let ids = [alone.mux.accept(), alone.mux.accept()].map(|id| id.expect("a stream"));
    assert_eq!(
        read(&mut alone.mux, ids[0], 10),
        (vec![], ReadEnd::Reset(1))
    );
    assert_eq!(alone.mux.granted(), 600);
    alone.mux.stop(ids[1], 9);
    assert_eq!(alone.mux.granted(), 550);
    alone.handle(&[stream(4, 50, &[7; 50], false)]);
    assert_eq!(alone.mux.granted(), 500);
    assert_eq!(
        alone.written(),
        [
            Frame::MaxData(1500),
            Frame::StopSending { stream: 4, code: 9 }
        ]
    );
    alone.handle(&[reset(4, 9, 300)]);
    assert_eq!(alone.mux.granted(), 800);
}

#[test]
fn bytes_that_a_reset_drops_can_be_sent_on_another_stream() {
    let mut alone = Alone::unconnected(config());
    alone.handle(&[parameters(100)]);
    let ids = [alone.mux.open(), alone.mux.open()].map(|id| id.expect("a stream"));
    assert_eq!(fill(&mut alone.mux, ids[0]), 100);
    assert_eq!(fill(&mut alone.mux, ids[1]), 0);
    alone.mux.reset(ids[0], 3);
    assert_eq!(alone.mux.queued(), 0);
    let expected = [Event::Connected, Event::Writable(ids[1])];
    assert_eq!(events(&mut alone.mux), expected);
    assert_eq!(fill(&mut alone.mux, ids[1]), 100);
    assert!(alone.written().contains(&reset(ids[0].number(), 3, 0)));
}

#[test]
fn bytes_that_wait_are_limited() {
    let kept = Config {
        kept: 30_000,
        ..config()
    };
    let mut alone = Alone::new(kept);
    let id = alone.mux.open().expect("a stream");
    assert_eq!(fill(&mut alone.mux, id), 30_000);
    assert_eq!((alone.mux.queued(), alone.mux.poll_event()), (30_000, None));
    let mut slot = vec![0; RECORD_MAX];
    assert_eq!(alone.mux.poll_transmit(alone.now, &mut slot), RECORD_MAX);
    assert_eq!(alone.mux.poll_event(), Some(Event::Writable(id)));
    assert_eq!(fill(&mut alone.mux, id), RECORD_MAX - 6);
    assert_eq!(alone.mux.queued(), 30_000);
    alone.mux.set_kept(0);
    alone.written();
    assert_eq!((alone.mux.queued(), fill(&mut alone.mux, id)), (0, 0));
    alone.mux.set_kept(1);
    assert_eq!(alone.mux.poll_event(), Some(Event::Writable(id)));
}

#[test]
fn more_streams_are_permitted_as_streams_end() {
    let mut pair = Pair::new(config(), config());
    let ids: Vec<_> = std::iter::from_fn(|| pair.client.open()).collect();
    assert_eq!(ids.len(), 4);
    pair.exchange();
    assert_eq!(pair.client.poll_event(), None);
    for id in &ids {
        pair.client.finish(*id);
    }
    pair.exchange();
    assert_eq!(pair.server.peer_streams(), 4);
    let id = pair.server.accept().expect("a stream");
    assert_eq!(read(&mut pair.server, id, 1), (vec![], ReadEnd::Finished));
    pair.server.finish(id);
    pair.exchange();
    let expected = [Event::Available, Event::Readable(id)];
    assert_eq!(events(&mut pair.client), expected);
    assert!(pair.client.open().is_some() && pair.client.open().is_none());
    pair.server.grant_streams(6);
    pair.exchange();
    assert_eq!(events(&mut pair.client), [Event::Available]);
    pair.server.grant_streams(0);
    assert_eq!(
        [(); 3].map(|()| pair.client.open().is_some()),
        [true, true, false]
    );
}

#[test]
fn the_number_of_streams_is_announced_once_half_of_them_are_used() {
    let mut alone = Alone::new(config());
    for (index, announced) in [(0, vec![]), (1, vec![5])] {
        alone.handle(&[stream(index * 4, 0, b"", true)]);
        let id = alone.mux.accept().expect("a stream");
        read(&mut alone.mux, id, 1);
        alone.mux.finish(id);
        let limits = alone.written().into_iter().filter_map(|frame| match frame {
            Frame::MaxStreams { limit, .. } => Some(limit),
            _ => None,
        });
        assert_eq!(limits.collect::<Vec<_>>(), announced);
    }
}

#[test]
fn only_streams_that_can_be_written_are_writable() {
    let mut alone = Alone::unconnected(config());
    alone.handle(&[parameters(100)]);
    events(&mut alone.mux);
    let [first, second] = [alone.mux.open(), alone.mux.open()].map(|id| id.expect("a stream"));
    write(&mut alone.mux, first, &[7; 95]);
    write(&mut alone.mux, second, &[7; 5]);
    assert_eq!(
        (fill(&mut alone.mux, first), fill(&mut alone.mux, second)),
        (0, 0)
    );
    alone.handle(&[
        Frame::MaxData(200),
        Frame::StopSending {
            stream: second.number(),
            code: 3,
        },
    ]);
    // Before the event is polled, the first one uses its own credit up.
    assert_eq!(fill(&mut alone.mux, first), 5);
    assert_eq!(events(&mut alone.mux), [Event::Stopped(second, 3)]);
    alone.handle(&[Frame::MaxStreamData {
        stream: first.number(),
        limit: 101,
    }]);
    assert_eq!(events(&mut alone.mux), [Event::Writable(first)]);
}

#[test]
fn windows_may_be_as_large_as_numbers_are() {
    let config = Config {
        window: u64::MAX,
        stream_window: u64::MAX,
        ..config()
    };
    let mut pair = Pair::new(config, config);
    let id = pair.stream();
    pair.server.set_window(u64::MAX);
    write(&mut pair.client, id, b"data");
    pair.exchange();
    assert_eq!(read(&mut pair.server, id, 9).0, b"data");
    pair.exchange();
    assert!(!pair.client.is_closed() && !pair.server.is_closed());
}
