//! The frames that begin a stream to which a flow moves from another connection (PROTOCOL section 5.8).
//!
//! ```text
//! MOVE      client -> server   type 0x05, length, flow, leg, next, options...
//! MOVE_ACK  server -> client   type 0x06, length, next, options...
//! ```
//!
//! Raw application bytes follow each frame. The client's bytes start at the number in `MOVE_ACK`, the server's bytes at
//! the number in MOVE. The frames are received in the same way as OPEN and `OPEN_ACK` ([`crate::open`]). [`begins`]
//! distinguishes such a stream from one that begins with OPEN by the first bytes of the stream.

use crate::code::FlowCode;
use crate::open::{Decoded, put_bytes, skip_all, split_frame};
use crate::varint;

/// Maximum length of the body of MOVE and of `MOVE_ACK`, bytes: that of `OPEN_ACK`, whose body also has only options.
const MAX_BODY: usize = 256;

/// Maximum length of a MOVE frame, bytes: two integers of the longest form, and the body.
pub const MAX_MOVE_FRAME: usize = 2 * varint::MAX_LEN + MAX_BODY;

/// Maximum length of a `MOVE_ACK` frame, bytes.
pub const MAX_MOVE_ACK_FRAME: usize = 2 * varint::MAX_LEN + MAX_BODY;

const TYPE_MOVE: u64 = 0x05;
const TYPE_MOVE_ACK: u64 = 0x06;

/// The client's request: a flow of the bond continues on this stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The flow's number from its OPEN.
    pub flow: u64,
    /// Counts the moves of this flow from 1. Each attempt increases it.
    pub leg: u64,
    /// The first of the server's byte numbers that the client has not received in order.
    pub next: u64,
}

/// The server's answer: the flow continues on this stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveAck {
    /// The first of the client's byte numbers that the server has not received in order.
    pub next: u64,
}

/// Returns whether a stream with these first bytes moves a flow, or `None` if more bytes are needed.
pub fn begins(bytes: &[u8]) -> Option<bool> {
    varint::decode(bytes).map(|(kind, _)| kind == TYPE_MOVE)
}

impl Move {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(TYPE_MOVE, &[self.flow, self.leg, self.next], out);
    }

    /// Decodes the frame at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, FlowCode> {
        decode(TYPE_MOVE, bytes, |[flow, leg, next]| Self {
            flow,
            leg,
            next,
        })
    }
}

impl MoveAck {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(TYPE_MOVE_ACK, &[self.next], out);
    }

    /// Decodes the frame at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, FlowCode> {
        decode(TYPE_MOVE_ACK, bytes, |[next]| Self { next })
    }
}

fn encode(kind: u64, numbers: &[u64], out: &mut Vec<u8>) {
    let mut body = Vec::new();
    for &number in numbers {
        varint::encode(number, &mut body);
    }
    varint::encode(kind, out);
    put_bytes(&body, out);
}

/// Decodes a frame of `N` numbers and options. No option is known.
fn decode<const N: usize, T>(
    kind: u64,
    bytes: &[u8],
    frame: impl FnOnce([u64; N]) -> T,
) -> Result<Decoded<T>, FlowCode> {
    let known = |found| found == kind;
    let Some((_, mut body, consumed)) = split_frame(bytes, known, MAX_BODY)? else {
        return Ok(Decoded::Need);
    };
    let mut numbers = [0; N];
    for number in &mut numbers {
        (*number, body) = varint::decode(body).ok_or(FlowCode::BadOpen)?;
    }
    skip_all(body)?;
    Ok(Decoded::Done {
        frame: frame(numbers),
        consumed,
    })
}

#[cfg(test)]
mod tests;
