//! Names and keys of flows and connections.
//!
//! An id names a flow or connection for ever. A key is its place in a table of the engine, and is given to another once
//! the place is free.

/// Identifies a flow within one engine; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u64);

/// Identifies a connection within one engine; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// The place of a flow in [`Flows`](crate::flows::Flows).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey(pub usize);

/// The place of a connection in its engine's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey(pub usize);

/// The place of a named client in its engine's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientKey(pub u32);

/// The place of a bond in its engine's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BondKey(pub usize);

/// Makes ids: a number that was never used before, and the key in the low half.
#[derive(Debug, Default)]
pub struct Ids {
    generation: u64,
}

impl Ids {
    /// The id of a new flow.
    pub fn flow(&mut self, key: FlowKey) -> FlowId {
        FlowId(self.next(key.0))
    }

    /// The id of a new connection.
    pub fn connection(&mut self, key: ConnectionKey) -> ConnectionId {
        ConnectionId(self.next(key.0))
    }

    fn next(&mut self, key: usize) -> u64 {
        self.generation += 1;
        (self.generation << 32) | (key as u64 & LOW)
    }
}

/// The half of an id that is a key.
const LOW: u64 = 0xffff_ffff;

impl FlowId {
    /// Where the flow is, if it is still there.
    pub fn key(self) -> FlowKey {
        FlowKey(low(self.0))
    }
}

impl ConnectionId {
    /// Where the connection is, if it is still there.
    pub fn key(self) -> ConnectionKey {
        ConnectionKey(low(self.0))
    }
}

fn low(id: u64) -> usize {
    usize::try_from(id & LOW).unwrap_or(usize::MAX)
}
