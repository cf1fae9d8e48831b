//! Attempts beside those that nobody has answered: after an outage the next packet of these may be four seconds away.
//!
//! A server that has said anything is left alone: it may have much to do, and every attempt costs it a handshake.

use std::time::Instant;

use quictun_flow::{ConnectionKey, Socket};

use super::Client;
use crate::connection::Connection;
use crate::traffic::Traffic;

impl Client {
    /// No attempt of a slot has succeeded for long.
    pub(super) fn try_beside<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
    ) {
        let slot = &self.slots[index];
        let answered = slot.under_way().any(|key| is_answered(traffic, key));
        // A silent connection is asked again and again, and an answer to that costs no handshake.
        let is_asked = traffic.connections.iter().any(|(_, connection)| {
            let of_server = connection.server == slot.server;
            of_server && connection.is_established() && !connection.is_closed()
        });
        let jitter = self.jitter();
        if self.slots[index].try_beside(now, jitter, !answered && !is_asked) {
            self.attempt(now, traffic, index);
        }
    }

    /// An attempt is answered for the first time. Silent ones beside it would soon cost the server another handshake.
    pub(crate) fn handle_answered<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        let Some(index) = self.slot_of(key) else {
            return;
        };
        for silent in self.slots[index].handle_answered(key) {
            traffic.end_attempt(now, silent);
        }
    }
}

fn is_answered<S: Socket>(traffic: &Traffic<S>, attempt: ConnectionKey) -> bool {
    let connection = traffic.connections.get(attempt);
    connection.is_some_and(Connection::has_answered)
}
