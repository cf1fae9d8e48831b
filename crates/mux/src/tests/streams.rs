//! Streams between two sides: their data, ends and order.

use super::*;

#[test]
fn streams_carry_data_and_ends_in_both_directions() {
    let mut pair = Pair::new(Config::default(), Config::default());
    let id = pair.stream();
    let data: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    write(&mut pair.client, id, &data);
    pair.client.finish(id);
    write(&mut pair.server, id, b"answer");
    pair.exchange();
    assert_eq!(events(&mut pair.server), [Event::Readable(id)]);
    assert_eq!(
        read(&mut pair.server, id, usize::MAX),
        (data, ReadEnd::Finished)
    );
    assert_eq!(pair.server.read(id, 10, &mut |_, _| ()), ReadEnd::Gone);
    assert_eq!(
        read(&mut pair.client, id, 3),
        (b"ans".to_vec(), ReadEnd::More)
    );
    assert_eq!(
        read(&mut pair.client, id, 9),
        (b"wer".to_vec(), ReadEnd::Blocked)
    );
    pair.server.finish(id);
    pair.exchange();
    assert_eq!(read(&mut pair.client, id, 9), (vec![], ReadEnd::Finished));
    assert_eq!(
        (pair.server.peer_streams(), pair.server.unsettled_streams()),
        (0, 0)
    );
    assert_eq!(pair.client.unsettled_streams(), 0);
    assert_eq!(pair.client.write(id, &mut Bytes::new()), WriteEnd::Gone);
}

#[test]
fn data_lies_where_it_arrived() {
    let mut pair = Pair::new(Config::default(), Config::default());
    let id = pair.stream();
    write(&mut pair.client, id, &[7; 5000]);
    let mut slot = vec![0; RECORD_MAX];
    let length = pair.client.poll_transmit(pair.now, &mut slot);
    let bytes = Bytes::copy_from_slice(&slot[..length]);
    let input = bytes.as_ptr_range();
    pair.server.handle_bytes(pair.now, bytes);
    pair.server.read(id, usize::MAX, &mut |_, piece| {
        assert_eq!(piece.len(), 5000);
        assert!(input.contains(&piece.as_ptr()));
    });
}

#[test]
fn a_reset_drops_what_was_not_read() {
    let mut pair = Pair::new(Config::default(), Config::default());
    let id = pair.stream();
    write(&mut pair.client, id, b"sent");
    pair.exchange();
    write(&mut pair.client, id, b"queued");
    pair.client.finish(id);
    pair.client.reset(id, 5);
    pair.client.reset(id, 6);
    pair.exchange();
    assert_eq!(read(&mut pair.server, id, 100), (vec![], ReadEnd::Reset(5)));
    assert_eq!(read(&mut pair.server, id, 100), (vec![], ReadEnd::Gone));
}

#[test]
fn a_reset_after_the_end_was_written_changes_nothing() {
    let mut pair = Pair::new(Config::default(), Config::default());
    let id = pair.stream();
    write(&mut pair.client, id, b"sent");
    pair.client.finish(id);
    pair.exchange();
    pair.client.reset(id, 5);
    assert!(pair.client.is_idle());
    assert_eq!(
        read(&mut pair.server, id, 100),
        (b"sent".to_vec(), ReadEnd::Finished)
    );
}

#[test]
fn a_partial_reset_of_the_peer_keeps_the_reliable_bytes() {
    let mut alone = Alone::new(Config::default());
    alone.handle(&[stream(0, 0, b"abcdef", false)]);
    let id = alone.mux.accept().expect("a stream");
    read(&mut alone.mux, id, 1);
    alone.handle(&[Frame::ResetStream {
        stream: 0,
        code: 5,
        final_size: 8,
        reliable_size: Some(4),
    }]);
    assert_eq!(
        read(&mut alone.mux, id, 100),
        (b"bcd".to_vec(), ReadEnd::Reset(5))
    );
    assert_eq!(alone.mux.granted(), Config::default().window - 8);
}

#[test]
fn a_stop_asks_for_a_reset() {
    let mut pair = Pair::new(Config::default(), Config::default());
    let id = pair.stream();
    pair.server.stop(id, 8);
    pair.exchange();
    assert_eq!(events(&mut pair.client), [Event::Stopped(id, 8)]);
    assert_eq!(
        pair.client.write(id, &mut Bytes::from_static(b"a")),
        WriteEnd::Stopped(8)
    );
    assert_eq!(pair.server.read(id, 10, &mut |_, _| ()), ReadEnd::Gone);
    pair.client.reset(id, 8);
    pair.server.finish(id);
    pair.exchange();
    assert_eq!(events(&mut pair.server), []);
    assert_eq!(pair.server.peer_streams(), 0);
}

#[test]
fn a_stop_of_a_finished_stream_needs_no_frame() {
    let mut pair = Pair::new(Config::default(), Config::default());
    let id = pair.stream();
    pair.client.finish(id);
    pair.exchange();
    pair.server.stop(id, 8);
    assert!(pair.server.is_idle());
}

#[test]
fn streams_open_with_all_lower_ones() {
    let mut alone = Alone::new(Config::default());
    alone.handle(&[Frame::MaxStreamData {
        stream: 8,
        limit: 1 << 41,
    }]);
    assert_eq!(events(&mut alone.mux), [Event::Opened]);
    let accepted: Vec<u64> = std::iter::from_fn(|| alone.mux.accept())
        .map(StreamId::number)
        .collect();
    assert_eq!(accepted, [0, 4, 8]);
    assert_eq!(alone.mux.unsettled_streams(), 3);
}

#[test]
fn streams_take_turns_record_by_record() {
    let mut alone = Alone::new(Config::default());
    let ids: Vec<StreamId> = (0..3).filter_map(|_| alone.mux.open()).collect();
    for id in &ids {
        write(&mut alone.mux, *id, &vec![7; 30_000]);
    }
    let records: Vec<u64> = alone
        .records()
        .iter()
        .map(|record| match record[0] {
            Frame::Stream { stream, .. } => stream >> 2,
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((&records[..3], records.len()), (&[0, 1, 2][..], 6));
}

#[test]
fn short_streams_share_a_record() {
    let mut alone = Alone::new(Config::default());
    for _ in 0..50 {
        let id = alone.mux.open().expect("a stream");
        write(&mut alone.mux, id, b"short");
        alone.mux.finish(id);
    }
    let records = alone.records();
    assert_eq!((records.len(), records[0].len()), (1, 50));
}

#[test]
fn preferred_streams_precede_others() {
    let mut alone = Alone::new(Config::default());
    let ids: Vec<StreamId> = (0..3).filter_map(|_| alone.mux.open()).collect();
    for id in &ids {
        write(&mut alone.mux, *id, b"data");
    }
    // Before and after its data was written.
    alone.mux.prefer(ids[2], true);
    alone.mux.prefer(ids[1], true);
    alone.mux.prefer(ids[1], false);
    let order: Vec<u64> = alone
        .written()
        .into_iter()
        .map(|frame| match frame {
            Frame::Stream { stream, .. } => stream >> 2,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order, [2, 0, 1]);
}

#[test]
fn a_stream_without_much_room_waits_for_the_next_record() {
    let mut alone = Alone::new(Config::default());
    let ids: Vec<StreamId> = (0..2).filter_map(|_| alone.mux.open()).collect();
    write(&mut alone.mux, ids[0], &vec![7; RECORD_MAX - 200]);
    write(&mut alone.mux, ids[1], &[7; 1000]);
    let lengths: Vec<usize> = alone
        .written()
        .into_iter()
        .map(|frame| match frame {
            Frame::Stream { data, .. } => data.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [RECORD_MAX - 200, 1000]);
}

#[test]
fn a_stream_that_ends_before_it_is_accepted_is_settled() {
    let mut alone = Alone::new(Config::default());
    alone.handle(&[stream(0, 0, b"a", false)]);
    let id = StreamId::from_number(0).expect("bidirectional");
    alone.mux.reset(id, 3);
    alone.written();
    assert_eq!(alone.mux.accept(), Some(id));
    assert_eq!(alone.mux.unsettled_streams(), 0);
}
