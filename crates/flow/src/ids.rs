//! Ids and keys of flows, connections and streams.
//!
//! An id names a flow or connection permanently. A key is an index into a table of the engine; the key is reused once
//! the entry is removed.

/// Identifies a flow within one engine. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u64);

/// Identifies a connection within one engine. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Identifies a bidirectional stream within one connection, by its number on the wire (RFC 9000 section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

/// A side of the tunnel, of its connections, and of the streams on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that opens connections, and flows for its own applications.
    Client,
    /// The side that accepts connections, and opens flows for its listeners.
    Server,
}

impl StreamId {
    /// The first stream that a client opens.
    pub const FIRST: Self = Self(0);

    /// Returns the stream of this number. `None` for a unidirectional stream, which carries no flow.
    pub fn from_number(number: u64) -> Option<Self> {
        (number & 2 == 0).then_some(Self(number))
    }

    /// Returns the number of the stream on the wire.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the side that has opened the stream.
    pub fn initiator(self) -> Side {
        if self.0 & 1 == 0 {
            Side::Client
        } else {
            Side::Server
        }
    }

    /// Returns the position of the stream among those of its initiator.
    pub fn index(self) -> u64 {
        self.0 >> 2
    }
}

/// Index of a flow in [`Flows`](crate::flows::Flows).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey(pub usize);

/// Index of a connection in its engine's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey(pub usize);

/// The key of no connection: no engine has that many.
pub const NEVER_A_CONNECTION: ConnectionKey = ConnectionKey(usize::MAX);

/// Index of a named client in its engine's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientKey(pub u32);

/// Index of a bond in its engine's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BondKey(pub usize);

/// Makes ids: a counter that never repeats in the high half, the key in the low half.
#[derive(Debug, Default)]
pub struct Ids {
    generation: u64,
}

impl Ids {
    /// Returns the id of a new flow with this key.
    pub fn flow(&mut self, key: FlowKey) -> FlowId {
        FlowId(self.next(key.0))
    }

    /// Returns the id of a new connection with this key.
    pub fn connection(&mut self, key: ConnectionKey) -> ConnectionId {
        ConnectionId(self.next(key.0))
    }

    fn next(&mut self, key: usize) -> u64 {
        self.generation += 1;
        (self.generation << 32) | (key as u64 & LOW)
    }
}

/// Mask of the half of an id that holds the key.
const LOW: u64 = 0xffff_ffff;

impl FlowId {
    /// Returns the key under which the flow is stored, if it still exists.
    pub fn key(self) -> FlowKey {
        FlowKey(low(self.0))
    }
}

impl ConnectionId {
    /// Returns the key under which the connection is stored, if it still exists.
    pub fn key(self) -> ConnectionKey {
        ConnectionKey(low(self.0))
    }
}

fn low(id: u64) -> usize {
    usize::try_from(id & LOW).unwrap_or(usize::MAX)
}
