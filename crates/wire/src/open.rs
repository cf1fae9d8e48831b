//! The `quictun/1` frames at the start of a stream (PROTOCOL section 5).
//!
//! ```text
//! OPEN      client -> server   type 0x01, length, target length, target, options...
//! OPEN_ACK  server -> client   type 0x02, length, options...
//! option                       type, length, value
//! ```
//!
//! A client answers INCOMING ([`crate::listening`]) by `OPEN_ACK`, too.
//!
//! All numbers are variable-length integers. Raw application bytes follow each frame at once; the client does not wait
//! for `OPEN_ACK` before it sends them. To receive a frame, collect bytes and call `decode` after each read until it
//! returns [`Decoded::Done`]; an error is the code that ends the flow. The receiver never needs to collect more than
//! [`MAX_OPEN_FRAME`] or [`MAX_OPEN_ACK_FRAME`] bytes.

use std::net::{IpAddr, SocketAddr};

use crate::bond::SERVER_NUMBERS;
use crate::code::FlowCode;
use crate::proxy::Credentials;
use crate::target::MAX_TARGET;
use crate::varint;

/// Maximum length of OPEN's body, bytes.
pub const MAX_OPEN: usize = 4096;

/// Maximum length of `OPEN_ACK`'s body, bytes.
pub const MAX_OPEN_ACK: usize = 256;

/// Maximum length of an OPEN frame, bytes: two integers of the longest form, and the body.
pub const MAX_OPEN_FRAME: usize = 2 * varint::MAX_LEN + MAX_OPEN;

/// Maximum length of an `OPEN_ACK` frame, bytes.
pub const MAX_OPEN_ACK_FRAME: usize = 2 * varint::MAX_LEN + MAX_OPEN_ACK;

/// Length of a proof, bytes: an HMAC-SHA256.
pub const PROOF_LEN: usize = 32;

/// Label of the TLS exporter whose 32 bytes a proof signs (PROTOCOL section 5.5).
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-quictun-psk";

const TYPE_OPEN: u64 = 0x01;
const TYPE_OPEN_ACK: u64 = 0x02;
pub(crate) const OPTION_PROOF: u64 = 0x02;
pub(crate) const OPTION_FLOW: u64 = 0x04;
const OPTION_SOURCE: u64 = 0x06;

/// The client's request: connect this stream to a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Target or token, 1 to [`MAX_TARGET`] bytes. It is opaque here; the server parses it.
    pub target: String,
    /// Proof that the client knows the pre-shared secret (PROTOCOL section 5.5).
    pub proof: Option<[u8; PROOF_LEN]>,
    /// The flow's number in the bond, below [`SERVER_NUMBERS`] (PROTOCOL section 5.8). If `None`, the flow ends with
    /// its connection.
    pub number: Option<u64>,
    /// The address from which the application has connected, if the client reports it (PROTOCOL section 5.10). A
    /// decoded address is never an IPv4-mapped one.
    pub source: Option<SocketAddr>,
    /// The user and the password of a request by HTTP. The frame OPEN has neither.
    pub login: Option<Credentials>,
}

/// The answer of the side that dials: the target is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenAck {
    /// True if the flow belongs to the bond (PROTOCOL REVERSE-13). Only a client sets it, in the answer to an INCOMING
    /// with a flow number.
    pub bonded: bool,
}

/// The result of decoding the bytes received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// The bytes are a valid beginning: call again with more of them.
    Need,
    /// The bytes begin with a whole frame.
    Done {
        /// The frame that was decoded.
        frame: T,
        /// The frame's length, bytes; the bytes after it are the application's.
        consumed: usize,
    },
}

impl Open {
    /// Appends the frame to `out`. If the target is empty or too long, `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FlowCode> {
        check_target(self.target.len())?;
        let mut body = Vec::with_capacity(self.target.len() + PROOF_LEN + 4 + 10 + 20);
        put_bytes(self.target.as_bytes(), &mut body);
        if let Some(proof) = &self.proof {
            put_option(OPTION_PROOF, proof, &mut body);
        }
        if let Some(number) = self.number {
            put_number(number, &mut body);
        }
        if let Some(source) = self.source {
            put_option(OPTION_SOURCE, &source_value(source), &mut body);
        }
        varint::encode(TYPE_OPEN, out);
        put_bytes(&body, out);
        Ok(())
    }

    /// Decodes the frame at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, FlowCode> {
        let known = |kind| kind == TYPE_OPEN;
        let Some((_, body, consumed)) = split_frame(bytes, known, MAX_OPEN)? else {
            return Ok(Decoded::Need);
        };
        let (target, options) = take_bytes(body)?;
        check_target(target.len())?;
        let target = std::str::from_utf8(target).map_err(|_| FlowCode::BadOpen)?;
        let mut frame = Self {
            target: target.to_owned(),
            ..Self::default()
        };
        read_options(options, |option, value| frame.read_option(option, value))?;
        Ok(Decoded::Done { frame, consumed })
    }

    fn read_option(&mut self, option: u64, value: &[u8]) -> Result<(), FlowCode> {
        match option {
            OPTION_PROOF => {
                let value = value.try_into().map_err(|_| FlowCode::BadOpen)?;
                once(&mut self.proof, value)
            }
            OPTION_FLOW => {
                let number = read_number(value).filter(|number| *number < SERVER_NUMBERS);
                once(&mut self.number, number.ok_or(FlowCode::BadOpen)?)
            }
            OPTION_SOURCE => once(&mut self.source, read_source(value)?),
            other => skip(other),
        }
    }
}

fn check_target(len: usize) -> Result<(), FlowCode> {
    let fits = (1..=MAX_TARGET).contains(&len);
    fits.then_some(()).ok_or(FlowCode::BadOpen)
}

impl OpenAck {
    /// Appends the frame to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        if self.bonded {
            put_option(OPTION_FLOW, &[], &mut body);
        }
        varint::encode(TYPE_OPEN_ACK, out);
        put_bytes(&body, out);
    }

    /// Decodes the frame at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, FlowCode> {
        let known = |kind| kind == TYPE_OPEN_ACK;
        let Some((_, options, consumed)) = split_frame(bytes, known, MAX_OPEN_ACK)? else {
            return Ok(Decoded::Need);
        };
        let mut bonded = None;
        read_options(options, |option, value| match option {
            OPTION_FLOW if value.is_empty() => once(&mut bonded, ()),
            OPTION_FLOW => Err(FlowCode::BadOpen),
            other => skip(other),
        })?;
        let frame = Self {
            bonded: bonded.is_some(),
        };
        Ok(Decoded::Done { frame, consumed })
    }
}

/// Appends the option FLOW with a flow's number.
pub(crate) fn put_number(number: u64, out: &mut Vec<u8>) {
    let mut value = Vec::with_capacity(varint::MAX_LEN);
    varint::encode(number, &mut value);
    put_option(OPTION_FLOW, &value, out);
}

/// Decodes the value of an option that is one number and nothing after it.
pub(crate) fn read_number(value: &[u8]) -> Option<u64> {
    let (number, left) = varint::decode(value)?;
    left.is_empty().then_some(number)
}

/// Encodes an address and a port, both in network byte order.
fn source_value(source: SocketAddr) -> Vec<u8> {
    let mut value = match source.ip().to_canonical() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    value.extend(source.port().to_be_bytes());
    value
}

/// Decodes an address and a port (PROTOCOL SOURCE-1).
fn read_source(value: &[u8]) -> Result<SocketAddr, FlowCode> {
    let (address, port) = value.split_last_chunk().ok_or(FlowCode::BadOpen)?;
    let v4 = <[u8; 4]>::try_from(address).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(address).map(IpAddr::from);
    let address = v4.or(v6).map_err(|_| FlowCode::BadOpen)?;
    Ok(SocketAddr::new(
        address.to_canonical(),
        u16::from_be_bytes(*port),
    ))
}

/// Stores an option's value, or fails if the option occurs twice (PROTOCOL OPTION-2).
pub(crate) fn once<T>(known: &mut Option<T>, value: T) -> Result<(), FlowCode> {
    let repeated = known.replace(value).is_some();
    if repeated {
        Err(FlowCode::BadOpen)
    } else {
        Ok(())
    }
}

/// Decodes the rest of a body in which no option is known.
pub(crate) fn skip_all(options: &[u8]) -> Result<(), FlowCode> {
    read_options(options, |option, _| skip(option))
}

/// Skips an unknown option. One with the lowest bit set must be understood, so it is an error.
pub(crate) fn skip(option: u64) -> Result<(), FlowCode> {
    if option & 1 == 1 {
        Err(FlowCode::Unsupported)
    } else {
        Ok(())
    }
}

/// A type, the bytes that belong to it, and further data about them; `None` if there is nothing.
pub(crate) type Split<'a, T> = Result<Option<(u64, &'a [u8], T)>, FlowCode>;

/// Gives the type and the value of each option to `read`, until the end of the body.
pub(crate) fn read_options(
    mut options: &[u8],
    mut read: impl FnMut(u64, &[u8]) -> Result<(), FlowCode>,
) -> Result<(), FlowCode> {
    while !options.is_empty() {
        let (option, rest) = varint::decode(options).ok_or(FlowCode::BadOpen)?;
        let (value, rest) = take_bytes(rest)?;
        read(option, value)?;
        options = rest;
    }
    Ok(())
}

/// Splits off a length and as many bytes. Returns them and the rest.
pub(crate) fn take_bytes(bytes: &[u8]) -> Result<(&[u8], &[u8]), FlowCode> {
    let (len, rest) = varint::decode(bytes).ok_or(FlowCode::BadOpen)?;
    let split = usize::try_from(len)
        .ok()
        .and_then(|len| rest.split_at_checked(len));
    split.ok_or(FlowCode::BadOpen)
}

/// Splits off a frame: its type, its body and its length. Returns `None` if bytes are missing.
///
/// Type and length are checked as soon as they have arrived, before the body has.
pub(crate) fn split_frame(
    bytes: &[u8],
    known: impl FnOnce(u64) -> bool,
    max: usize,
) -> Split<'_, usize> {
    let Some((kind, rest)) = varint::decode(bytes) else {
        return Ok(None);
    };
    if !known(kind) {
        return Err(FlowCode::BadOpen);
    }
    let Some((len, rest)) = varint::decode(rest) else {
        return Ok(None);
    };
    let len = usize::try_from(len).ok().filter(|len| *len <= max);
    let len = len.ok_or(FlowCode::BadOpen)?;
    Ok(rest
        .get(..len)
        .map(|body| (kind, body, bytes.len() - rest.len() + len)))
}

pub(crate) fn put_option(option: u64, value: &[u8], out: &mut Vec<u8>) {
    varint::encode(option, out);
    put_bytes(value, out);
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::encode(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
