//! A flow's time without its connection: what has arrived whole is still delivered (PROTOCOL CLOSE-12).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::account::Lease;
use crate::ids::{ClientKey, ConnectionId};

/// An application that takes nothing for so long is taken for dead, as a silent peer is.
pub(crate) const IDLE_MAX: Duration = Duration::from_mins(1);

/// A flow without a connection holds memory for no longer than this, however slowly it is read.
const SALVAGE_MAX: Duration = Duration::from_mins(10);

/// A flow's time without its connection.
#[derive(Debug)]
pub struct Salvage {
    carried: Carried,
    until: Instant,
    idle_until: Instant,
    delivered: u64,
    /// Memory that is charged for it, bytes.
    charged: u64,
}

/// Where a flow is carried, or was.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// The connection.
    pub connection: ConnectionId,
    /// QUIC stream id.
    pub stream_id: u64,
    /// The peer.
    pub remote: SocketAddr,
    /// Whose it is, where the peer is a named client.
    pub client: Option<ClientKey>,
}

impl Salvage {
    /// Begins now; the application has `delivered` bytes.
    pub fn new(now: Instant, carried: Carried, delivered: u64) -> Self {
        Self {
            carried,
            until: now + SALVAGE_MAX,
            idle_until: now + IDLE_MAX,
            delivered,
            charged: 0,
        }
    }

    /// The connection and stream that carried the flow.
    pub fn carried(&self) -> Carried {
        self.carried
    }

    /// The application has `delivered` bytes by now, and `held` are left. Returns until when it may take its time.
    pub fn update(
        &mut self,
        now: Instant,
        delivered: u64,
        held: usize,
        lease: &mut Lease,
    ) -> Instant {
        lease.adjust(&mut self.charged, held as u64);
        if delivered > self.delivered {
            self.delivered = delivered;
            self.idle_until = now + IDLE_MAX;
        }
        self.until.min(self.idle_until)
    }

    /// Gives back what was charged.
    pub fn release(&mut self, lease: &mut Lease) {
        lease.adjust(&mut self.charged, 0);
    }
}
