//! Listeners of a server for its clients (PROTOCOL section 5.9).
//!
//! ```text
//! LISTEN      client, control stream   id, mode, holder (16), address length, address, options...
//! LISTEN_ACK  server, control stream   id, code, address length, address, options...
//! INCOMING    server -> client         type 0x09, length, id, peer length, peer, options...
//! ```
//!
//! The first two are bodies of control frames ([`crate::control`]). INCOMING begins a stream that the server opens; it is
//! received as OPEN is ([`crate::open`]), and answered by `OPEN_ACK`.

use std::fmt;
use std::net::SocketAddr;

use thiserror::Error;

use crate::code::{FlowCode, ListenCode};
use crate::open::{Decoded, put_bytes, skip_all, split_frame, take_bytes};
use crate::target::MAX_UNIX_PATH;
use crate::varint;

/// Option of HELLO and `HELLO_ACK`.
pub(crate) const OPTION_REVERSE: u64 = 0x0a;

/// Bytes that name the process which holds a listener.
pub const HOLDER_LEN: usize = 16;

/// Longest text of an address, bytes: `unix:` and a path of [`MAX_UNIX_PATH`] bytes, rounded up.
pub const MAX_ADDRESS: usize = 128;

/// Longest body of INCOMING, bytes: that of `OPEN_ACK`.
const MAX_INCOMING: usize = 256;

/// Longest INCOMING frame, bytes: two integers of the longest form, and the body.
pub const MAX_INCOMING_FRAME: usize = 2 * varint::MAX_LEN + MAX_INCOMING;

const TYPE_INCOMING: u64 = 0x09;

/// The code of `LISTEN_ACK` that says yes.
const LISTENS: u64 = 0;

/// The text of a peer without an address.
const UNIX_PEER: &str = "unix";

/// Names a reverse forward of a client.
pub type ListenId = u64;

/// A client's request: listen for me.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The reverse forward.
    pub id: ListenId,
    /// Whether to wait while another process of the client has the listener, rather than to take it over.
    pub wait: bool,
    /// The process of the client.
    pub holder: [u8; HOLDER_LEN],
    /// Where to listen, at most [`MAX_ADDRESS`] bytes. Opaque here: see [`ListenAddress::parse`].
    pub address: String,
}

/// A server's answer, or the news that it listens no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAck {
    /// The reverse forward.
    pub id: ListenId,
    /// Where the server listens, or why it does not.
    pub result: Result<ListenAddress, ListenCode>,
}

/// An application has connected to a listener, and is carried on this stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The reverse forward.
    pub id: ListenId,
    /// Who has connected.
    pub peer: IncomingPeer,
}

/// Who has connected to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncomingPeer {
    /// Over TCP, from here.
    Ip(SocketAddr),
    /// Over a Unix socket, where clients have no address.
    Unix,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenAddress {
    /// TCP; port 0 is the server's choice. Never an IPv4 address in IPv6 form.
    Tcp(SocketAddr),
    /// A Unix stream socket: a plain absolute path.
    Unix(String),
}

/// Why a text is no address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ListenAddressError {
    /// Another network, a name, or no port.
    #[error("write tcp:ADDRESS:PORT or unix:/PATH, with an address in numbers")]
    Form,
    /// A path that is too long for the system, not absolute, or that may lead elsewhere than it says.
    #[error(
        "a Unix socket's path is absolute, without '.', '..', doubled slashes and control characters, and has at most 107 bytes"
    )]
    Path,
}

impl ListenAddress {
    /// Reads `tcp:ADDRESS:PORT` or `unix:/PATH`.
    ///
    /// # Errors
    ///
    /// The text is none of these.
    pub fn parse(text: &str) -> Result<Self, ListenAddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::unix(path);
        }
        let address = text.strip_prefix("tcp:").and_then(|text| text.parse().ok());
        address.map(Self::tcp).ok_or(ListenAddressError::Form)
    }

    /// A TCP address, IPv4 in its own form and without a zone's number.
    pub fn tcp(address: SocketAddr) -> Self {
        Self::Tcp(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// A Unix socket.
    ///
    /// # Errors
    ///
    /// The path is not plain and absolute, or too long.
    pub fn unix(path: &str) -> Result<Self, ListenAddressError> {
        let mut parts = path.strip_prefix('/').unwrap_or_default().split('/');
        let plain = parts.all(|part| !matches!(part, "" | "." | ".."));
        let fits = path.len() <= MAX_UNIX_PATH && !path.contains(char::is_control);
        if plain && fits {
            Ok(Self::Unix(path.to_owned()))
        } else {
            Err(ListenAddressError::Path)
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

impl IncomingPeer {
    fn parse(text: &str) -> Option<Self> {
        match text {
            UNIX_PEER => Some(Self::Unix),
            _ => text.parse().ok().map(Self::Ip),
        }
    }
}

impl fmt::Display for IncomingPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str(UNIX_PEER),
        }
    }
}

impl Listen {
    pub(crate) fn encode(&self, body: &mut Vec<u8>) {
        varint::encode(self.id, body);
        varint::encode(u64::from(self.wait), body);
        body.extend_from_slice(&self.holder);
        put_bytes(self.address.as_bytes(), body);
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, FlowCode> {
        let (id, body) = varint::decode(body).ok_or(FlowCode::BadOpen)?;
        let (mode, body) = varint::decode(body).ok_or(FlowCode::BadOpen)?;
        let wait = match mode {
            0 => false,
            1 => true,
            _ => return Err(FlowCode::BadOpen),
        };
        let (holder, body) = body.split_first_chunk().ok_or(FlowCode::BadOpen)?;
        let (address, options) = take_text(body, MAX_ADDRESS)?;
        skip_all(options)?;
        Ok(Self {
            id,
            wait,
            holder: *holder,
            address: address.to_owned(),
        })
    }
}

impl ListenAck {
    pub(crate) fn encode(&self, body: &mut Vec<u8>) {
        varint::encode(self.id, body);
        match &self.result {
            Ok(address) => {
                varint::encode(LISTENS, body);
                put_bytes(address.to_string().as_bytes(), body);
            }
            Err(code) => {
                varint::encode(code.to_u64(), body);
                put_bytes(&[], body);
            }
        }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, FlowCode> {
        let (id, body) = varint::decode(body).ok_or(FlowCode::BadOpen)?;
        let (code, body) = varint::decode(body).ok_or(FlowCode::BadOpen)?;
        let (address, options) = take_text(body, MAX_ADDRESS)?;
        skip_all(options)?;
        let result = match (code, address) {
            (LISTENS, address) => Ok(ListenAddress::parse(address).map_err(|_| FlowCode::BadOpen)?),
            // PROTOCOL CODE-5.
            (code, "") => Err(ListenCode::from_u64(code).unwrap_or(ListenCode::Failed)),
            _ => return Err(FlowCode::BadOpen),
        };
        Ok(Self { id, result })
    }
}

impl Incoming {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        varint::encode(self.id, &mut body);
        put_bytes(self.peer.to_string().as_bytes(), &mut body);
        varint::encode(TYPE_INCOMING, out);
        put_bytes(&body, out);
    }

    /// Reads the frame at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, FlowCode> {
        let known = |kind| kind == TYPE_INCOMING;
        let Some((_, body, consumed)) = split_frame(bytes, known, MAX_INCOMING)? else {
            return Ok(Decoded::Need);
        };
        let (id, body) = varint::decode(body).ok_or(FlowCode::BadOpen)?;
        let (peer, options) = take_text(body, MAX_INCOMING)?;
        skip_all(options)?;
        let peer = IncomingPeer::parse(peer).ok_or(FlowCode::BadOpen)?;
        let frame = Self { id, peer };
        Ok(Decoded::Done { frame, consumed })
    }
}

fn take_text(body: &[u8], max: usize) -> Result<(&str, &[u8]), FlowCode> {
    let (text, rest) = take_bytes(body)?;
    let text = std::str::from_utf8(text).ok();
    let text = text.filter(|text| text.len() <= max);
    Ok((text.ok_or(FlowCode::BadOpen)?, rest))
}

#[cfg(test)]
mod tests;
