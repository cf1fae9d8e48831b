//! The `quic-tun` ack: one byte from server to client (PROTOCOL section 4.3).

/// The server's answer to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ack {
    /// The application is connected; raw bytes follow.
    Ok,
    /// The token is not a valid target.
    CannotParseToken,
    /// The server could not dial the target.
    CannotReachApplication,
    /// A v0.0.1 server failed without giving a reason. Only received, never sent.
    Failed,
}

impl Ack {
    /// Returns the byte on the wire.
    ///
    /// The byte is never 0x00, because a v0.0.1 client panics on it: [`Ack::Failed`] is sent as 0x03.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Ok => 0x01,
            Self::CannotParseToken => 0x02,
            Self::CannotReachApplication | Self::Failed => 0x03,
        }
    }

    /// Reads the byte on the wire. Returns `None` for a byte that no release sends as an ack.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0x00 => Some(Self::Failed),
            0x01 => Some(Self::Ok),
            0x02 => Some(Self::CannotParseToken),
            0x03 => Some(Self::CannotReachApplication),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
