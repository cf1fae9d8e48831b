//! Hands a detached flow over to another process, and takes it over there.

use std::time::{Duration, Instant};

use quictun_wire::bond::SERVER_NUMBERS;
use quictun_wire::handover::{HandedFlow, HandedSocket};

use super::{FlowEntry, FlowPhase, Placement};
use crate::bonded::{BondMembership, DetachedState};
use crate::flow::Flow;
use crate::ids::{BondKey, FlowId};
use crate::read_buffer::ReadBuffer;
use crate::salvage::Leg;
use crate::socket::Socket;

impl<S: Socket> FlowEntry<S> {
    /// Returns the state of a detached flow, except its client's name, its datagrams, its socket and its visitor, which the
    /// flow does not know. `None` if another process cannot continue the flow.
    pub fn hand_over(&self, now: Instant) -> Option<HandedFlow> {
        let detached = self.detached()?;
        let bonded = self.bonded.filter(|_| self.can_move())?;
        let (mut sent, mut received) = self.flow()?.hand_over()?;
        sent.seen = self.seen.min(sent.end());
        received.end_reported = self.end_reported;
        let since = |at: Instant| millis(now.saturating_duration_since(at));
        Some(HandedFlow {
            number: bonded.number,
            leg: bonded.leg,
            token: self.token.clone(),
            client_app: self.client_app.clone(),
            server_app: self.server_app.clone(),
            client: None,
            remote: detached.leg().remote,
            source: self.source,
            age_ms: millis(self.age(now)),
            wait_ms: millis(detached.until().saturating_duration_since(now)),
            stalled_ms: bonded.stalled().map_or(0, since),
            sent,
            received,
            answered: false,
            asked: false,
            socket: HandedSocket::Unix,
            visitor: None,
        })
    }

    /// Makes the entry of a flow that another process has handed over. It waits for a connection of `bond`.
    pub fn take_over(
        id: FlowId,
        (socket, handed): (S, &HandedFlow),
        (bond, leg): (BondKey, Leg),
        buffer: &ReadBuffer,
        now: Instant,
    ) -> Self {
        let ago = |ms| now.checked_sub(Duration::from_millis(ms)).unwrap_or(now);
        let until = now + Duration::from_millis(handed.wait_ms);
        let placement = Placement::Detached(Box::new(DetachedState::new(leg, until)));
        let flow = Flow::take_over(socket, &handed.sent, &handed.received, buffer);
        let phase = FlowPhase::Bridged {
            flow,
            answered: true,
        };
        let mut bonded = BondMembership::new(Some(bond), handed.number);
        bonded.leg = handed.leg;
        bonded.stall(ago(handed.stalled_ms));
        Self {
            token: handed.token.clone(),
            client_app: handed.client_app.clone(),
            server_app: handed.server_app.clone(),
            source: handed.source,
            opened: ago(handed.age_ms),
            established: true,
            incoming: handed.number >= SERVER_NUMBERS,
            seen: handed.sent.seen,
            end_reported: handed.received.end_reported,
            bonded: Some(bonded),
            ..Self::new(id, placement, phase, now)
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
