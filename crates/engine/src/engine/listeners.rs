//! Commands for a server's listeners, which it opens for its clients (PROTOCOL section 5.9).

use std::time::Instant;

use quictun_flow::{ConnectionId, FlowId, Socket};
use quictun_wire::control::Frame;
use quictun_wire::listening::{Incoming, Listen, ListenAck, ListenId};

use super::Engine;
use crate::traffic::listeners::OpenOutcome;

impl<S: Socket> Engine<S> {
    /// Client: asks the server to listen, and lets it open flows for connections to that listener. The answer is
    /// [`Event::ListenAnswered`](crate::Event::ListenAnswered). Returns false if the connection is gone, or if its
    /// server does not listen for clients.
    pub fn listen(&mut self, connection: ConnectionId, listen: Listen) -> bool {
        self.traffic.listen(connection, listen)
    }

    /// Client: asks the server to stop listening for these reverse forwards, at most 64 in one call.
    pub fn unlisten(&mut self, connection: ConnectionId, ids: Vec<ListenId>) {
        if !ids.is_empty() {
            self.traffic
                .send_control_frame(connection, &Frame::Unlisten(ids));
        }
    }

    /// Server: answers [`Event::Listen`](crate::Event::Listen), or reports that it no longer listens. A client that has a
    /// listener is asked whether it is still there: see [`Event::Unresponsive`](crate::Event::Unresponsive).
    pub fn answer_listen(&mut self, connection: ConnectionId, answer: ListenAck) {
        if answer.result.is_ok() {
            self.traffic.watch_client(connection);
        }
        self.traffic
            .send_control_frame(connection, &Frame::ListenAck(answer));
    }

    /// Server: returns whether the client of a connection takes another flow of a listener now. If it does not,
    /// [`Event::StreamsAvailable`](crate::Event::StreamsAvailable) reports when it permits more.
    pub fn takes_incoming(&mut self, connection: ConnectionId) -> bool {
        self.traffic.takes_incoming(connection)
    }

    /// Server: carries `socket`, which has connected to the listener at the address `listener`, to the client. The
    /// application's bytes follow the request at once. If the client does not accept the flow by `until`, the flow is
    /// reset. The engine chooses the flow's number in the bond, whatever `incoming` has.
    pub fn open_incoming(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        incoming: Incoming,
        (socket, listener): (S, String),
        until: Instant,
    ) -> OpenOutcome<S> {
        self.traffic
            .open_incoming(now, connection, incoming, (socket, listener), until)
    }

    /// Client: sets the target of a flow that the server has opened, for reports.
    pub fn name_target(&mut self, flow: FlowId, target: String) {
        let flows = &mut self.traffic.flows;
        if let Some(entry) = flows.find(flow).and_then(|key| flows.get_mut(key)) {
            entry.set_token(target);
        }
    }
}
