//! The state that a server or a client hands over to the process that takes its place on the same host.
//!
//! The two processes share a sealed piece of memory with this document, and the descriptors of all sockets that it
//! refers to. `docs/HANDOVER.md` has the order of their exchange and the format. A process that takes over knows its
//! peer's user, not its version, so nothing in the document is believed before [`Handover::decode`] has checked it.
//!
//! The document is a magic number, a version, the length of the rest, and the rest. A version belongs to one
//! [`HandoverKind`]. Numbers are those of [`varint`]; texts and records begin with their length.

pub mod exchange;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::bond::{BOND_ID_LEN, SECRET_LEN};
use crate::code::FlowCode;
use crate::listening::{IncomingPeer, ListenAddress};
use crate::varint;

use read::StateReader;

/// The first bytes of every document.
const MAGIC: &[u8; 8] = b"qtunhand";

/// Maximum length of a text, bytes: more than the longest target, name or address.
pub const MAX_STATE_TEXT: usize = 4096;

/// Maximum number of workers: their index has eight bits on the wire (PROTOCOL section 5.8).
pub const MAX_WORKERS: usize = 256;

/// Length of the digest of a certificate, or of a proof of a client's identity, bytes.
pub const DIGEST_LEN: usize = 32;

/// The kind of process that hands its state over. Only a process of the same kind takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandoverKind {
    /// A server, whose format has version 1.
    #[default]
    Server,
    /// A client, whose format has version 2.
    Client,
}

/// The whole state of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    /// The kind of the process.
    pub kind: HandoverKind,
    /// Server: the month to which `usage` belongs, as `YYYY-MM`.
    pub month: String,
    /// Server: the bytes that each named client has moved in that month.
    pub usage: Vec<(String, u64)>,
    /// The bonds of each worker, by the worker's index.
    pub workers: Vec<Vec<HandedBond>>,
}

/// A bond, with all flows of it that another process can continue.
#[derive(Clone, PartialEq, Eq)]
pub struct HandedBond {
    /// The id of the bond.
    pub id: [u8; BOND_ID_LEN],
    /// The key of its tickets.
    pub secret: [u8; SECRET_LEN],
    /// The other side of the bond.
    pub holder: HandedHolder,
    /// Server: digests of what proves the identity of a named client.
    pub proofs: Vec<[u8; DIGEST_LEN]>,
    /// Time that a flow may be without a connection, seconds.
    pub ttl_s: u64,
    /// The number of the next flow that this side opens.
    pub next_number: u64,
    /// Flows that have ended, each with its code, which is 0 after both FINs.
    pub ended: Vec<(u64, u64)>,
    /// The flows that go on. None of them has a connection.
    pub flows: Vec<HandedFlow>,
}

/// The other side of a bond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandedHolder {
    /// A client without an identity, from this address or its network.
    Source(IpAddr),
    /// A client that the configuration names.
    Named(String),
    /// A client with this certificate, as its SHA-256.
    Certificate([u8; DIGEST_LEN]),
    /// The server of a client's bond.
    Server {
        /// The address of the server, as the configuration names it.
        address: String,
        /// The worker of the server that keeps the bond.
        route: u8,
    },
}

/// A flow without a connection. Each has one descriptor, which is passed beside the document, in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedFlow {
    /// The number of the flow in its bond.
    pub number: u64,
    /// Number of times that the flow has moved.
    pub leg: u64,
    /// The target as requested, or the name of the listener.
    pub token: String,
    /// The address of the application at the client, if known.
    pub client_app: String,
    /// The address of the application at the server.
    pub server_app: String,
    /// The name of the client, if it has one.
    pub client: Option<String>,
    /// The address of the client on the flow's last connection.
    pub remote: SocketAddr,
    /// The address of the application, as the client has stated it.
    pub source: Option<SocketAddr>,
    /// Age of the flow, milliseconds.
    pub age_ms: u64,
    /// Time for which the flow may still wait for a connection, milliseconds.
    pub wait_ms: u64,
    /// Time since nothing has moved, milliseconds.
    pub stalled_ms: u64,
    /// The bytes from the application to the peer.
    pub sent: HandedSent,
    /// The bytes from the peer to the application.
    pub received: HandedReceived,
    /// The application at the server has sent datagrams, which only one at a true address can.
    pub answered: bool,
    /// The client's application has sent a datagram.
    pub asked: bool,
    /// The kind and state of the application's socket.
    pub socket: HandedSocket,
    /// Server: the listener of the client that the application has connected to. `None` if the client has asked for the
    /// flow.
    pub visitor: Option<HandedVisitor>,
}

/// The state of the direction to the peer. Bytes are numbered from 0.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HandedSent {
    /// Number of bytes that streams have taken at least once.
    pub bytes: u64,
    /// The first number that the peer has not confirmed. The FIN takes one number.
    pub seen: u64,
    /// Number of the first byte of `kept`.
    pub kept_from: u64,
    /// The bytes that the peer may lack, up to the last one that was read from the application.
    pub kept: Vec<u8>,
    /// The application has ended its direction, and the FIN was sent.
    pub finished: bool,
}

/// The state of the direction from the peer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HandedReceived {
    /// Number of bytes that the application has taken.
    pub delivered: u64,
    /// The bytes that have arrived in order, and that the application has not taken.
    pub waiting: Vec<u8>,
    /// Everything up to the FIN has arrived.
    pub whole: bool,
    /// The FIN was passed on to the application.
    pub finished: bool,
    /// The peer was told that everything has arrived.
    pub end_reported: bool,
}

/// The kind of an application's socket, and what the system no longer tells about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandedSocket {
    /// A connection of TCP, with what the system does not report twice.
    Tcp {
        /// The system has reported a reset, which it does once.
        reset: bool,
        /// One direction has ended, and the system probes the other end.
        half_closed: bool,
    },
    /// A Unix stream socket.
    Unix,
    /// A UDP socket that is connected to this target.
    Datagrams(SocketAddr),
}

/// The application that has connected to a client's listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedVisitor {
    /// The address of the application.
    pub peer: IncomingPeer,
    /// The address that the client has asked the server to listen on.
    pub asked: ListenAddress,
}

/// The reason why a document is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandoverError {
    /// The document does not begin like one.
    #[error("it is not the state of a server or a client")]
    Magic,
    /// Another program has written the document, or a process of the other kind.
    #[error("its format has version {found}, and this process reads version {read}")]
    Version {
        /// The version of the document.
        found: u64,
        /// The version for this kind of process.
        read: u64,
    },
    /// The document is shorter or longer than it says.
    #[error("its length is wrong")]
    Length,
    /// A value is impossible.
    #[error("{0} is impossible")]
    Value(&'static str),
}

impl HandoverKind {
    /// Returns the version of the format that this program writes and reads for a process of this kind.
    pub const fn version(self) -> u64 {
        match self {
            Self::Server => 1,
            Self::Client => 2,
        }
    }
}

impl fmt::Display for HandoverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

impl Handover {
    /// Returns the document, for a sealed piece of memory.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        write::body(self, &mut body);
        let mut out = MAGIC.to_vec();
        varint::encode(self.kind.version(), &mut out);
        varint::encode(body.len() as u64, &mut out);
        out.append(&mut body);
        out
    }

    /// Reads the document of a process of this kind, and checks that every value is possible.
    ///
    /// # Errors
    ///
    /// Returns the first thing that is wrong with the document. Nothing of it may be used then.
    pub fn decode(bytes: &[u8], kind: HandoverKind) -> Result<Self, HandoverError> {
        let rest = bytes
            .strip_prefix(MAGIC.as_slice())
            .ok_or(HandoverError::Magic)?;
        let (found, rest) = varint::decode(rest).ok_or(HandoverError::Length)?;
        let read = kind.version();
        if found != read {
            return Err(HandoverError::Version { found, read });
        }
        let (length, rest) = varint::decode(rest).ok_or(HandoverError::Length)?;
        if length != rest.len() as u64 {
            return Err(HandoverError::Length);
        }
        read::body(StateReader(rest), kind)
    }
}

impl HandedBond {
    /// Adds a flow that does not continue. The peer learns of its end with the code.
    pub fn end(&mut self, flow: u64, code: FlowCode) {
        self.ended.push((flow, code.to_u64()));
    }
}

impl HandedSent {
    /// Returns the number after everything that was sent. The FIN takes one number.
    pub fn end(&self) -> u64 {
        self.bytes + u64::from(self.finished)
    }
}

impl HandedReceived {
    /// Returns the number of the first byte that has not arrived in order.
    pub fn next(&self) -> u64 {
        self.delivered + self.waiting.len() as u64
    }
}

/// The bytes of applications are not shown.
impl fmt::Debug for HandedSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedSent")
            .field("bytes", &self.bytes)
            .field("seen", &self.seen)
            .field("kept_from", &self.kept_from)
            .field("kept", &self.kept.len())
            .field("finished", &self.finished)
            .finish()
    }
}

/// The bytes of applications are not shown.
impl fmt::Debug for HandedReceived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedReceived")
            .field("delivered", &self.delivered)
            .field("waiting", &self.waiting.len())
            .field("whole", &self.whole)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

/// The secret is not shown.
impl fmt::Debug for HandedBond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedBond")
            .field("holder", &self.holder)
            .field("next_number", &self.next_number)
            .field("ended", &self.ended)
            .field("flows", &self.flows)
            .finish_non_exhaustive()
    }
}
