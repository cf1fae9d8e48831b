//! The options of HELLO and `HELLO_ACK` that let flows outlive their connection (PROTOCOL section 5.8).
//!
//! ```text
//! BOND in HELLO      (empty): give me a bond
//!                    id (16), ticket (32): this is the next connection of that bond
//! BOND in HELLO_ACK  id (16), secret (32), route (1), ttl_s
//! ```

use std::fmt;

use crate::code::FlowCode;
use crate::varint;

/// The BOND option of HELLO.
pub(crate) const OPTION_ASK: u64 = 0x06;

/// The BOND option of `HELLO_ACK`.
pub(crate) const OPTION_BOND: u64 = 0x08;

/// The label of the TLS exporter. A ticket signs the exporter's 32 bytes.
pub const BOND_EXPORTER_LABEL: &[u8] = b"EXPORTER-quictun-bond";

/// Length of a bond's id, bytes.
pub const BOND_ID_LEN: usize = 16;

/// Length of a ticket, an HMAC-SHA256, bytes.
pub const TICKET_LEN: usize = 32;

/// Length of a bond's secret, bytes.
pub const SECRET_LEN: usize = 32;

/// The longest time for which a server may promise to keep detached flows: a day, in seconds. The client holds memory
/// for as long.
pub const MAX_TTL_S: u64 = 86_400;

/// The lowest flow number that a server chooses. A client's own numbers are below it, so the two sides never choose the
/// same number. Half of all numbers that a frame can carry are left to each side.
pub const SERVER_NUMBERS: u64 = 1 << 61;

/// The client's BOND option: how the connection relates to a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BondRequest {
    /// The first connection of a bond.
    New,
    /// The next connection of an existing bond.
    Resume {
        /// The id of the existing bond.
        id: [u8; BOND_ID_LEN],
        /// Proves that the client has the bond's secret. Valid for this connection only.
        ticket: [u8; TICKET_LEN],
    },
}

/// The server's BOND option: the bond that the connection belongs to from now on.
#[derive(Clone, PartialEq, Eq)]
pub struct BondGrant {
    /// The bond's id. It differs from the requested id if the server does not know or refused the requested bond.
    pub id: [u8; BOND_ID_LEN],
    /// The key for tickets.
    pub secret: [u8; SECRET_LEN],
    /// Number of the server's worker that holds the bond.
    pub route: u8,
    /// Time for which the server keeps flows without a connection, in seconds, at most [`MAX_TTL_S`].
    pub ttl_s: u64,
}

impl fmt::Debug for BondGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BondGrant")
            .field("id", &self.id)
            .field("route", &self.route)
            .field("ttl_s", &self.ttl_s)
            .finish_non_exhaustive()
    }
}

impl BondRequest {
    /// Encodes the option's value.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::New => Vec::new(),
            Self::Resume { id, ticket } => [&id[..], ticket].concat(),
        }
    }

    /// Decodes the option's value. Fails if its length is neither 0 nor 48 bytes.
    pub fn decode(value: &[u8]) -> Result<Self, FlowCode> {
        if value.is_empty() {
            return Ok(Self::New);
        }
        let (id, ticket) = value.split_first_chunk().ok_or(FlowCode::BadOpen)?;
        Ok(Self::Resume {
            id: *id,
            ticket: ticket.try_into().map_err(|_| FlowCode::BadOpen)?,
        })
    }
}

impl BondGrant {
    /// Encodes the option's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = [&self.id[..], &self.secret, &[self.route]].concat();
        varint::encode(self.ttl_s, &mut value);
        value
    }

    /// Decodes the option's value. Fails if bytes are missing or left over, or if the time is above [`MAX_TTL_S`].
    pub fn decode(value: &[u8]) -> Result<Self, FlowCode> {
        let (id, rest) = value.split_first_chunk().ok_or(FlowCode::BadOpen)?;
        let (secret, rest) = rest.split_first_chunk().ok_or(FlowCode::BadOpen)?;
        let (route, rest) = rest.split_first().ok_or(FlowCode::BadOpen)?;
        match varint::decode(rest) {
            Some((ttl_s @ 0..=MAX_TTL_S, [])) => Ok(Self {
                id: *id,
                secret: *secret,
                route: *route,
                ttl_s,
            }),
            _ => Err(FlowCode::BadOpen),
        }
    }
}

#[cfg(test)]
mod tests;
