//! Addresses of one link, which name the device to it: `fe80::1%eth0` (RFC 4007 section 11).

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// Parses an IPv6 address with a zone: the name or the index of a device, which `index` finds by its name. Returns `None`
/// if the text has no zone or is not an address.
pub(crate) fn parse(
    text: &str,
    port: u16,
    index: impl Fn(&str) -> io::Result<u32>,
) -> Option<Result<SocketAddr, String>> {
    let (address, device) = text.split_once('%')?;
    let address: Ipv6Addr = address.parse().ok()?;
    let index = match device.parse() {
        Ok(index) => Ok(index),
        Err(_) => index(device).map_err(|error| format!("device {device}: {error}")),
    };
    Some(index.map(|index| SocketAddrV6::new(address, port, 0, index).into()))
}

/// Returns whether packets to the address need a zone, and it has none.
pub(crate) fn lacks_zone(address: &SocketAddr) -> bool {
    match address {
        SocketAddr::V6(v6) => v6.ip().is_unicast_link_local() && v6.scope_id() == 0,
        SocketAddr::V4(_) => false,
    }
}

/// Leaves out the addresses that lack a zone.
///
/// # Errors
///
/// Fails with words for people if no other address is left.
pub(crate) fn with_zones(
    name: &str,
    mut addresses: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, String> {
    let lacking = addresses.iter().copied().find(lacks_zone);
    addresses.retain(|address| !lacks_zone(address));
    match lacking {
        Some(at) if addresses.is_empty() => Err(format!(
            "{name} has only the link-local address {ip}, which needs a device: write [{ip}%DEVICE]:{port}",
            ip = at.ip(),
            port = at.port()
        )),
        _ => Ok(addresses),
    }
}
