//! The state that client and server have in common: connections, the flows on them, and the memory that both take.

mod arrivals;
mod bonds;
mod bridging;
mod byte_counters;
pub(crate) mod carrier_sockets;
mod charges;
mod control;
mod datagrams;
mod delivery;
mod detached;
mod ending;
mod hand_over;
pub(crate) mod listeners;
mod memory;
mod moving;
mod resetting;
mod salvaging;
mod seen;
mod sending;
mod talk;
mod unattached;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_congestion::{Liveness, PathKnowledge, Recovery, TimeoutAction};
use quictun_flow::{
    ConnectionId, ConnectionKey, FlowEntry, FlowId, FlowKey, Flows, Ids, Socket, StreamId,
};
use quictun_wire::code::{CloseCode, FlowCode};

use crate::bonds::Bonds;
use crate::carrier::quic::{
    Arrival, ClientCrypto, Endpoint, Newcomer, Packet, Route, ServerSettings, Setup,
};
use crate::carrier::{Carrier, CarrierEvent};
use crate::clients::Clients;
use crate::config::Transport;
use crate::connection::Connection;
use crate::connections::Connections;
use crate::datagram_flows::DatagramFlows;
use crate::event::{ClientEvent, Event, EventQueue};
use crate::grants::{FirstGrants, InitialGrants};
use crate::loss::LossReason;
use crate::report::{CarrierKind, Side, Totals, peer_key};
use crate::shared_batch::NextBatch;
use crate::strangers::SourcePrefix;
use carrier_sockets::CarrierSockets;
use memory::Memory;
use rand_chacha::ChaCha20Rng;
use seen::UnbondedRetention;
use talk::Talk;
use unattached::UnattachedRates;

/// Age from which an unanswered attempt counts as unknown to its peer, which would have answered the first packet by
/// then.
const SILENT_ATTEMPT: Duration = Duration::from_secs(1);

pub(crate) struct Traffic<S> {
    pub(crate) endpoint: Endpoint,
    pub(crate) carrier_sockets: CarrierSockets<S>,
    pub(crate) transport: Transport,
    pub(crate) side: Side,
    /// Server: time within which a client must send the request of a stream that it has opened.
    open_timeout: Duration,
    pub(crate) connections: Connections,
    pub(crate) flows: Flows<S>,
    pub(crate) datagram_flows: DatagramFlows,
    ids: Ids,
    next_batch: NextBatch,
    pub(crate) events: EventQueue,
    pub(crate) totals: Totals,
    pub(crate) clients: Clients,
    unattached: UnattachedRates,
    unbonded: UnbondedRetention,
    pub(crate) memory: Memory,
    pub(crate) ended: VecDeque<EndedConnection>,
    /// Client: connections whose peer has become suspect, for the client to check.
    pub(crate) suspects: Vec<ConnectionKey>,
    pub(crate) draining: bool,
    /// All flows of bonds are being detached, for another process.
    handing_over: bool,
    pub(crate) bonds: Bonds,
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
    /// Client: the address that the server's name has resolved to.
    pub(crate) resolved: SocketAddr,
    pub(crate) opened: Instant,
    pub(crate) established: bool,
    /// The source among whose strangers the connection held a place.
    pub(crate) place: Option<SourcePrefix>,
    pub(crate) reason: LossReason,
    pub(crate) carrier: CarrierKind,
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
            carrier_sockets: CarrierSockets::default(),
            side,
            open_timeout: timeouts.open,
            bonds: Bonds::new(rng, worker, timeouts.bond),
            connections: Connections::new(Liveness::early(transport.keep_alive)),
            flows: Flows::default(),
            datagram_flows: DatagramFlows::new(transport.datagram_idle),
            ids: Ids::default(),
            next_batch: NextBatch::default(),
            events: EventQueue::default(),
            totals: Totals::default(),
            clients: Clients::default(),
            unattached: UnattachedRates::default(),
            unbonded: UnbondedRetention::default(),
            memory: Memory::new(&transport.account),
            ended: VecDeque::new(),
            suspects: Vec::new(),
            draining: false,
            handing_over: false,
            talk: Talk::default(),
            sleeps: Duration::ZERO,
            transport,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.connections.next_timeout(),
            self.flows.next_timeout(),
            self.datagram_flows.next_timeout(),
            self.unattached.next_timeout(),
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
        match self
            .endpoint
            .handle_datagram(now, remote, local_ip, ecn, data)?
        {
            Arrival::Connection(key, packet) => {
                let connection = self.connections.get_mut(key)?;
                if connection.awaits_client_hello() {
                    let connection = connection.id();
                    return Some(DatagramRecipient::Unfinished(Box::new(UnreadDatagram {
                        connection,
                        remote,
                        packet,
                    })));
                }
                let contact = self.read_datagram(now, key, packet)?;
                Some(DatagramRecipient::Connection(key, contact))
            }
            Arrival::Newcomer(newcomer) => Some(DatagramRecipient::Newcomer(Box::new(newcomer))),
        }
    }

    /// Passes a datagram to its connection, which has to exchange events next. Returns the kind of contact, or `None` if
    /// the connection is gone.
    fn read_datagram(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        packet: Packet,
    ) -> Option<Contact> {
        let connection = self.connections.get_mut(key)?;
        let known = connection.late_answer();
        let back = connection.handle_packet(now, packet);
        let late_answer = connection.late_answer();
        if late_answer != known && self.side == Side::Client {
            let others = self.connections.iter_mut();
            others.for_each(|it| it.remember(late_answer));
        }
        self.note_back(key, back)
    }

    /// Records that something has arrived over TCP.
    fn note_heard(&mut self, now: Instant, key: ConnectionKey) -> Option<Contact> {
        let back = self.connections.get_mut(key)?.handle_heard(now);
        self.note_back(key, back)
    }

    /// Reports the end of a silence. Returns the kind of contact.
    fn note_back(&mut self, key: ConnectionKey, back: Recovery) -> Option<Contact> {
        let connection = self.connections.get(key)?;
        if back == Recovery::FromSilence {
            self.events.push(Event::Responsive {
                connection: connection.id(),
                remote: connection.remote(),
            });
        }
        if back != Recovery::None && self.side == Side::Client {
            self.events.push(ClientEvent::ServerAnswers {
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
            connection, packet, ..
        } = datagram;
        let Some(key) = self.connections.find(connection) else {
            return false;
        };
        // The contact concerns only clients.
        let read = self.read_datagram(now, key, packet).is_some();
        self.connections.mark(key);
        read
    }

    pub(crate) fn refuse(&mut self, newcomer: Newcomer) {
        self.endpoint.refuse(newcomer);
        self.totals.handshakes_failed += 1;
    }

    /// Begins the handshake of a newcomer.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        newcomer: Newcomer,
        settings: &ServerSettings,
        first: FirstGrants,
    ) -> Option<(ConnectionKey, ConnectionId)> {
        let remote = newcomer.remote();
        let (known, first) = self.first_as_server(now, remote, first);
        let setup = Setup::new(now, &self.transport, self.side, remote, known, first);
        let key = self.connections.vacant_key();
        let accepted = self.endpoint.accept(now, key, newcomer, settings, setup);
        let Some(quic) = accepted else {
            self.totals.handshakes_failed += 1;
            return None;
        };
        Some((key, self.adopt(now, Carrier::Quic(quic), remote, first)))
    }

    pub(crate) fn connect(
        &mut self,
        now: Instant,
        address: SocketAddr,
        server_name: &str,
        crypto: &ClientCrypto,
        route: Option<Route<'_>>,
    ) -> Result<ConnectionKey, LossReason> {
        let (known, first) = self.first_as_client(now, address);
        let setup = Setup::new(now, &self.transport, self.side, address, known, first);
        let (key, server) = (self.connections.vacant_key(), (address, server_name));
        let quic = self
            .endpoint
            .connect(now, key, server, crypto, route, setup)?;
        self.adopt(now, Carrier::Quic(quic), address, first);
        Ok(key)
    }

    /// Returns what is known of the path to a server, and the initial grants.
    fn first_as_client(&self, now: Instant, address: SocketAddr) -> (PathKnowledge, InitialGrants) {
        let known = self.recall(now, address);
        let lease = &self.memory.lease;
        let first = InitialGrants {
            window: lease.first_window(known.receive_window, 0, true),
            remembered: known.receive_window,
            flows: 0,
        };
        (known, first)
    }

    /// Returns what is known of the path to a newcomer, and the initial grants.
    fn first_as_server(
        &self,
        now: Instant,
        remote: SocketAddr,
        first: FirstGrants,
    ) -> (PathKnowledge, InitialGrants) {
        let known = self.recall(now, remote);
        let lease = &self.memory.lease;
        let window = lease.first_window(known.receive_window, 0, false);
        (known, first.compute(window, known.receive_window))
    }

    /// Returns the knowledge of the path to `remote`.
    pub(crate) fn recall(&self, now: Instant, remote: SocketAddr) -> PathKnowledge {
        let peer = peer_key(self.side, remote);
        self.transport.memory.recall(now, peer)
    }

    /// Adds the connection of a carrier.
    fn adopt(
        &mut self,
        now: Instant,
        carrier: Carrier,
        remote: SocketAddr,
        first: InitialGrants,
    ) -> ConnectionId {
        let id = self.ids.connection(self.connections.vacant_key());
        let (side, transport) = (self.side, &self.transport);
        let mut connection = Connection::new(now, id, side, carrier, remote, transport, first);
        if side == Side::Client {
            let known = self.connections.iter().map(|(_, it)| it.late_answer());
            connection.remember(known.max().unwrap_or_default());
        }
        connection.update_memory_charge(&mut self.memory.lease);
        self.connections.insert(connection);
        self.totals.connections_opened += 1;
        self.talk.note_opening(now);
        id
    }
}

#[derive(Debug)]
pub(crate) enum DatagramRecipient {
    Connection(ConnectionKey, Contact),
    Newcomer(Box<Newcomer>),
    /// The datagram belongs to a connection whose `ClientHello` is incomplete.
    Unfinished(Box<UnreadDatagram>),
}

/// A datagram that has not been passed to its connection yet.
#[derive(Debug)]
pub(crate) struct UnreadDatagram {
    connection: ConnectionId,
    pub(crate) remote: SocketAddr,
    packet: Packet,
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
    /// Exchanges events between a connection and its endpoint. Returns whether the endpoint or the socket no longer needs
    /// the connection, or `None` if it is gone.
    pub(crate) fn exchange(&mut self, now: Instant, key: ConnectionKey) -> Option<bool> {
        match &mut self.connections.get_mut(key)?.carrier {
            Carrier::Quic(quic) => Some(self.endpoint.exchange(quic)),
            Carrier::Tls(_) => self.exchange_over_tcp(now, key),
        }
    }

    pub(crate) fn poll_carrier(&mut self, key: ConnectionKey) -> Option<CarrierEvent> {
        self.connections.get_mut(key)?.carrier.poll_event()
    }

    /// Handles the end of a connection's handshake. Returns false if the engine has closed the connection since the
    /// event was queued.
    pub(crate) fn handle_connected(&mut self, now: Instant, key: ConnectionKey) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        if connection.is_lost() {
            return false;
        }
        let protocol = connection.handle_connected(now);
        let certificates = connection.carrier.certificates();
        if self.side == Side::Server {
            let bytes: usize = certificates.iter().flatten().map(|each| each.len()).sum();
            connection.admission.certificates = u32::try_from(bytes).unwrap_or(u32::MAX);
            connection.update_memory_charge(&mut self.memory.lease);
        }
        self.events.push(Event::Connected {
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
            connection.follow_up(now, &mut self.memory.lease, memory, &mut self.events);
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
            self.events.push(Event::Unresponsive {
                connection: connection.id(),
                remote: connection.remote(),
            });
        }
        verdict
    }

    /// Ends an attempt that lost to another connection, or that has taken too long. Its handshake may have ended. If it has
    /// been silent for long, it ends without a packet: the peer does not know the attempt, and the close would start a
    /// handshake there.
    pub(crate) fn end_attempt(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_established() {
            self.close(now, key, CloseCode::Done, "", LossReason::ClosedLocally);
        } else if connection.has_answered() || now < connection.opened() + SILENT_ATTEMPT {
            connection.abandon(now);
            self.connections.mark(key);
        } else {
            self.forget(now, key, LossReason::ClosedLocally);
            // The caller gives the attempt up and needs no report. It may soon use this key for another attempt.
            self.ended.retain(|ended| ended.key != key);
        }
    }

    /// Handles the end of a connection. Its flows end now; the rest ends when the endpoint has drained the connection.
    pub(crate) fn lose(&mut self, now: Instant, key: ConnectionKey, reason: LossReason) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(established) = connection.end(now, &self.transport.memory) else {
            return;
        };
        let (id, remote) = (connection.id(), connection.remote());
        let bond = connection.bond.take();
        let server = (self.side == Side::Client).then_some(connection.server);
        // Flows that continue without the connection are charged for their data themselves.
        connection.update_memory_charge(&mut self.memory.lease);
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
        // A client's flows are those of its own applications. Only the server knows which of them continue.
        let limited = self.side == Side::Server && !self.handing_over;
        if let Some(bond) = bond.filter(|_| limited) {
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
        // An attempt that was given up after its handshake was never reported.
        let admitted = self
            .connections
            .get(key)
            .is_some_and(Connection::is_admitted);
        let given_up = server.is_some() && !admitted && reason == LossReason::ClosedLocally;
        if established && !given_up {
            let closed_in_order = reason.is_orderly_close() && flows == 0;
            let closed_here = [LossReason::ClosedLocally, LossReason::HandedOver];
            if !closed_here.contains(&reason) && !closed_in_order {
                self.totals.connections_lost += 1;
            }
            self.events.push(Event::Disconnected {
                server,
                connection: id,
                remote,
                reason: reason.clone(),
                flows,
                salvaged,
                waiting,
            });
        } else if reason != LossReason::ClosedLocally {
            self.totals.handshakes_failed += 1;
        }
        if let Some(connection) = self.connections.get_mut(key) {
            self.ended.push_back(EndedConnection {
                key,
                remote,
                resolved: connection.resolved,
                opened: connection.opened(),
                established,
                place: connection.admission.place.take(),
                reason,
                carrier: connection.carrier.kind(),
            });
        }
    }

    /// Removes a connection that the endpoint no longer needs.
    pub(crate) fn forget(&mut self, now: Instant, key: ConnectionKey, reason: LossReason) {
        self.lose(now, key, reason);
        if let Some(mut connection) = self.connections.remove(key) {
            connection.release(&mut self.memory.lease);
            self.totals.connections_closed += 1;
            connection.count_packets(&mut self.totals);
            match &connection.carrier {
                Carrier::Quic(quic) => self.endpoint.forget(quic),
                Carrier::Tls(_) => self.carrier_sockets.remove(key),
            }
        }
    }
}
