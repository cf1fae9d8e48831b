//! Counters of application bytes: totals, bytes of each client, and the time to the first byte.

use std::time::{Duration, Instant};

use quictun_flow::{ClientKey, Ending, FlowDirection, FlowEntry, Socket};

use super::Traffic;
use crate::event::ServerEvent;
use crate::report::Side;

/// Some bytes of one flow that have moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferredBytes {
    bytes: u64,
    client: Option<ClientKey>,
    /// Age of the flow at its first byte, if that byte is among these.
    first_after: Option<Duration>,
}

impl TransferredBytes {
    /// Counts the bytes that moved between `before` and `after`, in a flow of this `age`.
    pub(super) fn new(
        (before, after): (u64, u64),
        client: Option<ClientKey>,
        age: Duration,
    ) -> Self {
        Self {
            bytes: after.saturating_sub(before),
            client,
            first_after: (before == 0 && after > 0).then_some(age),
        }
    }
}

impl<S: Socket> Traffic<S> {
    pub(super) fn count_to_tunnel(&mut self, moved: TransferredBytes) {
        self.totals.bytes_to_tunnel += moved.bytes;
        self.note_used(moved, FlowDirection::Down);
        if self.side == Side::Server {
            self.note_first_byte(moved);
        }
    }

    pub(super) fn count_to_app(&mut self, moved: TransferredBytes) {
        self.totals.bytes_to_app += moved.bytes;
        self.note_used(moved, FlowDirection::Up);
        if self.side == Side::Client {
            self.note_first_byte(moved);
        }
    }

    fn note_used(&mut self, moved: TransferredBytes, way: FlowDirection) {
        self.clients.note_moved(moved.client, way, moved.bytes);
        while let Some(client) = self.clients.pop_used_up() {
            self.events.push(ServerEvent::QuotaUsedUp { client });
        }
    }

    fn note_first_byte(&mut self, moved: TransferredBytes) {
        if let Some(after) = moved.first_after {
            self.totals.times.first_byte.note(after);
        }
    }

    /// Counts a flow that has ended.
    pub(super) fn count_ended(
        &mut self,
        now: Instant,
        entry: &FlowEntry<S>,
        client: Option<ClientKey>,
        ending: Ending,
    ) {
        let established = entry.is_established();
        if established {
            self.totals.times.life.note(entry.age(now));
        }
        let [finished, reset, refused] = match ending {
            Ending::Finished => [1, 0, 0],
            Ending::AppReset | Ending::PeerReset(_) => [0, 1, 0],
            Ending::NoConnection => [0, 0, 1],
            Ending::PeerRefused(_)
            | Ending::PeerClosed(_)
            | Ending::Abandoned(_)
            | Ending::LimitReached(_) => [0, u64::from(established), u64::from(!established)],
        };
        self.totals.flows_finished += finished;
        self.totals.flows_reset += reset;
        self.totals.flows_refused += refused;
        if let Some(client) = self.clients.totals(client) {
            client.flows_finished += finished;
            client.flows_reset += reset;
            client.flows_refused += refused;
        }
    }
}
