//! Events that the engines of both roles report.

use std::net::SocketAddr;
use std::time::Instant;

use quictun_control::log::Untrusted;
use quictun_engine::{ConnectionId, Event, LossReason};
use quictun_trust::access::Peer;
use tracing::{debug, info, warn};

use super::{ServerWorker, holder_of};
use crate::flow_records::name_of;
use crate::moves::Move;
use crate::role::{ServerContext, log_congestion};

impl ServerWorker {
    pub(super) fn handle_shared_event(&mut self, cx: &mut ServerContext<'_>, event: Event) {
        match event {
            Event::Connected {
                connection,
                remote,
                protocol,
                certificates,
            } => {
                let shown = certificates.as_deref();
                self.handle_connected(cx, connection, remote, protocol, shown);
            }
            Event::Disconnected {
                connection,
                remote,
                reason,
                flows,
                salvaged,
                waiting,
                server: _,
            } => {
                if let Some(moved) = self.moves.handle_disconnected(connection) {
                    self.log_move(cx.now, &moved);
                }
                self.lose_listeners(cx, connection, &reason);
                let peer = self.peers.remove(&connection);
                self.held.forget_connection(connection);
                let known = peer.as_ref().unwrap_or(&Peer::Unknown);
                let on = (connection, remote);
                let counts = [flows, salvaged, waiting.len()];
                self.log_disconnected(cx.now, known, on, &reason, counts);
                self.note_left(cx, &waiting);
            }
            Event::Rejoined {
                connection,
                remote,
                flows,
                reason,
            } => {
                self.moves
                    .handle_rejoined(connection, remote, flows, reason);
                self.note_answering(cx, connection);
            }
            Event::Moved {
                flow,
                connection,
                without,
                ..
            } => {
                if let Some(moved) = self.moves.handle_moved(cx.now, connection, without) {
                    self.log_move(cx.now, &moved);
                }
                self.left.forget(flow);
            }
            Event::Unresponsive { connection, remote } => {
                self.handle_silent(cx, connection);
                self.note_left(cx, &cx.engine.flows_of(connection));
                if let Some(line) = self.line_of(cx.now, connection, remote) {
                    warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, lines_left_out = line.left_out() }, "client endpoint does not answer");
                }
            }
            Event::Responsive { connection, remote } => {
                self.handle_answering(cx, connection, remote);
                self.note_answering(cx, connection);
                if let Some(line) = self.line_of(cx.now, connection, remote) {
                    info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, lines_left_out = line.left_out() }, "client endpoint answers again");
                }
            }
            Event::Migrated {
                connection,
                from,
                to,
            } => {
                if let Some(line) = self.line_of(cx.now, connection, to) {
                    info!(target: "quictun", %from, %to, lines_left_out = line.left_out(), "client endpoint changed its address");
                }
            }
            Event::Congestion(state) => log_congestion(&state),
            Event::Established { flow, stream_id } => {
                self.log_established(flow, stream_id);
                self.handle_incoming_answered(cx, flow, false);
            }
            Event::FlowClosed(summary) => {
                self.handle_flow_closed(cx.now, &summary);
                self.handle_incoming_answered(cx, summary.flow, true);
            }
        }
    }

    fn log_disconnected(
        &self,
        now: Instant,
        peer: &Peer,
        (connection, remote): (ConnectionId, SocketAddr),
        reason: &LossReason,
        [flows, salvaged, waiting]: [usize; 3],
    ) {
        let Some(line) = self.lines.take(&holder_of(peer, remote), now) else {
            return;
        };
        let (client, reason) = (name_of(peer), Untrusted(reason));
        let (worker, connection) = self.flows.log.connection(connection);
        if salvaged > 0 {
            info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, worker, connection, flows = salvaged }, "client endpoint gone: data that its flows have received completely is still delivered");
        }
        if waiting > 0 {
            info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, worker, connection, %reason, flows = waiting, lines_left_out = line.left_out() }, "client endpoint gone: its flows wait for its return");
            if flows == 0 {
                return;
            }
        }
        if *reason.0 == LossReason::ProgramLeft {
            // Programs end most of their connections in this way, and the line of the flow follows.
            debug!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, worker, connection, %reason, lines_left_out = line.left_out() }, "client endpoint gone");
            return;
        }
        // If the client of a connection did not identify itself, no stream became a flow.
        if flows == 0 || *peer == Peer::Unknown {
            info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, worker, connection, %reason, lines_left_out = line.left_out() }, "client endpoint gone");
        } else {
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, worker, connection, %reason, flows, lines_left_out = line.left_out() }, "client endpoint lost: its flows were reset");
        }
    }

    pub(super) fn log_move(&self, now: Instant, moved: &Move) {
        let (remote, flows, left) = (moved.remote, moved.flows, Untrusted(&moved.reason));
        if let Some(line) = self.line_of(now, moved.connection, remote) {
            let known = self.peer(moved.connection);
            let (client, without_ms) = (name_of(&known), moved.without_ms());
            let (worker, connection) = self.flows.log.connection(moved.connection);
            info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, worker, connection, flows, without_ms, %left, lines_left_out = line.left_out() }, "flows continue on a new connection");
        }
    }
}
