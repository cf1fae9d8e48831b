//! A flow's time after its connection is lost or its stream was reset: data that has arrived in order is still delivered
//! (PROTOCOL CLOSE-12).

use std::net::SocketAddr;
use std::time::Instant;

use crate::account::Lease;
use crate::ids::{ClientKey, ConnectionId};
use crate::wait_limit::WaitLimit;

/// The state of a flow whose connection is lost, or whose stream was reset.
#[derive(Debug)]
pub struct Salvage {
    leg: Leg,
    /// Client: the connection was lost before the answer to MOVE, so the server may never read MOVE.
    move_unread: bool,
    limit: WaitLimit,
    /// Memory that is charged for the flow, in bytes.
    charged: u64,
}

/// The connection and stream that carry a flow, or carried it last.
#[derive(Clone, Copy, Debug)]
pub struct Leg {
    /// Id of the connection.
    pub connection: ConnectionId,
    /// Id of the stream.
    pub stream_id: u64,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// The named client that the flow belongs to, if the peer is one.
    pub client: Option<ClientKey>,
}

impl Salvage {
    /// Starts the time at `now`. `move_unread` says whether the answer to MOVE has not arrived.
    pub fn new(now: Instant, leg: Leg, move_unread: bool) -> Self {
        Self {
            leg,
            move_unread,
            limit: WaitLimit::new(now),
            charged: 0,
        }
    }

    /// Returns the connection and stream that carried the flow.
    pub fn leg(&self) -> Leg {
        self.leg
    }

    /// Client: returns whether the server may never read MOVE.
    pub fn has_unread_move(&self) -> bool {
        self.move_unread
    }

    /// Notes that the flow still holds `held` bytes, and whether it is `active`: the application has taken bytes, or
    /// the client's rate holds them back. Returns the time until which the application may take them.
    pub fn update(
        &mut self,
        now: Instant,
        active: bool,
        held: usize,
        lease: &mut Lease,
    ) -> Instant {
        lease.adjust(&mut self.charged, held as u64);
        self.limit.update(now, active)
    }

    /// Releases the memory that was charged.
    pub fn release(&mut self, lease: &mut Lease) {
        lease.adjust(&mut self.charged, 0);
    }
}
