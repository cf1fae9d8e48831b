//! Addresses that no name, wildcard or wide network opens.

use std::fmt;
use std::net::IpAddr;

use super::address::{is_link_local, is_metadata};
use super::own_http::OwnHttp;

/// Why an address is closed to rules that do not name the address itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Valid on its link only: 169.254.0.0/16 and `fe80::/10`. Metadata services of clouds are there.
    LinkLocal,
    /// A metadata service at another address.
    Metadata,
    /// The HTTP interface of this server.
    OwnHttp,
}

impl Closed {
    /// Why this address and port is closed, in any spelling; `None`: it is not.
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

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud's metadata service",
            Self::OwnHttp => "this server's own HTTP interface",
        })
    }
}
