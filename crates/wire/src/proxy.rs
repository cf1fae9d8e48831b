//! The handshakes by which applications tell a proxy their target: SOCKS5, SOCKS4, SOCKS4A, or HTTP/1.x CONNECT.
//!
//! The first byte selects the protocol: 5 and 4 are the versions of SOCKS, and a letter or an empty line begins an HTTP
//! request.
//! [`Handshake`] takes bytes and returns the next step. It passes names on unchanged and does not resolve them.
//!
//! ```text
//!  bytes ─► push ─► poll ─┬► More                 read on, up to a deadline
//!                         ├► Reply(bytes)         write them, poll again
//!                         ├► Login(credentials)   handle_login(known), poll again
//!                         ├► Connect(request)     open a flow; Dialect::accepted once it is there, else Dialect::refused
//!                         ├► Associate(port)      answer with `associated`, and carry datagrams: `RelayHeader`
//!                         └► Refuse(bytes)        write them and end
//! ```
//!
//! | document | section | here |
//! |---|---|---|
//! | RFC 1928 | 3 to 6 | `socks5` |
//! | RFC 1928 | 7 | `relay_header` |
//! | RFC 1929 | 2 | `socks5` |
//! | SOCKS4, SOCKS4A | whole | `socks4` |
//! | RFC 9110 | 2.5, 8.6, 9.3.6, 11.7 | `http` |
//! | RFC 9112 | 2.2, 3, 3.2, 5, 6.3 | `http` |
//! | RFC 7617 | 2 | `http` |
//!
//! A server's HTTPS proxy reads its requests with the same parser of HTTP: `connect`.
//!
//! A page in a browser can send its own requests to an address of this machine. It can neither send CONNECT nor choose
//! the first byte, and every other request is refused without an effect.

use std::net::{IpAddr, SocketAddr};

use crate::code::FlowCode;
use crate::target::Target;

pub(crate) mod connect;
mod http;
mod relay_header;
mod socks4;
pub(crate) mod socks5;

pub use http::MAX_HEAD;
pub use relay_header::RelayHeader;

/// The handshake with one application, up to its request.
pub struct Handshake {
    /// The application must give a user and a password.
    protected: bool,
    state: HandshakeState,
    input: Vec<u8>,
}

/// The next step of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// The handshake needs more bytes.
    More,
    /// Send these bytes to the application, then poll again.
    Reply(Vec<u8>),
    /// The application sent credentials. Call [`Handshake::handle_login`], then poll again.
    Login(Credentials),
    /// The application requests a connection.
    Connect(Request),
    /// The application requests an association, through which it sends datagrams (RFC 1928 section 7). The association
    /// lasts as long as this connection.
    Associate {
        /// The port from which the application sends, if it knows that.
        from_port: Option<u16>,
    },
    /// Send the answer to the application and read nothing more from it.
    Refuse(Refusal),
}

/// A user and a password, as the application sent them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name. Over SOCKS5 it has 1 to 255 bytes.
    pub user: Vec<u8>,
    /// The password, as the application sent it.
    pub password: Vec<u8>,
}

/// A connection that an application requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The protocol in which to answer.
    pub dialect: Dialect,
    /// The target, always TCP. A name is as the application wrote it, in lower case.
    pub target: Target,
    /// Bytes that already followed the request: the first bytes for the target.
    pub rest: Vec<u8>,
}

/// A request that the proxy refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The bytes to send; may be empty.
    pub answer: Vec<u8>,
    /// The reason, for a log.
    pub why: &'static str,
}

/// The proxy protocol of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SOCKS version 5 (RFC 1928).
    Socks5,
    /// SOCKS version 4, with or without the extension 4A.
    Socks4,
    /// HTTP/1.0 or HTTP/1.1 CONNECT.
    Http,
}

impl Dialect {
    /// Returns the answer once the target is connected.
    pub fn accepted(self) -> &'static [u8] {
        match self {
            Self::Socks5 => &socks5::ACCEPTED,
            Self::Socks4 => &socks4::ACCEPTED,
            Self::Http => http::ACCEPTED,
        }
    }

    /// Returns the answer if the target is not connected. `None` means that the reason is unknown.
    pub fn refused(self, code: Option<FlowCode>) -> Vec<u8> {
        match self {
            Self::Socks5 => socks5::refused(code),
            Self::Socks4 => socks4::REJECTED.to_vec(),
            Self::Http => http::refused(code),
        }
    }
}

/// Returns the answer to a request for an association: the application sends its datagrams to `relay`.
pub fn associated(relay: SocketAddr) -> Vec<u8> {
    socks5::associated(relay)
}

enum HandshakeState {
    /// No byte has arrived yet.
    First,
    Socks5(socks5::Socks5State),
    Socks4,
    Http(http::Head),
    /// The application is known, or does not have to be. Its request comes next.
    Requested(Dialect, Box<str>),
    /// The login is being checked. If it is valid, the boxed state comes next.
    LoggingIn(Box<HandshakeState>, Dialect),
    Over,
}

impl Handshake {
    /// Starts the handshake of an application that has sent nothing yet. If `protected`, the application must give a
    /// user and a password.
    pub fn new(protected: bool) -> Self {
        Self {
            protected,
            state: HandshakeState::First,
            input: Vec::new(),
        }
    }

    /// Appends bytes. Poll until [`HandshakeStep::More`] before the next call; then at most [`MAX_HEAD`] bytes and
    /// these are held.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Returns the next step.
    pub fn poll(&mut self) -> HandshakeStep {
        if matches!(self.state, HandshakeState::First) {
            self.state = match self.input.first() {
                None => return HandshakeStep::More,
                Some(5) => HandshakeState::Socks5(socks5::Socks5State::Methods),
                Some(4) => HandshakeState::Socks4,
                // RFC 9112 section 2.2: empty lines may precede a request.
                Some(byte) if byte.is_ascii_alphabetic() || b"\r\n".contains(byte) => {
                    HandshakeState::Http(http::Head::default())
                }
                Some(_) => return self.refuse(Vec::new(), "this is neither SOCKS nor HTTP"),
            };
        }
        loop {
            let (next, step) = match &mut self.state {
                HandshakeState::Socks5(state) => {
                    socks5::poll(*state, &mut self.input, self.protected)
                }
                HandshakeState::Socks4 => socks4::poll(&mut self.input, self.protected),
                HandshakeState::Http(head) => match head.read(&self.input) {
                    http::HeadResult::More => return HandshakeStep::More,
                    http::HeadResult::Done {
                        length,
                        authority,
                        login,
                    } => {
                        self.input.drain(..length);
                        request_of_http(&authority, login, self.protected)
                    }
                    http::HeadResult::Refuse(refusal) => {
                        (HandshakeState::Over, HandshakeStep::Refuse(refusal))
                    }
                },
                HandshakeState::Requested(dialect, target) => {
                    let (dialect, target) = (*dialect, Target::parse(target));
                    return self.connect(dialect, target.ok());
                }
                HandshakeState::First | HandshakeState::LoggingIn(..) | HandshakeState::Over => {
                    return HandshakeStep::More;
                }
            };
            self.state = next;
            if !matches!(self.state, HandshakeState::Requested(..)) {
                return step;
            }
        }
    }

    fn connect(&mut self, dialect: Dialect, target: Option<Target>) -> HandshakeStep {
        let Some(target) = target else {
            let answer = dialect.refused(Some(FlowCode::BadOpen));
            return self.refuse(answer, "the request has no valid target");
        };
        self.state = HandshakeState::Over;
        let rest = std::mem::take(&mut self.input);
        HandshakeStep::Connect(Request {
            dialect,
            target,
            rest,
        })
    }

    /// Answers [`HandshakeStep::Login`]: `known` says whether user and password match. Returns the next step.
    pub fn handle_login(&mut self, known: bool) -> HandshakeStep {
        let (next, dialect) = match std::mem::replace(&mut self.state, HandshakeState::Over) {
            HandshakeState::LoggingIn(next, dialect) => (*next, dialect),
            state => {
                self.state = state;
                return self.poll();
            }
        };
        match (dialect, known) {
            (Dialect::Http, false) => HandshakeStep::Refuse(http::unknown()),
            (_, false) => {
                let answer = socks5::UNKNOWN.to_vec();
                self.refuse(answer, "unknown user or wrong password")
            }
            (Dialect::Http, true) => {
                self.state = next;
                self.poll()
            }
            (_, true) => {
                self.state = next;
                HandshakeStep::Reply(socks5::WELCOME.to_vec())
            }
        }
    }

    fn refuse(&mut self, answer: Vec<u8>, why: &'static str) -> HandshakeStep {
        self.state = HandshakeState::Over;
        HandshakeStep::Refuse(Refusal { answer, why })
    }
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The bytes may hold a password.
        f.debug_struct("Handshake")
            .field("protected", &self.protected)
            .field("held", &self.input.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Returns the state and step after the head of a request.
fn request_of_http(
    authority: &str,
    login: Option<Credentials>,
    protected: bool,
) -> (HandshakeState, HandshakeStep) {
    let asked = HandshakeState::Requested(Dialect::Http, format!("tcp:{authority}").into());
    match login {
        _ if !protected => (asked, HandshakeStep::More),
        Some(login) => (
            HandshakeState::LoggingIn(Box::new(asked), Dialect::Http),
            HandshakeStep::Login(login),
        ),
        None => (HandshakeState::Over, HandshakeStep::Refuse(http::unknown())),
    }
}

/// Returns the text of a target with this network, host and port. The host may be an IP address.
fn target(network: &str, host: &str, port: u16) -> Box<str> {
    match host.parse::<IpAddr>() {
        Ok(ip) => format!("{network}:{}", SocketAddr::new(ip, port)).into(),
        Err(_) => format!("{network}:{host}:{port}").into(),
    }
}

#[cfg(test)]
mod tests;
