//! The connection: its life, its commands and its getters.

mod receive;
mod streams;
mod transmit;

pub use transmit::SLOT_MIN;

use bytes::Bytes;
use quictun_flow::{ReceiveCredit, Side, StreamId};
use quictun_wire::varint;
use std::collections::VecDeque;

use crate::credit::SendCredit;
use crate::error::{DatagramError, Error, Violation};
use crate::event::{Event, Events};
use crate::frame::{Frame, varint_len};
use crate::parameters::TransportParameters;
use crate::ping::Pings;
use crate::record::{RECORD_PAYLOAD_MAX, RecordReader};
use crate::streams::Streams;

/// The limits with which a connection begins.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of bytes that the peer may send beyond those that were read.
    pub window: u64,
    /// Number of bytes that the peer may send on one stream beyond those that were read.
    pub stream_window: u64,
    /// Number of streams that the peer may have open.
    pub streams: u32,
    /// Number of bytes that wait to be written to the transport at most.
    pub kept: u64,
    /// Length of the longest DATAGRAM frame that is taken, bytes; 0 for none.
    pub datagram_frame_max: u64,
}

/// One side of a QMux connection.
#[derive(Debug)]
pub struct Mux {
    state: State,
    config: Config,
    reader: RecordReader,
    /// The peer's parameters, once they have arrived.
    peer: Option<TransportParameters>,
    streams: Streams,
    events: Events,
    send_credit: SendCredit,
    receive_credit: ReceiveCredit,
    pings: Pings,
    /// Streams with data, in turn: those that are preferred, and the others.
    preferred: VecDeque<StreamId>,
    ready: VecDeque<StreamId>,
    /// Streams with frames other than STREAM.
    control: VecDeque<StreamId>,
    /// Streams whose writes were refused, in turn.
    waiting: VecDeque<StreamId>,
    /// Datagrams that wait to be written.
    datagrams: VecDeque<Bytes>,
    datagrams_queued: usize,
    parameters_sent: bool,
}

#[derive(Debug)]
enum State {
    Open,
    /// The frame that ends the connection is due.
    Closing(Frame),
    Closed,
}

/// Length to which a reason for a close is cut, bytes. It is for people, and has to fit a short slot.
const REASON_MAX: usize = 256;

/// Bytes of waiting datagrams beyond which no more are taken. Chosen for a burst of 64 KiB in parts, each with its cost.
const DATAGRAMS_QUEUED_MAX: usize = 68 * 1024;

/// Memory of a datagram in a queue beside its bytes.
pub(crate) const DATAGRAM_COST: usize = size_of::<Bytes>();

/// The life of a connection.
impl Mux {
    /// Begins a connection on a transport that can be written to.
    pub fn new(side: Side, mut config: Config) -> Self {
        config.stream_window = config.stream_window.min(varint::MAX);
        Self {
            state: State::Open,
            config,
            reader: RecordReader::default(),
            peer: None,
            streams: Streams::new(side, config.streams, config.stream_window),
            events: Events::default(),
            send_credit: SendCredit::new(config.kept),
            receive_credit: ReceiveCredit::new(config.window, varint::MAX),
            pings: Pings::default(),
            preferred: VecDeque::new(),
            ready: VecDeque::new(),
            control: VecDeque::new(),
            waiting: VecDeque::new(),
            datagrams: VecDeque::new(),
            datagrams_queued: 0,
            parameters_sent: false,
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop() {
            if let Event::Readable(id) = event
                && let Some(stream) = self.streams.get_mut(id)
            {
                stream.recv.noted = false;
            }
            return Some(event);
        }
        self.next_writable().map(Event::Writable)
    }

    /// Sends a ping, unless one waits for its answer.
    pub fn ping(&mut self) {
        self.pings.request();
    }

    /// Ends the connection with a code of the application. Queued data is dropped.
    pub fn close(&mut self, code: u64, reason: Bytes) {
        self.end(true, code, reason);
    }

    /// Returns whether the connection has ended, by either side. What has arrived can still be read.
    pub fn is_closed(&self) -> bool {
        !self.is_open()
    }

    /// Returns whether nothing is left to write. After a close, the transport can be shut down then.
    pub fn is_idle(&self) -> bool {
        match self.state {
            State::Open => !self.has_frames(),
            State::Closing(_) => false,
            State::Closed => true,
        }
    }

    /// Returns the memory of a record that has arrived in part, bytes.
    pub fn held(&self) -> usize {
        self.reader.held()
    }

    #[cfg(test)]
    pub(crate) fn waiting_streams(&self) -> usize {
        self.waiting.len()
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Ends the connection because the peer has broken a rule.
    fn fail(&mut self, violation: Violation) {
        let reason = Bytes::from_static(violation.rule.as_bytes());
        self.end(false, violation.code.0, reason);
        self.events.push(Event::Lost(Error::Violation(violation)));
    }

    fn end(&mut self, application: bool, code: u64, mut reason: Bytes) {
        if self.is_open() {
            reason.truncate(REASON_MAX);
            self.state = State::Closing(Frame::ConnectionClose {
                application,
                code,
                reason,
            });
        }
    }
}

/// Datagrams, and the state of the connection.
impl Mux {
    /// Queues a datagram, which precedes stream data.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), DatagramError> {
        let most = self.max_datagram().ok_or(DatagramError::Unsupported)?;
        if data.len() > most {
            return Err(DatagramError::TooLong(most));
        }
        if self.datagrams_queued > DATAGRAMS_QUEUED_MAX {
            return Err(DatagramError::QueueFull);
        }
        self.datagrams_queued += data.len() + DATAGRAM_COST;
        self.datagrams.push_back(data);
        Ok(())
    }

    /// Returns the memory of the datagrams that wait to be sent, bytes.
    pub fn datagrams_queued(&self) -> usize {
        self.datagrams_queued
    }

    /// Returns the length of the longest datagram that can be sent, bytes. `None` if the peer takes none.
    pub fn max_datagram(&self) -> Option<usize> {
        let peer = self.peer.filter(|_| self.is_open())?;
        let frame = peer.max_datagram_frame_size.min(RECORD_PAYLOAD_MAX as u64);
        // The type of the frame, and the length of its data.
        let data = frame.checked_sub(1 + varint_len(frame) as u64)?;
        usize::try_from(data).ok()
    }
}

/// Limits for tests and small programs: a window of 1 MiB, 256 KiB on each of 100 streams, and datagrams.
impl Default for Config {
    fn default() -> Self {
        Self {
            window: 1 << 20,
            stream_window: 1 << 18,
            streams: 100,
            kept: 1 << 18,
            datagram_frame_max: RECORD_PAYLOAD_MAX as u64,
        }
    }
}
