//! The rates of clients for flows without a connection: detached flows, and those that only deliver what has arrived.
//!
//! The share of a connection in its client's rate ends with the connection. Its flows then wait here, in one queue for
//! each client, and compete with the client's connections as one more connection would.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use quictun_flow::{Allowance, ClientKey, Deadlines, FlowEntry, FlowKey, Socket, ToAppStop};

use super::Traffic;
use crate::connection::{Shaping, TURNS};

/// The rates of the clients that have, or had, flows without a connection.
#[derive(Debug, Default)]
pub(crate) struct UnattachedRates {
    clients: BTreeMap<ClientKey, ClientRate>,
    deadlines: Deadlines<ClientKey>,
}

#[derive(Debug, Default)]
struct ClientRate {
    shaping: Shaping,
    /// The entry in `UnattachedRates::deadlines`.
    deadline: Option<Instant>,
}

impl UnattachedRates {
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    fn of(&mut self, client: ClientKey, allowance: &Arc<Allowance>) -> &mut Shaping {
        let shaping = &mut self.clients.entry(client).or_default().shaping;
        shaping.set_allowance(Some(allowance));
        shaping
    }

    /// Returns the clients whose waiting flows have to be served.
    fn take_due(&mut self, now: Instant) -> Vec<ClientKey> {
        let mut due = Vec::new();
        while let Some(client) = self.deadlines.pop_due(now) {
            if let Some(rate) = self.clients.get_mut(&client) {
                rate.deadline = None;
            }
            due.push(client);
        }
        due
    }

    fn next(&mut self, now: Instant, client: ClientKey) -> Option<(FlowKey, u64)> {
        self.clients.get_mut(&client)?.shaping.next(now)
    }

    fn wait(&mut self, now: Instant, client: ClientKey, flow: FlowKey) {
        if let Some(rate) = self.clients.get_mut(&client) {
            rate.shaping.wait(now, flow);
            self.plan(now, client);
        }
    }

    /// Sets the time of the client's next turn.
    fn plan(&mut self, now: Instant, client: ClientKey) {
        if let Some(rate) = self.clients.get_mut(&client) {
            rate.shaping.plan(now);
            let at = rate.shaping.next_timeout();
            self.deadlines.set(client, &mut rate.deadline, at);
        }
    }

    /// Takes a flow that has ended out of the queue.
    pub(super) fn forget(&mut self, client: ClientKey, flow: FlowKey) {
        if let Some(rate) = self.clients.get_mut(&client) {
            rate.shaping.forget(flow);
            let at = rate.shaping.next_timeout();
            self.deadlines.set(client, &mut rate.deadline, at);
        }
    }
}

impl<S: Socket> Traffic<S> {
    /// Returns the number of bytes that a flow without a connection may deliver now, if it has not waited for its turn.
    pub(super) fn may_deliver_unattached(
        &mut self,
        now: Instant,
        client: Option<ClientKey>,
    ) -> u64 {
        let allowance = client.and_then(|client| Some((client, self.clients.allowance(client)?)));
        allowance.map_or(u64::MAX, |(client, allowance)| {
            self.unattached.of(client, allowance).may_deliver(now)
        })
    }

    /// Charges the bytes that a flow without a connection has delivered. If its client's rate has stopped it, it waits
    /// for its turn.
    pub(super) fn charge_unattached(
        &mut self,
        now: Instant,
        key: FlowKey,
        client: Option<ClientKey>,
        (delivered, stopped): (u64, ToAppStop),
    ) {
        let Some(client) = client else { return };
        let Some(allowance) = self.clients.allowance(client) else {
            return;
        };
        self.unattached
            .of(client, allowance)
            .note_delivered(delivered);
        if stopped == ToAppStop::Budget
            && self
                .flows
                .get_mut(key)
                .is_some_and(FlowEntry::wait_for_rate)
        {
            self.unattached.wait(now, client, key);
        }
    }

    /// Gives turns to the flows without a connection that wait for their client's rate.
    pub(crate) fn serve_unattached(&mut self, now: Instant) {
        for client in self.unattached.take_due(now) {
            for _ in 0..TURNS {
                let Some((flow, bytes)) = self.unattached.next(now, client) else {
                    break;
                };
                let entry = self.flows.get_mut(flow);
                // The flow may be on another connection by now.
                if entry.is_some_and(|entry| entry.stream_key().is_none() && entry.leave_rate()) {
                    self.pump_detached(now, flow, Some(bytes));
                    self.pump_salvaged(now, flow, Some(bytes));
                }
            }
            self.unattached.plan(now, client);
        }
    }
}
