//! The outer form of records (RFC 8446 section 5).

use rustls::ContentType;

use crate::error::Violation;

/// Largest number of plaintext bytes in one record.
pub const PLAINTEXT_MAX: usize = 1 << 14;

/// Largest record after the handshake, in bytes. A buffer for received bytes must have room for it.
pub const RECORD_MAX: usize = HEADER + CIPHERTEXT_MAX;

pub(crate) const HEADER: usize = 5;

/// The content type behind the plaintext, and the authentication tag of all three suites.
pub(crate) const TYPE: usize = 1;
pub(crate) const TAG: usize = 16;

const CIPHERTEXT_MAX: usize = PLAINTEXT_MAX + 256;

/// Largest record body in a handshake. TLS 1.2 permits longer records, and the TLS library judges them.
const HANDSHAKE_BODY_MAX: usize = PLAINTEXT_MAX + 2048;

/// The version that all protected records state.
const VERSION: [u8; 2] = [3, 3];

/// Returns the header of a protected record with a body of `len` bytes.
pub(crate) fn header(len: usize) -> [u8; HEADER] {
    let [.., high, low] = len.to_be_bytes();
    let [major, minor] = VERSION;
    [
        u8::from(ContentType::ApplicationData),
        major,
        minor,
        high,
        low,
    ]
}

/// Returns the length of the protected record, header included, at the front of `bytes`. `None` if the header is
/// incomplete.
pub(crate) fn protected_len(bytes: &[u8]) -> Result<Option<usize>, Violation> {
    let Some(&[kind, major, minor, high, low]) = bytes.first_chunk() else {
        return Ok(None);
    };
    // A change_cipher_spec may not follow the peer's Finished (RFC 8446 section 5), nor may plaintext.
    if kind != u8::from(ContentType::ApplicationData) {
        return Err(Violation::RecordType(kind));
    }
    if [major, minor] != VERSION {
        return Err(Violation::RecordVersion([major, minor]));
    }
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > CIPHERTEXT_MAX {
        return Err(Violation::RecordTooLong);
    }
    Ok(Some(HEADER + len))
}

/// The beginning of a handshake record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeRecord {
    /// The header is incomplete.
    Partial,
    /// The length of the record, header included.
    Length(usize),
    /// No TLS record begins like this.
    Malformed,
}

/// Reads the header of a handshake record at the front of `bytes`.
pub(crate) fn handshake_len(bytes: &[u8]) -> HandshakeRecord {
    let Some(&[kind, major, _, high, low]) = bytes.first_chunk() else {
        return HandshakeRecord::Partial;
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let is_known = !matches!(
        ContentType::from(kind),
        ContentType::Unknown(_) | ContentType::Heartbeat
    );
    if is_known && major == 3 && len <= HANDSHAKE_BODY_MAX {
        HandshakeRecord::Length(HEADER + len)
    } else {
        HandshakeRecord::Malformed
    }
}
