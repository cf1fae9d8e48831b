//! A flow's time after its connection is lost: data that has arrived completely is still delivered (PROTOCOL CLOSE-12).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::account::Lease;
use crate::deadlines::passed_asleep;
use crate::ids::{ClientKey, ConnectionId};

/// An application that takes no bytes for this long is considered dead, as a silent peer is.
pub(crate) const IDLE_MAX: Duration = Duration::from_mins(1);

/// Longest time for which a flow without a connection holds memory, however slowly the application reads.
const SALVAGE_MAX: Duration = Duration::from_mins(10);

/// The state of a flow whose connection is lost.
#[derive(Debug)]
pub struct Salvage {
    carrier: Carrier,
    until: Instant,
    idle_until: Instant,
    /// Memory that is charged for the flow, in bytes.
    charged: u64,
}

/// The connection and stream that carry a flow, or carried it last.
#[derive(Clone, Copy, Debug)]
pub struct Carrier {
    /// Id of the connection.
    pub connection: ConnectionId,
    /// Id of the QUIC stream.
    pub stream_id: u64,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// The named client that the flow belongs to, if the peer is one.
    pub client: Option<ClientKey>,
}

impl Salvage {
    /// Starts the time at `now`.
    pub fn new(now: Instant, carrier: Carrier) -> Self {
        Self {
            carrier,
            until: now + SALVAGE_MAX,
            idle_until: now + IDLE_MAX,
            charged: 0,
        }
    }

    /// Returns the connection and stream that carried the flow.
    pub fn carrier(&self) -> Carrier {
        self.carrier
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
        // A host that slept has given the application no time either.
        let slept = passed_asleep(self.until.min(self.idle_until), now);
        if slept {
            self.until = self.until.max(now + IDLE_MAX);
        }
        if active || slept {
            self.idle_until = now + IDLE_MAX;
        }
        self.until.min(self.idle_until)
    }

    /// Releases the memory that was charged.
    pub fn release(&mut self, lease: &mut Lease) {
        lease.adjust(&mut self.charged, 0);
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::account::Account;

    fn carrier() -> Carrier {
        Carrier {
            connection: ConnectionId(1),
            stream_id: 0,
            remote: SocketAddr::from(([10, 0, 0, 1], 7500)),
            client: None,
        }
    }

    #[test]
    fn an_application_has_a_minute_for_each_piece_and_ten_minutes_for_all() {
        let start = Instant::now();
        let mut lease = Lease::new(Account::new(1 << 20));
        let mut salvage = Salvage::new(start, carrier());
        assert_eq!(
            salvage.update(start, false, 100, &mut lease),
            start + IDLE_MAX
        );
        let later = start + IDLE_MAX / 2;
        assert_eq!(
            salvage.update(later, true, 50, &mut lease),
            later + IDLE_MAX
        );
        let late = start + SALVAGE_MAX.saturating_sub(IDLE_MAX / 2);
        salvage.update(later + IDLE_MAX, true, 50, &mut lease);
        let mut now = later + IDLE_MAX;
        while now < late {
            now += IDLE_MAX / 2;
            salvage.update(now, true, 50, &mut lease);
        }
        assert_eq!(
            salvage.update(now, true, 50, &mut lease),
            start + SALVAGE_MAX
        );
    }

    #[test]
    fn a_sleep_costs_the_application_no_time() {
        let start = Instant::now();
        let mut lease = Lease::new(Account::new(1 << 20));
        for sleep in [2 * IDLE_MAX, 2 * SALVAGE_MAX] {
            let mut salvage = Salvage::new(start, carrier());
            let awake = start + sleep;
            let until = salvage.update(awake, false, 100, &mut lease);
            assert_eq!(until, awake + IDLE_MAX, "after {sleep:?}");
            assert_eq!(
                salvage.update(until, false, 100, &mut lease),
                until,
                "one minute, no more"
            );
        }
    }
}
