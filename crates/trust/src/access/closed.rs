//! Closed addresses: no name, wildcard or wide network in a rule opens them.

use std::fmt;
use std::net::IpAddr;

use super::address::{is_link_local, is_metadata};
use super::own_http::OwnHttp;

/// The reason why an address is closed to every rule that does not name the address itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedReason {
    /// The address is valid on its link only: 169.254.0.0/16 or `fe80::/10`. Metadata services of clouds are there.
    LinkLocal,
    /// A cloud's metadata service listens at this address, which is not link-local.
    Metadata,
    /// This server's own HTTP interface listens at this address and port.
    OwnHttp,
}

impl ClosedReason {
    /// Returns the reason why this address and port is closed in any spelling, or `None` if it is open.
    pub(super) fn of(addr: IpAddr, port: u16, own_http: Option<&OwnHttp>) -> Option<Self> {
        if own_http.is_some_and(|own| own.is_at(addr, port)) {
            Some(Self::OwnHttp)
        } else if is_link_local(addr) {
            Some(Self::LinkLocal)
        } else if is_metadata(addr) {
            Some(Self::Metadata)
        } else {
            None
        }
    }
}

impl fmt::Display for ClosedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud's metadata service",
            Self::OwnHttp => "this server's own HTTP interface",
        })
    }
}
