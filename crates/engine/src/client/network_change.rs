//! Reaction to a change of the network. The new network may reach a server that the old one could not, and timers would
//! take seconds to find out.

use std::time::Instant;

use quictun_flow::{ConnectionKey, Socket};

use super::Client;
use crate::traffic::Traffic;

impl Client {
    pub(crate) fn handle_network_change<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
    ) {
        let connections = &mut traffic.connections;
        let all: Vec<ConnectionKey> = connections.iter().map(|(key, _)| key).collect();
        for key in all {
            if let Some(connection) = connections.get_mut(key) {
                connection.send_ping();
                connections.want_transmit(key);
            }
        }
        self.redial.handle_change(now);
        self.drive(now, traffic);
    }

    /// Dials at once instead of waiting for the next attempt.
    pub(super) fn redial_now(&mut self, now: Instant) {
        for slot in &mut self.slots {
            slot.redial_now(now);
        }
    }

    pub(crate) fn handle_new_port<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        for slot in &mut self.slots {
            slot.race_again(now);
        }
        self.drive(now, traffic);
    }
}
