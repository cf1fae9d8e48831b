//! Properties of the machine for any input: one function each, which panics if its property is violated.
//!
//! The fuzz targets in `fuzz/` call these functions, and so do the tests that replay the committed corpora, so that
//! faults found by fuzzing do not return. Not part of the crate's interface.

use std::time::Instant;

use bytes::{BufMut, Bytes};
use quictun_flow::ReadEnd;
use quictun_wire::alpn::Protocol;
use quictun_wire::open::Decoded;
use quictun_wire::opening;

use crate::connection::{Config, Http2, STREAMS_MAX};
use crate::event::Event;
use crate::hpack::Decoder;
use crate::request::{LIST_MAX, Request, RequestHead};

/// Checks that the fields of a request become one head of HTTP/1.1 at most: its reader takes all of the text, or refuses
/// it. The first byte of each block is its length.
pub fn http2_fields(mut bytes: &[u8]) {
    let mut decoder = Decoder::default();
    while let Some((&length, rest)) = bytes.split_first() {
        let (block, rest) = rest.split_at(rest.len().min(length.into()));
        bytes = rest;
        let mut request = Request::default();
        let decoded = decoder.decode(block, |name, value| request.push(name, value));
        assert!(decoder.held() <= 4096);
        if decoded.is_err() {
            return;
        }
        let RequestHead::Whole { text, .. } = request.finish() else {
            continue;
        };
        assert!(text.len() <= LIST_MAX);
        match opening::read_request(Protocol::Http2, &text) {
            Ok(Decoded::Done { frame, consumed }) => {
                assert_eq!(consumed, text.len());
                assert!(text.starts_with(b"CONNECT "));
                assert!(!frame.target.contains([' ', '\r', '\n']));
            }
            Ok(Decoded::Need) => panic!("the head has no end"),
            Err(_) => {}
        }
    }
}

/// Checks that a server survives a client's bytes: it keeps no more than its limits, its answers have an end, and it reads
/// the same however the bytes are split. The first byte chooses the length of the pieces, and whether the client's preface
/// precedes the bytes.
pub fn http2_frames(now: Instant, bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let preface = if first & 0x80 == 0 { PREFACE } else { &[] };
    let bytes = [preface, bytes].concat();
    let pieces = || bytes.chunks(usize::from(first & 0x7f).max(1));
    let whole = Server::new(now).take([bytes.as_slice()]);
    assert_eq!(whole, Server::new(now).take(pieces()));
    let mut server = Server::new(now);
    for piece in pieces() {
        server.handle(piece);
        server.answer();
    }
}

/// Limits that an input of a few bytes reaches.
const LIMITS: Config = Config {
    window: 4096,
    stream_window: 1024,
    streams: 4,
    kept: 4096,
};

/// The preface with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Most bytes that the answer to one input has: its answers, settings, and the content of refusals.
const ANSWER_MAX: usize = 64 * 1024;

struct Server {
    now: Instant,
    http2: Http2,
    lost: Option<Event>,
}

/// The bytes of each stream, how it ended, and how the connection did.
type StreamEnds = (Vec<(Vec<u8>, ReadEnd)>, Option<Event>);

impl Server {
    fn new(now: Instant) -> Self {
        let http2 = Http2::new(now, LIMITS);
        let lost = None;
        Self { now, http2, lost }
    }

    fn handle(&mut self, piece: &[u8]) {
        let piece = Bytes::copy_from_slice(piece);
        self.http2.handle_bytes(self.now, piece);
        while let Some(event) = self.http2.poll_event() {
            assert_eq!(self.lost, None, "the loss is the last event");
            self.lost = Some(event).filter(|event| matches!(event, Event::Lost(_)));
        }
        assert_eq!(self.http2.is_closed(), self.lost.is_some());
        assert!(self.http2.granted() <= 65_535);
        assert!(self.http2.open_streams() <= STREAMS_MAX);
        assert!(self.http2.held() <= 64 * 1024);
    }

    /// Reads, refuses and answers everything, and checks that the answer has an end.
    fn answer(&mut self) {
        while let Some(id) = self.http2.accept() {
            self.http2.read(id, usize::MAX, &mut |_, _| {});
            let mut answer = Bytes::from_static(b"HTTP/1.1 200 OK\r\n\r\ncontent");
            self.http2.write(id, &mut answer);
            self.http2.finish(id);
            self.http2.note_held(id, 0);
        }
        let (mut slot, mut sent) = ([0; 16 * 1024], 0);
        loop {
            let length = self.http2.poll_transmit(self.now, &mut slot);
            if length == 0 {
                break;
            }
            sent += length;
            assert!(sent <= ANSWER_MAX, "the answer has no end");
        }
        while self.http2.poll_event().is_some() {}
        assert!(self.http2.is_idle());
    }

    fn take<'a>(mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> StreamEnds {
        pieces.into_iter().for_each(|piece| self.handle(piece));
        let mut streams = Vec::new();
        while let Some(id) = self.http2.accept() {
            let mut bytes = Vec::new();
            let end = self.http2.read(id, usize::MAX, &mut |offset, piece| {
                assert_eq!(offset, bytes.len() as u64);
                bytes.put(piece);
            });
            streams.push((bytes, end));
        }
        (streams, self.lost)
    }
}
