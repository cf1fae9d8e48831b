//! The first bytes of a stream in any of the protocols: a request, and the answer.

use crate::ack::Ack;
use crate::alpn::Protocol;
use crate::code::{CloseCode, FlowCode};
use crate::open::{Decoded, MAX_OPEN_ACK_FRAME, MAX_OPEN_FRAME, Open, OpenAck};
use crate::proxy::{MAX_HEAD, connect};
use crate::token::{self, TOKEN_LEN};

/// Returns the maximum number of bytes to read before the request must be complete.
pub fn request_max(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Native => MAX_OPEN_FRAME,
        Protocol::Compat => TOKEN_LEN,
        Protocol::Http | Protocol::Http2 => MAX_HEAD,
        Protocol::Raw => 0,
    }
}

/// Returns the maximum number of bytes to read before the answer must be complete.
pub fn answer_max(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Native => MAX_OPEN_ACK_FRAME,
        Protocol::Compat => 1,
        // Only servers speak it.
        Protocol::Http | Protocol::Http2 | Protocol::Raw => 0,
    }
}

/// Encodes a client's request. Only the native protocol can carry more than the target.
pub fn request(protocol: Protocol, open: &Open) -> Result<Vec<u8>, FlowCode> {
    match protocol {
        Protocol::Native => {
            let mut frame = Vec::new();
            open.encode(&mut frame)?;
            Ok(frame)
        }
        Protocol::Compat => {
            let block = token::pack(&open.target).map_err(|_| FlowCode::BadOpen)?;
            Ok(block.to_vec())
        }
        Protocol::Http | Protocol::Http2 => Err(FlowCode::Unsupported),
        Protocol::Raw => Ok(Vec::new()),
    }
}

/// Decodes a request at the beginning of a stream.
pub fn read_request(protocol: Protocol, bytes: &[u8]) -> Result<Decoded<Open>, FlowCode> {
    let (target, consumed) = match protocol {
        Protocol::Native => return Open::decode(bytes),
        Protocol::Compat => match bytes.first_chunk() {
            None => return Ok(Decoded::Need),
            Some(block) => (token::unpack(block).ok_or(FlowCode::BadOpen)?, TOKEN_LEN),
        },
        Protocol::Http | Protocol::Http2 => return connect::read(bytes),
        Protocol::Raw => (String::new(), 0),
    };
    let frame = Open {
        target,
        ..Open::default()
    };
    Ok(Decoded::Done { frame, consumed })
}

/// Encodes the answer of a side that accepts. Only the native protocol can carry more than the acceptance.
pub fn acceptance(protocol: Protocol, answer: OpenAck) -> Vec<u8> {
    match protocol {
        Protocol::Native => {
            let mut frame = Vec::new();
            answer.encode(&mut frame);
            frame
        }
        Protocol::Compat => vec![Ack::Ok.to_byte()],
        Protocol::Http | Protocol::Http2 => connect::ACCEPTED.to_vec(),
        Protocol::Raw => Vec::new(),
    }
}

/// Encodes the answer of a side that refuses, which ends its direction. `read` has the bytes of the request that have
/// arrived, if it was not complete. Empty if the protocol refuses by a reset.
pub fn refusal(protocol: Protocol, code: FlowCode, read: &[u8]) -> Vec<u8> {
    match protocol {
        Protocol::Compat => vec![code.compat_ack().to_byte()],
        Protocol::Http | Protocol::Http2 => connect::refusal(code, read),
        Protocol::Native | Protocol::Raw => Vec::new(),
    }
}

/// Encodes the answer of a server that closes a connection before it has answered anything on it. Empty if the protocol
/// has a frame for that.
pub fn closing(protocol: Protocol, code: CloseCode) -> Vec<u8> {
    match protocol {
        Protocol::Http | Protocol::Http2 => connect::closing(code),
        Protocol::Native | Protocol::Compat | Protocol::Raw => Vec::new(),
    }
}

/// Decodes the answer at the beginning of a stream. An error means that the server refuses, or that the answer is
/// invalid.
pub fn read_answer(protocol: Protocol, bytes: &[u8]) -> Result<Decoded<OpenAck>, FlowCode> {
    let consumed = match protocol {
        Protocol::Native => return OpenAck::decode(bytes),
        Protocol::Compat => match bytes.first().map(|&byte| Ack::from_byte(byte)) {
            None => return Ok(Decoded::Need),
            Some(Some(Ack::Ok)) => 1,
            Some(Some(Ack::CannotParseToken)) => return Err(FlowCode::BadOpen),
            Some(_) => return Err(FlowCode::Unreachable),
        },
        Protocol::Http | Protocol::Http2 => return Err(FlowCode::Unsupported),
        Protocol::Raw => 0,
    };
    Ok(Decoded::Done {
        frame: OpenAck::default(),
        consumed,
    })
}
