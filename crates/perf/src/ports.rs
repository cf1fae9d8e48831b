//! The ports of a server, and what else all its measurements share.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quictun_io::udp_port;
use rustls::ServerConfig;

use crate::error::PerfError;
use crate::plan::{Loop, Transport};
use crate::stop::Stop;

/// Time for a stranger to say what it wants.
pub(crate) const OPENING_TIMEOUT: Duration = Duration::from_secs(5);

/// Pairs of a TCP and a UDP port tried where any port will do.
const PORT_ATTEMPTS: u32 = 16;

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

/// What all measurements share.
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

/// A TCP and a UDP socket with the same port.
pub(crate) fn listen(options: &ServerOptions) -> Result<(TcpListener, UdpSocket), PerfError> {
    let address = options.listen;
    let failed = |source| PerfError::Listen { address, source };
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
