//! The streams of a connection, and their numbers (RFC 9000 section 2.1).
//!
//! Each side opens streams in order, so one number tells which streams have been opened. A stream that has been opened and
//! is not in the table has ended.

use fxhash::FxHashMap;
use quictun_flow::{Side, StreamId};

use crate::credit::BlockedNotice;
use crate::error::{TransportCode, Violation};
use crate::event::Events;
use crate::parameters::TransportParameters;
use crate::recv::{RecvPart, RecvState};
use crate::send::{SendPart, SendState};

/// A stream with its two parts.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) send: SendPart,
    pub(crate) recv: RecvPart,
    /// The stream's data precedes that of others.
    pub(crate) preferred: bool,
    /// The stream is in a queue of streams with data.
    pub(crate) scheduled: bool,
    /// The stream is in the queue of streams with other frames.
    pub(crate) has_control: bool,
}

/// The limits of new streams, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InitialLimits {
    /// The limit of this side's data on streams that this side opens.
    pub(crate) send_local: u64,
    /// The limit of this side's data on streams that the peer opens.
    pub(crate) send_remote: u64,
    /// The limit of the peer's data.
    pub(crate) recv: u64,
}

/// The part of a stream that a frame concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    Sending,
    Receiving,
}

#[derive(Debug)]
pub(crate) struct Streams {
    side: Side,
    open: FxHashMap<StreamId, Stream>,
    limits: InitialLimits,
    /// Number of streams that this side has opened.
    local: u64,
    /// Number of streams that the peer permits in total.
    local_limit: u64,
    pub(crate) blocked: BlockedNotice,
    /// Number of streams that the peer has opened.
    remote: u64,
    /// Number of the peer's streams that were accepted.
    accepted: u64,
    /// Number of the peer's streams that have ended in both directions.
    remote_ended: u64,
    /// Number of streams that the peer may open in total, as announced.
    remote_limit: u64,
    /// Number of streams that the peer may have open at a time.
    concurrent: u64,
    /// `concurrent` has grown, which was not announced.
    urgent: bool,
    /// Number of streams that were opened here or accepted, and whose sending part has not ended.
    unsettled: usize,
}

impl Stream {
    fn new(send_limit: u64, recv_limit: u64) -> Self {
        Self {
            send: SendPart::new(send_limit),
            recv: RecvPart::new(recv_limit),
            preferred: false,
            scheduled: false,
            has_control: false,
        }
    }
}

impl Streams {
    pub(crate) fn new(side: Side, concurrent: u32, stream_window: u64) -> Self {
        Self {
            side,
            open: FxHashMap::default(),
            limits: InitialLimits {
                recv: stream_window,
                ..InitialLimits::default()
            },
            local: 0,
            local_limit: 0,
            blocked: BlockedNotice::default(),
            remote: 0,
            accepted: 0,
            remote_ended: 0,
            remote_limit: concurrent.into(),
            concurrent: concurrent.into(),
            urgent: false,
            unsettled: 0,
        }
    }

    /// Applies the peer's parameters. No stream is open yet.
    pub(crate) fn handle_parameters(&mut self, peer: &TransportParameters) {
        self.limits.send_local = peer.initial_max_stream_data_bidi_remote;
        self.limits.send_remote = peer.initial_max_stream_data_bidi_local;
        self.local_limit = peer.initial_max_streams_bidi;
    }

    /// Opens a stream. `None`, and the peer is told, if it permits no more.
    pub(crate) fn open(&mut self) -> Option<StreamId> {
        if self.local == self.local_limit {
            self.blocked.note(self.local_limit);
            return None;
        }
        let id = id(self.side, self.local)?;
        let limits = self.limits;
        self.open
            .insert(id, Stream::new(limits.send_local, limits.recv));
        self.local += 1;
        self.unsettled += 1;
        Some(id)
    }

    /// Returns the next stream that the peer has opened.
    pub(crate) fn accept(&mut self) -> Option<StreamId> {
        if self.accepted == self.remote {
            return None;
        }
        let id = id(peer_of(self.side), self.accepted)?;
        self.accepted += 1;
        let stream = self.open.get(&id);
        let sends = stream.is_some_and(|stream| stream.send.state != SendState::Done);
        self.unsettled += usize::from(sends);
        Some(id)
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.open.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.open.get_mut(&id)
    }

    /// Returns whether the stream was opened here or accepted.
    pub(crate) fn is_accepted(&self, id: StreamId) -> bool {
        id.initiator() == self.side || id.index() < self.accepted
    }

    /// Returns the stream that a frame concerns, or `None` if it has ended. Opens the peer's streams up to it.
    pub(crate) fn of_frame(
        &mut self,
        number: u64,
        part: PartKind,
        events: &mut Events,
    ) -> Result<Option<(StreamId, &mut Stream)>, Violation> {
        let local = (number & 1 == 0) == (self.side == Side::Client);
        let Some(id) = StreamId::from_number(number) else {
            return Err(match (local, part) {
                // The peer may open no unidirectional streams.
                (false, PartKind::Receiving) => OVER_LIMIT,
                _ => NO_SUCH_STREAM,
            });
        };
        let index = id.index();
        if local {
            if index >= self.local {
                return Err(NO_SUCH_STREAM);
            }
        } else if index >= self.remote_limit {
            return Err(OVER_LIMIT);
        } else if index >= self.remote {
            self.open_remote(index);
            events.note_opened();
        }
        Ok(self.open.get_mut(&id).map(|stream| (id, stream)))
    }

    /// Opens the peer's streams up to and including `index` (RFC 9000 section 3.2).
    fn open_remote(&mut self, index: u64) {
        let limits = self.limits;
        for index in self.remote..=index {
            if let Some(id) = id(peer_of(self.side), index) {
                self.open
                    .insert(id, Stream::new(limits.send_remote, limits.recv));
            }
        }
        self.remote = index + 1;
    }

    /// Notes that the sending part of a stream has ended.
    pub(crate) fn note_send_done(&mut self, id: StreamId) {
        self.unsettled -= usize::from(self.is_accepted(id));
    }

    /// Forgets a stream if both parts have ended.
    pub(crate) fn remove_if_done(&mut self, id: StreamId) {
        let is_done = |stream: &Stream| {
            stream.send.state == SendState::Done && stream.recv.state == RecvState::Done
        };
        if self.open.get(&id).is_some_and(is_done) {
            self.open.remove(&id);
            self.remote_ended += u64::from(id.initiator() != self.side);
        }
    }

    /// Handles `MAX_STREAMS`. Returns whether this side may open more streams.
    pub(crate) fn raise_local_limit(&mut self, limit: u64) -> bool {
        let raised = limit > self.local_limit;
        if raised {
            self.local_limit = limit;
            self.blocked.withdraw();
        }
        raised
    }

    pub(crate) fn set_concurrent(&mut self, limit: u32) {
        self.urgent |= u64::from(limit) > self.concurrent;
        self.concurrent = limit.into();
    }

    /// Returns the number of streams to permit in total, if it is higher, and if half of the streams are used or the
    /// limit has grown.
    pub(crate) fn wanted_limit(&self) -> Option<u64> {
        let limit = self.remote_ended + self.concurrent;
        let half_used = self.remote_limit - self.remote <= self.concurrent / 2;
        (limit > self.remote_limit && (self.urgent || half_used)).then_some(limit)
    }

    pub(crate) fn note_announced(&mut self, limit: u64) {
        self.remote_limit = limit;
        self.urgent = false;
    }

    /// Returns the number of the peer's streams that have not ended in both directions.
    pub(crate) fn remote_open(&self) -> u64 {
        self.remote - self.remote_ended
    }

    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled
    }
}

const OVER_LIMIT: Violation = Violation::new(
    TransportCode::STREAM_LIMIT_ERROR,
    "the peer opens more streams than it may",
);

const NO_SUCH_STREAM: Violation = Violation::new(
    TransportCode::STREAM_STATE_ERROR,
    "a frame concerns a stream that was not opened, or the other direction",
);

fn id(initiator: Side, index: u64) -> Option<StreamId> {
    StreamId::from_number(index << 2 | u64::from(initiator == Side::Server))
}

fn peer_of(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}
