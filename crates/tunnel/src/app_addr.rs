//! The application at the local end of a new flow.

use std::fmt;
use std::net::SocketAddr;

use quictun_trust::shares::Holder;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppAddr {
    Ip(SocketAddr),
    /// The application connected over a Unix socket, where clients have no address.
    Unix,
}

impl AppAddr {
    /// Returns the party for which log lines about the application are counted.
    pub(crate) fn holder(&self) -> Holder {
        match self {
            Self::Ip(address) => Holder::at(address.ip()),
            Self::Unix => Holder::Own,
        }
    }
}

impl fmt::Display for AppAddr {
    /// Formats `ip:port` with IPv4-mapped addresses as IPv4, or `unix`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(addr) => SocketAddr::new(addr.ip().to_canonical(), addr.port()).fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}
