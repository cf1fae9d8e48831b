//! The `quic-tun` token: 512 bytes at the start of a stream (PROTOCOL section 4.2).
//!
//! A client packs the token and writes the block in one piece. A server collects exactly [`TOKEN_LEN`] bytes, however
//! they are fragmented, and unpacks them. The application's bytes follow the block.

use thiserror::Error;

/// Length of the block, bytes.
pub const TOKEN_LEN: usize = 512;

/// The reason why a token cannot be sent. The local configuration is at fault, because it defines the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PackError {
    /// The token is longer than the block. The original truncates such a token silently and so requests another target
    /// than the user intended.
    #[error("the token is {len} bytes long: at most {TOKEN_LEN} can be sent")]
    TooLong {
        /// Length of the token, bytes.
        len: usize,
    },
    /// The token contains NUL, which is also the padding.
    #[error("the token contains a NUL character, which the protocol uses as padding")]
    Nul,
    /// The token is empty; every server would refuse it.
    #[error("the token is empty: give a target such as tcp:127.0.0.1:22")]
    Empty,
}

/// Pads `token` with NUL to a full block.
pub fn pack(token: &str) -> Result<[u8; TOKEN_LEN], PackError> {
    if token.is_empty() {
        return Err(PackError::Empty);
    }
    if token.contains('\0') {
        return Err(PackError::Nul);
    }
    let mut block = [0; TOKEN_LEN];
    block
        .get_mut(..token.len())
        .ok_or(PackError::TooLong { len: token.len() })?
        .copy_from_slice(token.as_bytes());
    Ok(block)
}

/// Extracts the token from a block. Drops every NUL, wherever it stands, as the original does. Returns `None` if the
/// rest is empty or not UTF-8.
pub fn unpack(block: &[u8; TOKEN_LEN]) -> Option<String> {
    let bytes: Vec<u8> = block.iter().copied().filter(|byte| *byte != 0).collect();
    String::from_utf8(bytes)
        .ok()
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests;
