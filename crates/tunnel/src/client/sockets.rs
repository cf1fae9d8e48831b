//! The UDP sockets of a client, whose packets bypass its own device.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use quictun_engine::PathMtu;
use quictun_io::udp_port::{self, UdpPort};
use quictun_stackd::detour::{self, DetourError};
use quictun_stackd::settings::TunDevice;
use quictun_sys::set_mark;

use super::server_list::server_names;
use crate::launch;
use crate::settings::{Address, ClientSettings, Forward, ListenOn};

/// Returns the mark of sockets towards the server, so that a device for the whole host does not take their packets.
///
/// Without the right to set a mark, the result is `None`: a client behind a device for one command needs no mark.
pub(super) fn mark(settings: &ClientSettings) -> Result<Option<u32>> {
    let led = |forward: &Forward| matches!(forward.listen, ListenOn::Transparent(..));
    let Some(tun) = &settings.tun else {
        // The rules that lead connections to the listeners leave marked packets alone. They do not take UDP, so the
        // client also works without a mark.
        let probe = any_socket(&server_names(settings).iter().map(Address::name))
            .context("cannot make a UDP socket")?;
        let marked = settings.forwards.iter().any(led) && set_mark(&probe, detour::MARK).is_ok();
        return Ok(marked.then_some(detour::MARK));
    };
    let probe = any_socket(&server_names(settings).iter().map(Address::name))
        .context("cannot make a UDP socket")?;
    match set_mark(&probe, detour::MARK) {
        Ok(()) => Ok(Some(detour::MARK)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => match tun.device {
            TunDevice::Own(_) => Err(DetourError::Rights.into()),
            TunDevice::Inherited(_) | TunDevice::Apart(_) => Ok(None),
        },
        Err(error) => Err(error).context("cannot mark a UDP socket"),
    }
}

/// Opens a UDP socket for each worker, and the source of path MTUs of the routes towards the server.
pub(super) fn udp_ports(
    settings: &ClientSettings,
    mark: Option<u32>,
    workers: usize,
) -> Result<(Vec<UdpPort>, PathMtu)> {
    let servers = server_names(settings);
    let open = |_| {
        let socket = marked_socket(&servers, mark)?;
        launch::open_udp(socket, &settings.transport)
    };
    let ports = (0..workers).map(open).collect::<Result<_>>()?;
    let most = settings.transport.max_udp_payload;
    let path_mtu = match mark {
        Some(mark) => udp_port::marked_path_mtu(most, mark).context("cannot make a UDP socket")?,
        None => udp_port::path_mtu(most),
    };
    Ok((ports, path_mtu))
}

pub(super) fn marked_socket(servers: &[Address], mark: Option<u32>) -> Result<UdpSocket> {
    let socket =
        any_socket(&servers.iter().map(Address::name)).context("cannot make a UDP socket")?;
    if let Some(mark) = mark {
        set_mark(&socket, mark).context("cannot mark a UDP socket")?;
    }
    Ok(socket)
}

/// Opens a UDP socket that reaches IPv4 and IPv6 servers, or only IPv4 servers if the host has no IPv6.
pub(crate) fn any_socket<'a>(
    servers: &(impl Iterator<Item = &'a str> + Clone),
) -> std::io::Result<UdpSocket> {
    let v4: SocketAddr = ([0, 0, 0, 0], 0).into();
    let v6: SocketAddr = (std::net::Ipv6Addr::UNSPECIFIED, 0).into();
    let all = |is: fn(&IpAddr) -> bool| {
        let mut literals = servers.clone().map(str::parse);
        literals.all(|literal| literal.is_ok_and(|literal| is(&literal)))
    };
    if all(IpAddr::is_ipv4) {
        return udp_port::bind(v4, false);
    }
    let both = udp_port::bind(v6, false);
    if all(IpAddr::is_ipv6) {
        return both;
    }
    both.or_else(|_| udp_port::bind(v4, false))
}
