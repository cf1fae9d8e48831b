//! Flows that wait for a connection, and the stream that each gets.

use std::time::{Duration, Instant};

use quictun_flow::{Ending, Flow, Inlet, Socket};
use quictun_wire::code::FlowCode;
use quinn_proto::Dir;

use crate::FlowId;
use crate::charges::FLOW_COST;
use crate::client::Client;
use crate::client::spares::ANSWER_LATE;
use crate::engine::{Engine, Role, export};
use crate::flow_entry::{FlowEntry, Phase, Place};
use crate::opening;
use crate::quic_stream::QuicStream;
use crate::report::Protocol;

/// Flows that may wait for a connection.
const WAITING_MAX: usize = 4096;

impl Client {
    /// Lets a flow that had a connection wait for another; for how long, or nothing where it cannot.
    pub(super) fn wait_again(&mut self, key: usize) -> Option<Duration> {
        if self.stopped || self.waiting.len() >= WAITING_MAX {
            return None;
        }
        self.waiting.push_back(key);
        Some(self.role.wait_timeout)
    }
}

impl<S: Socket> Engine<S> {
    /// Client: carries `socket` to what `token` names. Bytes follow the request at once; until there is
    /// a connection the flow waits, and its socket is not read.
    pub fn open_flow(
        &mut self,
        now: Instant,
        mut socket: S,
        token: String,
        client_app: String,
    ) -> Option<FlowId> {
        let draining = self.draining;
        let Role::Client(client) = &mut self.role else {
            socket.abort();
            return None;
        };
        if draining || client.waiting.len() >= WAITING_MAX || !self.lease.try_charge(FLOW_COST) {
            socket.abort();
            self.totals.flows_refused += 1;
            return None;
        }
        let deadline = now + client.role.wait_timeout;
        let slot = self.flows.vacant_key();
        let id = FlowId(self.next_id(slot));
        let mut entry = FlowEntry::new(id, Phase::Waiting(socket), now);
        entry.token = token;
        entry.client_app = client_app;
        let key = self.flows.insert(entry);
        self.flow_timers
            .set(key, &mut self.flows[key].deadline, Some(deadline));
        self.totals.flows_opened += 1;
        if let Role::Client(client) = &mut self.role {
            client.waiting.push_back(key);
        }
        self.place_waiting(now);
        Some(id)
    }

    /// Gives waiting flows to connections that can take them.
    pub(crate) fn place_waiting(&mut self, now: Instant) {
        loop {
            let Role::Client(client) = &mut self.role else {
                return;
            };
            let Some(&key) = client.waiting.front() else {
                return;
            };
            let waits = self
                .flows
                .get(key)
                .is_some_and(|entry| matches!(entry.phase, Phase::Waiting(_)));
            if waits && !self.place(now, key) {
                self.want_spare(now);
                return;
            }
            if let Role::Client(client) = &mut self.role {
                client.waiting.pop_front();
            }
        }
    }

    /// Refuses all flows that wait for a connection.
    pub(crate) fn refuse_waiting(&mut self, now: Instant, code: FlowCode) {
        let Role::Client(client) = &mut self.role else {
            return;
        };
        for key in std::mem::take(&mut client.waiting) {
            if let Some(entry) = self.flows.get_mut(key)
                && let Phase::Waiting(socket) = &mut entry.phase
            {
                socket.abort();
                self.remove_flow(now, key, Ending::Abandoned(code));
            }
        }
    }

    /// Opens a stream for a waiting flow on the connection with the fewest flows.
    fn place(&mut self, now: Instant, key: usize) -> bool {
        let Role::Client(client) = &self.role else {
            return false;
        };
        let compat_streams = client.role.compat_streams;
        let mut candidates: Vec<(usize, usize)> = self
            .connections
            .iter()
            .enumerate()
            .filter_map(|(handle, slot)| Some((handle, slot.as_ref()?)))
            .filter(|(_, connection)| connection.usable())
            .filter(|(_, connection)| {
                connection.protocol != Some(Protocol::Compat)
                    || connection.streams.len() < compat_streams
            })
            .map(|(handle, connection)| (connection.streams.len(), handle))
            .collect();
        candidates.sort_unstable();
        for (_, handle) in candidates {
            let Some(Some(connection)) = self.connections.get_mut(handle) else {
                continue;
            };
            if let Some(stream) = connection.quic.streams().open(Dir::Bi) {
                self.bridge_opened(now, key, Place { handle, stream });
                return true;
            }
        }
        false
    }

    /// The stream is open: send the request and let the application's bytes follow.
    fn bridge_opened(&mut self, now: Instant, key: usize, place: Place) {
        let Role::Client(client) = &self.role else {
            return;
        };
        let prover = client.role.prover.clone();
        let Some(Some(connection)) = self.connections.get_mut(place.handle) else {
            return;
        };
        let protocol = connection.protocol.unwrap_or(Protocol::Native);
        let exporter = prover.as_ref().and_then(|_| export(&connection.quic));
        let proof = prover.zip(exporter).map(|(prove, value)| prove(&value));
        let entry = &mut self.flows[key];
        let request = opening::request(protocol, &entry.token, proof);
        let phase = std::mem::replace(&mut entry.phase, Phase::Reading(Inlet::new()));
        let Phase::Waiting(socket) = phase else {
            return;
        };
        connection.streams.insert(place.stream, key);
        connection.idle_since = None;
        if protocol == Protocol::Compat {
            connection.prefer(place.stream, true);
        }
        entry.place = Some(place);
        let mut flow = Flow::new(socket, Inlet::new());
        let refused = request.is_err();
        flow.send_first(request.unwrap_or_default());
        // Without an answer to wait for it is agreed on from the start.
        let raw = protocol == Protocol::Raw;
        if !raw {
            flow.keep_heads();
        }
        entry.established = raw;
        entry.phase = Phase::Bridged {
            flow,
            answered: raw,
        };
        let late = (protocol == Protocol::Compat).then(|| now + ANSWER_LATE);
        self.flow_timers
            .set(key, &mut self.flows[key].deadline, late);
        if refused {
            if let Some((entry, connection)) = self.entry_and_connection(key) {
                let mut stream = QuicStream {
                    quic: &mut connection.quic,
                    id: place.stream,
                };
                if let Some(flow) = entry.flow_mut() {
                    flow.abandon(&mut stream, FlowCode::BadOpen);
                }
            }
            self.settle_flow(now, key);
        } else {
            self.want_outbound(key);
        }
        self.want_transmit(place.handle);
    }
}
