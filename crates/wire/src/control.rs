//! The frames of the control stream (PROTOCOL section 5.6).
//!
//! ```text
//! HELLO      client, first   type 0x07, length, options...
//! HELLO_ACK  server, first   type 0x08, length, options...
//! SEEN       both            type 0x10, length, (flow, next)...
//! GONE       both            type 0x11, length, (flow, code)...
//! HOLD       both            type 0x13, length, flow...
//! GO         both            type 0x14, length, flow...
//! ```
//!
//! To receive: collect bytes and call [`Frame::decode`] after each read until it gives [`Decoded::Need`]; an error
//! ends the connection. Nobody ever needs to collect more than [`MAX_FRAME`] bytes. To tell a control stream
//! from a flow, ask [`begins`] for its first bytes.

use thiserror::Error;

use crate::open::{
    Decoded, MAX_OPEN, OPTION_PROOF, OpenError, Options, PROOF_LEN, proof_of, put, put_bytes,
    put_option, skip,
};
use crate::varint;

/// Longest body of a control frame, bytes.
pub const MAX_BODY: usize = MAX_OPEN;

/// Longest control frame, bytes: two integers of the longest form, and the body.
pub const MAX_FRAME: usize = 2 * varint::MAX_LEN + MAX_BODY;

/// Most flows that one SEEN, HOLD or GO names.
pub const MAX_FLOWS: usize = 64;

const TYPE_HELLO: u64 = 0x07;
const TYPE_HELLO_ACK: u64 = 0x08;
const TYPE_SEEN: u64 = 0x10;
const TYPE_GONE: u64 = 0x11;
const TYPE_HOLD: u64 = 0x13;
const TYPE_GO: u64 = 0x14;

/// Names a flow to the peer: the id of the QUIC stream that it was opened on.
pub type FlowNumber = u64;

/// How much of a flow has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The flow.
    pub flow: FlowNumber,
    /// The first number that has not arrived in order. The application's first byte has number 0, the
    /// FIN one number after the last byte.
    pub next: u64,
}

/// A flow that has ended before everything arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The flow.
    pub flow: FlowNumber,
    /// Why, a flow code (PROTOCOL section 6.1).
    pub code: u64,
}

/// One frame of the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// The client begins, and may prove who it is.
    Hello {
        /// Proof that the client knows the pre-shared secret (PROTOCOL section 5.5).
        proof: Option<[u8; PROOF_LEN]>,
    },
    /// The server knows the client, or lets anyone in.
    HelloAck,
    /// So much of these flows has arrived.
    Seen(Vec<Seen>),
    /// These flows have ended before everything arrived.
    Gone(Vec<Gone>),
    /// Send no more on these flows for now.
    Hold(Vec<FlowNumber>),
    /// Send on these flows again.
    Go(Vec<FlowNumber>),
    /// A frame of a type that this version does not know: to be skipped.
    Unknown {
        /// Its type.
        kind: u64,
    },
}

/// Why received bytes are no control frame (the peer's fault).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The body is longer than [`MAX_BODY`].
    #[error("the peer announced a control frame of {len} bytes: at most {MAX_BODY} are accepted")]
    TooLong {
        /// Length announced, bytes.
        len: u64,
    },
    /// The body ends inside a number.
    #[error("the body of control frame 0x{kind:x} ends inside a number")]
    Truncated {
        /// The frame's type.
        kind: u64,
    },
    /// No flow, or more than [`MAX_FLOWS`].
    #[error("control frame 0x{kind:x} names {count} flows: 1 to {MAX_FLOWS} are accepted")]
    Count {
        /// The frame's type.
        kind: u64,
        /// Flows named.
        count: usize,
    },
    /// An option of HELLO or `HELLO_ACK` is malformed, or required and not known.
    #[error("in HELLO or HELLO_ACK: {0}")]
    Option(OpenError),
}

/// Whether a stream that begins so is a control stream; `None`: too early to tell.
pub fn begins(bytes: &[u8]) -> Option<bool> {
    varint::decode(bytes).map(|(kind, _)| kind == TYPE_HELLO)
}

impl Frame {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let kind = match self {
            Self::Hello { proof } => {
                if let Some(proof) = proof {
                    put_option(OPTION_PROOF, proof, &mut body);
                }
                TYPE_HELLO
            }
            Self::HelloAck => TYPE_HELLO_ACK,
            Self::Seen(flows) => {
                for seen in flows {
                    put(seen.flow, &mut body);
                    put(seen.next, &mut body);
                }
                TYPE_SEEN
            }
            Self::Gone(flows) => {
                for gone in flows {
                    put(gone.flow, &mut body);
                    put(gone.code, &mut body);
                }
                TYPE_GONE
            }
            Self::Hold(flows) | Self::Go(flows) => {
                for &flow in flows {
                    put(flow, &mut body);
                }
                if matches!(self, Self::Hold(_)) {
                    TYPE_HOLD
                } else {
                    TYPE_GO
                }
            }
            Self::Unknown { kind } => *kind,
        };
        put(kind, out);
        put_bytes(&body, out);
    }

    /// Reads the frame at the front of `bytes`.
    ///
    /// # Errors
    ///
    /// [`ControlError`]: the peer breaks the protocol. Too long a body is refused before it is received.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, ControlError> {
        let Some((kind, rest)) = varint::decode(bytes) else {
            return Ok(Decoded::Need);
        };
        let Some((len, rest)) = varint::decode(rest) else {
            return Ok(Decoded::Need);
        };
        let length = usize::try_from(len)
            .ok()
            .filter(|length| *length <= MAX_BODY)
            .ok_or(ControlError::TooLong { len })?;
        let Some(body) = rest.get(..length) else {
            return Ok(Decoded::Need);
        };
        Ok(Decoded::Done {
            frame: Self::of(kind, body)?,
            consumed: bytes.len() - rest.len() + length,
        })
    }

    fn of(kind: u64, body: &[u8]) -> Result<Self, ControlError> {
        Ok(match kind {
            TYPE_HELLO => Self::Hello {
                proof: proof_of(body).map_err(ControlError::Option)?,
            },
            TYPE_HELLO_ACK => {
                for option in Options(body) {
                    option
                        .and_then(|(option, _)| skip(option))
                        .map_err(ControlError::Option)?;
                }
                Self::HelloAck
            }
            TYPE_SEEN => {
                let seen = |[flow, next]: [u64; 2]| Seen { flow, next };
                Self::Seen(pairs(kind, body)?.into_iter().map(seen).collect())
            }
            TYPE_GONE => {
                let gone = |[flow, code]: [u64; 2]| Gone { flow, code };
                Self::Gone(pairs(kind, body)?.into_iter().map(gone).collect())
            }
            TYPE_HOLD | TYPE_GO => {
                let flows = numbers(kind, body)?;
                check_count(kind, flows.len())?;
                if kind == TYPE_HOLD {
                    Self::Hold(flows)
                } else {
                    Self::Go(flows)
                }
            }
            kind => Self::Unknown { kind },
        })
    }
}

fn check_count(kind: u64, count: usize) -> Result<(), ControlError> {
    if (1..=MAX_FLOWS).contains(&count) {
        Ok(())
    } else {
        Err(ControlError::Count { kind, count })
    }
}

fn pairs(kind: u64, body: &[u8]) -> Result<Vec<[u64; 2]>, ControlError> {
    let numbers = numbers(kind, body)?;
    let (pairs, odd) = numbers.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(ControlError::Truncated { kind });
    }
    check_count(kind, pairs.len())?;
    Ok(pairs.to_vec())
}

fn numbers(kind: u64, mut body: &[u8]) -> Result<Vec<u64>, ControlError> {
    let mut numbers = Vec::new();
    while !body.is_empty() {
        let (number, rest) = varint::decode(body).ok_or(ControlError::Truncated { kind })?;
        numbers.push(number);
        body = rest;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests;
