//! Another network may lead to a server where the old one did not: nobody waits for a timer to find out.

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
                connection.ask();
                connections.want_transmit(key);
            }
        }
        for slot in &mut self.slots {
            slot.hurry(now);
        }
        self.drive(now, traffic);
    }
}
