//! QUIC variable-length integers (RFC 9000 section 16).
//!
//! The two highest bits of the first byte give the length: 1, 2, 4 or 8 bytes, big-endian.

/// Largest value of a variable-length integer: 2^62 - 1.
pub const MAX: u64 = (1 << 62) - 1;

/// Length of the longest encoding, bytes.
pub const MAX_LEN: usize = 8;

/// Appends `value` to `out` in its shortest form. Encodes a value above [`MAX`] as [`MAX`].
pub fn encode(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(shortest(value, &mut [0; MAX_LEN]));
}

/// Returns the shortest form of `value`, made in `buffer`. Encodes a value above [`MAX`] as [`MAX`].
pub fn shortest(value: u64, buffer: &mut [u8; MAX_LEN]) -> &[u8] {
    let value = value.min(MAX);
    let (length, tag) = match value {
        0..=0x3f => (1, 0x00),
        0x40..=0x3fff => (2, 0x40),
        0x4000..=0x3fff_ffff => (4, 0x80),
        _ => (8, 0xc0),
    };
    *buffer = value.to_be_bytes();
    let bytes = &mut buffer[MAX_LEN - length..];
    bytes[0] |= tag;
    bytes
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
