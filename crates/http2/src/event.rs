//! Events of a connection, each of which occurs at most once in the queue for each stream.

use std::collections::VecDeque;
use std::time::Duration;

use quictun_flow::StreamId;

use crate::error::BrokenRule;

/// An event of an [`Http2`](crate::Http2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer has opened streams: see [`Http2::accept`](crate::Http2::accept).
    Opened,
    /// Data, an end or a reset has arrived on an accepted stream.
    Readable(StreamId),
    /// A stream that was blocked has credit.
    Writable(StreamId),
    /// The peer has reset a stream after the end of its own direction.
    Stopped(StreamId),
    /// The peer has acknowledged the settings of this side after this time.
    RoundTrip(Duration),
    /// The connection has ended, though not by [`Http2::close`](crate::Http2::close). It is the last event.
    Lost(End),
}

/// The reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The peer has broken the protocol.
    #[error(transparent)]
    Violation(#[from] BrokenRule),
    /// All streams have ended after one side had announced the end.
    #[error("all streams have ended")]
    Done,
}

/// Events that wait to be polled.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    opened: bool,
}

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
    }

    pub(crate) fn note_opened(&mut self) {
        self.opened = true;
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.opened) {
            return Some(Event::Opened);
        }
        self.queue.pop_front()
    }
}
