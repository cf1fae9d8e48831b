//! The first bytes of a stream in any of the protocols: a request, and the answer.

use crate::ack::Ack;
use crate::alpn::Protocol;
use crate::code::FlowCode;
use crate::open::{Decoded, MAX_OPEN_ACK_FRAME, MAX_OPEN_FRAME, Open, OpenAck};
use crate::token::{self, TOKEN_LEN};

/// What a server has read of a stream's beginning.
#[derive(Debug)]
pub enum Asked {
    /// Not enough bytes yet.
    Need,
    /// A whole request, and the number of bytes it took.
    Done(Open, usize),
    /// No request.
    Refuse(FlowCode),
}

/// What a client has read of the answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answered {
    /// Not enough bytes yet.
    Need,
    /// The target is connected; the answer took this many bytes.
    Yes(usize),
    /// The server refuses, or speaks nonsense.
    No(FlowCode),
}

/// Most bytes read from a stream before the request must be complete.
pub fn request_max(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Native => MAX_OPEN_FRAME,
        Protocol::Compat => TOKEN_LEN,
        Protocol::Raw => 0,
    }
}

/// Most bytes read from a stream before the answer must be complete.
pub fn answer_max(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Native => MAX_OPEN_ACK_FRAME,
        Protocol::Compat => 1,
        Protocol::Raw => 0,
    }
}

/// The bytes with which a client asks.
pub fn request(
    protocol: Protocol,
    target: &str,
    proof: Option<[u8; 32]>,
) -> Result<Vec<u8>, FlowCode> {
    match protocol {
        Protocol::Native => {
            let open = Open {
                target: target.to_owned(),
                proof,
            };
            let mut frame = Vec::new();
            open.encode(&mut frame).map_err(|_| FlowCode::BadOpen)?;
            Ok(frame)
        }
        Protocol::Compat => {
            let block = token::pack(target).map_err(|_| FlowCode::BadOpen)?;
            Ok(block.to_vec())
        }
        Protocol::Raw => Ok(Vec::new()),
    }
}

/// Reads a request from the beginning of a stream.
pub fn read_request(protocol: Protocol, bytes: &[u8]) -> Asked {
    match protocol {
        Protocol::Native => match Open::decode(bytes) {
            Ok(Decoded::Need) => Asked::Need,
            Ok(Decoded::Done { frame, consumed }) => Asked::Done(frame, consumed),
            Err(error) => Asked::Refuse(error.code()),
        },
        Protocol::Compat => {
            let Some(block) = bytes.first_chunk::<TOKEN_LEN>() else {
                return Asked::Need;
            };
            match token::unpack(block) {
                Ok(target) => Asked::Done(
                    Open {
                        target,
                        proof: None,
                    },
                    TOKEN_LEN,
                ),
                Err(_) => Asked::Refuse(FlowCode::BadOpen),
            }
        }
        Protocol::Raw => Asked::Done(
            Open {
                target: String::new(),
                proof: None,
            },
            0,
        ),
    }
}

/// The bytes with which a server accepts.
pub fn acceptance(protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Native => {
            let mut frame = Vec::new();
            OpenAck::default().encode(&mut frame);
            frame
        }
        Protocol::Compat => vec![Ack::Ok.to_byte()],
        Protocol::Raw => Vec::new(),
    }
}

/// Reads the answer from the beginning of a stream.
pub fn read_answer(protocol: Protocol, bytes: &[u8]) -> Answered {
    match protocol {
        Protocol::Native => match OpenAck::decode(bytes) {
            Ok(Decoded::Need) => Answered::Need,
            Ok(Decoded::Done { consumed, .. }) => Answered::Yes(consumed),
            Err(error) => Answered::No(error.code()),
        },
        Protocol::Compat => match bytes.first().map(|&byte| Ack::from_byte(byte)) {
            None => Answered::Need,
            Some(Ok(Ack::Ok)) => Answered::Yes(1),
            Some(Ok(Ack::CannotParseToken)) => Answered::No(FlowCode::BadOpen),
            Some(Ok(_) | Err(_)) => Answered::No(FlowCode::Unreachable),
        },
        Protocol::Raw => Answered::Yes(0),
    }
}
