//! The ports of both ends, and the state shared by all measurements of a server.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quictun_io::udp_port::{self, UdpPort};
use rustls::ServerConfig;

use crate::error::PerfError;
use crate::plan::{EventLoop, Plan, Transport};
use crate::stop::Stop;

pub(crate) const OPENING_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of attempts to find a port that is free for both TCP and UDP, if any port will do.
const PORT_ATTEMPTS: u32 = 16;

/// Size of the buffers of a UDP socket in bytes: the tunnel's default.
const UDP_BUFFER: usize = 8 << 20;

/// The options of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// Address to listen on; port 0 selects any free port.
    pub listen: SocketAddr,
    /// Accepts only this transport, if set.
    pub only: Option<Transport>,
    /// Way in which the server's QUIC loop waits. Overrides the client's choice.
    pub event_loop: Option<EventLoop>,
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
        // An aborted connection or a lack of descriptors is not an error of the server: the client notices.
        self.listener.accept().ok()
    }

    /// Discards the datagrams of the previous measurement.
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
            // A port that is free in TCP may be taken in UDP.
            Err(_) if address.port() == 0 && attempt < PORT_ATTEMPTS => {}
            Err(source) => return Err(failed(source)),
        }
    }
}

pub(crate) fn client_socket(server: SocketAddr) -> Result<UdpSocket, PerfError> {
    let bound = udp_port::bind(udp_port::any_address(server.is_ipv6()), false);
    bound.map_err(PerfError::io("cannot bind a UDP socket"))
}

pub(crate) fn port(socket: UdpSocket, plan: &Plan) -> Result<UdpPort, PerfError> {
    let options = || {
        let mut port = UdpPort::new(socket, UDP_BUFFER, plan.gso)?;
        if !plan.gro {
            port.set_receive_offload(false)?;
        }
        Ok(port)
    };
    options().map_err(PerfError::io("cannot set UDP socket options"))
}
