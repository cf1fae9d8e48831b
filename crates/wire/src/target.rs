//! The target of a flow: `tcp:host:port`, `udp:host:port` or `unix:/path` (PROTOCOL section 3).
//!
//! [`Target::parse`] is the only way from text to a target, and [`Display`](fmt::Display) the only way back.
//! `parse(display(t)) == t` holds for every target `t` that `parse` returned. Other code decides on the parsed value
//! whether a client may reach a target.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

use crate::code::FlowCode;

/// Maximum length of a target's text, bytes.
pub const MAX_TARGET: usize = 1024;

/// Maximum length of a host, bytes: the longest DNS name (RFC 1035 section 2.3.4).
pub const MAX_HOST: usize = 253;

/// Maximum length of a Unix socket's path, bytes: `sun_path` holds 108, one of them the final NUL.
pub const MAX_UNIX_PATH: usize = 107;

/// The address that the server dials for a flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A TCP connection to a host and port.
    Tcp {
        /// The address families that may be dialled.
        family: Family,
        /// A lower-case DNS name, or an address literal in canonical form without brackets.
        host: String,
        /// The port, never 0.
        port: u16,
    },
    /// A UDP port, with which an application exchanges datagrams.
    Udp {
        /// A lower-case DNS name, or an address literal in canonical form without brackets.
        host: String,
        /// The port, never 0.
        port: u16,
    },
    /// A Unix stream socket.
    Unix {
        /// The absolute path, not normalised: it may contain `..`.
        path: String,
    },
}

/// The address families of a host that may be dialled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 or IPv6 (`tcp`).
    #[default]
    Any,
    /// IPv4 addresses only (`tcp4`).
    V4,
    /// IPv6 addresses only (`tcp6`).
    V6,
}

/// The reason why a text is not a target. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The text is empty.
    #[error("the target is empty: write tcp:HOST:PORT or unix:/PATH")]
    Empty,
    /// The text, of this many bytes, exceeds [`MAX_TARGET`].
    #[error("the target is {0} bytes long: at most {MAX_TARGET} are accepted")]
    TooLong(usize),
    /// The text has a control character such as NUL or newline; holds the first one.
    #[error("the target contains the control character {0:?}: remove it")]
    ControlCharacter(char),
    /// The network is one of Go's that the tunnel cannot carry, or is unknown; holds the text before the first colon in
    /// lower case.
    #[error(
        "unsupported network {0:?}: write tcp:HOST:PORT, tcp4:HOST:PORT, tcp6:HOST:PORT, udp:HOST:PORT or unix:/PATH"
    )]
    UnsupportedNetwork(String),
    /// The text has no port, as in `tcp:host` or `host`; holds the text found instead of host and port.
    #[error("the target {0:?} has no port: write tcp:HOST:PORT")]
    MissingPort(String),
    /// The port is 0, above 65535, or not a number; holds the text after the last colon.
    #[error("bad port {0:?}: {advice}", advice = port_advice(.0))]
    BadPort(String),
    /// The host is empty, as in `tcp::22`.
    #[error("the target has no host: write tcp:HOST:PORT, with 127.0.0.1 for the server itself")]
    EmptyHost,
    /// The IPv6 address has no brackets, as in `tcp:::1:22`, so that host and port are ambiguous.
    #[error("IPv6 addresses need brackets: write tcp:[ADDRESS]:PORT, as in tcp:[::1]:22")]
    UnbracketedIpv6,
    /// The text in brackets is not an IPv6 address, or has a zone; holds the text after the opening bracket.
    #[error("{0:?} is not an IPv6 address: write [ADDRESS]:PORT, without a zone, as in [::1]:22")]
    BadIpv6(String),
    /// The host, of this many bytes, exceeds [`MAX_HOST`].
    #[error("the host is {0} bytes long: names have at most {MAX_HOST}")]
    HostTooLong(usize),
    /// The host looks like a number, as in `127.1` or `0x7f000001`. Resolvers disagree on the meaning of such hosts.
    #[error(
        "{0:?} is neither a name nor an IPv4 address: write all four decimal numbers, as in 127.0.0.1"
    )]
    BadIpv4(String),
    /// The host has a character that is not allowed in DNS names; holds the first one.
    #[error(
        "{0:?} is not allowed in a host name: use letters, digits, '-', '_' and '.' (xn-- for other scripts)"
    )]
    BadHost(char),
    /// Network and address do not match, as in `tcp4:[::1]:22` or `tcp6:127.0.0.1:22`; holds the network as given, and
    /// the address.
    #[error("{1} is not an address of the network {0}: write tcp:HOST:PORT for either family")]
    FamilyMismatch(&'static str, String),
    /// The path is not absolute, as in `unix:relative` or `unix:@abstract`; holds the path as given.
    #[error("the Unix socket path {0:?} is not absolute: write unix:/PATH")]
    RelativePath(String),
    /// The path, of this many bytes, exceeds [`MAX_UNIX_PATH`].
    #[error("the Unix socket path is {0} bytes long: the system allows at most {MAX_UNIX_PATH}")]
    PathTooLong(usize),
}

impl Target {
    /// Parses a target: `<network>:<address>`, or one of the short forms `host:port`, `[v6]:port`, `/path`.
    ///
    /// Networks are `tcp`, `tcp4`, `tcp6`, `udp` and `unix`, in either case.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if text.len() > MAX_TARGET {
            return Err(TargetError::TooLong(text.len()));
        }
        if let Some(found) = text.chars().find(|c| c.is_control()) {
            return Err(TargetError::ControlCharacter(found));
        }
        if text.starts_with('/') {
            return parse_unix(text);
        }
        if text.starts_with('[') {
            return parse_tcp(Family::Any, text);
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err(TargetError::UnbracketedIpv6);
        }
        let Some((network, address)) = text.split_once(':') else {
            return Err(TargetError::MissingPort(text.to_owned()));
        };
        let network = network.to_ascii_lowercase();
        match network.as_str() {
            "tcp" => parse_tcp(Family::Any, address),
            "tcp4" => parse_tcp(Family::V4, address),
            "tcp6" => parse_tcp(Family::V6, address),
            "udp" => parse_udp(address),
            "unix" => parse_unix(address),
            _ if is_bare_host(&network, address) => parse_tcp(Family::Any, text),
            _ => Err(TargetError::UnsupportedNetwork(network)),
        }
    }

    /// Returns host and port; `None` for Unix sockets.
    pub fn host_and_port(&self) -> Option<(&str, u16)> {
        match self {
            Self::Tcp { host, port, .. } | Self::Udp { host, port } => Some((host, *port)),
            Self::Unix { .. } => None,
        }
    }

    /// Returns the host's address if the host is an address literal; `None` for names and Unix sockets.
    pub fn ip_literal(&self) -> Option<IpAddr> {
        let (host, _) = self.host_and_port()?;
        host.parse().ok()
    }

    /// Returns whether applications exchange datagrams with the target (PROTOCOL section 5.11).
    pub fn takes_datagrams(&self) -> bool {
        matches!(self, Self::Udp { .. })
    }
}

impl TargetError {
    /// Returns the code with which a server refuses the flow.
    pub fn code(&self) -> FlowCode {
        match self {
            Self::UnsupportedNetwork(_) => FlowCode::Unsupported,
            _ => FlowCode::BadOpen,
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        Self::parse(text)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { family, host, port } if host.contains(':') => {
                write!(f, "{}:[{host}]:{port}", family.network())
            }
            Self::Tcp { family, host, port } => write!(f, "{}:{host}:{port}", family.network()),
            Self::Udp { host, port } if host.contains(':') => write!(f, "udp:[{host}]:{port}"),
            Self::Udp { host, port } => write!(f, "udp:{host}:{port}"),
            Self::Unix { path } => write!(f, "unix:{path}"),
        }
    }
}

impl Family {
    /// Returns the network's name in a target: `tcp`, `tcp4` or `tcp6`.
    pub fn network(self) -> &'static str {
        match self {
            Self::Any => "tcp",
            Self::V4 => "tcp4",
            Self::V6 => "tcp6",
        }
    }

    /// Returns whether an address of this family may be dialled.
    pub fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }

    /// Returns the family of the addresses that both families allow, or `None` if there are none.
    pub fn and(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, both) | (both, Self::Any) => Some(both),
            (one, other) => (one == other).then_some(one),
        }
    }
}

/// Networks that Go's `net.Dial` knows and the tunnel does not carry: `udp:53` is not a host named "udp".
const FOREIGN_NETWORKS: [&str; 8] = [
    "udp",
    "udp4",
    "udp6",
    "ip",
    "ip4",
    "ip6",
    "unixgram",
    "unixpacket",
];

/// Returns whether `before:after` is `host:port` rather than `network:address`. A service name instead of the port, as in
/// `localhost:ssh`, is a bad port and not the address of an unknown network.
fn is_bare_host(before: &str, after: &str) -> bool {
    let is_port = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !FOREIGN_NETWORKS.contains(&before) && after.bytes().all(is_port)
}

/// Returns true if the text is a range of ports, as in `8000-8010`.
pub fn is_port_range(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let bounds = text.split_once('-');
    bounds.is_some_and(|(first, last)| is_number(first) && is_number(last))
}

fn port_advice(port: &str) -> &'static str {
    if is_port_range(port) {
        "a target has one port, not a range: write a number from 1 to 65535"
    } else {
        "write a number from 1 to 65535"
    }
}

fn parse_unix(path: &str) -> Result<Target, TargetError> {
    if !path.starts_with('/') {
        return Err(TargetError::RelativePath(path.to_owned()));
    }
    if path.len() > MAX_UNIX_PATH {
        return Err(TargetError::PathTooLong(path.len()));
    }
    Ok(Target::Unix {
        path: path.to_owned(),
    })
}

fn parse_udp(address: &str) -> Result<Target, TargetError> {
    let (host, port) = parse_host_and_port(address)?;
    Ok(Target::Udp { host, port })
}

fn parse_tcp(family: Family, address: &str) -> Result<Target, TargetError> {
    let (host, port) = parse_host_and_port(address)?;
    if let Ok(literal) = host.parse::<IpAddr>()
        && !family.allows(literal)
    {
        return Err(TargetError::FamilyMismatch(family.network(), host));
    }
    Ok(Target::Tcp { family, host, port })
}

fn parse_host_and_port(address: &str) -> Result<(String, u16), TargetError> {
    let (host, port) = match address.strip_prefix('[') {
        Some(bracketed) => split_bracketed(bracketed)?,
        None => split_plain(address)?,
    };
    if port.is_empty() {
        return Err(TargetError::MissingPort(host));
    }
    Ok((host, parse_port(port)?))
}

/// Splits `::1]:22`. Returns the host in canonical form.
fn split_bracketed(bracketed: &str) -> Result<(String, &str), TargetError> {
    let bad = |literal: &str| TargetError::BadIpv6(literal.to_owned());
    let (literal, after) = bracketed.split_once(']').ok_or_else(|| bad(bracketed))?;
    let ip: Ipv6Addr = literal.parse().map_err(|_| bad(literal))?;
    match after.strip_prefix(':') {
        Some(port) => Ok((ip.to_string(), port)),
        None if after.is_empty() => Err(TargetError::MissingPort(format!("[{literal}]"))),
        None => Err(bad(bracketed)),
    }
}

/// Splits `host:22`. Returns the host in lower case.
fn split_plain(address: &str) -> Result<(String, &str), TargetError> {
    if address.is_empty() {
        return Err(TargetError::EmptyHost);
    }
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err(TargetError::MissingPort(address.to_owned()));
    };
    if host.is_empty() {
        return Err(TargetError::EmptyHost);
    }
    if host.contains(':') {
        return Err(TargetError::UnbracketedIpv6);
    }
    if host.len() > MAX_HOST {
        return Err(TargetError::HostTooLong(host.len()));
    }
    let host = host.to_ascii_lowercase();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if let Some(found) = host.chars().find(|c| !allowed(*c)) {
        return Err(TargetError::BadHost(found));
    }
    if ends_in_number(&host) && host.parse::<Ipv4Addr>().is_err() {
        return Err(TargetError::BadIpv4(host));
    }
    Ok((host, port))
}

/// Returns whether resolvers might read the name as an IPv4 address: its last label is decimal or 0x-hexadecimal.
fn ends_in_number(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or(host);
    let hex = last
        .strip_prefix("0x")
        .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex || !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
}

fn parse_port(port: &str) -> Result<u16, TargetError> {
    let bad = || TargetError::BadPort(port.to_owned());
    // u16's own parser accepts a leading '+'.
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)
}

#[cfg(test)]
mod tests;
