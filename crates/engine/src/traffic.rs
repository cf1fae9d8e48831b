//! The state that client and server have in common: connections, the flows on them, and the memory that both take.

mod arrivals;
mod bonds;
mod bridging;
mod byte_counters;
mod charges;
mod control;
mod delivery;
mod detached;
mod ending;
pub(crate) mod listeners;
mod moving;
mod resetting;
mod salvaging;
mod seen;
mod sending;
mod talk;
mod unattached;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_congestion::{Gauge, Liveness, PathKnowledge, PeerKey, Recovery, TimeoutAction};
use quictun_flow::{
    ConnectionId, ConnectionKey, FlowId, FlowKey, Ids, Lease, PinnedBatches, ReadBuffer, Socket,
};
use quictun_wire::code::{CloseCode, FlowCode};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, ConnectionEvent, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint,
    Event as QuicEvent, Incoming, ServerConfig, StreamId,
};

use crate::bonds::Bonds;
use crate::cid::{LONG_HEADER, routed};
use crate::clients::Clients;
use crate::config::Transport;
use crate::connection::{Connection, ConnectionSetup};
use crate::connections::Connections;
use crate::entries::FlowEntry;
use crate::entries::Flows;
use crate::event::Event;
use crate::grants::InitialGrants;
use crate::loss::{LocalError, LossReason};
use crate::quic_config::transport_config;
use crate::report::{Side, Totals};
use crate::responses::Responses;
use crate::shared_batch::NextBatch;
use crate::strangers::SourcePrefix;
use rand_chacha::ChaCha20Rng;
use seen::UnbondedRetention;
use talk::Talk;
use unattached::UnattachedRates;

/// Age from which an unanswered attempt counts as unknown to its peer, which would have answered the first packet by
/// then.
const SILENT_ATTEMPT: Duration = Duration::from_secs(1);

pub(crate) struct Traffic<S> {
    endpoint: Endpoint,
    pub(crate) transport: Transport,
    pub(crate) side: Side,
    /// Server: time within which a client must send the request of a stream that it has opened.
    open_timeout: Duration,
    pub(crate) connections: Connections,
    pub(crate) flows: Flows<S>,
    /// Number of flows that have left `flows`.
    pub(crate) flows_removed: u64,
    ids: Ids,
    pub(crate) read_buffer: ReadBuffer,
    responses: Responses,
    next_batch: NextBatch,
    pub(crate) events: VecDeque<Event>,
    pub(crate) totals: Totals,
    pub(crate) clients: Clients,
    unattached: UnattachedRates,
    unbonded: UnbondedRetention,
    pub(crate) lease: Lease,
    pinned: PinnedBatches<FlowKey>,
    /// Memory charged for data that is kept for sending, in bytes.
    pub(crate) kept: u64,
    /// Memory that the role keeps, in bytes.
    pub(crate) kept_by_role: u64,
    pub(crate) ended: VecDeque<EndedConnection>,
    /// Connections whose control streams have received more frames than one turn handles, and the time since which they
    /// wait.
    unread_control: Vec<ConnectionKey>,
    unread_at: Option<Instant>,
    /// Client: connections whose peer has become suspect, for the client to check.
    pub(crate) suspects: Vec<ConnectionKey>,
    pub(crate) draining: bool,
    pub(crate) bonds: Bonds,
    /// Longest time that a flow may be without a connection. A client obeys the server if the server's limit is
    /// shorter.
    pub(crate) bond_ttl: Duration,
    /// Time before which no further flow is ended to free memory.
    free_memory_at: Option<Instant>,
    /// Index of this worker.
    worker: u8,
    pub(crate) talk: Talk,
    /// Time that the caller sleeps between turns, regardless of events. The pacers make up for that time.
    pub(crate) sleeps: Duration,
}

/// The waiting times of a role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Server: time that a client has to send the request of a stream.
    pub(crate) open: Duration,
    /// Time that a flow waits for another connection of its bond.
    pub(crate) bond: Duration,
}

#[derive(Debug)]
pub(crate) struct EndedConnection {
    pub(crate) key: ConnectionKey,
    pub(crate) remote: SocketAddr,
    pub(crate) opened: Instant,
    pub(crate) established: bool,
    /// The source among whose strangers the connection held a place.
    pub(crate) place: Option<SourcePrefix>,
    pub(crate) reason: LossReason,
}

impl<S: Socket> Traffic<S> {
    pub(crate) fn new(
        endpoint: Endpoint,
        transport: Transport,
        side: Side,
        timeouts: Timeouts,
        (worker, rng): (u8, ChaCha20Rng),
    ) -> Self {
        Self {
            endpoint,
            side,
            open_timeout: timeouts.open,
            bonds: Bonds::new(rng),
            bond_ttl: timeouts.bond,
            free_memory_at: None,
            worker,
            connections: Connections::new(Liveness::early(transport.keep_alive)),
            flows: Flows::default(),
            flows_removed: 0,
            ids: Ids::default(),
            read_buffer: ReadBuffer::default(),
            responses: Responses::default(),
            next_batch: NextBatch::default(),
            events: VecDeque::new(),
            totals: Totals::default(),
            clients: Clients::default(),
            unattached: UnattachedRates::default(),
            unbonded: UnbondedRetention::default(),
            lease: Lease::new(transport.account.clone()),
            pinned: PinnedBatches::new(transport.account.budget()),
            kept: 0,
            kept_by_role: 0,
            ended: VecDeque::new(),
            unread_control: Vec::new(),
            unread_at: None,
            suspects: Vec::new(),
            draining: false,
            talk: Talk::default(),
            sleeps: Duration::ZERO,
            transport,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.connections.next_timeout(),
            self.flows.next_timeout(),
            self.unattached.next_timeout(),
            self.unread_at,
        ];
        deadlines.into_iter().flatten().min()
    }

    fn attached(&mut self, key: FlowKey) -> Option<(&mut FlowEntry<S>, &mut Connection, StreamId)> {
        attached(&mut self.flows, &mut self.connections, key)
    }
}

fn attached<'a, S: Socket>(
    flows: &'a mut Flows<S>,
    connections: &'a mut Connections,
    key: FlowKey,
) -> Option<(&'a mut FlowEntry<S>, &'a mut Connection, StreamId)> {
    let entry = flows.get_mut(key)?;
    let stream_key = entry.stream_key()?;
    Some((
        entry,
        connections.get_mut(stream_key.connection)?,
        stream_key.stream,
    ))
}

/// The endpoint: datagrams, and the start of connections.
impl<S: Socket> Traffic<S> {
    /// Handles one UDP datagram. Returns the connection that it belongs to or wants to start.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<u8>,
        data: BytesMut,
    ) -> Option<DatagramRecipient> {
        self.totals.datagrams_received += 1;
        let length = data.len();
        // The library keeps handshake packets for long. The copy releases the receive batch, which takes up to 64 KiB.
        let data = if data.first().is_some_and(|first| first & LONG_HEADER != 0) {
            BytesMut::from(&data[..])
        } else {
            data
        };
        let mut response = Vec::new();
        let ecn = ecn.and_then(EcnCodepoint::from_bits);
        let event = self
            .endpoint
            .handle(now, remote, local_ip, ecn, data, &mut response)?;
        match event {
            DatagramEvent::ConnectionEvent(ConnectionHandle(handle), event) => {
                let key = ConnectionKey(handle);
                let connection = self.connections.get_mut(key)?;
                if connection.awaits_client_hello() {
                    let connection = connection.id();
                    return Some(DatagramRecipient::Unfinished(Box::new(UnreadDatagram {
                        connection,
                        remote,
                        event,
                        length,
                    })));
                }
                let contact = self.read_datagram(now, key, event, length)?;
                Some(DatagramRecipient::Connection(key, contact))
            }
            DatagramEvent::NewConnection(incoming) => {
                Some(DatagramRecipient::Newcomer(Box::new(incoming)))
            }
            DatagramEvent::Response(transmit) => {
                self.responses.push(&transmit, response);
                None
            }
        }
    }

    /// Passes a datagram to its connection, which has to exchange events next. Returns the kind of contact, or `None` if
    /// the connection is gone.
    fn read_datagram(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        event: ConnectionEvent,
        length: usize,
    ) -> Option<Contact> {
        let connection = self.connections.get_mut(key)?;
        let back = connection.handle_datagram(now, event, length);
        if back == Recovery::FromSilence {
            self.events.push_back(Event::Responsive {
                connection: connection.id(),
                remote: connection.remote(),
            });
        }
        if back != Recovery::None && self.side == Side::Client {
            self.events.push_back(Event::ServerAnswers {
                server: connection.server,
                remote: connection.remote(),
            });
        }
        Some(match back {
            Recovery::FromSilence | Recovery::FromSuspicion => Contact::Resumed,
            Recovery::None if connection.has_just_answered() => Contact::First,
            Recovery::None => Contact::Ongoing,
        })
    }

    /// Passes a datagram that has waited to its connection. Returns whether the connection still exists.
    pub(crate) fn read(&mut self, now: Instant, datagram: UnreadDatagram) -> bool {
        let UnreadDatagram {
            connection,
            event,
            length,
            ..
        } = datagram;
        let Some(key) = self.connections.find(connection) else {
            return false;
        };
        // The contact concerns only clients.
        let read = self.read_datagram(now, key, event, length).is_some();
        self.connections.mark(key);
        read
    }

    pub(crate) fn validate(&mut self, incoming: Incoming) {
        let mut response = Vec::new();
        match self.endpoint.retry(incoming, &mut response) {
            Ok(transmit) => self.responses.push(&transmit, response),
            Err(error) => self.endpoint.ignore(error.into_incoming()),
        }
    }

    pub(crate) fn ignore(&mut self, incoming: Incoming) {
        self.endpoint.ignore(incoming);
    }

    pub(crate) fn refuse(&mut self, incoming: Incoming) {
        let mut response = Vec::new();
        let transmit = self.endpoint.refuse(incoming, &mut response);
        self.totals.handshakes_failed += 1;
        self.responses.push(&transmit, response);
    }

    pub(crate) fn set_server_config(&mut self, config: Arc<ServerConfig>) {
        self.endpoint.set_server_config(Some(config));
    }

    /// Begins the handshake of a newcomer. `first` computes the initial grants from the window for newcomers and the
    /// window that an earlier connection needed.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        mut config: ServerConfig,
        first: impl FnOnce(u64, u64) -> InitialGrants,
    ) -> Option<(ConnectionKey, ConnectionId)> {
        let remote = incoming.remote_address();
        let known = self
            .transport
            .memory
            .recall(now, PeerKey::Client(remote.ip()));
        let window = self.lease.first_window(known.receive_window, 0, false);
        let setup = self.prepare(now, remote, known, first(window, known.receive_window));
        config.transport_config(setup.config.clone());
        let mut response = Vec::new();
        let accepted = self
            .endpoint
            .accept(incoming, now, &mut response, Some(Arc::new(config)));
        match accepted {
            Ok((handle, quic)) => Some(self.adopt(now, handle, quic, setup)),
            Err(error) => {
                self.totals.handshakes_failed += 1;
                if let Some(transmit) = error.response {
                    self.responses.push(&transmit, response);
                }
                None
            }
        }
    }

    pub(crate) fn connect(
        &mut self,
        now: Instant,
        address: SocketAddr,
        crypto: Arc<QuicClientConfig>,
        server_name: &str,
        route: Option<(u8, &mut ChaCha20Rng)>,
    ) -> Result<ConnectionKey, LossReason> {
        let known = self.transport.memory.recall(now, PeerKey::Server(address));
        let first = InitialGrants {
            window: self.lease.first_window(known.receive_window, 0, true),
            remembered: known.receive_window,
            flows: 0,
        };
        let setup = self.prepare(now, address, known, first);
        let mut config = ClientConfig::new(crypto);
        config.transport_config(setup.config.clone());
        if let Some((route, rng)) = route {
            let id = routed(route, rng);
            config.initial_dst_cid_provider(Arc::new(move || id));
        }
        let connecting = self.endpoint.connect(now, config, address, server_name);
        let (handle, quic) = connecting.map_err(LocalError::from)?;
        Ok(self.adopt(now, handle, quic, setup).0)
    }

    /// Prepares the initial state of a connection to or from `remote`.
    fn prepare(
        &self,
        now: Instant,
        remote: SocketAddr,
        known: PathKnowledge,
        first: InitialGrants,
    ) -> ConnectionSetup {
        let gauge = Gauge::new();
        let (transport, side) = (&self.transport, self.side);
        let (config, trace) = transport_config(transport, &gauge, remote, side, known, first, now);
        ConnectionSetup {
            gauge,
            config,
            trace,
            first,
        }
    }

    fn adopt(
        &mut self,
        now: Instant,
        ConnectionHandle(handle): ConnectionHandle,
        quic: quinn_proto::Connection,
        setup: ConnectionSetup,
    ) -> (ConnectionKey, ConnectionId) {
        let key = ConnectionKey(handle);
        let id = self.ids.connection(key);
        let mut connection = Connection::new(id, quic, &self.transport, setup, now);
        connection.update_memory_charge(&mut self.lease);
        self.connections.insert(key, connection);
        self.totals.connections_opened += 1;
        self.talk.note_opening(now);
        (key, id)
    }
}

#[derive(Debug)]
pub(crate) enum DatagramRecipient {
    Connection(ConnectionKey, Contact),
    Newcomer(Box<Incoming>),
    /// The datagram belongs to a connection whose `ClientHello` is incomplete.
    Unfinished(Box<UnreadDatagram>),
}

/// A datagram that has not been passed to its connection yet.
#[derive(Debug)]
pub(crate) struct UnreadDatagram {
    connection: ConnectionId,
    pub(crate) remote: SocketAddr,
    event: ConnectionEvent,
    length: usize,
}

/// The kind of a contact with a peer: whether it was heard before.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contact {
    Ongoing,
    /// The peer was heard for the first time.
    First,
    /// The peer was heard before, and has ended a silence that was too long.
    Resumed,
}

/// The life of connections.
impl<S: Socket> Traffic<S> {
    /// Exchanges events between the library's connection and its endpoint. Returns whether the connection is drained,
    /// or `None` if it is gone.
    pub(crate) fn exchange(&mut self, key: ConnectionKey) -> Option<bool> {
        let connection = self.connections.get_mut(key)?;
        Some(connection.exchange(&mut self.endpoint, key))
    }

    pub(crate) fn poll_quic(&mut self, key: ConnectionKey) -> Option<QuicEvent> {
        self.connections.get_mut(key)?.poll()
    }

    /// Handles the end of a connection's handshake. Returns false if the engine has closed the connection since the
    /// library queued the event.
    pub(crate) fn handle_connected(&mut self, now: Instant, key: ConnectionKey) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        if connection.is_lost() {
            return false;
        }
        let protocol = connection.handle_connected(now);
        let certificates = connection.certificates();
        if self.side == Side::Server {
            let bytes: usize = certificates.iter().flatten().map(|each| each.len()).sum();
            connection.admission.certificates = u32::try_from(bytes).unwrap_or(u32::MAX);
            connection.update_memory_charge(&mut self.lease);
        }
        self.events.push_back(Event::Connected {
            connection: connection.id(),
            remote: connection.remote(),
            protocol,
            certificates,
        });
        true
    }

    pub(crate) fn follow_up(&mut self, now: Instant, key: ConnectionKey) {
        self.place_writable(key);
        if let Some(connection) = self.connections.get_mut(key) {
            let memory = &self.transport.memory;
            connection.follow_up(now, &mut self.lease, memory, &mut self.events);
            if let Some(rtt) = connection.sample_rtt(now) {
                self.totals.times.rtt.note(rtt);
            }
            self.connections.want_transmit(key);
        }
    }

    pub(crate) fn close_connection(&mut self, now: Instant, id: ConnectionId, code: CloseCode) {
        if let Some(key) = self.connections.find(id) {
            self.close(now, key, code, code.to_string(), LossReason::ClosedLocally);
        }
    }

    fn violate(&mut self, now: Instant, key: ConnectionKey, reason: &'static str) {
        let code = CloseCode::ProtocolViolation;
        self.close(now, key, code, reason, LossReason::Violation(reason));
    }

    /// Closes a connection. The peer receives `text`, and the caller `reason`.
    pub(crate) fn close(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        code: CloseCode,
        text: impl Into<Bytes>,
        reason: LossReason,
    ) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.close(now, code, text);
            self.connections.mark(key);
            self.lose(now, key, reason);
        }
    }

    /// Checks a silent peer. Returns the verdict on the silence.
    pub(crate) fn check_liveness(&mut self, now: Instant, key: ConnectionKey) -> TimeoutAction {
        let Some(connection) = self.connections.get_mut(key) else {
            return TimeoutAction::Fine;
        };
        let verdict = connection.check_liveness(now);
        let suspect = matches!(verdict, TimeoutAction::Lost | TimeoutAction::Suspect);
        if suspect && self.side == Side::Client {
            self.suspects.push(key);
        }
        if verdict == TimeoutAction::Lost {
            self.events.push_back(Event::Unresponsive {
                connection: connection.id(),
                remote: connection.remote(),
            });
        }
        verdict
    }

    pub(crate) fn abandon_attempt(&mut self, now: Instant, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.abandon(now);
            self.connections.mark(key);
        }
    }

    /// Ends an attempt that lost to another connection, or that has taken too long. If it has been silent for long, it
    /// ends without a packet: the peer does not know the attempt, and the close would start a handshake there.
    pub(crate) fn end_attempt(&mut self, now: Instant, key: ConnectionKey) {
        let known = self.connections.get(key).is_some_and(|connection| {
            connection.has_answered() || now < connection.opened() + SILENT_ATTEMPT
        });
        if known {
            self.abandon_attempt(now, key);
        } else {
            self.forget(now, key, LossReason::ClosedLocally);
            // The caller gives the attempt up and needs no report. It may soon use this key for another attempt.
            self.ended.retain(|ended| ended.key != key);
        }
    }

    /// Handles the end of a connection. Its flows end now; the rest ends when the library has drained the connection.
    pub(crate) fn lose(&mut self, now: Instant, key: ConnectionKey, reason: LossReason) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(established) = connection.end(now, &self.transport.memory) else {
            return;
        };
        let (id, remote) = (connection.id(), connection.remote());
        let (server, bond) = (connection.server, connection.bond.take());
        // Flows that continue without the connection are charged for their data themselves.
        connection.update_memory_charge(&mut self.lease);
        let keep = bonds::keeps_flows(&reason);
        let how = match &reason {
            LossReason::ClosedLocally if self.draining => FlowCode::ShuttingDown.into(),
            _ => reason.of_flows(),
        };
        let (mut flows, all) = (0, connection.streams.drain());
        for &flow in &all {
            self.read_last_answer(now, flow);
            if let Some(bond) = self.bond_to_wait_in(flow).filter(|_| keep) {
                self.detach_flow(now, flow, bond);
            } else {
                // A flow that only waited for the peer's confirmation ends as finished.
                let finished = self.totals.flows_finished;
                let continues = self.lose_flow(now, flow, how);
                flows += usize::from(!continues && self.totals.flows_finished == finished);
            }
        }
        if let Some(bond) = bond {
            self.end_excess(now, bond);
        }
        // A limit may have ended some of the flows that were to wait.
        let entries = || all.iter().filter_map(|&flow| self.flows.get(flow));
        let waiting = entries().filter(|entry| entry.detached().is_some());
        let waiting: Vec<FlowId> = waiting.map(FlowEntry::id).collect();
        let salvaged = entries().filter(|entry| entry.salvage().is_some()).count();
        if let Some(bond) = bond {
            self.leave_bond(now, key, bond, &reason);
        }
        if established {
            let closed_in_order = reason.is_orderly_close() && flows == 0;
            if reason != LossReason::ClosedLocally && !closed_in_order {
                self.totals.connections_lost += 1;
            }
            self.events.push_back(Event::Disconnected {
                server,
                connection: id,
                remote,
                reason: reason.clone(),
                flows,
                salvaged,
                detached: waiting.len(),
                waiting,
            });
        } else if reason != LossReason::ClosedLocally {
            self.totals.handshakes_failed += 1;
        }
        if let Some(connection) = self.connections.get_mut(key) {
            self.ended.push_back(EndedConnection {
                key,
                remote,
                opened: connection.opened(),
                established,
                place: connection.admission.place.take(),
                reason,
            });
        }
    }

    /// Removes a connection that the library no longer needs.
    pub(crate) fn forget(&mut self, now: Instant, key: ConnectionKey, reason: LossReason) {
        self.lose(now, key, reason);
        if let Some(mut connection) = self.connections.remove(key) {
            connection.release(&mut self.lease);
            self.totals.connections_closed += 1;
            connection.count_packets(&mut self.totals);
            let drained = quinn_proto::EndpointEvent::drained();
            let answer = self.endpoint.handle_event(ConnectionHandle(key.0), drained);
            debug_assert!(answer.is_none(), "the endpoint answered a drained event");
        }
    }
}
