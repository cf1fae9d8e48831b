//! Two sides in virtual time, and one side against frames that are made by hand.

mod credit;
mod hostile;
mod liveness;
mod model;
mod streams;

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_flow::{ReadEnd, Side, StreamId, WriteEnd};

use crate::error::{DatagramError, Error, TransportCode};
use crate::event::Event;
use crate::frame::Frame;
use crate::mux::{Config, Mux, SLOT_MIN};
use crate::parameters::TransportParameters;
use crate::record::{RECORD_MAX, RecordReader, RecordWriter};

/// Returns a record of these frames.
fn record(frames: &[Frame]) -> Bytes {
    let mut slot = vec![0; RECORD_MAX];
    let mut writer = RecordWriter::new(&mut slot);
    for frame in frames {
        assert!(writer.put(frame), "{frame:?} fits");
    }
    let length = writer.finish();
    slot.truncate(length);
    slot.into()
}

/// Returns the frames of each record that a side writes until nothing is left.
fn records(now: Instant, mux: &mut Mux) -> Vec<Vec<Frame>> {
    let mut records = Vec::new();
    let mut slot = vec![0; RECORD_MAX];
    loop {
        let length = mux.poll_transmit(now, &mut slot);
        if length == 0 {
            assert!(mux.is_idle());
            return records;
        }
        let mut bytes = Bytes::copy_from_slice(&slot[..length]);
        let record = RecordReader::default().next(&mut bytes);
        let mut record = record.expect("well-formed").expect("a whole record");
        assert!(bytes.is_empty(), "one record at a time");
        let decoded = || Frame::decode(&mut record).expect("well-formed");
        records.push(std::iter::from_fn(decoded).collect());
    }
}

/// Returns the frames that a side writes until nothing is left.
fn written(now: Instant, mux: &mut Mux) -> Vec<Frame> {
    records(now, mux).concat()
}

/// Returns the events until none is left.
fn events(mux: &mut Mux) -> Vec<Event> {
    std::iter::from_fn(|| mux.poll_event()).collect()
}

/// Reads at most `max` bytes of a stream.
fn read(mux: &mut Mux, id: StreamId, max: usize) -> (Vec<u8>, ReadEnd) {
    let mut bytes = Vec::new();
    let end = mux.read(id, max, &mut |_, piece| bytes.extend_from_slice(&piece));
    (bytes, end)
}

/// Writes bytes, of which all are taken.
#[track_caller]
fn write(mux: &mut Mux, id: StreamId, bytes: &[u8]) {
    let mut chunk = Bytes::copy_from_slice(bytes);
    assert_eq!(mux.write(id, &mut chunk), WriteEnd::Taken);
}

/// The server's side of a connection, whose client is made by hand.
struct Alone {
    now: Instant,
    mux: Mux,
}

impl Alone {
    /// Begins a connection whose client has sent its parameters, which permit much.
    fn new(config: Config) -> Self {
        let mut alone = Self::unconnected(config);
        alone.handle(&[parameters(1 << 40)]);
        assert_eq!(events(&mut alone.mux), [Event::Connected]);
        assert_eq!(alone.written().len(), 1);
        alone
    }

    fn unconnected(config: Config) -> Self {
        let now = Instant::now();
        let mux = Mux::new(Side::Server, config);
        Self { now, mux }
    }

    fn handle(&mut self, frames: &[Frame]) {
        self.mux.handle_bytes(self.now, record(frames));
    }

    fn written(&mut self) -> Vec<Frame> {
        written(self.now, &mut self.mux)
    }

    fn records(&mut self) -> Vec<Vec<Frame>> {
        records(self.now, &mut self.mux)
    }

    /// Checks that these frames end the connection with this code, and that nothing follows.
    #[track_caller]
    fn assert_ends(&mut self, frames: &[Frame], expected: TransportCode) {
        self.handle(frames);
        self.assert_ended(expected);
    }

    #[track_caller]
    fn assert_ended(&mut self, expected: TransportCode) {
        let last = events(&mut self.mux).pop();
        let Some(Event::Lost(Error::Violation(violation))) = last else {
            panic!("{last:?}");
        };
        assert_eq!(violation.code, expected, "{violation}");
        assert!(self.mux.is_closed());
        let frames = self.written();
        let Some(Frame::ConnectionClose {
            application: false,
            code,
            ..
        }) = frames.last()
        else {
            panic!("{frames:?}");
        };
        assert_eq!(*code, expected.0);
        self.handle(&[Frame::Ping {
            sequence: 0,
            response: false,
        }]);
        assert_eq!(self.written(), []);
        assert_eq!(events(&mut self.mux), []);
    }
}

/// Returns the parameters of a peer that permits `limit` of everything.
fn parameters(limit: u64) -> Frame {
    let parameters = TransportParameters {
        initial_max_data: limit,
        initial_max_stream_data_bidi_local: limit,
        initial_max_stream_data_bidi_remote: limit,
        initial_max_streams_bidi: limit,
        max_datagram_frame_size: limit,
        reset_stream_at: true,
        ..TransportParameters::default()
    };
    let mut encoded = BytesMut::new();
    parameters.encode(&mut encoded);
    Frame::TransportParameters(encoded.freeze())
}

fn stream(stream: u64, offset: u64, data: &'static [u8], fin: bool) -> Frame {
    let data = Bytes::from_static(data);
    Frame::Stream {
        stream,
        offset,
        fin,
        data,
    }
}

fn reset(stream: u64, code: u64, final_size: u64) -> Frame {
    Frame::ResetStream {
        stream,
        code,
        final_size,
        reliable_size: None,
    }
}

/// Two sides and the transport between them.
struct Pair {
    now: Instant,
    client: Mux,
    server: Mux,
}

impl Pair {
    /// Connects two sides, and checks that both notice.
    fn new(client: Config, server: Config) -> Self {
        let now = Instant::now();
        let mut pair = Self {
            now,
            client: Mux::new(Side::Client, client),
            server: Mux::new(Side::Server, server),
        };
        pair.exchange();
        assert_eq!(events(&mut pair.client), [Event::Connected]);
        assert_eq!(events(&mut pair.server), [Event::Connected]);
        pair
    }

    /// Carries records in both directions until none is left.
    fn exchange(&mut self) {
        let mut slot = vec![0; RECORD_MAX];
        loop {
            let up = self.client.poll_transmit(self.now, &mut slot);
            self.server
                .handle_bytes(self.now, Bytes::copy_from_slice(&slot[..up]));
            let down = self.server.poll_transmit(self.now, &mut slot);
            self.client
                .handle_bytes(self.now, Bytes::copy_from_slice(&slot[..down]));
            if up + down == 0 {
                return;
            }
        }
    }

    /// Opens a stream of the client that the server has accepted.
    fn stream(&mut self) -> StreamId {
        let id = self.client.open().expect("a stream is permitted");
        write(&mut self.client, id, b"!");
        self.exchange();
        assert_eq!(self.server.accept(), Some(id));
        assert_eq!(
            read(&mut self.server, id, 10),
            (b"!".to_vec(), ReadEnd::Blocked)
        );
        events(&mut self.server);
        id
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }
}
