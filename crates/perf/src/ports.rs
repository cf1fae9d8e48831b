//! The ports of both ends, and what else all measurements of a server share.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quictun_io::udp_port::{self, UdpPort};
use rustls::ServerConfig;

use crate::error::PerfError;
use crate::plan::{Loop, Plan, Transport};
use crate::stop::Stop;

pub(crate) const OPENING_TIMEOUT: Duration = Duration::from_secs(5);

/// Pairs of a TCP and a UDP port tried where any port will do.
const PORT_ATTEMPTS: u32 = 16;

/// Buffers of a UDP socket, as the tunnel's by default.
const UDP_BUFFER: usize = 8 << 20;

/// How a server serves.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// Where; port 0: any.
    pub listen: SocketAddr,
    /// Only this transport.
    pub only: Option<Transport>,
    /// How its QUIC loop waits, whatever the client asks for.
    pub event_loop: Option<Loop>,
}

pub(crate) struct Server<'a> {
    pub(crate) options: &'a ServerOptions,
    pub(crate) listener: TcpListener,
    pub(crate) udp: UdpSocket,
    pub(crate) crypto: Arc<ServerConfig>,
    pub(crate) pin: String,
    pub(crate) stop: &'a Stop,
}

impl Server<'_> {
    pub(crate) fn accept(&self) -> Option<(TcpStream, SocketAddr)> {
        // A connection that was given up again, or no descriptors for the moment: its client sees it.
        self.listener.accept().ok()
    }

    /// What came for the measurement before this one.
    pub(crate) fn forget_datagrams(&self) {
        if self.udp.set_nonblocking(true).is_ok() {
            while self.udp.recv(&mut [0]).is_ok() {}
        }
    }
}

pub(crate) fn listen(options: &ServerOptions) -> Result<(TcpListener, UdpSocket), PerfError> {
    let address = options.listen;
    let failed = |source| PerfError::Listen(address, source);
    let mut attempt = 0;
    loop {
        attempt += 1;
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        match udp_port::bind(bound, false) {
            Ok(udp) => return Ok((listener, udp)),
            // The port that TCP got may be taken in UDP.
            Err(_) if address.port() == 0 && attempt < PORT_ATTEMPTS => {}
            Err(source) => return Err(failed(source)),
        }
    }
}

pub(crate) fn client_socket(server: SocketAddr) -> Result<UdpSocket, PerfError> {
    let any = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let bound = udp_port::bind(SocketAddr::new(any, 0), false);
    bound.map_err(PerfError::io("binding a UDP socket"))
}

pub(crate) fn port(socket: UdpSocket, plan: &Plan) -> Result<UdpPort, PerfError> {
    let options = || {
        let mut port = UdpPort::new(socket, UDP_BUFFER, plan.gso)?;
        if !plan.gro {
            port.set_receive_offload(false)?;
        }
        Ok(port)
    };
    options().map_err(PerfError::io("setting UDP socket options"))
}
