//! SEEN of bonds: what has arrived is told now and then, so that the peer need not keep it (PROTOCOL BOND-14).

use std::time::Instant;

use quictun_flow::{ConnectionKey, Flow, FlowKey, Socket, Tell};

use super::{Traffic, carried};
use crate::entries::FlowEntry;
use crate::quic_stream::stream_number;

/// Part of the budget that may be kept for peers. Beyond it flows keep nothing of what they have sent.
const RETAINED_PART: u64 = 4;

impl<S: Socket> Traffic<S> {
    /// Bytes of a flow have arrived: the peer is told now and then.
    pub(super) fn note_arrived(&mut self, now: Instant, key: FlowKey) {
        let Some((entry, connection, stream)) =
            carried(&mut self.flows, &mut self.connections, key)
        else {
            return;
        };
        if entry.is_moving() || connection.bond.is_none() {
            return;
        }
        let next = entry.flow().map_or(0, Flow::next);
        let Some(bonded) = entry.bonded.as_mut().filter(|bonded| bonded.bond.is_some()) else {
            return;
        };
        match bonded.note_arrived(next) {
            Tell::Nothing => {}
            Tell::Soon => connection.untold.push(now, key),
            Tell::Now => connection.control.note_seen(stream_number(stream), next),
        }
    }

    /// Tells the peer of a connection what has arrived and was not told.
    pub(crate) fn tell_arrived(&mut self, on: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(on) else {
            return;
        };
        for key in connection.untold.take() {
            let Some(entry) = self.flows.get_mut(key) else {
                continue;
            };
            let Some(lane) = entry.lane().filter(|lane| lane.connection == on) else {
                continue;
            };
            let next = entry.flow().map_or(0, Flow::next);
            if let Some(bonded) = &mut entry.bonded
                && bonded.take_turn(next)
            {
                connection
                    .control
                    .note_seen(stream_number(lane.stream), next);
            }
        }
        self.connections.want_transmit(on);
    }

    /// A flow of a bond keeps nothing where too much is kept already.
    pub(super) fn limit_retained(&mut self, key: FlowKey) {
        if self.kept <= self.transport.account.budget() / RETAINED_PART {
            return;
        }
        if let Some(flow) = self.flows.get_mut(key).and_then(FlowEntry::flow_mut) {
            flow.forget_retained();
        }
    }
}
