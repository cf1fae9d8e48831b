//! A server against a client that writes its frames by hand.

mod ends;
mod floods;
mod windows;

use std::time::{Duration, Instant};

use bytes::Bytes;
use quictun_flow::{ReadEnd, StreamId, WriteEnd};

use crate::hpack::{Decoder, put_field};
use crate::{Config, End, ErrorCode, Event, Http2};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const ACCEPTED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// A frame: type, flags, stream, payload.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame(u8, u8, u32, Vec<u8>);

impl Frame {
    fn encode(&self) -> Vec<u8> {
        let Self(kind, flags, stream, payload) = self;
        let length = u32::try_from(payload.len())
            .expect("a length")
            .to_be_bytes();
        [
            &length[1..],
            &[*kind, *flags],
            &stream.to_be_bytes(),
            payload,
        ]
        .concat()
    }
}

/// A server, and the time.
struct Server {
    http2: Http2,
    now: Instant,
    decoder: Decoder,
}

impl Server {
    /// Begins a connection, and lets the client greet.
    fn begin(config: Config) -> Self {
        let now = Instant::now();
        let mut new = Self {
            http2: Http2::new(now, config),
            now,
            decoder: Decoder::default(),
        };
        new.take(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        new.give(Frame(SETTINGS, 0, 0, Vec::new()));
        new
    }

    fn new() -> Self {
        let mut new = Self::begin(Config::default());
        new.sent();
        new
    }

    fn take(&mut self, bytes: &[u8]) {
        self.http2
            .handle_bytes(self.now, Bytes::copy_from_slice(bytes));
    }

    #[expect(clippy::needless_pass_by_value, reason = "each call makes its frame")]
    fn give(&mut self, frame: Frame) {
        self.take(&frame.encode());
    }

    /// Opens a tunnel on a stream, whose request is read.
    fn connect(&mut self, stream: u32) -> StreamId {
        self.give(request(stream, 0));
        let id = self.http2.accept().expect("a stream");
        let (head, end) = self.read(id);
        assert_eq!(
            (&*head, end),
            ("CONNECT a:1 HTTP/1.1\r\n\r\n", ReadEnd::Blocked)
        );
        id
    }

    /// Opens a tunnel, and answers it.
    fn tunnel(&mut self, stream: u32) -> StreamId {
        let id = self.connect(stream);
        self.write(id, ACCEPTED);
        let answer = self.sent();
        assert_eq!(answer, [Frame(HEADERS, END_HEADERS, stream, vec![0x88])]);
        id
    }

    fn write(&mut self, id: StreamId, text: &str) {
        let mut chunk = Bytes::copy_from_slice(text.as_bytes());
        assert_eq!(self.http2.write(id, &mut chunk), WriteEnd::Taken);
    }

    fn read(&mut self, id: StreamId) -> (String, ReadEnd) {
        let mut bytes = Vec::new();
        let sink = &mut |_, piece: Bytes| bytes.extend_from_slice(&piece);
        let end = self.http2.read(id, usize::MAX, sink);
        (String::from_utf8(bytes).expect("text"), end)
    }

    /// Returns the frames that the server sends.
    fn sent(&mut self) -> Vec<Frame> {
        self.sent_in(16 * 1024)
    }

    /// Returns the frames that the server sends in slots of this length.
    fn sent_in(&mut self, slot: usize) -> Vec<Frame> {
        let mut bytes = Vec::new();
        let mut slot = vec![0; slot];
        loop {
            let length = self.http2.poll_transmit(self.now, &mut slot);
            if length == 0 {
                break;
            }
            bytes.extend_from_slice(&slot[..length]);
        }
        let (mut frames, mut rest) = (Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            let length = usize::from(rest[1]) << 8 | usize::from(rest[2]);
            let stream = u32::from_be_bytes(rest[5..9].try_into().expect("four bytes"));
            frames.push(Frame(
                rest[3],
                rest[4],
                stream,
                rest[9..9 + length].to_vec(),
            ));
            rest = &rest[9 + length..];
        }
        frames
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.http2.poll_event()).collect()
    }

    /// Returns the code with which the connection has ended because of the client, as the server tells it.
    fn failure(&mut self) -> Option<ErrorCode> {
        let last = self.events().pop();
        let Some(Event::Lost(End::Violation(violation))) = last else {
            return None;
        };
        let frames = self.sent();
        let Some(Frame(GOAWAY, 0, 0, payload)) = frames.last() else {
            panic!("no GOAWAY: {frames:?}");
        };
        assert_eq!(payload[4..8], violation.code.0.to_be_bytes());
        assert!(self.http2.is_closed() && self.http2.is_idle());
        Some(violation.code)
    }

    fn fields(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let sink = |name: &[u8], value: &[u8]| fields.push((text(name), text(value)));
        self.decoder.decode(block, sink).expect("a block");
        fields
    }
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        put_field(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

/// The request for a tunnel.
fn request(stream: u32, flags: u8) -> Frame {
    let fields = block(&[(":method", "CONNECT"), (":authority", "a:1")]);
    Frame(HEADERS, END_HEADERS | flags, stream, fields)
}

fn data(stream: u32, flags: u8, text: &str) -> Frame {
    Frame(DATA, flags, stream, text.as_bytes().to_vec())
}

fn reset(stream: u32, code: ErrorCode) -> Frame {
    Frame(RST_STREAM, 0, stream, code.0.to_be_bytes().to_vec())
}

fn update(stream: u32, more: u32) -> Frame {
    Frame(WINDOW_UPDATE, 0, stream, more.to_be_bytes().to_vec())
}

/// The setting of the credit with which streams begin.
fn initial_window(bytes: u32) -> Frame {
    Frame(SETTINGS, 0, 0, [&[0, 4][..], &bytes.to_be_bytes()].concat())
}

#[test]
fn the_server_greets_with_its_limits() {
    let mut server = Server::begin(Config::default());
    let settings = [[0, 3, 0, 0, 0, 100], [0, 6, 0, 0, 0x20, 0]].concat();
    let expected = [
        Frame(SETTINGS, 0, 0, settings),
        Frame(SETTINGS, 1, 0, Vec::new()),
        update(0, (1 << 20) - 65_535),
    ];
    assert_eq!(server.sent(), expected);
    server.give(Frame(PING, 0, 0, b"12345678".to_vec()));
    assert_eq!(server.sent(), [Frame(PING, 1, 0, b"12345678".to_vec())]);
}

/// The setting of the size of the client's table of fields.
fn table_size(bytes: u32) -> Frame {
    Frame(SETTINGS, 0, 0, [&[0, 1][..], &bytes.to_be_bytes()].concat())
}

// RFC 9113 section 4.3.1.
#[test]
fn the_first_fields_after_a_reduction_of_the_table_say_that_it_is_empty() {
    let mut server = Server::new();
    let answer = |server: &mut Server, stream| {
        let id = server.connect(stream);
        server.write(id, ACCEPTED);
        let frames = server.sent();
        frames.last().expect("an answer").clone()
    };
    let block = |stream, block: &[u8]| Frame(HEADERS, END_HEADERS, stream, block.to_vec());
    server.give(table_size(4096));
    assert_eq!(answer(&mut server, 1), block(1, &[0x88]));
    for (stream, size) in [(3, 4095), (7, 0)] {
        server.give(table_size(size));
        server.give(table_size(4096));
        assert_eq!(answer(&mut server, stream), block(stream, &[0x20, 0x88]));
        assert_eq!(answer(&mut server, stream + 2), block(stream + 2, &[0x88]));
    }
}

#[test]
fn a_reduction_of_the_table_is_told_once_however_much_fits_a_slot() {
    let long = "x".repeat(8100);
    let too_large = block(&[(":method", "CONNECT"), (":authority", "a:1"), ("x", &long)]);
    for slot in 2048..2100 {
        let mut server = Server::new();
        let id = server.connect(1);
        server.give(table_size(0));
        // Their answers leave 16 bytes of the shortest slot.
        for _ in 0..119 {
            server.give(Frame(PING, 0, 0, vec![0; 8]));
        }
        server.give(Frame(HEADERS, END_HEADERS, 3, too_large.clone()));
        server.write(id, ACCEPTED);
        let mut frames = server.sent_in(slot);
        frames.retain(|frame| frame.0 != PING);
        let blocks = [&frames[1].3[..], &frames[3].3[..]];
        assert_eq!((blocks[0][0], blocks[1]), (0x20, &[0x88][..]), "{slot}");
        let status = vec![(":status".to_owned(), "431".to_owned())];
        assert_eq!(server.fields(blocks[0]), status);
        assert_eq!(
            (frames.len(), &frames[2]),
            (4, &reset(3, ErrorCode::NO_ERROR))
        );
    }
    // An answer that does not fit is told with the next slot.
    let mut server = Server::new();
    let id = server.connect(1);
    server.give(table_size(0));
    server.give(table_size(0));
    for _ in 0..119 {
        server.give(Frame(PING, 0, 0, vec![0; 8]));
    }
    server.write(id, ACCEPTED);
    assert_eq!(server.http2.poll_transmit(server.now, &mut [0; 2048]), 2041);
    let answer = Frame(HEADERS, END_HEADERS, 1, vec![0x20, 0x88]);
    assert_eq!(server.sent(), [answer]);
}

#[test]
fn the_acknowledgement_of_settings_measures_the_round_trip_time() {
    let mut server = Server::new();
    server.now += Duration::from_millis(7);
    let acknowledgement = Frame(SETTINGS, ACK, 0, Vec::new());
    server.give(acknowledgement.clone());
    let time = Event::RoundTrip(Duration::from_millis(7));
    assert_eq!(server.events(), [time]);
    server.give(acknowledgement);
    assert_eq!(server.events(), [], "nothing was sent");
}

#[test]
fn a_block_of_several_frames_with_padding_is_one_request() {
    let mut server = Server::new();
    let fields = block(&[(":method", "CONNECT"), (":authority", "a:1"), ("x", "y")]);
    let (first, rest) = fields.split_at(5);
    let padded = [&[2, 0, 0, 0, 0, 9][..], first, &[0, 0]].concat();
    server.give(Frame(HEADERS, 0x28 | END_STREAM, 1, padded));
    assert_eq!(server.events(), []);
    server.give(Frame(CONTINUATION, 0, 1, rest[..3].to_vec()));
    server.give(Frame(CONTINUATION, END_HEADERS, 1, rest[3..].to_vec()));
    assert_eq!(server.events()[0], Event::Opened);
    let id = server.http2.accept().expect("a stream");
    let expected = "CONNECT a:1 HTTP/1.1\r\nx: y\r\n\r\n".to_owned();
    assert_eq!(server.read(id), (expected, ReadEnd::Finished));
}

#[test]
fn streams_carry_bytes_side_by_side() {
    let mut server = Server::new();
    let (one, two) = (server.tunnel(1), server.tunnel(7));
    server.give(data(1, 0, "first "));
    // The length of the padding, the content, and the padding.
    server.give(Frame(DATA, 8, 7, b"\x02second\0\0".to_vec()));
    server.give(data(1, 0, "and more"));
    assert_eq!(
        server.read(one),
        ("first and more".to_owned(), ReadEnd::Blocked)
    );
    assert_eq!(server.read(two), ("second".to_owned(), ReadEnd::Blocked));
    server.write(two, "answer");
    server.write(one, "another");
    assert_eq!(server.sent(), [data(7, 0, "answer"), data(1, 0, "another")]);
}

#[test]
fn the_first_bytes_are_those_of_http_2() {
    for first in ["GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\nSX"] {
        let mut server = Server {
            http2: Http2::new(Instant::now(), Config::default()),
            now: Instant::now(),
            decoder: Decoder::default(),
        };
        server.take(first.as_bytes());
        assert_eq!(server.failure(), Some(ErrorCode::PROTOCOL_ERROR));
    }
    let mut server = Server {
        http2: Http2::new(Instant::now(), Config::default()),
        now: Instant::now(),
        decoder: Decoder::default(),
    };
    server.take(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    server.give(Frame(PING, 0, 0, vec![0; 8]));
    assert_eq!(
        server.failure(),
        Some(ErrorCode::PROTOCOL_ERROR),
        "no SETTINGS"
    );
}
