//! Properties of the machine for any input: one function each, which panics if its property is violated.
//!
//! The fuzz targets in `fuzz/` call these functions, and so do the tests that replay the committed corpora, so that
//! faults found by fuzzing do not return. Not part of the crate's interface.

use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use quictun_flow::{ReadEnd, Side};

use crate::event::Event;
use crate::frame::Frame;
use crate::mux::{Config, Mux};
use crate::parameters::TransportParameters;
use crate::record::RECORD_MAX;

/// Checks that the frames of a payload survive their encoding.
pub fn mux_frames(bytes: &[u8]) {
    let mut input = Bytes::copy_from_slice(bytes);
    while let Ok(Some(frame)) = Frame::decode(&mut input) {
        if let Frame::TransportParameters(encoded) = &frame
            && let Ok(parameters) = TransportParameters::decode(encoded)
        {
            let mut again = Vec::new();
            parameters.encode(&mut again);
            assert_eq!(TransportParameters::decode(&again), Ok(parameters));
        }
        let mut again = BytesMut::new();
        frame.encode(&mut again);
        assert!(again.len() <= frame.len_max());
        let again = Frame::decode(&mut again.freeze());
        let again = again.expect("its own encoding").expect("a frame");
        match (&frame, &again) {
            // The form without a length is shorter.
            (Frame::Datagram { data, .. }, Frame::Datagram { data: same, .. }) => {
                assert_eq!(data, same);
            }
            _ => assert_eq!(frame, again),
        }
    }
}

/// Checks that a server survives a client's bytes: it keeps no more than its limits, answers with one record at a time,
/// and reads the same however the bytes are split. The first byte chooses the length of the pieces, and whether the
/// client's parameters precede the bytes.
pub fn mux_records(now: Instant, bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let parameters = if first & 0x80 == 0 { PARAMETERS } else { &[] };
    let bytes = [parameters, bytes].concat();
    let pieces = || bytes.chunks(usize::from(first & 0x7f).max(1));
    let whole = Server::new(now, LIMITS).take([bytes.as_slice()]);
    assert_eq!(whole, Server::new(now, LIMITS).take(pieces()));
    let mut server = Server::new(now, LIMITS);
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
    datagram_frame_max: 64,
};

/// A record with parameters that permit 16 384 bytes.
const PARAMETERS: &[u8] = b"\x1d\xffQS0\r\n\r\n\x14\
    \x04\x04\x80\0\x40\0\x05\x04\x80\0\x40\0\x06\x04\x80\0\x40\0\x1d\0";

struct Server {
    now: Instant,
    mux: Mux,
    lost: Option<Event>,
}

/// The bytes of each stream, how it ended, and how the connection did.
type Outcome = (Vec<(Vec<u8>, ReadEnd)>, Option<Event>);

impl Server {
    fn new(now: Instant, limits: Config) -> Self {
        let mux = Mux::new(Side::Server, limits);
        let lost = None;
        Self { now, mux, lost }
    }

    fn handle(&mut self, piece: &[u8]) {
        self.mux
            .handle_bytes(self.now, Bytes::copy_from_slice(piece));
        while let Some(event) = self.mux.poll_event() {
            assert_eq!(self.lost, None, "the loss is the last event");
            self.lost = Some(event).filter(|event| matches!(event, Event::Lost(_)));
        }
        assert_eq!(self.mux.is_closed(), self.lost.is_some());
        assert!(self.mux.granted() <= LIMITS.window);
        assert!(self.mux.peer_streams() <= LIMITS.streams.into());
    }

    /// Checks that one record answers everything.
    fn answer(&mut self) {
        let mut slot = [0; RECORD_MAX];
        self.mux.poll_transmit(self.now, &mut slot);
        assert_eq!(self.mux.poll_transmit(self.now, &mut slot), 0);
        assert!(self.mux.is_idle());
    }

    fn take<'a>(mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
        pieces.into_iter().for_each(|piece| self.handle(piece));
        let mut streams = Vec::new();
        while let Some(id) = self.mux.accept() {
            let mut bytes = Vec::new();
            let end = self.mux.read(id, usize::MAX, &mut |offset, piece| {
                assert_eq!(offset, bytes.len() as u64);
                bytes.put(piece);
            });
            streams.push((bytes, end));
        }
        (streams, self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_begin_a_connection() {
        let server = Server::new(Instant::now(), LIMITS);
        let echo = b"\x06\x0b\x00\x03GET";
        let expected = vec![(b"GET".to_vec(), ReadEnd::Finished)];
        assert_eq!(server.take([PARAMETERS, echo]), (expected, None));
    }
}
