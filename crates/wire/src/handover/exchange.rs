//! The messages of a hand-over. Each is one packet, with descriptors beside its bytes where it says so.
//!
//! ```text
//! new process                        old process
//!   HELLO: versions ────────────────►
//!                  ◄──────────────── ACCEPT: version, address, workers     or REFUSE: reason
//!   TAKE ───────────────────────────►  detaches all flows
//!                  ◄──────────────── SOCKETS, FLOWS (with descriptors), STATE (with the document)
//!   COMMITTED ──────────────────────►
//!                  ◄──────────────── RELEASED: the old process ends        or KEPT: it goes on
//!
//! command                            running process
//!   HELLO, answered by ACCEPT
//!   ASK, or DRAIN ──────────────────►  after DRAIN: ends once its flows have ended
//!                  ◄──────────────── FATES: its flows
//! ```

use std::net::SocketAddr;

use super::HandoverError;
use super::read::StateReader;
use super::write::{address, number};
use crate::open::put_bytes;

/// A message of a hand-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoverMessage {
    /// New process: the range of versions of the format that it reads, and its own version for people.
    Hello {
        /// The lowest version of the format that it reads.
        lowest: u64,
        /// The highest version of the format that it reads.
        highest: u64,
        /// The version of the program.
        program: String,
    },
    /// Old process: it is ready.
    Accept {
        /// The version of the format that it writes.
        version: u64,
        /// The version of the program.
        program: String,
        /// The UDP address on which a server listens. It is unspecified for a client.
        listen: SocketAddr,
        /// The number of workers of the old process.
        workers: u64,
        /// The servers of a client, as its configuration names them. Another client has others.
        servers: Vec<String>,
    },
    /// Old process: it hands nothing over, for this reason.
    Refuse {
        /// The reason, for people.
        reason: String,
    },
    /// New process: everything that it can check is in order, and it takes the flows now.
    Take,
    /// Old process: a socket on which clients, applications or people reach it. With a descriptor.
    Sockets(SocketPurpose),
    /// Old process: the sockets of flows of this worker, in the order of the document. With descriptors.
    Flows {
        /// The worker that has had these flows.
        worker: u64,
    },
    /// Old process: the document. With one descriptor.
    State,
    /// New process: it can continue everything.
    Committed,
    /// Old process: it has ended its work. The flows are the new process's from now on.
    Released,
    /// Old process: it goes on, and the new process must end.
    Kept {
        /// The reason, for people.
        reason: String,
    },
    /// Command: which flows the running process has.
    Ask,
    /// Command: the running process ends once its flows have ended.
    Drain,
    /// Running process: the answer to either.
    Fates(FlowFates),
}

/// The open flows of a process, counted by their fate if another process took over now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowFates {
    /// Flows that would continue.
    pub continuing: u64,
    /// Flows that would be reset.
    pub reset: u64,
}

/// The purpose of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketPurpose {
    /// The UDP socket of a server's worker.
    Udp {
        /// The worker that has read from the socket.
        worker: u64,
    },
    /// A listener for clients by TLS over TCP.
    Tls,
    /// The listener of the HTTP interface.
    Http,
    /// The listener for the next hand-over.
    Handover,
    /// The socket of a client's forward.
    Forward {
        /// The address on which the configuration has the forward listen.
        address: String,
    },
}

const HELLO: u64 = 1;
const ACCEPT: u64 = 2;
const REFUSE: u64 = 3;
const TAKE: u64 = 4;
const SOCKETS: u64 = 5;
const FLOWS: u64 = 6;
const STATE: u64 = 7;
const COMMITTED: u64 = 8;
const RELEASED: u64 = 9;
const KEPT: u64 = 10;
const ASK: u64 = 11;
const DRAIN: u64 = 12;
const FATES: u64 = 13;

/// The numbers of purposes. The worker follows that of UDP, and the address that of a forward.
const FOR_UDP: u64 = 0;
const FOR_TLS: u64 = 1;
const FOR_HTTP: u64 = 2;
const FOR_HANDOVER: u64 = 3;
const FOR_FORWARD: u64 = 4;

impl HandoverMessage {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let kind = match self {
            Self::Hello { .. } => HELLO,
            Self::Accept { .. } => ACCEPT,
            Self::Refuse { .. } => REFUSE,
            Self::Take => TAKE,
            Self::Sockets(_) => SOCKETS,
            Self::Flows { .. } => FLOWS,
            Self::State => STATE,
            Self::Committed => COMMITTED,
            Self::Released => RELEASED,
            Self::Kept { .. } => KEPT,
            Self::Ask => ASK,
            Self::Drain => DRAIN,
            Self::Fates(_) => FATES,
        };
        number(kind, &mut out);
        match self {
            Self::Hello {
                lowest,
                highest,
                program,
            } => {
                number(*lowest, &mut out);
                number(*highest, &mut out);
                put_bytes(program.as_bytes(), &mut out);
            }
            Self::Accept {
                version,
                program,
                listen,
                workers,
                servers,
            } => {
                number(*version, &mut out);
                put_bytes(program.as_bytes(), &mut out);
                address(*listen, &mut out);
                number(*workers, &mut out);
                if !servers.is_empty() {
                    number(servers.len() as u64, &mut out);
                }
                for server in servers {
                    put_bytes(server.as_bytes(), &mut out);
                }
            }
            Self::Refuse { reason } | Self::Kept { reason } => {
                put_bytes(reason.as_bytes(), &mut out);
            }
            Self::Sockets(SocketPurpose::Udp { worker }) => {
                number(FOR_UDP, &mut out);
                number(*worker, &mut out);
            }
            Self::Sockets(SocketPurpose::Tls) => number(FOR_TLS, &mut out),
            Self::Sockets(SocketPurpose::Http) => number(FOR_HTTP, &mut out),
            Self::Sockets(SocketPurpose::Handover) => number(FOR_HANDOVER, &mut out),
            Self::Sockets(SocketPurpose::Forward { address }) => {
                number(FOR_FORWARD, &mut out);
                put_bytes(address.as_bytes(), &mut out);
            }
            Self::Flows { worker } => number(*worker, &mut out),
            Self::Fates(FlowFates { continuing, reset }) => {
                number(*continuing, &mut out);
                number(*reset, &mut out);
            }
            Self::Take
            | Self::State
            | Self::Committed
            | Self::Released
            | Self::Ask
            | Self::Drain => {}
        }
        out
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// Returns the first thing that is wrong with it. A message that this version does not know is a wrong one.
    pub fn decode(bytes: &[u8]) -> Result<Self, HandoverError> {
        let mut reader = StateReader(bytes);
        let message = match reader.number()? {
            HELLO => Self::Hello {
                lowest: reader.number()?,
                highest: reader.number()?,
                program: reader.text("a version")?,
            },
            ACCEPT => Self::Accept {
                version: reader.number()?,
                program: reader.text("a version")?,
                listen: reader.address()?,
                workers: reader.number()?,
                servers: {
                    // The message of a server ends here. Each text takes a byte, so the message bounds their number.
                    let count = match reader.0 {
                        [] => 0,
                        [0, ..] => return Err(HandoverError::Value("a number of servers")),
                        _ => reader.number()?,
                    };
                    let texts = (0..count).map(|_| reader.text("the address of a server"));
                    texts.collect::<Result<_, _>>()?
                },
            },
            REFUSE => Self::Refuse {
                reason: reader.text("a reason")?,
            },
            TAKE => Self::Take,
            SOCKETS => Self::Sockets(match reader.number()? {
                FOR_UDP => SocketPurpose::Udp {
                    worker: reader.number()?,
                },
                FOR_TLS => SocketPurpose::Tls,
                FOR_HTTP => SocketPurpose::Http,
                FOR_HANDOVER => SocketPurpose::Handover,
                FOR_FORWARD => SocketPurpose::Forward {
                    address: reader.text("the address of a forward")?,
                },
                _ => return Err(HandoverError::Value("the purpose of a socket")),
            }),
            FLOWS => Self::Flows {
                worker: reader.number()?,
            },
            STATE => Self::State,
            COMMITTED => Self::Committed,
            RELEASED => Self::Released,
            KEPT => Self::Kept {
                reason: reader.text("a reason")?,
            },
            ASK => Self::Ask,
            DRAIN => Self::Drain,
            FATES => Self::Fates(FlowFates {
                continuing: reader.number()?,
                reset: reader.number()?,
            }),
            _ => return Err(HandoverError::Value("a message")),
        };
        reader.end()?;
        Ok(message)
    }
}
