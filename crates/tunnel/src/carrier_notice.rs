//! Notices of the carriers to one server: when TLS over TCP takes over, and when QUIC is back. All workers of the client
//! share it, and each change is logged once.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use quictun_engine::report::CarrierKind;
use tracing::{info, warn};

#[derive(Debug, Default)]
pub(crate) struct CarrierNotice {
    /// The client chooses the carrier.
    pub(crate) chooses: bool,
    over_tls: AtomicBool,
}

impl CarrierNotice {
    /// Notes the carrier of a new connection.
    pub(crate) fn handle_welcome(&self, remote: SocketAddr, carrier: CarrierKind) {
        let over_tls = carrier == CarrierKind::Tls;
        // The flag guards no other memory.
        if !self.chooses || self.over_tls.swap(over_tls, Ordering::Relaxed) == over_tls {
            return;
        }
        if over_tls {
            warn!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "QUIC has not answered in time: TLS over TCP carries the flows; QUIC is tried again");
        } else {
            info!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "QUIC passes to the server again");
        }
    }
}
