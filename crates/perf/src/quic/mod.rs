//! QUIC, on the engine and the UDP port of the tunnel.
//!
//! The protocol is draft-banks-quic-performance, with the ALPN protocol `perf`. A client opens a stream whose first
//! eight bytes give the number of bytes to send back. The receiver discards the bytes that follow (this crate compares
//! them), and answers after their end. Applications are [`MemorySocket`]s, so that bytes take the tunnel's code path
//! without its TCP sockets.

pub(crate) mod client;
mod congestion;
mod driver;
pub(crate) mod server;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use quictun_engine::Transport;
use quictun_engine::report::ConnectionReport;
use quictun_io::udp_port;

use crate::error::PerfError;
use crate::path::{Path, headers, ratio};
use crate::plan::Plan;

pub(crate) use congestion::congestion;
pub(crate) use socket::MemorySocket;

/// Timeout of a handshake and of the first flow. A loop that sleeps through its packets needs most of it.
const TIMEOUT: Duration = Duration::from_mins(1);

fn transport(plan: &Plan) -> Result<Transport, PerfError> {
    let path_mtu = udp_port::path_mtu(None);
    let most = plan.mtu.unwrap_or(u32::MAX);
    let mut transport = Transport::new(Arc::new(move |remote| {
        let payload = u16::try_from(most - headers(remote)).unwrap_or(u16::MAX);
        path_mtu(remote).min(payload)
    }));
    transport.congestion = congestion(plan)?.1;
    transport.handshake_timeout = TIMEOUT;
    transport.ack_every = plan.ack_every;
    Ok(transport)
}

fn path(reports: &[ConnectionReport]) -> Option<Path> {
    let paths = reports.iter().filter_map(|report| {
        Some(Path {
            rtt_us: u64::try_from(report.rtt.as_micros()).ok(),
            lost_packets: report.packets_lost,
            sent_packets: report.packets_sent,
            mtu: u32::from(report.mtu?) + headers(report.remote),
            gso_segments_per_send: ratio(report.datagrams_sent, report.batches_sent),
        })
    });
    paths.reduce(Path::and)
}

fn random() -> Result<[u8; 32], PerfError> {
    quictun_sys::random().map_err(PerfError::io("cannot draw random numbers"))
}
