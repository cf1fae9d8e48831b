//! The `quictun/1` frames at the start of a stream (PROTOCOL section 5).
//!
//! ```text
//! OPEN      client -> server   type 0x01, length, target length, target, options...
//! OPEN_ACK  server -> client   type 0x02, length, options...
//! option                       type, length, value
//! ```
//!
//! All numbers are variable-length integers. Raw application bytes follow each frame at once; the client does
//! not wait for `OPEN_ACK` before it sends them. To receive: collect bytes and call `decode` after each read until
//! it gives [`Decoded::Done`]; an error ends the flow with [`OpenError::code`]. Nobody ever needs to
//! collect more than [`MAX_OPEN_FRAME`] or [`MAX_OPEN_ACK_FRAME`] bytes.

use thiserror::Error;

use crate::code::FlowCode;
use crate::varint;

/// Longest body of OPEN, bytes.
pub const MAX_OPEN: usize = 4096;

/// Longest body of `OPEN_ACK`, bytes.
pub const MAX_OPEN_ACK: usize = 256;

/// Longest target in OPEN, bytes.
pub const MAX_TARGET: usize = crate::target::MAX_TARGET;

/// Longest OPEN frame, bytes: two integers of the longest form, and the body.
pub const MAX_OPEN_FRAME: usize = 2 * varint::MAX_LEN + MAX_OPEN;

/// Longest `OPEN_ACK` frame, bytes.
pub const MAX_OPEN_ACK_FRAME: usize = 2 * varint::MAX_LEN + MAX_OPEN_ACK;

/// Length of a proof, bytes: an HMAC-SHA256.
pub const PROOF_LEN: usize = 32;

/// Label of the TLS exporter whose 32 bytes a proof signs (PROTOCOL section 5.5).
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-quictun-psk";

const TYPE_OPEN: u64 = 0x01;
const TYPE_OPEN_ACK: u64 = 0x02;
pub(crate) const OPTION_PROOF: u64 = 0x02;

/// The client's request: connect this stream to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Target or token, 1 to [`MAX_TARGET`] bytes. Opaque here; the server parses it.
    pub target: String,
    /// Proof that the client knows the pre-shared secret (PROTOCOL section 5.5).
    pub proof: Option<[u8; PROOF_LEN]>,
}

/// The server's answer: the target is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenAck;

/// What the bytes received so far amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// A valid beginning: call again with more bytes.
    Need,
    /// A whole frame.
    Done {
        /// The frame.
        frame: T,
        /// Its length, bytes; what follows is the application's.
        consumed: usize,
    },
}

/// Why a request cannot be sent (the local caller's fault).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// No target.
    #[error("the target is empty")]
    TargetEmpty,
    /// More than [`MAX_TARGET`] bytes.
    #[error("the target is {len} bytes long: at most {MAX_TARGET} can be sent")]
    TargetTooLong {
        /// Length of the target, bytes.
        len: usize,
    },
}

/// Why received bytes are no frame (the peer's fault).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another frame, or another protocol.
    #[error("the stream begins with frame type 0x{found:x}, expected 0x{expected:x}")]
    WrongType {
        /// The type this side waits for.
        expected: u64,
        /// The type received.
        found: u64,
    },
    /// The body is longer than its limit.
    #[error("the peer announced a body of {len} bytes: at most {max} are accepted")]
    TooLong {
        /// Length announced, bytes.
        len: u64,
        /// The limit, bytes.
        max: usize,
    },
    /// The body ends before a field does.
    #[error("the body ends inside its {field}")]
    Truncated {
        /// The field that is cut.
        field: Field,
    },
    /// No target.
    #[error("the peer sent an empty target")]
    TargetEmpty,
    /// More than [`MAX_TARGET`] bytes.
    #[error("the peer sent a target of {len} bytes: at most {MAX_TARGET} are accepted")]
    TargetTooLong {
        /// Length announced, bytes.
        len: u64,
    },
    /// The target is not text.
    #[error("the peer sent a target that is not UTF-8 text")]
    TargetNotUtf8,
    /// A proof of another length.
    #[error("the peer sent a proof of {len} bytes: it must have {PROOF_LEN}")]
    ProofLength {
        /// Length received, bytes.
        len: usize,
    },
    /// A known option twice.
    #[error("the peer sent option 0x{option:x} twice")]
    DuplicateOption {
        /// Its type.
        option: u64,
    },
    /// An option that must be understood and is not.
    #[error("the peer requires option 0x{option:x}, which this version does not know")]
    UnknownCriticalOption {
        /// Its type.
        option: u64,
    },
}

/// The parts of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The target's length.
    TargetLength,
    /// The target.
    Target,
    /// An option's type.
    OptionType,
    /// An option's length.
    OptionLength,
    /// An option's value.
    OptionValue,
}

impl Open {
    /// Appends the frame to `out`, which is unchanged on error.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.target.is_empty() {
            return Err(EncodeError::TargetEmpty);
        }
        if self.target.len() > MAX_TARGET {
            return Err(EncodeError::TargetTooLong {
                len: self.target.len(),
            });
        }
        let mut body = Vec::with_capacity(self.target.len() + PROOF_LEN + 4);
        put_bytes(self.target.as_bytes(), &mut body);
        if let Some(proof) = &self.proof {
            put_option(OPTION_PROOF, proof, &mut body);
        }
        put(TYPE_OPEN, out);
        put_bytes(&body, out);
        Ok(())
    }

    /// Reads the frame at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, OpenError> {
        let Some((body, consumed)) = split_frame(bytes, TYPE_OPEN, MAX_OPEN)? else {
            return Ok(Decoded::Need);
        };
        let (target_len, rest) = take_varint(body, Field::TargetLength)?;
        if target_len == 0 {
            return Err(OpenError::TargetEmpty);
        }
        if target_len > MAX_TARGET as u64 {
            return Err(OpenError::TargetTooLong { len: target_len });
        }
        let (target, options) = take(rest, target_len, Field::Target)?;
        let target = std::str::from_utf8(target)
            .map_err(|_| OpenError::TargetNotUtf8)?
            .to_owned();
        let proof = proof_of(options)?;
        Ok(Decoded::Done {
            frame: Self { target, proof },
            consumed,
        })
    }
}

impl OpenAck {
    /// Appends the frame to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        put(TYPE_OPEN_ACK, out);
        put_bytes(&[], out);
    }

    /// Reads the frame at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, OpenError> {
        let Some((options, consumed)) = split_frame(bytes, TYPE_OPEN_ACK, MAX_OPEN_ACK)? else {
            return Ok(Decoded::Need);
        };
        for option in Options(options) {
            skip(option?.0)?;
        }
        Ok(Decoded::Done {
            frame: Self,
            consumed,
        })
    }
}

impl OpenError {
    /// The code with which the flow is reset.
    pub fn code(self) -> FlowCode {
        match self {
            Self::UnknownCriticalOption { .. } => FlowCode::Unsupported,
            _ => FlowCode::BadOpen,
        }
    }
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TargetLength => "target length",
            Self::Target => "target",
            Self::OptionType => "option type",
            Self::OptionLength => "option length",
            Self::OptionValue => "option value",
        })
    }
}

/// The PROOF among the options in the rest of a body of OPEN or HELLO.
pub(crate) fn proof_of(options: &[u8]) -> Result<Option<[u8; PROOF_LEN]>, OpenError> {
    let mut proof = None;
    for option in Options(options) {
        match option? {
            (OPTION_PROOF, value) => {
                let value = value
                    .try_into()
                    .map_err(|_| OpenError::ProofLength { len: value.len() })?;
                if proof.replace(value).is_some() {
                    return Err(OpenError::DuplicateOption {
                        option: OPTION_PROOF,
                    });
                }
            }
            (unknown, _) => skip(unknown)?,
        }
    }
    Ok(proof)
}

/// The options in the rest of a body. Ends after the first error.
pub(crate) struct Options<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u64, &'a [u8]), OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        Some(split_option(bytes).map(|(option, value, rest)| {
            self.0 = rest;
            (option, value)
        }))
    }
}

fn split_option(bytes: &[u8]) -> Result<(u64, &[u8], &[u8]), OpenError> {
    let (option, rest) = take_varint(bytes, Field::OptionType)?;
    let (len, rest) = take_varint(rest, Field::OptionLength)?;
    let (value, rest) = take(rest, len, Field::OptionValue)?;
    Ok((option, value, rest))
}

/// Options with the lowest bit set must be understood; others may be ignored.
pub(crate) fn skip(option: u64) -> Result<(), OpenError> {
    if option & 1 == 1 {
        Err(OpenError::UnknownCriticalOption { option })
    } else {
        Ok(())
    }
}

/// Splits off the body of a frame and gives the frame's length; `None` where bytes are missing.
///
/// Type and length are judged as soon as they are there, before the body is.
fn split_frame(
    bytes: &[u8],
    expected: u64,
    max: usize,
) -> Result<Option<(&[u8], usize)>, OpenError> {
    let Some((found, rest)) = varint::decode(bytes) else {
        return Ok(None);
    };
    if found != expected {
        return Err(OpenError::WrongType { expected, found });
    }
    let Some((len, rest)) = varint::decode(rest) else {
        return Ok(None);
    };
    let too_long = OpenError::TooLong { len, max };
    let len = usize::try_from(len)
        .ok()
        .filter(|len| *len <= max)
        .ok_or(too_long)?;
    Ok(rest
        .get(..len)
        .map(|body| (body, bytes.len() - rest.len() + len)))
}

fn take_varint(bytes: &[u8], field: Field) -> Result<(u64, &[u8]), OpenError> {
    varint::decode(bytes).ok_or(OpenError::Truncated { field })
}

fn take(bytes: &[u8], len: u64, field: Field) -> Result<(&[u8], &[u8]), OpenError> {
    let split = usize::try_from(len)
        .ok()
        .and_then(|len| bytes.split_at_checked(len));
    split.ok_or(OpenError::Truncated { field })
}

/// Writes a number that fits; of a larger one, the largest that does.
pub(crate) fn put(value: u64, out: &mut Vec<u8>) {
    varint::encode(value.min(varint::MAX), out).expect("invariant: no larger than the largest");
}

pub(crate) fn put_option(option: u64, value: &[u8], out: &mut Vec<u8>) {
    put(option, out);
    put_bytes(value, out);
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
