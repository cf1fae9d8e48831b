//! Listeners of a server for its clients (PROTOCOL section 5.9), as the caller commands them.

use std::time::Instant;

use quictun_flow::{ConnectionId, FlowId, Socket};
use quictun_wire::control::Frame;
use quictun_wire::listening::{Incoming, Listen, ListenAck, ListenId};

use super::Engine;
use crate::traffic::listeners::Opening;

impl<S: Socket> Engine<S> {
    /// Client: asks the server to listen, and lets it open flows for what connects there. The answer is
    /// [`Event::ListenAnswered`](crate::Event::ListenAnswered). `false`: the connection is gone, or
    /// its server does not listen for clients.
    pub fn listen(&mut self, connection: ConnectionId, listen: Listen) -> bool {
        self.traffic.listen(connection, listen)
    }

    /// Client: asks the server to listen no more, at most 64 times in one call.
    pub fn unlisten(&mut self, connection: ConnectionId, ids: Vec<ListenId>) {
        if !ids.is_empty() {
            self.traffic.say(connection, &Frame::Unlisten(ids));
        }
    }

    /// Server: the answer to [`Event::Listen`](crate::Event::Listen), or the news that it listens no more.
    pub fn answer_listen(&mut self, connection: ConnectionId, answer: ListenAck) {
        self.traffic.say(connection, &Frame::ListenAck(answer));
    }

    /// Server: carries `socket`, which has connected to the listener with the address `listener`, to the client. Its bytes
    /// follow at once; where the client does not accept it by `until`, it is reset.
    pub fn open_incoming(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        incoming: Incoming,
        (socket, listener): (S, String),
        until: Instant,
    ) -> Opening<S> {
        self.traffic
            .open_incoming(now, connection, incoming, (socket, listener), until)
    }

    /// Client: names the target of a flow that the server has opened, for reports.
    pub fn name_target(&mut self, flow: FlowId, target: String) {
        let flows = &mut self.traffic.flows;
        if let Some(entry) = flows.find(flow).and_then(|key| flows.get_mut(key)) {
            entry.set_token(target);
        }
    }
}
