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

/// Option of HELLO.
pub(crate) const OPTION_ASK: u64 = 0x06;

/// Option of `HELLO_ACK`.
pub(crate) const OPTION_BOND: u64 = 0x08;

/// Label of the TLS exporter whose 32 bytes a ticket signs.
pub const BOND_EXPORTER_LABEL: &[u8] = b"EXPORTER-quictun-bond";

/// Bytes of a bond's id.
pub const BOND_ID_LEN: usize = 16;

/// Bytes of a ticket: an HMAC-SHA256.
pub const TICKET_LEN: usize = 32;

/// Bytes of a bond's secret.
pub const SECRET_LEN: usize = 32;

/// Longest time that a server may say it keeps detached flows, seconds: a day. A client holds memory as long.
pub const MAX_TTL_S: u64 = 86_400;

/// BOND of a client: what its connection is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The first connection of a bond.
    New,
    /// The next connection of a bond that there is.
    Again {
        /// The bond.
        id: [u8; BOND_ID_LEN],
        /// Shows that the client has the bond's secret; holds for this connection alone.
        ticket: [u8; TICKET_LEN],
    },
}

/// BOND of a server: the bond that the connection belongs to from now on.
#[derive(Clone, PartialEq, Eq)]
pub struct BondGrant {
    /// The bond: the one that was asked for, or another where that one is not known or was refused.
    pub id: [u8; BOND_ID_LEN],
    /// The key of tickets.
    pub secret: [u8; SECRET_LEN],
    /// The server's worker that has the bond.
    pub route: u8,
    /// Time that the server keeps flows without a connection, seconds, at most [`MAX_TTL_S`].
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

impl Ask {
    /// The option's value.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::New => Vec::new(),
            Self::Again { id, ticket } => [&id[..], ticket].concat(),
        }
    }

    /// Reads the option's value. Errors: another length than 0 or 48 bytes.
    pub fn decode(value: &[u8]) -> Result<Self, FlowCode> {
        if value.is_empty() {
            return Ok(Self::New);
        }
        let (id, ticket) = value.split_first_chunk().ok_or(FlowCode::BadOpen)?;
        Ok(Self::Again {
            id: *id,
            ticket: ticket.try_into().map_err(|_| FlowCode::BadOpen)?,
        })
    }
}

impl BondGrant {
    /// The option's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = [&self.id[..], &self.secret, &[self.route]].concat();
        varint::encode(self.ttl_s, &mut value);
        value
    }

    /// Reads the option's value. Errors: bytes missing or left over, or a time above [`MAX_TTL_S`].
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
