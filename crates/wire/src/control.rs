//! The frames of the control stream (PROTOCOL section 5.6).
//!
//! ```text
//! HELLO      client, first   type 0x07, length, options...
//! HELLO_ACK  server, first   type 0x08, length, options...
//! SEEN       both            type 0x10, length, (flow, next)...
//! GONE       both            type 0x11, length, (flow, code)...
//! HOLD       both            type 0x13, length, flow...
//! GO         both            type 0x14, length, flow...
//! ENDED      client          type 0x15, length, (flow, code)...
//! LISTEN     client          type 0x16, see crate::listening
//! LISTEN_ACK server          type 0x17, see crate::listening
//! UNLISTEN   client          type 0x18, length, id...
//! DRAINING   server          type 0x19, length, options...
//! ```
//!
//! A receiver collects bytes and calls [`Frame::decode`] after each read until it returns [`Decoded::Need`]. An error
//! ends the connection. The receiver never has to collect more than [`MAX_FRAME`] bytes. [`begins`] distinguishes a
//! control stream from a flow by the first bytes of the stream.

use thiserror::Error;

use crate::bond::{self, BondGrant, OPTION_ASK, OPTION_BOND};
use crate::code::FlowCode;
use crate::join::{Grant, Join, OPTION_GRANT, OPTION_JOIN};
use crate::listening::{Listen, ListenAck, OPTION_REVERSE};
use crate::open::{
    Decoded, MAX_OPEN, OPTION_PROOF, PROOF_LEN, once, put_bytes, put_option, read_options, skip,
    skip_all, split_frame,
};
use crate::varint;

/// Maximum length of a control frame's body, bytes.
pub const MAX_BODY: usize = MAX_OPEN;

/// Maximum length of a control frame, bytes: two integers of the longest form, and the body.
pub const MAX_FRAME: usize = 2 * varint::MAX_LEN + MAX_BODY;

/// Maximum number of flows in one SEEN, GONE, HOLD, GO or ENDED, and of listeners in one UNLISTEN.
pub const MAX_FLOWS: usize = 64;

const TYPE_HELLO: u64 = 0x07;
const TYPE_HELLO_ACK: u64 = 0x08;
const TYPE_SEEN: u64 = 0x10;
const TYPE_GONE: u64 = 0x11;
const TYPE_HOLD: u64 = 0x13;
const TYPE_GO: u64 = 0x14;
const TYPE_ENDED: u64 = 0x15;
const TYPE_LISTEN: u64 = 0x16;
const TYPE_LISTEN_ACK: u64 = 0x17;
const TYPE_UNLISTEN: u64 = 0x18;
const TYPE_DRAINING: u64 = 0x19;

/// The code in ENDED of a flow that ended by both FINs. No flow code has this number.
pub const FINISHED: u64 = 0;

/// Identifies a flow to the peer: the id of its QUIC stream on this connection. In ENDED, the flow's number in the
/// bond.
pub type FlowNumber = u64;

/// The part of a flow that has arrived in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The flow that the sender acknowledges.
    pub flow: FlowNumber,
    /// The first number that has not arrived in order. The application's first byte has number 0. The FIN takes the
    /// number after the last byte.
    pub next: u64,
}

/// A flow that has ended before everything arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// The flow that ended.
    pub flow: FlowNumber,
    /// The reason, a flow code (PROTOCOL section 6.1).
    pub code: u64,
}

/// One frame of the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// The client's first frame. It may prove the client's identity.
    Hello {
        /// Proof that the client knows the pre-shared secret (PROTOCOL section 5.5).
        proof: Option<[u8; PROOF_LEN]>,
        /// The client joins by an invitation (PROTOCOL section 5.7).
        join: Option<Join>,
        /// The client wants its flows to outlive the connection (PROTOCOL section 5.8).
        bond: Option<bond::BondRequest>,
        /// The client may ask the server to listen for it (PROTOCOL section 5.9).
        reverse: bool,
    },
    /// The server's first frame: it knows the client, or accepts any client.
    HelloAck {
        /// The grant for a client that asked by JOIN.
        grant: Option<Grant>,
        /// The connection's bond. If `None`, its flows end with the connection.
        bond: Option<BondGrant>,
        /// The server listens for clients.
        reverse: bool,
    },
    /// The sender has received these flows up to these numbers.
    Seen(Vec<Seen>),
    /// These flows have ended before everything arrived.
    Gone(Vec<FlowEnd>),
    /// The receiver must pause sending on these flows.
    Hold(Vec<FlowNumber>),
    /// The receiver may send on these flows again.
    Go(Vec<FlowNumber>),
    /// These flows of the bond ended while they had no connection.
    Ended(Vec<FlowEnd>),
    /// The client asks the server to listen for it.
    Listen(Listen),
    /// The server listens, or reports why it does not.
    ListenAck(ListenAck),
    /// The server must stop listening for these reverse forwards.
    Unlisten(Vec<u64>),
    /// The server is about to end: the client should open its flows at another one.
    Draining,
    /// A frame of a type unknown to this version. The receiver skips it.
    Unknown {
        /// The frame's type number.
        kind: u64,
    },
}

/// The received bytes are not a valid control frame: the peer violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed control frame")]
pub struct MalformedFrame;

impl From<FlowCode> for MalformedFrame {
    fn from(_: FlowCode) -> Self {
        Self
    }
}

/// Returns whether a stream with these first bytes is a control stream, or `None` if more bytes are needed.
pub fn begins(bytes: &[u8]) -> Option<bool> {
    varint::decode(bytes).map(|(kind, _)| kind == TYPE_HELLO)
}

impl Frame {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let kind = match self {
            Self::Hello {
                proof,
                join,
                bond,
                reverse,
            } => {
                if let Some(proof) = proof {
                    put_option(OPTION_PROOF, proof, &mut body);
                }
                if let Some(join) = join {
                    put_option(OPTION_JOIN, &join.encode(), &mut body);
                }
                if let Some(ask) = bond {
                    put_option(OPTION_ASK, &ask.encode(), &mut body);
                }
                put_reverse(*reverse, &mut body);
                TYPE_HELLO
            }
            Self::HelloAck {
                grant,
                bond,
                reverse,
            } => {
                if let Some(grant) = grant {
                    put_option(OPTION_GRANT, &grant.encode(), &mut body);
                }
                if let Some(bond) = bond {
                    put_option(OPTION_BOND, &bond.encode(), &mut body);
                }
                put_reverse(*reverse, &mut body);
                TYPE_HELLO_ACK
            }
            Self::Seen(flows) => {
                for seen in flows {
                    varint::encode(seen.flow, &mut body);
                    varint::encode(seen.next, &mut body);
                }
                TYPE_SEEN
            }
            Self::Gone(flows) | Self::Ended(flows) => {
                for gone in flows {
                    varint::encode(gone.flow, &mut body);
                    varint::encode(gone.code, &mut body);
                }
                if matches!(self, Self::Gone(_)) {
                    TYPE_GONE
                } else {
                    TYPE_ENDED
                }
            }
            Self::Hold(numbers) | Self::Go(numbers) | Self::Unlisten(numbers) => {
                for &number in numbers {
                    varint::encode(number, &mut body);
                }
                match self {
                    Self::Hold(_) => TYPE_HOLD,
                    Self::Go(_) => TYPE_GO,
                    _ => TYPE_UNLISTEN,
                }
            }
            Self::Listen(listen) => {
                listen.encode(&mut body);
                TYPE_LISTEN
            }
            Self::ListenAck(ack) => {
                ack.encode(&mut body);
                TYPE_LISTEN_ACK
            }
            Self::Draining => TYPE_DRAINING,
            Self::Unknown { kind } => *kind,
        };
        varint::encode(kind, out);
        put_bytes(&body, out);
    }

    /// Decodes the frame at the front of `bytes`. A body that is too long is refused before it arrives.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MalformedFrame> {
        let Some((kind, body, consumed)) = split_frame(bytes, |_| true, MAX_BODY)? else {
            return Ok(Decoded::Need);
        };
        let frame = Self::of(kind, body)?;
        Ok(Decoded::Done { frame, consumed })
    }

    fn of(kind: u64, body: &[u8]) -> Result<Self, MalformedFrame> {
        Ok(match kind {
            TYPE_HELLO => hello(body)?,
            TYPE_HELLO_ACK => hello_ack(body)?,
            TYPE_SEEN => {
                let seen = |[flow, next]: [u64; 2]| Seen { flow, next };
                Self::Seen(rows(body)?.into_iter().map(seen).collect())
            }
            TYPE_GONE => Self::Gone(ends(body)?),
            TYPE_ENDED => Self::Ended(ends(body)?),
            TYPE_HOLD => Self::Hold(rows::<1>(body)?.into_iter().flatten().collect()),
            TYPE_GO => Self::Go(rows::<1>(body)?.into_iter().flatten().collect()),
            TYPE_LISTEN => Self::Listen(Listen::decode(body)?),
            TYPE_LISTEN_ACK => Self::ListenAck(ListenAck::decode(body)?),
            TYPE_UNLISTEN => Self::Unlisten(rows::<1>(body)?.into_iter().flatten().collect()),
            TYPE_DRAINING => {
                skip_all(body)?;
                Self::Draining
            }
            kind => Self::Unknown { kind },
        })
    }
}

fn hello(options: &[u8]) -> Result<Frame, FlowCode> {
    let (mut proof, mut join, mut bond, mut reverse) = (None, None, None, None);
    read_options(options, |option, value| match option {
        OPTION_PROOF => {
            let value = value.try_into().map_err(|_| FlowCode::BadOpen)?;
            once(&mut proof, value)
        }
        OPTION_JOIN => once(&mut join, Join::decode(value)?),
        OPTION_ASK => once(&mut bond, bond::BondRequest::decode(value)?),
        OPTION_REVERSE => once(&mut reverse, empty(value)?),
        other => skip(other),
    })?;
    Ok(Frame::Hello {
        proof,
        join,
        bond,
        reverse: reverse.is_some(),
    })
}

fn hello_ack(options: &[u8]) -> Result<Frame, FlowCode> {
    let (mut grant, mut bond, mut reverse) = (None, None, None);
    read_options(options, |option, value| match option {
        OPTION_GRANT => once(&mut grant, Grant::decode(value)?),
        OPTION_BOND => once(&mut bond, BondGrant::decode(value)?),
        OPTION_REVERSE => once(&mut reverse, empty(value)?),
        other => skip(other),
    })?;
    Ok(Frame::HelloAck {
        grant,
        bond,
        reverse: reverse.is_some(),
    })
}

fn put_reverse(reverse: bool, body: &mut Vec<u8>) {
    if reverse {
        put_option(OPTION_REVERSE, &[], body);
    }
}

/// Checks the value of an option that carries no data: its presence says everything.
fn empty(value: &[u8]) -> Result<(), FlowCode> {
    value.is_empty().then_some(()).ok_or(FlowCode::BadOpen)
}

/// Reads the rows of GONE and ENDED.
fn ends(body: &[u8]) -> Result<Vec<FlowEnd>, MalformedFrame> {
    let gone = |[flow, code]: [u64; 2]| FlowEnd { flow, code };
    Ok(rows(body)?.into_iter().map(gone).collect())
}

/// Splits a body into rows of `N` numbers, one row for each flow: 1 to [`MAX_FLOWS`] rows.
fn rows<const N: usize>(mut body: &[u8]) -> Result<Vec<[u64; N]>, MalformedFrame> {
    let mut numbers = Vec::new();
    while !body.is_empty() {
        let (number, rest) = varint::decode(body).ok_or(MalformedFrame)?;
        numbers.push(number);
        body = rest;
    }
    match numbers.as_chunks() {
        (rows, []) if (1..=MAX_FLOWS).contains(&rows.len()) => Ok(rows.to_vec()),
        _ => Err(MalformedFrame),
    }
}

#[cfg(test)]
mod tests;
