//! Attempts beside others that are not answered: after an outage, the next packet of the older attempts may be four
//! seconds away.
//!
//! A server that has sent anything is left alone. It may be busy, and every attempt costs it a handshake.

use std::time::Instant;

use quictun_flow::{ConnectionKey, Socket};

use super::Client;
use crate::connection::Connection;
use crate::report::ServerId;
use crate::traffic::Traffic;

impl Client {
    /// Tries the addresses of a slot again after its attempts have not succeeded for long. Tries nothing if the server
    /// has answered, or is being asked on another connection.
    pub(super) fn attempt_again_beside<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
    ) {
        let slot = &self.slots[index];
        let answered = slot.under_way().any(|key| is_answered(traffic, key));
        let is_asked = is_asked(traffic, slot.server);
        let jitter = self.jitter();
        if self.slots[index].attempt_again_beside(now, jitter, !answered && !is_asked) {
            self.attempt(now, traffic, index);
        }
    }

    /// Handles the first answer to an attempt. Ends silent attempts beside it, which would soon cost the server another
    /// handshake.
    pub(super) fn handle_answered<S: Socket>(
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

/// Returns whether there is a connection to a server, silent or not. A silent connection is probed again and again, and
/// the answer to a probe costs no handshake.
pub(super) fn is_asked<S: Socket>(traffic: &Traffic<S>, server: ServerId) -> bool {
    traffic.connections.iter().any(|(_, connection)| {
        let of_server = connection.server == server;
        of_server && connection.is_established() && !connection.is_closed()
    })
}
