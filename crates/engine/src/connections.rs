//! All connections of an engine: the only access to them, and the queues in which they wait for their turn.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quictun_flow::{ConnectionId, ConnectionKey, Deadlines};
use slab::Slab;

use crate::connection::Connection;
use crate::keep_alives::KeepAlives;

pub(crate) struct Connections {
    slots: Slab<Slot>,
    deadlines: Deadlines<ConnectionKey>,
    keep_alives: KeepAlives<ConnectionKey>,
    /// Connections whose carriers have events to be taken.
    dirty: Vec<ConnectionKey>,
    /// Connections that may have something to send, in turn.
    sending: VecDeque<ConnectionKey>,
    /// Connections whose control streams have received more frames than one turn handles.
    unread: Vec<ConnectionKey>,
    /// The time since which the first of them waits.
    unread_since: Option<Instant>,
}

struct Slot {
    connection: Box<Connection>,
    /// The earliest deadline of the connection, as entered in [`Connections::deadlines`].
    deadline: Option<Instant>,
    /// Time at which to send a keep-alive to the peer, as entered in [`Connections::keep_alives`].
    keep_alive: Option<Instant>,
    dirty: bool,
    sending: bool,
}

impl Connections {
    /// Creates an empty set. `early` is the time by which keep-alives to idle peers may be sent early.
    pub(crate) fn new(early: Duration) -> Self {
        Self {
            slots: Slab::new(),
            deadlines: Deadlines::default(),
            keep_alives: KeepAlives::new(early),
            dirty: Vec::new(),
            sending: VecDeque::new(),
            unread: Vec::new(),
            unread_since: None,
        }
    }

    /// Returns the key of the next connection that is added.
    pub(crate) fn vacant_key(&self) -> ConnectionKey {
        ConnectionKey(self.slots.vacant_key())
    }

    /// Adds a connection, and marks it.
    pub(crate) fn insert(&mut self, connection: Connection) {
        let key = self.slots.insert(Slot {
            connection: Box::new(connection),
            deadline: None,
            keep_alive: None,
            dirty: false,
            sending: false,
        });
        self.mark(ConnectionKey(key));
    }

    pub(crate) fn remove(&mut self, key: ConnectionKey) -> Option<Box<Connection>> {
        let mut slot = self.slots.try_remove(key.0)?;
        self.deadlines.set(key, &mut slot.deadline, None);
        self.keep_alives.set(key, &mut slot.keep_alive, None);
        Some(slot.connection)
    }

    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&Connection> {
        Some(&self.slots.get(key.0)?.connection)
    }

    pub(crate) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        Some(&mut self.slot(key)?.connection)
    }

    pub(crate) fn find(&self, id: ConnectionId) -> Option<ConnectionKey> {
        let key = id.key();
        (self.get(key)?.id() == id).then_some(key)
    }

    pub(crate) fn named(&self, id: ConnectionId) -> Option<&Connection> {
        self.get(self.find(id)?)
    }

    pub(crate) fn named_mut(
        &mut self,
        id: ConnectionId,
    ) -> Option<(ConnectionKey, &mut Connection)> {
        let key = self.find(id)?;
        Some((key, self.get_mut(key)?))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionKey, &Connection)> {
        let slots = self.slots.iter();
        slots.map(|(key, slot)| (ConnectionKey(key), &*slot.connection))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        let slots = self.slots.iter_mut();
        slots.map(|(_, slot)| &mut *slot.connection)
    }

    /// Records that a connection's carrier has events to be taken.
    pub(crate) fn mark(&mut self, key: ConnectionKey) {
        if let Some(slot) = self.slot(key)
            && !std::mem::replace(&mut slot.dirty, true)
        {
            self.dirty.push(key);
        }
    }

    pub(crate) fn next_marked(&mut self) -> Option<ConnectionKey> {
        let key = self.dirty.pop()?;
        if let Some(slot) = self.slot(key) {
            slot.dirty = false;
        }
        Some(key)
    }

    /// Lets a connection read the rest of its control stream in the next turn, after others.
    pub(crate) fn read_on(&mut self, now: Instant, key: ConnectionKey) {
        self.unread.push(key);
        self.unread_since.get_or_insert(now);
    }

    /// Begins a turn: marks the connections that read on.
    pub(crate) fn begin_turn(&mut self) {
        self.unread_since = None;
        for key in std::mem::take(&mut self.unread) {
            self.mark(key);
        }
    }

    pub(crate) fn want_transmit(&mut self, key: ConnectionKey) {
        if let Some(slot) = self.slot(key)
            && !std::mem::replace(&mut slot.sending, true)
        {
            self.sending.push_back(key);
        }
    }

    /// Returns the number of connections that may have something to send.
    pub(crate) fn sending(&self) -> usize {
        self.sending.len()
    }

    pub(crate) fn next_to_send(&self) -> Option<ConnectionKey> {
        self.sending.front().copied()
    }

    /// Ends the turn of a connection that has sent something. The next one has its turn.
    pub(crate) fn end_turn(&mut self) {
        self.sending.rotate_left(1);
    }

    /// Ends the turn of a connection that has nothing to send. It waits for its next deadline.
    pub(crate) fn go_idle(&mut self) {
        if let Some(key) = self.sending.pop_front()
            && let Some(slot) = self.slots.get_mut(key.0)
        {
            slot.sending = false;
            let next = slot.connection.next_timeout();
            self.deadlines.set(key, &mut slot.deadline, next);
            let ping = slot.connection.next_ping();
            self.keep_alives.set(key, &mut slot.keep_alive, ping);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.deadlines.next(),
            self.keep_alives.next(),
            self.unread_since,
        ];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<ConnectionKey> {
        self.pop_deadline(now).or_else(|| {
            let key = self.keep_alives.pop_due(now)?;
            if let Some(slot) = self.slot(key) {
                slot.keep_alive = None;
            }
            Some(key)
        })
    }

    /// Like [`Connections::pop_due`], but without the keep-alives to idle peers.
    pub(crate) fn pop_deadline(&mut self, now: Instant) -> Option<ConnectionKey> {
        let key = self.deadlines.pop_due(now)?;
        if let Some(slot) = self.slot(key) {
            slot.deadline = None;
        }
        Some(key)
    }

    fn slot(&mut self, key: ConnectionKey) -> Option<&mut Slot> {
        self.slots.get_mut(key.0)
    }
}
