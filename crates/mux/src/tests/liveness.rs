//! Pings, datagrams and closes.

use super::*;

#[test]
fn a_ping_measures_the_round_trip() {
    let mut pair = Pair::new(Config::default(), Config::default());
    let mut slot = vec![0; RECORD_MAX];
    pair.client.ping();
    pair.wait(Duration::from_millis(5));
    // The time in this side's queue does not count.
    let length = pair.client.poll_transmit(pair.now, &mut slot);
    pair.client.ping();
    assert_eq!(
        written(pair.now, &mut pair.client),
        [],
        "one ping at a time"
    );
    pair.wait(Duration::from_millis(20));
    let ping = Bytes::copy_from_slice(&slot[..length]);
    pair.server.handle_bytes(pair.now, ping);
    pair.wait(Duration::from_millis(10));
    pair.exchange();
    let round_trip = Event::Pong(Duration::from_millis(30));
    assert_eq!(events(&mut pair.client), [round_trip]);
}

#[test]
fn datagrams_pass_in_both_directions_up_to_the_limits() {
    let short = Config {
        datagram_frame_max: 100,
        ..Config::default()
    };
    let mut pair = Pair::new(Config::default(), short);
    assert_eq!(
        (pair.client.max_datagram(), pair.server.max_datagram()),
        (Some(97), Some(16_379))
    );
    for (from_client, length) in [(true, 97), (false, 16_379), (true, 0)] {
        let (from, to) = if from_client {
            (&mut pair.client, &mut pair.server)
        } else {
            (&mut pair.server, &mut pair.client)
        };
        let data = Bytes::from(vec![7; length]);
        let longer = Bytes::from(vec![7; from.max_datagram().expect("permitted") + 1]);
        let limit = longer.len() - 1;
        assert_eq!(
            from.send_datagram(longer),
            Err(DatagramError::TooLong(limit))
        );
        assert_eq!(from.send_datagram(data.clone()), Ok(()));
        let mut slot = vec![0; RECORD_MAX];
        let length = from.poll_transmit(pair.now, &mut slot);
        to.handle_bytes(pair.now, Bytes::copy_from_slice(&slot[..length]));
        assert_eq!(events(to), [Event::Datagram(data)]);
    }
}

#[test]
fn datagrams_precede_data_and_are_limited() {
    let mut alone = Alone::new(Config::default());
    let id = alone.mux.open().expect("a stream");
    write(&mut alone.mux, id, b"data");
    let data = Bytes::from(vec![7; 10_000]);
    let taken = (0..100).take_while(|_| alone.mux.send_datagram(data.clone()).is_ok());
    assert_eq!(taken.count(), 7);
    assert_eq!(
        alone.mux.send_datagram(data.clone()),
        Err(DatagramError::QueueFull)
    );
    let frames = alone.written();
    assert!(matches!(frames[0], Frame::Datagram { .. }), "{frames:?}");
    assert_eq!(frames.len(), 8);
    // A slot that is too short drops a datagram, so that it does not stay for ever.
    assert_eq!(alone.mux.send_datagram(data), Ok(()));
    assert_eq!(alone.mux.poll_transmit(alone.now, &mut [0; 5000]), 0);
    assert!(alone.mux.is_idle());
    assert_eq!(alone.written(), []);
}

#[test]
fn a_peer_without_datagrams_gets_none() {
    let none = Config {
        datagram_frame_max: 0,
        ..Config::default()
    };
    let mut pair = Pair::new(Config::default(), none);
    assert_eq!(pair.client.max_datagram(), None);
    let result = pair.client.send_datagram(Bytes::new());
    assert_eq!(result, Err(DatagramError::Unsupported));
}

#[test]
fn a_close_says_why_and_drops_what_is_queued() {
    let mut pair = Pair::new(Config::default(), Config::default());
    let id = pair.stream();
    write(&mut pair.client, id, b"queued");
    pair.client.close(42, Bytes::from(vec![b'x'; 1000]));
    pair.client.close(43, Bytes::new());
    assert!(pair.client.is_closed() && !pair.client.is_idle());
    pair.exchange();
    assert!(pair.client.is_idle() && pair.server.is_closed());
    assert_eq!(events(&mut pair.client), []);
    let reason = Bytes::from(vec![b'x'; 256]);
    let lost = Error::ClosedByPeer { code: 42, reason };
    assert_eq!(events(&mut pair.server), [Event::Lost(lost)]);
    assert_eq!(read(&mut pair.server, id, 10), (vec![], ReadEnd::Blocked));
}

#[test]
fn a_close_before_anything_else_follows_the_parameters() {
    let mut alone = Alone::unconnected(Config::default());
    alone.mux.close(1, Bytes::new());
    let frames = alone.written();
    assert!(matches!(
        frames[..],
        [
            Frame::TransportParameters(_),
            Frame::ConnectionClose {
                application: true,
                code: 1,
                ..
            }
        ]
    ));
}

#[test]
fn a_short_slot_takes_no_record() {
    let mut alone = Alone::unconnected(Config::default());
    assert_eq!(
        alone.mux.poll_transmit(alone.now, &mut [0; SLOT_MIN - 1]),
        0
    );
    assert!(!alone.mux.is_idle());
    assert!(alone.mux.poll_transmit(alone.now, &mut [0; SLOT_MIN]) > 0);
}
