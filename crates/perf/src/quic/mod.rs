//! QUIC, on the engine and the UDP port of the tunnel itself.
//!
//! The protocol is draft-banks-quic-performance, ALPN `perf`: a client opens a stream whose first eight bytes say how
//! many it wants back; what follows is thrown away (here: compared), and its end is answered. Applications are
//! [`MemorySocket`]s, so that a byte takes the tunnel's way without the tunnel's TCP sockets.

pub(crate) mod client;
mod congestion;
mod driver;
pub(crate) mod server;
mod socket;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quictun_engine::Transport;
use quictun_engine::report::ConnectionReport;
use quictun_io::udp_port::{self, UdpPort};

use crate::error::PerfError;
use crate::path::Path;
use crate::plan::Plan;

pub(crate) use congestion::congestion;
pub(crate) use socket::MemorySocket;

/// Buffers of the UDP socket, as the tunnel's by default.
const UDP_BUFFER: usize = 8 << 20;

/// Time for a handshake and for the first flow: a loop that sleeps through its packets needs most of it.
const PATIENCE: Duration = Duration::from_mins(1);

/// IP and UDP headers.
const HEADERS_V4: u32 = 28;
const HEADERS_V6: u32 = 48;

/// The engine's view of a plan.
fn transport(plan: &Plan) -> Result<Transport, PerfError> {
    let path_mtu = udp_port::path_mtu(None);
    let most = plan.mtu.unwrap_or(u32::MAX);
    let mut transport = Transport::new(Arc::new(move |remote| {
        let payload = u16::try_from(most - headers(remote)).unwrap_or(u16::MAX);
        path_mtu(remote).min(payload)
    }));
    transport.congestion = congestion(plan)?.1;
    transport.handshake_timeout = PATIENCE;
    transport.ack_every = plan.ack_every;
    Ok(transport)
}

fn port(socket: UdpSocket, plan: &Plan) -> Result<UdpPort, PerfError> {
    let options = || {
        let mut port = UdpPort::new(socket, UDP_BUFFER, plan.gso)?;
        if !plan.gro {
            port.set_receive_offload(false)?;
        }
        Ok(port)
    };
    options().map_err(PerfError::io("setting UDP socket options"))
}

fn headers(remote: SocketAddr) -> u32 {
    if remote.is_ipv4() {
        HEADERS_V4
    } else {
        HEADERS_V6
    }
}

/// What an engine's connections know of their path.
fn path(reports: &[ConnectionReport]) -> Option<Path> {
    let paths = reports.iter().map(|report| Path {
        rtt_us: u64::try_from(report.rtt.as_micros()).ok(),
        lost_packets: report.packets_lost,
        sent_packets: report.packets_sent,
        mtu: u32::from(report.mtu) + headers(report.remote),
        gso_segments_per_send: ratio(report.datagrams_sent, report.batches_sent),
    });
    paths.reduce(|all, path| all.and(&path))
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| a as f64 / b as f64)
}

/// Random bytes from the system.
fn random() -> Result<[u8; 32], PerfError> {
    let mut bytes = [0; 32];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(PerfError::Io {
            what: "drawing random numbers",
            source: std::io::ErrorKind::Other.into(),
        }),
    }
}
