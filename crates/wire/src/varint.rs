//! QUIC variable-length integers (RFC 9000 section 16).
//!
//! The two highest bits of the first byte give the length: 1, 2, 4 or 8 bytes, big-endian.

use thiserror::Error;

/// Largest value a variable-length integer holds: 2^62 - 1.
pub const MAX: u64 = (1 << 62) - 1;

/// Longest encoding, bytes.
pub const MAX_LEN: usize = 8;

/// The value does not fit in 62 bits (our fault: nothing a peer sends leads here).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0} does not fit in a variable-length integer, which holds at most 2^62 - 1")]
pub struct TooLarge(pub u64);

/// Appends `value` to `out` in its shortest form.
///
/// # Errors
/// [`TooLarge`] where `value` exceeds [`MAX`]; `out` is then unchanged.
pub fn encode(value: u64, out: &mut Vec<u8>) -> Result<(), TooLarge> {
    let (length, tag) = match value {
        0..=0x3f => (1, 0x00),
        0x40..=0x3fff => (2, 0x40),
        0x4000..=0x3fff_ffff => (4, 0x80),
        0x4000_0000..=MAX => (8, 0xc0),
        _ => return Err(TooLarge(value)),
    };
    let start = out.len();
    out.extend_from_slice(&value.to_be_bytes()[MAX_LEN - length..]);
    out[start] |= tag;
    Ok(())
}

/// Reads one integer from the front of `bytes`: its value and the bytes after it.
///
/// `None` means that more bytes are needed; no sequence of bytes is invalid. Encodings longer than
/// necessary are accepted, as RFC 9000 asks.
pub fn decode(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let length = 1usize << (first >> 6);
    let (head, rest) = bytes.split_at_checked(length)?;
    let value = head[1..]
        .iter()
        .fold(u64::from(first & 0x3f), |value, byte| {
            value << 8 | u64::from(*byte)
        });
    Some((value, rest))
}

#[cfg(test)]
mod tests;
