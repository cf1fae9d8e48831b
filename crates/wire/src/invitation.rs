//! Invitation codes (PROTOCOL section 5.7): a client's name, its server and the one-time secret, as text to paste, type
//! or scan.
//!
//! ```text
//! code  = "quictun-invite:" base32(bytes)
//! bytes = version (1) secret (16) pin (32) name_length (1) name server_length (1) server [tls_port (2)] crc32 (4)
//! ```
//!
//! Version 2 has the field `tls_port`, version 1 has not. A code is of version 1 unless the server's TCP port is another
//! one than its UDP port, so that older programs can read it.
//!
//! The holder of the code can become the client, once and until the code expires. The code is therefore a secret, and
//! its debug output omits it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::target::{Family, Target};

mod base32;
mod crc32;

/// Prefix of every code.
pub const PREFIX: &str = "quictun-invite:";

/// Length of the one-time secret, bytes: too long to guess, and short enough to type.
pub const SECRET_LEN: usize = 16;

/// Maximum length of an invited client's name, bytes: that of a DNS label.
pub const MAX_NAME: usize = 63;

/// Maximum length of `host:port`, bytes.
const MAX_SERVER: usize = 255;

/// The version without a TCP port, and the one with it.
const VERSION: u8 = 1;
const VERSION_WITH_PORT: u8 = 2;

const PIN_LEN: usize = 32;

const TLS_PORT_LEN: usize = 2;

const CHECKSUM_LEN: usize = 4;

/// Maximum number of bytes that a code encodes.
const MAX_BYTES: usize =
    1 + SECRET_LEN + PIN_LEN + 1 + MAX_NAME + 1 + MAX_SERVER + TLS_PORT_LEN + CHECKSUM_LEN;

/// Maximum length of a text to parse, bytes. It includes spaces and line ends that a mail program may have added.
pub const MAX_TEXT: usize = 2048;

/// The content of an invitation code. It is written in lower case. Upper case means the same and makes a smaller QR
/// code.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    name: String,
    server: String,
    pin: [u8; PIN_LEN],
    secret: [u8; SECRET_LEN],
    tls_port: Option<u16>,
}

/// The reason why a text is not an invitation code. Each message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The text lacks the prefix of a code.
    #[error(
        "it does not begin with \"{PREFIX}\": copy the code whole, as `quictun invite` prints it"
    )]
    Prefix,
    /// The text has a character that codes do not use.
    #[error(
        "{0:?} is not allowed in a code: after {PREFIX} only the letters a to z and the digits 2 to 7 follow"
    )]
    Character(char),
    /// A part is missing, or the text holds more than one code.
    #[error("it is cut short, or longer than a code: copy it whole")]
    Length,
    /// The checksum does not match: the code was mistyped or damaged.
    #[error("its checksum is wrong: a character is missing or wrong")]
    Checksum,
    /// The code has an unknown format version.
    #[error("it is of version {0}, which this quictun does not know: install a newer one")]
    Version(u8),
    /// The checksum matches, but `quictun invite` never writes this content.
    #[error("it contains no client name and server address: ask for a new one")]
    Content,
}

/// The field because of which a code cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ContentError {
    /// The client's name is invalid.
    #[error(
        "a client's name has 1 to {MAX_NAME} letters, digits, '.', '-' and '_', and begins with a letter or digit"
    )]
    Name,
    /// The server's address is invalid.
    #[error("the server's address is HOST:PORT, with at most {MAX_SERVER} characters")]
    Server,
}

/// Returns whether an invited client may have this name. The name is also the name of a file.
pub fn is_client_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let begins = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    begins && name.len() <= MAX_NAME && name.bytes().all(plain)
}

impl Code {
    /// Makes a code that invites the client `name` to the server at `server`, `HOST:PORT`. `pin` identifies the
    /// server's key.
    pub fn new(
        name: &str,
        server: &str,
        pin: [u8; PIN_LEN],
        secret: [u8; SECRET_LEN],
    ) -> Result<Self, ContentError> {
        if !is_client_name(name) {
            return Err(ContentError::Name);
        }
        Ok(Self {
            name: name.to_owned(),
            server: host_and_port(server).ok_or(ContentError::Server)?,
            pin,
            secret,
            tls_port: None,
        })
    }

    /// Returns the same code for a server that listens for TLS on this TCP port. `None`, and 0, mean the port of the
    /// server's address.
    #[must_use]
    pub fn with_tls_port(self, port: Option<u16>) -> Self {
        let own = self.server.rsplit_once(':').map(|(_, port)| port);
        let tls_port = port.filter(|port| *port != 0 && own != Some(port.to_string().as_str()));
        Self { tls_port, ..self }
    }

    /// Returns the client's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the server's address, `HOST:PORT`, with an IPv6 address in brackets.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the TCP port on which the server listens for TLS, if it is another one than that of its address.
    pub fn tls_port(&self) -> Option<u16> {
        self.tls_port
    }

    /// Returns the SHA-256 of the server's public key.
    pub fn pin(&self) -> [u8; PIN_LEN] {
        self.pin
    }

    /// Returns the one-time secret.
    pub fn secret(&self) -> &[u8; SECRET_LEN] {
        &self.secret
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self, CodeError> {
        let (bytes, checksum) = bytes
            .split_last_chunk::<CHECKSUM_LEN>()
            .ok_or(CodeError::Length)?;
        if crc32::checksum(bytes) != u32::from_be_bytes(*checksum) {
            return Err(CodeError::Checksum);
        }
        let (version, bytes) = bytes.split_first().ok_or(CodeError::Length)?;
        let code = match *version {
            VERSION => Self::of_fields(bytes),
            VERSION_WITH_PORT => Self::of_fields_with_port(bytes),
            other => return Err(CodeError::Version(other)),
        };
        code.ok_or(CodeError::Content)
    }

    fn of_fields_with_port(bytes: &[u8]) -> Option<Self> {
        let (bytes, port) = bytes.split_last_chunk()?;
        let port = u16::from_be_bytes(*port);
        let code = Self::of_fields(bytes)?.with_tls_port(Some(port));
        // Each code has one text only: no code repeats the port of the server's address.
        code.tls_port.is_some().then_some(code)
    }

    fn of_fields(bytes: &[u8]) -> Option<Self> {
        let (secret, bytes) = bytes.split_first_chunk()?;
        let (pin, mut bytes) = bytes.split_first_chunk()?;
        let name = take_text(&mut bytes)?;
        let server = take_text(&mut bytes)?;
        let code = Self::new(name, server, *pin, *secret).ok()?;
        // Each code has one text only: refuse a form that is not canonical.
        (bytes.is_empty() && code.server == server).then_some(code)
    }
}

/// Returns `HOST:PORT` in canonical form.
fn host_and_port(text: &str) -> Option<String> {
    let target = Target::parse(&format!("tcp:{text}")).ok()?;
    let Target::Tcp {
        family: Family::Any,
        ..
    } = &target
    else {
        return None;
    };
    let text = target.to_string();
    let text = text.strip_prefix("tcp:")?;
    (text.len() <= MAX_SERVER).then(|| text.to_owned())
}

/// Takes a text with a one-byte length prefix.
fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let (length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    *bytes = rest;
    std::str::from_utf8(text).ok()
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(MAX_BYTES);
        let version = self.tls_port.map_or(VERSION, |_| VERSION_WITH_PORT);
        bytes.push(version);
        bytes.extend(self.secret);
        bytes.extend(self.pin);
        for text in [&self.name, &self.server] {
            // `Code::new` has checked both lengths.
            bytes.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
            bytes.extend(text.as_bytes());
        }
        if let Some(port) = self.tls_port {
            bytes.extend(port.to_be_bytes());
        }
        bytes.extend(crc32::checksum(&bytes).to_be_bytes());
        f.write_str(PREFIX)?;
        f.write_str(&base32::encode(&bytes))
    }
}

impl FromStr for Code {
    type Err = CodeError;

    /// Parses the output of [`Code`]'s `Display`, in either case, with white space anywhere.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        if text.len() > MAX_TEXT {
            return Err(CodeError::Length);
        }
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let text = text.to_ascii_lowercase();
        let digits = text.strip_prefix(PREFIX).ok_or(CodeError::Prefix)?;
        let bytes = base32::decode(digits)?;
        if bytes.len() > MAX_BYTES {
            return Err(CodeError::Length);
        }
        Self::of_bytes(&bytes)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code")
            .field("name", &self.name)
            .field("server", &self.server)
            .field("tls_port", &self.tls_port)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
