//! The `quic-tun` ack: one byte from server to client (PROTOCOL section 4.3).

use thiserror::Error;

/// What a server answers to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ack {
    /// The application is connected; raw bytes follow.
    Ok,
    /// The token is no target.
    CannotParseToken,
    /// The target could not be dialled.
    CannotReachApplication,
    /// A v0.0.1 server failed and does not say why. Received only, never sent.
    Failed,
}

/// A byte that no release sends as an ack (the peer's fault).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the server answered 0x{0:02x}, which is no ack: is it a quic-tun server?")]
pub struct UnknownAck(pub u8);

impl Ack {
    /// The byte on the wire.
    ///
    /// Never 0x00, on which a v0.0.1 client panics: [`Ack::Failed`] is sent as 0x03.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Ok => 0x01,
            Self::CannotParseToken => 0x02,
            Self::CannotReachApplication | Self::Failed => 0x03,
        }
    }

    /// Reads the byte on the wire.
    pub fn from_byte(byte: u8) -> Result<Self, UnknownAck> {
        match byte {
            0x00 => Ok(Self::Failed),
            0x01 => Ok(Self::Ok),
            0x02 => Ok(Self::CannotParseToken),
            0x03 => Ok(Self::CannotReachApplication),
            other => Err(UnknownAck(other)),
        }
    }
}

#[cfg(test)]
mod tests;
