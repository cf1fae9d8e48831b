//! Events of a connection, each of which occurs at most once in the queue for each stream.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use quictun_flow::StreamId;

use crate::error::Error;
use crate::mux::DATAGRAM_COST;

/// An event of a [`Mux`](crate::Mux).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's transport parameters have arrived: streams can be opened.
    Connected,
    /// The peer has opened streams: see [`Mux::accept`](crate::Mux::accept).
    Opened,
    /// Data, an end or a reset has arrived on an accepted stream.
    Readable(StreamId),
    /// A stream that was blocked has credit.
    Writable(StreamId),
    /// The peer no longer reads a stream, for the reason of this code. The stream may be one that was not accepted yet.
    /// [`Mux::reset`](crate::Mux::reset) ends it.
    Stopped(StreamId, u64),
    /// The peer permits more streams.
    Available,
    /// A datagram has arrived.
    Datagram(Bytes),
    /// The peer has answered a ping after this time.
    Pong(Duration),
    /// The connection has ended, though not by [`Mux::close`](crate::Mux::close). It is the last event.
    Lost(Error),
}

/// Events that wait to be polled.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    /// Datagrams that wait, and their memory. They have a limit of their own.
    datagrams: VecDeque<Bytes>,
    datagrams_held: usize,
    opened: bool,
    available: bool,
}

/// Memory of datagrams that wait to be polled, beyond which the oldest are dropped, bytes. Chosen for more than a caller reads
/// between two polls.
pub(crate) const DATAGRAMS_MAX: usize = 1 << 20;

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
    }

    pub(crate) fn note_opened(&mut self) {
        self.opened = true;
    }

    pub(crate) fn note_available(&mut self) {
        self.available = true;
    }

    /// Appends a datagram, to which older ones may give way.
    pub(crate) fn push_datagram(&mut self, data: Bytes) {
        self.datagrams_held += data.len() + DATAGRAM_COST;
        self.datagrams.push_back(data);
        while self.datagrams_held > DATAGRAMS_MAX && self.pop_datagram().is_some() {}
    }

    fn pop_datagram(&mut self) -> Option<Bytes> {
        let data = self.datagrams.pop_front()?;
        self.datagrams_held -= data.len() + DATAGRAM_COST;
        Some(data)
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        if let Some(Event::Connected) = self.queue.front() {
            return self.queue.pop_front();
        }
        if std::mem::take(&mut self.opened) {
            return Some(Event::Opened);
        }
        if std::mem::take(&mut self.available) {
            return Some(Event::Available);
        }
        if let Some(data) = self.pop_datagram() {
            return Some(Event::Datagram(data));
        }
        self.queue.pop_front()
    }
}
