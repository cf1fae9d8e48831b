//! A TLS connection that is one stream: its bytes are the stream's, without frames. Programs that use a server's HTTPS
//! proxy by HTTP/1.1 have such connections.
//!
//! ```text
//!             arriving                               leaving
//!   Open ── close_notify ──► Finished        Open ── finish ──► Finishing ── close_notify ──► Finished
//!    │                          │ read        └───── reset ───► Reset: the TCP connection is reset
//!    └── stop ──► Stopped       ▼
//!                              Over
//! ```
//!
//! TCP has no word for a stop. Bytes that arrive after it wait until the other direction ends, and are dropped then.

use bytes::Bytes;
use quictun_flow::{PieceQueue, ReadEnd, StreamId, WriteEnd};

use quictun_wire::alpn::Protocol;
use quictun_wire::code::CloseCode;
use quictun_wire::opening;

use crate::carrier::CarrierEvent;

/// Bytes that are taken before the peer has an answer: a whole request, and as much of the application's data.
const EARLY_MAX: u64 = 16 * 1024;

/// Length below which pieces are copied together, because each piece keeps the memory of what it arrived in.
const SHORT: usize = 1024;

/// The only stream of a connection, which the client opens.
#[derive(Debug)]
pub(crate) struct SingleStream {
    opening: Opening,
    /// The caller has an event to take, which tells that the stream is readable.
    readable: bool,
    arriving: Arriving,
    /// Bytes that have arrived and were not read.
    unread: PieceQueue,
    /// Number of bytes that have arrived, and that were read.
    arrived: u64,
    read: u64,
    /// Number of bytes beyond those read that may arrive.
    window: u64,
    leaving: Leaving,
    /// Bytes that wait to leave, and the most that may wait.
    queued: PieceQueue,
    kept: u64,
    /// Something was written for the peer.
    answered: bool,
}

/// How much of the stream the caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// The handshake was not reported.
    Connected,
    /// No byte has arrived.
    Silent,
    /// The stream was not reported.
    Opened,
    /// The stream was not accepted.
    Offered,
    Accepted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arriving {
    Open,
    Finished,
    Stopped,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    Open,
    Finishing,
    Finished,
    Reset,
}

/// How a connection ends with its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// At least one direction is open.
    Open,
    /// Both directions have ended.
    Finished,
    /// This side has ended its direction, and reads no more, but the peer may send.
    Left,
    /// The stream was reset.
    Reset,
}

impl SingleStream {
    /// Begins the stream of a connection whose handshake is complete. The client may send `window` bytes.
    pub(crate) fn new(window: u64, kept: u64) -> Self {
        Self {
            opening: Opening::Connected,
            readable: false,
            arriving: Arriving::Open,
            unread: PieceQueue::default(),
            arrived: 0,
            read: 0,
            window,
            leaving: Leaving::Open,
            queued: PieceQueue::default(),
            kept,
            answered: false,
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<CarrierEvent> {
        match self.opening {
            Opening::Connected => {
                self.opening = if self.readable {
                    Opening::Opened
                } else {
                    Opening::Silent
                };
                Some(CarrierEvent::Connected)
            }
            Opening::Opened => {
                self.opening = Opening::Offered;
                Some(CarrierEvent::Opened)
            }
            Opening::Accepted if std::mem::take(&mut self.readable) => {
                Some(CarrierEvent::Readable(StreamId::FIRST))
            }
            Opening::Silent | Opening::Offered | Opening::Accepted => None,
        }
    }

    pub(crate) fn accept(&mut self) -> Option<StreamId> {
        let offered = self.opening == Opening::Offered;
        offered.then(|| {
            self.opening = Opening::Accepted;
            StreamId::FIRST
        })
    }

    /// Takes bytes that have arrived.
    pub(crate) fn handle_bytes(&mut self, bytes: Bytes) {
        if self.arriving != Arriving::Open || bytes.is_empty() {
            return;
        }
        self.arrived += bytes.len() as u64;
        self.unread.push(bytes, SHORT);
        self.note_readable();
    }

    /// Notes that the peer has ended its direction.
    pub(crate) fn handle_end(&mut self) {
        if self.arriving == Arriving::Open {
            self.arriving = Arriving::Finished;
            self.note_readable();
        }
    }

    fn note_readable(&mut self) {
        self.readable = true;
        if self.opening == Opening::Silent {
            self.opening = Opening::Opened;
        }
    }

    /// Returns whether bytes of the peer are taken now. Otherwise they wait in the system.
    pub(crate) fn takes_bytes(&self) -> bool {
        let limit = if self.answered {
            self.read.saturating_add(self.window)
        } else {
            EARLY_MAX
        };
        self.arriving == Arriving::Open && self.arrived < limit
    }

    /// Returns whether the peer's direction has ended, or was stopped: no byte of it is taken any more.
    pub(crate) fn has_arrived(&self) -> bool {
        self.arriving != Arriving::Open
    }

    /// Ends the stream of a connection that is closed with this code. If the client has no answer yet, it gets one. Returns
    /// false if the client has one.
    pub(crate) fn close(&mut self, code: CloseCode) -> bool {
        let mut answer = Bytes::from(opening::closing(Protocol::Http, code));
        self.stop();
        let first = !self.answered && self.write(&mut answer) == WriteEnd::Taken;
        if first {
            self.finish();
        } else {
            self.reset();
        }
        first
    }

    /// Returns whether the end of this side's direction was sent.
    pub(crate) fn is_finished(&self) -> bool {
        self.leaving == Leaving::Finished
    }

    /// Returns whether something was written for the peer.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered
    }

    /// Returns whether the client may send bytes beyond those that were read, and how many.
    pub(crate) fn granted(&self) -> u64 {
        self.window.max(self.arrived - self.read)
    }

    pub(crate) fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    pub(crate) fn set_kept(&mut self, kept: u64) {
        self.kept = kept;
    }

    /// Returns the number of bytes that wait to leave.
    pub(crate) fn queued(&self) -> u64 {
        self.queued.len()
    }

    /// Returns the number of bytes that may be written now.
    pub(crate) fn room(&self) -> u64 {
        self.kept.saturating_sub(self.queued())
    }

    /// Returns whether nothing waits to leave.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.leaving != Leaving::Finishing
    }

    /// Returns whether the peer's direction, or both, are open.
    pub(crate) fn is_of_peer(&self) -> bool {
        self.end() == StreamEnd::Open && self.opening == Opening::Accepted
    }

    pub(crate) fn end(&self) -> StreamEnd {
        match (self.leaving, self.arriving) {
            (Leaving::Reset, _) => StreamEnd::Reset,
            (Leaving::Finished, Arriving::Over) => StreamEnd::Finished,
            (Leaving::Finished, Arriving::Stopped) => StreamEnd::Left,
            _ => StreamEnd::Open,
        }
    }
}

/// The stream, as a flow uses it.
impl SingleStream {
    /// Takes all bytes: the caller asks for [`Self::room`] before.
    pub(crate) fn write(&mut self, chunk: &mut Bytes) -> WriteEnd {
        if self.leaving != Leaving::Open {
            return WriteEnd::Gone;
        }
        if !chunk.is_empty() {
            self.answered = true;
            self.queued.push(std::mem::take(chunk), 0);
        }
        WriteEnd::Taken
    }

    pub(crate) fn finish(&mut self) {
        if self.leaving == Leaving::Open {
            self.leaving = Leaving::Finishing;
        }
    }

    pub(crate) fn reset(&mut self) {
        if self.leaving != Leaving::Finished {
            self.leaving = Leaving::Reset;
            self.queued = PieceQueue::default();
        }
    }

    /// Takes at most `max` bytes that have arrived, and gives each piece to `sink` with its offset.
    pub(crate) fn read(&mut self, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        if matches!(self.arriving, Arriving::Stopped | Arriving::Over) {
            return ReadEnd::Gone;
        }
        let mut left = max;
        while left > 0
            && let Some(piece) = self.unread.pop(left)
        {
            left -= piece.len();
            let offset = self.read;
            self.read += piece.len() as u64;
            sink(offset, piece);
        }
        if left == 0 {
            ReadEnd::More
        } else if self.arriving == Arriving::Finished {
            self.arriving = Arriving::Over;
            ReadEnd::Finished
        } else {
            ReadEnd::Blocked
        }
    }

    pub(crate) fn stop(&mut self) {
        self.arriving = match self.arriving {
            Arriving::Open => Arriving::Stopped,
            Arriving::Finished | Arriving::Over => Arriving::Over,
            Arriving::Stopped => return,
        };
        self.unread = PieceQueue::default();
        self.read = self.arrived;
    }

    /// Moves queued bytes to `slot`. Returns their number.
    pub(crate) fn poll_transmit(&mut self, mut slot: &mut [u8]) -> usize {
        let queued = usize::try_from(self.queued()).unwrap_or(usize::MAX);
        let length = queued.min(slot.len());
        self.queued.pull(length, &mut slot);
        length
    }

    /// Returns whether the end of this side's direction is to be sent now. It counts as sent then.
    pub(crate) fn take_finish(&mut self) -> bool {
        let due = self.leaving == Leaving::Finishing && self.queued.is_empty();
        if due {
            self.leaving = Leaving::Finished;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> SingleStream {
        SingleStream::new(100_000, 100_000)
    }

    fn events(stream: &mut SingleStream) -> Vec<String> {
        let events = std::iter::from_fn(|| stream.poll_event());
        events.map(|event| format!("{event:?}")).collect()
    }

    fn read(stream: &mut SingleStream, max: usize) -> (Vec<u8>, ReadEnd) {
        let mut bytes = Vec::new();
        let start = stream.read;
        let end = stream.read(max, &mut |offset, piece| {
            assert_eq!(offset, start + bytes.len() as u64);
            bytes.extend_from_slice(&piece);
        });
        (bytes, end)
    }

    #[test]
    fn a_stream_opens_with_its_first_byte_and_is_readable_once_it_is_accepted() {
        let mut stream = stream();
        assert_eq!(events(&mut stream), ["Connected"]);
        assert_eq!(stream.accept(), None);
        stream.handle_bytes(Bytes::from_static(b"a"));
        assert_eq!(events(&mut stream), ["Opened"]);
        assert_eq!(stream.accept(), Some(StreamId::FIRST));
        assert_eq!(stream.accept(), None);
        assert_eq!(events(&mut stream).len(), 1);
        stream.handle_bytes(Bytes::from(vec![b'b'; SHORT]));
        stream.handle_bytes(Bytes::from_static(b"c"));
        assert_eq!(events(&mut stream).len(), 1);
        let expected = [&b"a"[..], &[b'b'; SHORT], b"c"].concat();
        assert_eq!(read(&mut stream, 2), (b"ab".to_vec(), ReadEnd::More));
        assert_eq!(
            read(&mut stream, usize::MAX),
            (expected[2..].to_vec(), ReadEnd::Blocked)
        );
    }

    #[test]
    fn few_bytes_are_taken_before_an_answer_and_a_window_after_it() {
        let mut stream = stream();
        let piece = || Bytes::from(vec![0; 10_000]);
        stream.handle_bytes(piece());
        assert!(stream.takes_bytes());
        stream.handle_bytes(piece());
        assert!(!stream.takes_bytes(), "20,000 bytes before an answer");
        read(&mut stream, usize::MAX);
        assert!(!stream.takes_bytes(), "reading them is no answer");
        assert_eq!(stream.write(&mut Bytes::from_static(b"x")), WriteEnd::Taken);
        assert!(stream.takes_bytes());
        for _ in 0..10 {
            assert!(stream.takes_bytes());
            stream.handle_bytes(piece());
        }
        assert!(!stream.takes_bytes(), "a whole window waits");
        assert_eq!(stream.granted(), 100_000);
        read(&mut stream, 1);
        assert!(stream.takes_bytes());
        stream.set_window(10);
        assert!(!stream.takes_bytes());
        assert_eq!(stream.granted(), 99_999, "what has arrived");
    }

    #[test]
    fn directions_end_one_after_the_other() {
        let mut stream = stream();
        stream.handle_bytes(Bytes::from_static(b"last"));
        stream.handle_end();
        assert_eq!(
            read(&mut stream, usize::MAX),
            (b"last".to_vec(), ReadEnd::Finished)
        );
        assert_eq!(stream.end(), StreamEnd::Open);
        stream.write(&mut Bytes::from_static(b"bytes"));
        stream.finish();
        assert!(!stream.take_finish(), "bytes wait");
        let mut slot = [0; 3];
        assert_eq!((stream.poll_transmit(&mut slot), &slot), (3, b"byt"));
        assert_eq!(stream.poll_transmit(&mut slot), 2);
        assert!(!stream.is_idle(), "the end waits");
        assert!(stream.take_finish() && !stream.take_finish());
        assert_eq!(stream.end(), StreamEnd::Finished);
        stream.reset();
        assert_eq!(stream.end(), StreamEnd::Finished, "an end is final");
    }

    #[test]
    fn a_reset_drops_what_waits_and_is_never_an_end() {
        let mut stream = stream();
        stream.write(&mut Bytes::from_static(b"bytes"));
        stream.finish();
        stream.reset();
        assert_eq!((stream.queued(), stream.end()), (0, StreamEnd::Reset));
        assert!(!stream.take_finish());
        assert_eq!(stream.write(&mut Bytes::from_static(b"x")), WriteEnd::Gone);
    }

    #[test]
    fn a_stop_drops_what_has_arrived_and_takes_no_more() {
        let mut stream = stream();
        stream.handle_bytes(Bytes::from_static(b"bytes"));
        stream.stop();
        assert!(!stream.takes_bytes());
        stream.handle_bytes(Bytes::from_static(b"more"));
        assert_eq!(read(&mut stream, 10), (Vec::new(), ReadEnd::Gone));
        stream.finish();
        assert!(stream.take_finish());
        assert_eq!(stream.end(), StreamEnd::Left);
    }
}
