//! The reasons why an outbound proxy does not connect, in words that follow the proxy's name.

use super::OutboundProtocol;
use crate::proxy::socks5::VERSION;

/// Longest text of a proxy that an error repeats, in characters.
const TEXT_MAX: usize = 80;

/// The reason why a proxy has not connected to the server. The text is a sentence without its subject, which is the
/// proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutboundError {
    /// The proxy wants a login, and there is none.
    #[error(
        "wants a user and a password: give --via-credentials FILE, with the line USER:PASSWORD in it"
    )]
    LoginMissing,
    /// The proxy does not accept the login.
    #[error("refuses this user and password: correct them in the file of --via-credentials")]
    LoginRefused,
    /// The proxy accepts only logins of these other schemes.
    #[error(
        "accepts no password in the scheme Basic, but {0}: ask its operator for Basic, or for a way without a login"
    )]
    OtherScheme(String),
    /// The proxy does not permit the connection.
    #[error(
        "forbids connections to the server ({0}): ask its operator to permit them, or let the server listen on TCP port 443 (--listen-tls 443), which most proxies permit"
    )]
    Forbidden(String),
    /// The proxy could not reach the server.
    #[error(
        "cannot reach the server ({0}): is the server's name right, does it listen on TCP there (--listen-tls), and do firewalls let the proxy through?"
    )]
    Unreachable(String),
    /// The proxy sends the client elsewhere.
    #[error("redirects to {0} instead of connecting: log in to this network there, with a browser")]
    Redirect(String),
    /// The proxy sends a document.
    #[error(
        "sends a page instead of connecting: log in to this network with a browser, which shows the page"
    )]
    Page,
    /// The proxy answers with another status.
    #[error("answers {0:?} instead of connecting: ask its operator")]
    Status(String),
    /// The proxy's port serves another protocol.
    #[error("answers in {0}: correct the protocol or the port in --via")]
    OtherProtocol(&'static str),
    /// The proxy's port serves an unknown protocol. The text is the beginning of what it says.
    #[error(
        "does not speak {protocol}, but begins with {text:?}: correct the protocol or the port in --via"
    )]
    UnknownProtocol {
        /// The protocol that was expected.
        protocol: &'static str,
        /// The beginning of the answer.
        text: String,
    },
    /// The answer breaks the protocol.
    #[error("breaks its protocol ({0}): is that the proxy's port?")]
    Malformed(&'static str),
    /// The answer does not end within the limit.
    #[error("answers with more than 8 KiB instead of connecting: is that the proxy's port?")]
    TooLong,
    /// The proxy has closed the connection without an answer.
    #[error(
        "closes the connection without an answer: is that the proxy's port, and does it serve this machine?"
    )]
    Closed,
    /// The proxy has closed the connection within its answer.
    #[error("closes the connection in the middle of its answer: is that the proxy's port?")]
    Cut,
    /// The server's name cannot be passed on to the proxy.
    #[error(
        "takes names of at most 255 bytes, and the server's is longer: name the server by its address"
    )]
    NameTooLong,
}

impl OutboundError {
    /// Describes the protocol of an answer that begins with `input`, and goes on with `rest`.
    pub(super) fn of_other_protocol(expected: OutboundProtocol, input: &[u8], rest: &[u8]) -> Self {
        let begin: Vec<u8> = input.iter().chain(rest).take(TEXT_MAX).copied().collect();
        match (expected, &begin[..]) {
            (_, [b'S', b'S', b'H', ..]) => Self::OtherProtocol("SSH"),
            // A handshake or an alert (RFC 8446 section 5.1).
            (_, [21 | 22, 3, ..]) => Self::OtherProtocol("TLS, which is not supported"),
            (OutboundProtocol::Http, [VERSION, ..]) => Self::OtherProtocol("SOCKS5 (socks5://)"),
            (OutboundProtocol::Socks5, [b'H', ..]) => Self::OtherProtocol("HTTP (http://)"),
            (expected, text) => Self::UnknownProtocol {
                protocol: match expected {
                    OutboundProtocol::Http => "HTTP",
                    OutboundProtocol::Socks5 => "SOCKS5",
                },
                text: shown(text),
            },
        }
    }
}

/// Returns the proxy's text in a form that is short and controls no terminal.
pub(super) fn shown(text: &[u8]) -> String {
    let text = text.trim_ascii().iter().take(TEXT_MAX);
    let plain = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '?',
    };
    text.map(plain).collect()
}
