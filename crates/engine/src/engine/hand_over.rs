//! Hand-over to another process on the same host, which continues the flows of bonds: the part that is the same for both
//! roles.
//!
//! The calls of each process have an order: see `docs/HANDOVER.md`. `hand_over` and `take_over` are with the functions of
//! each role.

use std::time::Instant;

use quictun_flow::{ConnectionId, FlowId, Socket};
use quictun_wire::code::{CloseCode, FlowCode};

use super::Engine;
use crate::report::RestartCost;
use crate::role::Role;

impl<S: Socket, R: Role> Engine<S, R> {
    /// Takes the flows of bonds off their connections. Call [`Engine::close_detached`] once the other process has the flows,
    /// or does not take them. On a client, call it some round trips later: a server limits flows that wait without a
    /// connection.
    pub fn detach_all(&mut self, now: Instant) {
        self.traffic.detach_all(now);
        self.note_ended(now);
    }

    /// Closes the connections whose flows were detached. Poll for the transmits afterwards. If no other process has taken the
    /// flows, this engine goes on: clients come back to it, and its own connections are dialled again.
    pub fn close_detached(&mut self, now: Instant) {
        self.traffic.close_detached(now);
        self.note_ended(now);
    }

    /// Drops the flows that another process has, with their sockets as they are. Then closes the connections that have no
    /// bond, and resets all other flows. Nothing but [`Engine::close_detached`] and transmits may follow.
    pub fn close_rest(&mut self, now: Instant, taken: &[FlowId]) {
        self.traffic.draining = true;
        self.role.stop(&mut self.traffic);
        self.traffic.let_go_of(taken);
        self.traffic.abandon_all_detached(now);
        self.traffic.abandon_all_salvaged(now);
        let connections = self.traffic.connections.iter();
        let left = connections.filter(|(_, connection)| !connection.is_lost());
        let ids: Vec<ConnectionId> = left.map(|(_, connection)| connection.id()).collect();
        for id in ids {
            self.close_connection(now, id, CloseCode::Shutdown);
        }
        self.role
            .refuse_waiting(now, &mut self.traffic, FlowCode::ShuttingDown);
    }

    /// Counts the flows by what a hand-over would do to each.
    pub fn restart_cost(&self) -> RestartCost {
        self.traffic.restart_cost()
    }
}
