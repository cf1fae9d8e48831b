//! The handshake by which a client reaches its server through an outbound proxy: HTTP/1.1 CONNECT or SOCKS5.
//!
//! The proxy gets the server's name as the user wrote it, and resolves it. [`crate::proxy`] is the proxy's side.
//!
//! ```text
//!  new ─► poll ─┬► Send(bytes)   write them, poll again
//!               ├► More          give what the proxy says to `handle_bytes`, and its end to `handle_end`; poll again
//!               ├► Connected     all further bytes belong to the connection
//!               └► Failed(why)   close the connection
//! ```
//!
//! | document | section | here |
//! |---|---|---|
//! | RFC 1928 | 3 to 6 | `socks5` |
//! | RFC 1929 | 2 | `socks5` |
//! | RFC 9110 | 9.3.6, 11.7, 15 | `http` |
//! | RFC 9112 | 2.2, 4, 5 | `http` |
//! | RFC 7617 | 2 | `http` |

use std::net::IpAddr;

use crate::proxy::Credentials;

mod error;
mod http;
mod socks5;

pub use error::OutboundError;

/// Maximum length of a proxy's answer, bytes: that of common programs.
pub use crate::proxy::MAX_HEAD as MAX_ANSWER;

/// The protocol of an outbound proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboundProtocol {
    /// The method CONNECT of HTTP/1.1.
    Http,
    /// SOCKS version 5 (RFC 1928).
    Socks5,
}

/// The server that a proxy is asked to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundTarget {
    /// A DNS name, an IPv4 literal, or an IPv6 literal without brackets.
    pub host: String,
    /// The TCP port on which the server listens for TLS.
    pub port: u16,
}

/// The next step of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboundStep {
    /// The handshake needs bytes from the proxy.
    More,
    /// Send these bytes to the proxy, then poll again.
    Send(Vec<u8>),
    /// The proxy has connected to the server.
    Connected,
    /// The proxy has not connected to the server.
    Failed(OutboundError),
}

/// A handshake with a proxy.
pub struct OutboundHandshake {
    protocol: OutboundProtocol,
    target: OutboundTarget,
    login: Option<Credentials>,
    state: State,
    /// The message of the proxy that is being read.
    input: Vec<u8>,
    /// Number of bytes of all messages.
    read: usize,
}

enum State {
    /// These bytes are to be sent, and then the answer is read.
    Sending(Vec<u8>, Awaiting),
    Reading(Awaiting),
    Connected,
    Failed(OutboundError),
}

/// The message that the proxy has to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaiting {
    Head,
    Method,
    LoginAnswer,
    Reply,
}

impl OutboundHandshake {
    /// Begins a handshake. `login` is used if the proxy asks for it.
    pub fn new(
        protocol: OutboundProtocol,
        target: OutboundTarget,
        login: Option<Credentials>,
    ) -> Self {
        let state = match protocol {
            OutboundProtocol::Http => {
                State::Sending(http::request(&target, login.as_ref()), Awaiting::Head)
            }
            OutboundProtocol::Socks5 => {
                State::Sending(socks5::greeting(login.is_some()), Awaiting::Method)
            }
        };
        Self {
            protocol,
            target,
            login,
            state,
            input: Vec::new(),
            read: 0,
        }
    }

    /// Returns the next step.
    pub fn poll(&mut self) -> OutboundStep {
        match &mut self.state {
            State::Sending(bytes, next) => {
                let bytes = std::mem::take(bytes);
                self.state = State::Reading(*next);
                OutboundStep::Send(bytes)
            }
            State::Reading(_) => OutboundStep::More,
            State::Connected => OutboundStep::Connected,
            State::Failed(why) => OutboundStep::Failed(why.clone()),
        }
    }

    /// Takes bytes of the proxy. Returns the number of bytes that belong to the handshake. The others belong to the
    /// connection, or to the next message of the handshake: poll before they are given again.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        for (used, byte) in bytes.iter().enumerate() {
            let State::Reading(awaited) = self.state else {
                return used;
            };
            self.input.push(*byte);
            self.read += 1;
            if let Some(next) = self.advance(awaited, &bytes[used + 1..]) {
                self.state = next;
                self.input.clear();
            }
        }
        bytes.len()
    }

    /// Handles the end of what the proxy says.
    pub fn handle_end(&mut self) {
        if let State::Reading(_) = self.state {
            self.state = State::Failed(if self.read == 0 {
                OutboundError::Closed
            } else {
                OutboundError::Cut
            });
        }
    }

    /// Returns the next state if the message is complete or wrong. `rest` are bytes that have arrived after it.
    fn advance(&self, awaited: Awaiting, rest: &[u8]) -> Option<State> {
        let own = match self.protocol {
            OutboundProtocol::Http => http::begins(&self.input),
            OutboundProtocol::Socks5 => socks5::begins(awaited, &self.input),
        };
        if !own {
            return Some(State::Failed(OutboundError::of_other_protocol(
                self.protocol,
                &self.input,
                rest,
            )));
        }
        let read = match awaited {
            Awaiting::Head => http::head(&self.input, &self.target, self.login.is_some()),
            Awaiting::Method => {
                socks5::method(&self.input, &self.target, self.login.as_ref()).transpose()
            }
            Awaiting::LoginAnswer => socks5::login_answer(&self.input, &self.target).transpose(),
            Awaiting::Reply => socks5::reply(&self.input).transpose(),
        };
        match read {
            Some(Ok(next)) => Some(next),
            Some(Err(why)) => Some(State::Failed(why)),
            None if self.read >= MAX_ANSWER => Some(State::Failed(OutboundError::TooLong)),
            None => None,
        }
    }
}

impl OutboundTarget {
    /// Returns the target in the authority form (RFC 9112 section 3.2.3).
    fn authority(&self) -> String {
        let Self { host, port } = self;
        match host.parse() {
            Ok(IpAddr::V6(_)) => format!("[{host}]:{port}"),
            _ => format!("{host}:{port}"),
        }
    }
}

impl std::fmt::Debug for OutboundHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The bytes to send may hold a password.
        f.debug_struct("OutboundHandshake")
            .field("protocol", &self.protocol)
            .field("target", &self.target)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
