//! Listeners of a server for its clients (PROTOCOL section 5.9).
//!
//! ```text
//! LISTEN      client, control stream   id, mode, holder (16), address length, address, options...
//! LISTEN_ACK  server, control stream   id, code, address length, address, options...
//! INCOMING    server -> client         type 0x09, length, id, peer length, peer, options...
//! ```
//!
//! LISTEN and `LISTEN_ACK` are bodies of control frames ([`crate::control`]). INCOMING begins a stream that the server
//! opens. The client receives it in the same way as a server receives OPEN ([`crate::open`]), and answers with
//! `OPEN_ACK`.

use std::fmt;
use std::net::SocketAddr;

use thiserror::Error;

use crate::bond::SERVER_NUMBERS;
use crate::code::{FlowCode, ListenCode};
use crate::open::{
    Decoded, OPTION_FLOW, once, put_bytes, put_number, read_number, read_options, skip, skip_all,
    split_frame, take_bytes,
};
use crate::target::MAX_UNIX_PATH;
use crate::varint;

/// The REVERSE option of HELLO and `HELLO_ACK`.
pub(crate) const OPTION_REVERSE: u64 = 0x0a;

/// Length of the id of the process that holds a listener, bytes.
pub const HOLDER_LEN: usize = 16;

/// Maximum length of an address text, bytes: `unix:` and a path of [`MAX_UNIX_PATH`] bytes, rounded up.
pub const MAX_ADDRESS: usize = 128;

/// Maximum length of INCOMING's body, bytes: that of `OPEN_ACK`.
const MAX_INCOMING: usize = 256;

/// Maximum length of an INCOMING frame, bytes: two integers of the longest form, and the body.
pub const MAX_INCOMING_FRAME: usize = 2 * varint::MAX_LEN + MAX_INCOMING;

const TYPE_INCOMING: u64 = 0x09;

/// The code of `LISTEN_ACK` that reports success.
const LISTENS: u64 = 0;

/// The text for a peer without an address.
const UNIX_PEER: &str = "unix";

/// Identifies a reverse forward of a client.
pub type ListenId = u64;

/// A client's request that the server listen for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Id of the reverse forward.
    pub id: ListenId,
    /// If another process of the client holds the listener: `true` waits for it, `false` takes the listener over.
    pub wait: bool,
    /// Id of the client's process.
    pub holder: [u8; HOLDER_LEN],
    /// The address to listen on, at most [`MAX_ADDRESS`] bytes. Opaque here: see [`ListenAddress::parse`].
    pub address: String,
}

/// The server's answer to LISTEN, or its notice that it stopped listening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAck {
    /// Id of the reverse forward.
    pub id: ListenId,
    /// The address that the server listens on, or the reason why it does not listen.
    pub result: Result<ListenAddress, ListenCode>,
}

/// An application connected to a listener. This stream carries the application's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Id of the reverse forward.
    pub id: ListenId,
    /// The application that connected.
    pub peer: IncomingPeer,
    /// The flow's number in the bond, at least [`SERVER_NUMBERS`] (PROTOCOL REVERSE-13). If `None`, the flow ends with
    /// its connection.
    pub number: Option<u64>,
}

/// The application that connected to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncomingPeer {
    /// Connected over TCP, or sent datagrams, from this address.
    Ip(SocketAddr),
    /// Connected over a Unix socket, where clients have no address.
    Unix,
}

/// An address that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenAddress {
    /// A TCP address. With port 0 the server chooses the port. An IPv4 address is never in IPv6 form.
    Tcp(SocketAddr),
    /// A UDP address, as above. Each source of datagrams is a flow.
    Udp(SocketAddr),
    /// A Unix stream socket: a plain absolute path.
    Unix(String),
}

/// The reason why a text is not an address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ListenAddressError {
    /// The text has another network, a host name, or no port.
    #[error("write tcp:ADDRESS:PORT, udp:ADDRESS:PORT or unix:/PATH, with an address in numbers")]
    Form,
    /// The path is too long for the system, not absolute, or not plain: it may lead elsewhere than it says.
    #[error(
        "a Unix socket's path must be absolute, without '.', '..', doubled slashes and control characters, and at most 107 bytes long"
    )]
    Path,
}

impl ListenAddress {
    /// Parses `tcp:ADDRESS:PORT`, `udp:ADDRESS:PORT` or `unix:/PATH`.
    ///
    /// # Errors
    ///
    /// Fails if the text has none of these forms.
    pub fn parse(text: &str) -> Result<Self, ListenAddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::unix(path);
        }
        let (network, address) = text.split_once(':').ok_or(ListenAddressError::Form)?;
        let address = address.parse().map_err(|_| ListenAddressError::Form)?;
        match network {
            "tcp" => Ok(Self::tcp(address)),
            "udp" => Ok(Self::udp(address)),
            _ => Err(ListenAddressError::Form),
        }
    }

    /// Makes a TCP address. An IPv4-mapped address becomes IPv4, and an IPv6 zone's number is dropped.
    pub fn tcp(address: SocketAddr) -> Self {
        Self::Tcp(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// Makes a UDP address in the same way.
    pub fn udp(address: SocketAddr) -> Self {
        Self::Udp(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// Returns whether the system chooses the port.
    pub fn has_any_port(&self) -> bool {
        matches!(self, Self::Tcp(at) | Self::Udp(at) if at.port() == 0)
    }

    /// Makes the address of a Unix socket.
    ///
    /// # Errors
    ///
    /// Fails if the path is too long, or is not plain and absolute.
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
            Self::Udp(address) => write!(f, "udp:{address}"),
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
        if let Some(number) = self.number {
            put_number(number, &mut body);
        }
        varint::encode(TYPE_INCOMING, out);
        put_bytes(&body, out);
    }

    /// Decodes the frame at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, FlowCode> {
        let known = |kind| kind == TYPE_INCOMING;
        let Some((_, body, consumed)) = split_frame(bytes, known, MAX_INCOMING)? else {
            return Ok(Decoded::Need);
        };
        let (id, body) = varint::decode(body).ok_or(FlowCode::BadOpen)?;
        let (peer, options) = take_text(body, MAX_INCOMING)?;
        let peer = IncomingPeer::parse(peer).ok_or(FlowCode::BadOpen)?;
        let mut number = None;
        read_options(options, |option, value| match option {
            OPTION_FLOW => {
                let value = read_number(value).filter(|value| *value >= SERVER_NUMBERS);
                once(&mut number, value.ok_or(FlowCode::BadOpen)?)
            }
            other => skip(other),
        })?;
        let frame = Self { id, peer, number };
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
