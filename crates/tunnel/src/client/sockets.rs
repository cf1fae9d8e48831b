//! The sockets of a client towards its servers, whose packets bypass its own device.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use quictun_engine::{PathMtu, Surroundings};
use quictun_io::udp_port::{self, UdpPort};
use quictun_stackd::detour::{self, DetourError};
use quictun_stackd::settings::TunDevice;
use quictun_sys::set_mark;
use tracing::warn;

use crate::launch;
use crate::marked_sockets::MarkedSockets;
use crate::settings::{Address, CarrierChoice, ClientSettings, Forward, ListenOn};

/// Size of a UDP buffer below which transfers are tried over TLS sooner, in bytes: ngrok does not use QUIC below it.
const SMALL_BUFFER: usize = 1 << 20;

pub(super) struct ClientSockets {
    /// A socket for each worker.
    pub(super) ports: Vec<UdpPort>,
    /// The source of path MTUs of the routes towards the server.
    pub(super) path_mtu: PathMtu,
    /// Facts for the choice of carriers.
    pub(super) surroundings: Surroundings,
    /// A socket for asking the network why a server does not answer.
    pub(super) probe: UdpSocket,
    /// A socket for asking the network whether it rejects datagrams, if the client may choose its carrier.
    pub(super) rejections: Option<UdpSocket>,
    /// The sockets of each worker for TLS over TCP, if packets towards the server need a mark.
    pub(super) marked: Vec<MarkedSockets>,
}

impl ClientSockets {
    /// Opens the sockets towards these servers.
    pub(super) fn open(
        settings: &ClientSettings,
        servers: &[Address],
        workers: usize,
    ) -> Result<Self> {
        let open =
            || any_socket(&servers.iter().map(Address::name)).context("cannot make a UDP socket");
        let mark = mark(settings, &open()?)?;
        let marked = || {
            let socket = open()?;
            if let Some(mark) = mark {
                set_mark(&socket, mark).context("cannot mark a UDP socket")?;
            }
            anyhow::Ok(socket)
        };
        let port = |_| launch::open_udp(marked()?, &settings.transport);
        let ports = (0..workers).map(port).collect::<Result<Vec<_>>>()?;
        let most = settings.transport.max_udp_payload;
        let path_mtu = match mark {
            Some(mark) => {
                udp_port::marked_path_mtu(most, mark).context("cannot make a UDP socket")?
            }
            None => udp_port::path_mtu(most),
        };
        let carrier = settings.transport.carrier;
        let chooses = carrier == CarrierChoice::Auto;
        let mark_of_tcp = mark.filter(|_| carrier != CarrierChoice::Quic);
        let connections = settings.transport.connections.div_ceil(workers) * servers.len();
        let of_worker = |mark| MarkedSockets::open(mark, connections);
        let tcp = (0..workers).filter_map(|_| mark_of_tcp.map(of_worker));
        let tcp = tcp.collect::<std::io::Result<_>>();
        let granted = |port: &UdpPort| {
            let report = port.report();
            report.recv_buffer.min(report.send_buffer)
        };
        let local_address = udp_port::local_address(mark).context("cannot make a UDP socket")?;
        let surroundings = Surroundings {
            local_address: Some(local_address),
            small_buffers: ports.iter().any(|port| granted(port) < SMALL_BUFFER),
        };
        Ok(Self {
            ports,
            surroundings,
            path_mtu,
            probe: marked()?,
            rejections: chooses.then(marked).transpose()?,
            marked: tcp.context("cannot make a TCP socket")?,
        })
    }
}

/// Returns the mark of sockets towards the server, so that a device for the whole host does not take their packets.
///
/// Without the right to set a mark, the result is `None`: a client behind a device for one command needs no mark.
fn mark(settings: &ClientSettings, probe: &UdpSocket) -> Result<Option<u32>> {
    let led = |forward: &Forward| matches!(forward.listen, ListenOn::Transparent(..));
    let Some(tun) = &settings.tun else {
        if !settings.forwards.iter().any(led) {
            return Ok(None);
        }
        // The rules that lead packets to the listeners leave marked ones alone. Without UDP in these rules, which needs
        // the same capability, the client also works without a mark.
        let marked = set_mark(probe, detour::MARK);
        if let Err(cause) = &marked
            && settings.transport.carrier != CarrierChoice::Quic
        {
            warn!(target: "quictun", %cause, "cannot mark TCP connections to the server: rules of nftables that lead connections to this client must leave them alone by other means; otherwise grant CAP_NET_ADMIN, or use --carrier quic");
        }
        return Ok(marked.is_ok().then_some(detour::MARK));
    };
    match set_mark(probe, detour::MARK) {
        Ok(()) => Ok(Some(detour::MARK)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => match tun.device {
            TunDevice::Own(_) => Err(DetourError::Rights.into()),
            TunDevice::Inherited(_) | TunDevice::Apart(_) => Ok(None),
        },
        Err(error) => Err(error).context("cannot mark a UDP socket"),
    }
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
