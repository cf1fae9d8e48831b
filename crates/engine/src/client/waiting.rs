//! Flows that wait for a connection, and their placement on streams.

use std::time::Instant;

use quictun_flow::{ConnectionKey, FlowId, FlowKey, FlowPhase, FlowRequest, Socket, StreamKey};

use super::Client;
use crate::report::Protocol;
use crate::role::RoleSteps;
use crate::traffic::Traffic;

/// Limit for flows that wait for a connection, and for the queue of them. The queue still has flows that have ended
/// since.
const WAITING_MAX: usize = 4096;

impl Client {
    pub(crate) fn open_flow<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        socket: S,
        request: FlowRequest,
    ) -> Option<FlowId> {
        traffic.talk.note_opening(now);
        let deadline = now + self.role.wait_timeout;
        if self.waiting.len() >= WAITING_MAX && self.searched_at != Some(traffic.flows.removed()) {
            // An application that has given up does not keep another one out. Unless a flow has ended since the last
            // search, none has given up.
            self.searched_at = Some(traffic.flows.removed());
            self.waiting.retain(|&key| is_waiting(traffic, key));
        }
        let full = self.waiting.len() >= WAITING_MAX;
        let (id, key) = traffic.add_waiting(now, deadline, full, socket, request)?;
        self.waiting.push_back(key);
        self.place_waiting(now, traffic);
        Some(id)
    }

    /// Places waiting flows on connections that can take them.
    pub(super) fn place_waiting<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        if !self.waiting.is_empty() {
            self.choose(now, traffic);
        }
        while let Some(&key) = self.waiting.front() {
            if is_waiting(traffic, key) && !self.place(now, traffic, key) {
                return self.want_spare(now, traffic);
            }
            self.waiting.pop_front();
        }
    }

    /// Opens a stream for a waiting flow, on the connection to the chosen server that has the fewest flows.
    fn place<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>, key: FlowKey) -> bool {
        let Some(server) = self.servers.chosen() else {
            return false;
        };
        let takes_more = |flows| flows < self.role.compat_streams;
        let mut candidates: Vec<(bool, usize, ConnectionKey)> = traffic
            .connections
            .iter()
            .filter(|&(on, connection)| {
                connection.server == server
                    && self.servers.can_use(connection)
                    && self.slot_of_attempt(on).is_none()
            })
            .map(|(on, connection)| {
                let flows = connection.streams.len();
                (connection, (connection.is_draining(), flows, on))
            })
            .filter(|(connection, (_, flows, _))| {
                !connection.speaks(Protocol::Compat) || takes_more(*flows)
            })
            .map(|(_, candidate)| candidate)
            .collect();
        candidates.sort_unstable();
        for (.., on) in candidates {
            let connections = &mut traffic.connections;
            let Some(connection) = connections.get_mut(on) else {
                continue;
            };
            if let Some(stream) = connection.open_stream() {
                let late = connection.speaks(Protocol::Compat);
                let late = late.then(|| now + super::ANSWER_LATE);
                let stream_key = StreamKey {
                    connection: on,
                    stream,
                };
                self.servers.note_opened(server);
                traffic.bridge_opened(now, key, stream_key, self.servers.prover(server), late);
                return true;
            }
        }
        false
    }

    /// Takes the flows that a draining server has refused off its connection. They wait for another one.
    pub(super) fn reopen_refused<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        on: ConnectionKey,
    ) {
        let connection = traffic.connections.get_mut(on);
        // Without room in the queue, the flows try again with the next data that arrives.
        let has_room = self.waiting.len() < WAITING_MAX;
        if let Some(connection) = connection.filter(|it| it.has_refused() && has_room) {
            connection.note_left();
            self.reopen_unanswered(now, traffic, on, None);
        }
    }

    /// Takes unanswered flows off a stuck connection (PROTOCOL CLOSE-10): all of them, or those on streams after the
    /// index `behind`.
    ///
    /// A connection may become stuck after flows were opened on it: its peer has fallen silent, or is an original
    /// server that dials a dead target first. A flow of which the server can have seen no more than the request loses
    /// nothing if it asks again elsewhere. A flow that has sent bytes stays, because the server may have acted on them.
    pub(super) fn reopen_unanswered<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        on: ConnectionKey,
        behind: Option<u64>,
    ) {
        let flows = traffic.flows.iter().filter_map(|(key, entry)| {
            let stream_key = entry
                .stream_key()
                .filter(|stream_key| stream_key.connection == on)?;
            let index = stream_key.stream.index();
            let behind = behind.is_none_or(|behind| index > behind);
            (behind && entry.may_reopen()).then_some((index, key))
        });
        let mut found: Vec<(u64, FlowKey)> = flows.collect();
        // Keep the order in which they were opened.
        found.sort_unstable();
        // A flow must not end sooner than it would have where it was.
        let wait = self.role.wait_timeout;
        let deadline = now + wait.max(traffic.transport.idle_timeout);
        for &(_, key) in &found {
            if !self.stopped && self.waiting.len() < WAITING_MAX {
                self.waiting.push_back(key);
                traffic.reopen(now, key, deadline);
            }
        }
        if !found.is_empty() {
            traffic.connections.want_transmit(on);
            // The stuck connection leaves its slot first. Then another one is being made.
            self.drive(now, traffic);
            self.place_waiting(now, traffic);
        }
    }
}

fn is_waiting<S: Socket>(traffic: &Traffic<S>, key: FlowKey) -> bool {
    let entry = traffic.flows.get(key);
    entry.is_some_and(|entry| matches!(&entry.phase, FlowPhase::Waiting(_)))
}
