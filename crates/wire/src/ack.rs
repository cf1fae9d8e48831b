//! The `quic-tun` ack: one byte from server to client (PROTOCOL section 4.3).

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

    /// Reads the byte on the wire; `None`: no release sends it as an ack.
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
