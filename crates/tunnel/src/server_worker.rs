//! A server's worker: judges requests and dials targets.

mod apply_rules;
mod datagram_places;
mod dialling;
mod hand_over;
mod headers;
mod incoming;
mod join;
mod limits;
mod listen_requests;
mod listener_sources;
pub(crate) mod listeners;
mod proxy_requests;
mod shared_events;
mod silence;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_control::log_beginning;
use quictun_engine::report::Protocol;
use quictun_engine::{
    AcceptedTcp, ConnectionId, FlowId, FlowSummary, OpenRequest, Server, ServerEngine, ServerEvent,
};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::handover::HandedBond;
use quictun_wire::target::Target;
use rustls::pki_types::CertificateDer;
use tokio::sync::mpsc::Sender;
use tracing::{debug, info, warn};

use crate::allowances::Allowances;
use crate::app_socket::AppSocket;
use crate::carrier_listeners::CarrierListeners;
use crate::dial::Dials;
use crate::flow_records::{FlowRecords, Opener, Refusal, name_of};
use crate::handover::with_sockets;
use crate::left_flows::LeftFlows;
use crate::lookups::Lookups;
use crate::mailbox::{Message, ServerMessage};
use crate::moves::Moves;
use crate::reload::change::Rules;
use crate::reload::join_messages::PendingJoin;
use crate::requests::Requester;
use crate::role::{ServerContext, WorkerPart, WorkerRole};
use crate::settings::TokenParser;
use crate::tcp_socket::TcpSocket;
use crate::token_source::parse_token;
use listeners::Listeners;
use quictun_control::line_budget::{LineBudget, LinePermit};
use quictun_control::log::Untrusted;
use quictun_control::settings::Phrases;
use quictun_control::snapshot::WorkerSnapshot;
use quictun_io::poller::{Key, ReadyEvent};
use quictun_trust::access::{DialAddress, Peer, Policy};
use quictun_trust::descriptors::Descriptors;
use quictun_trust::enrolment::Directory;
use quictun_trust::shares::Holder;

pub(crate) use datagram_places::DatagramPlaces;
pub(crate) use hand_over::TakenOver;
pub(crate) use headers::Headers;
pub(crate) use limits::LimitState;
pub(crate) use listener_sources::ListenerSources;
pub(crate) use proxy_requests::HeldRequests;

/// Time that a client has left after a wrong proof: enough to send another one, after a change of its secret.
const LAST_CHANCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ServerWorker {
    pub(crate) index: usize,
    pub(crate) policy: Arc<Policy>,
    pub(crate) token_parser: TokenParser,
    pub(crate) dial_timeout: Duration,
    pub(crate) control: Requester,
    pub(crate) joins: Sender<PendingJoin>,
    /// The directory of invited clients, or `None` if none can join.
    pub(crate) clients: Option<Directory>,
    pub(crate) dials: Dials,
    pub(crate) datagram_places: DatagramPlaces,
    pub(crate) listener_sources: ListenerSources,
    /// The places of these sources, beside those of flows that clients open.
    pub(crate) source_places: DatagramPlaces,
    pub(crate) peers: HashMap<ConnectionId, Peer>,
    pub(crate) moves: Moves,
    pub(crate) lookups: Lookups,
    pub(crate) descriptors: Descriptors,
    pub(crate) flows: FlowRecords,
    pub(crate) lines: LineBudget,
    pub(crate) listeners: Listeners,
    pub(crate) left: LeftFlows,
    /// The allowances of named clients.
    pub(crate) allowances: Allowances,
    pub(crate) limit_state: LimitState,
    pub(crate) headers: Headers,
    pub(crate) carriers: CarrierListeners,
    pub(crate) held: HeldRequests,
    /// The flows that another process has handed over, until the worker runs.
    pub(crate) taken: TakenOver,
}

impl WorkerPart for ServerWorker {
    type Role = Server;

    fn start(&mut self, cx: &mut ServerContext<'_>) -> io::Result<()> {
        self.register_clients(cx);
        self.start_taken(cx);
        self.carriers.start(cx)
    }

    fn handle_ready(&mut self, cx: &mut ServerContext<'_>, ready: ReadyEvent) {
        match ready.key {
            Key::Dial(key) => {
                let header = |flow, address| {
                    let dialled = DialAddress::Tcp(address);
                    self.headers.of(&self.policy, &self.flows, flow, dialled)
                };
                let dialed = self.dials.handle_ready(cx.now, cx.poller, key, header);
                self.answer(cx, dialed);
            }
            Key::Listener(key) => self.accept(cx, key),
            Key::CarrierListener(number) => self.carriers.accept(cx, number),
            Key::Carrier(connection) => cx.handle_carrier_socket(connection, ready),
            Key::Udp
            | Key::Wake
            | Key::Tun
            | Key::Asking(_)
            | Key::Relay(_)
            | Key::Lifeline(_)
            | Key::Flow(_) => {}
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let times = [
            self.dials.next_timeout(),
            self.moves.next_timeout(),
            self.listeners.next_timeout(),
            self.limit_state.next_timeout(),
            self.carriers.next_timeout(),
            self.held.next_timeout(),
        ];
        times.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, cx: &mut ServerContext<'_>) {
        while let Some(dialed) = self.dials.handle_timeout(cx.now, cx.poller) {
            self.answer(cx, Some(dialed));
        }
        while let Some(moved) = self.moves.handle_timeout(cx.now) {
            self.log_move(cx.now, &moved);
        }
        self.handle_listener_timeout(cx);
        self.check_limits(cx);
        self.carriers.handle_timeout(cx);
        self.handle_held_requests(cx);
    }

    fn stop_accepting(&mut self, cx: &mut ServerContext<'_>) {
        self.stop_listeners(cx);
        self.carriers.stop(cx);
    }
}

impl WorkerRole for ServerWorker {
    fn handle_carrier(&mut self, cx: &mut ServerContext<'_>, tcp: AcceptedTcp<TcpSocket>) {
        CarrierListeners::serve(cx, tcp);
    }

    fn handle_event(&mut self, cx: &mut ServerContext<'_>, event: ServerEvent) {
        match event {
            ServerEvent::Shared(event) => self.handle_shared_event(cx, event),
            ServerEvent::Misrouted { connection, worker } => {
                self.carriers.pass_on(cx, connection, worker);
            }
            ServerEvent::Hello {
                connection,
                remote,
                proof,
                join: None,
            } => self.handle_hello(cx, connection, remote, proof),
            ServerEvent::Hello {
                connection,
                remote,
                join: Some(join),
                ..
            } => self.handle_join(cx, connection, remote, &join),
            ServerEvent::Unproven { remote, .. } => {
                if let Some(line) = self.debug_line(cx.now, remote) {
                    debug!(target: "quictun", { "Client-Endpoint-Addr" = %remote, lines_left_out = line.left_out() }, "client endpoint refused: it did not identify itself in time");
                }
            }
            ServerEvent::Open(opened) if opened.protocol.is_http() => {
                self.handle_proxy_request(cx, opened);
            }
            ServerEvent::Open(opened) => self.handle_open(cx, &opened),
            ServerEvent::Listen {
                connection,
                remote,
                listen,
            } => self.handle_listen(cx, connection, remote, &listen),
            ServerEvent::Unlisten { connection, ids } => self.handle_unlisten(cx, connection, &ids),
            ServerEvent::StreamsAvailable { connection } => self.wake_listeners(cx, connection),
            ServerEvent::QuotaUsedUp { client } => self.end_flows_of(cx, &client),
            ServerEvent::HandshakeFailed { remote, reason } => {
                if let Some(line) = self.debug_line(cx.now, remote) {
                    let reason = Untrusted(reason);
                    debug!(target: "quictun", { "Client-Endpoint-Addr" = %remote, %reason, lines_left_out = line.left_out() }, "a client's handshake failed");
                }
            }
        }
    }

    fn handle_message(&mut self, cx: &mut ServerContext<'_>, message: Message) {
        match message {
            Message::Server(ServerMessage::Joined(joined)) => self.handle_joined(cx, *joined),
            Message::Server(ServerMessage::Bound { number, result }) => {
                self.handle_bound(cx, number, result);
            }
            Message::Server(ServerMessage::ListenerTaken { number, id, other }) => {
                self.handle_listener_taken(cx, (number, id, other));
            }
            Message::Server(ServerMessage::GiveWay) => self.end_claimed(cx),
            Message::NetworkChanged(pending) => {
                // From here on, another change sends another message.
                drop(pending);
                self.dials.handle_network_change();
            }
            Message::Rules(change) => {
                if let Rules::Server(rules) = &change.rules {
                    let ended = self.apply(cx, rules);
                    change.done(ended);
                }
            }
            Message::TargetResolved { flow, result } => {
                let asked = self.lookups.answered(flow);
                let result = result.and_then(|addresses| {
                    let (peer, target) = asked.ok_or(FlowCode::Internal)?;
                    self.permitted(cx.now, flow, &peer, &target, addresses)
                });
                let dialed = self.dials.handle_resolved(cx.now, cx.poller, flow, result);
                self.answer(cx, dialed);
            }
            Message::Drain | Message::Close | Message::HandOver(_) | Message::Client(_) => {}
        }
    }

    fn hands_over_udp(&self) -> bool {
        true
    }

    fn hand_over(&self, cx: &ServerContext<'_>) -> Vec<(HandedBond, Vec<FlowId>)> {
        with_sockets(cx, cx.engine.hand_over(cx.now), |flow, id| {
            flow.visitor = self.visitor(id);
            let incoming = flow.number >= quictun_wire::bond::SERVER_NUMBERS;
            incoming == flow.visitor.is_some()
        })
    }

    fn release(&mut self, cx: &mut ServerContext<'_>) {
        self.release_listeners(cx);
    }

    fn add_reports(engine: &ServerEngine<AppSocket>, snapshot: &mut WorkerSnapshot) {
        snapshot.clients = engine.client_reports();
    }
}

impl ServerWorker {
    fn log_established(&self, flow: FlowId, stream_id: u64) {
        let flow = self.flows.log.id(flow);
        if self.phrases() == Phrases::Original {
            info!(target: "quictun", { "Stream-ID" = stream_id, flow }, "Handshake successful");
        }
        log_beginning!(self.phrases(), { "Stream-ID" = stream_id, flow }, "Tunnel established successful", "flow established");
    }

    /// Logs the end of a flow, and gives back all places that it had.
    fn handle_flow_closed(&mut self, now: Instant, summary: &FlowSummary) {
        let known = summary.connection.map(|connection| self.peer(connection));
        let known = known.unwrap_or(Peer::Unknown);
        self.flows.close(now, summary, known);
        self.descriptors.close(summary.flow);
        self.left.forget(summary.flow);
        self.limit_state.places.remove(&summary.flow);
        self.datagram_places.give_back(summary.flow);
        self.source_places.give_back(summary.flow);
        self.listener_sources
            .handle_closed(now, summary.flow, summary.ending);
        self.dials.cancel(summary.flow);
        self.lookups.forget(summary.flow);
        self.held.forget(summary.flow);
    }

    fn handle_connected(
        &mut self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        protocol: Protocol,
        certificates: Option<&[CertificateDer<'static>]>,
    ) {
        let peer = self.policy.identify(certificates);
        if peer == Peer::Unknown {
            // The client may still prove that it knows a secret, or join, if the protocol provides for that.
            let may_join = self.clients.is_some() && certificates.is_some();
            let may_prove = self.policy.accepts_proofs() || may_join;
            let may_prove = may_prove && protocol != Protocol::Compat;
            if !may_prove {
                self.refuse_key(cx, connection, remote);
            }
            return;
        }
        self.welcome(cx, connection, remote, peer);
    }

    fn refuse_key(&self, cx: &mut ServerContext<'_>, connection: ConnectionId, remote: SocketAddr) {
        if let Some(line) = self.lines.take(&Holder::at(remote.ip()), cx.now) {
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, lines_left_out = line.left_out() }, "client endpoint refused: it has none of the keys in the configuration");
        }
        cx.engine
            .close_connection(cx.now, connection, CloseCode::NotAuthorized);
    }

    /// Accepts the client on a connection: it is known, or need not be.
    fn welcome(
        &mut self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        peer: Peer,
    ) {
        if self.refuse_expired(cx, connection, remote, &peer) {
            return;
        }
        let place = || self.descriptors.carrier(&holder_of(&peer, remote));
        if !CarrierListeners::admit(cx, connection, place) {
            return self.refuse_carrier(cx, connection, remote, &peer);
        }
        if let Some(line) = self.lines.take(&holder_of(&peer, remote), cx.now) {
            let (client, (worker, id)) = (name_of(&peer), self.flows.log.connection(connection));
            match self.phrases() {
                Phrases::Original => {
                    info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, lines_left_out = line.left_out() }, "A new client endpoint connect request accepted.");
                }
                Phrases::Own => {
                    info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client, worker, connection = id, lines_left_out = line.left_out() }, "client connected");
                }
            }
        }
        self.name_peer(cx, connection, &peer);
        self.peers.insert(connection, peer);
        cx.engine.admit(cx.now, connection);
    }

    /// Tells the engine the client of a connection, if the peer is one.
    fn name_peer(&mut self, cx: &mut ServerContext<'_>, connection: ConnectionId, peer: &Peer) {
        if let Peer::Named(client) = peer {
            let (name, proofs) = (client.name().to_owned(), client.proofs());
            cx.engine.name_peer(cx.now, connection, name, proofs);
            self.limit_state.watch(cx.now, client);
        }
    }

    /// Closes the TCP connection of a client that has its share of the descriptors.
    fn refuse_carrier(
        &self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        peer: &Peer,
    ) {
        if let Some(line) = self.lines.take(&holder_of(peer, remote), cx.now) {
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client = name_of(peer), lines_left_out = line.left_out() }, "client endpoint refused: the client has its share of the descriptors; raise the limit (ulimit -n, LimitNOFILE=)");
        }
        cx.engine
            .close_connection(cx.now, connection, CloseCode::TooManyConnections);
    }

    /// Handles the hello of an unknown client, which may prove its identity (PROTOCOL AUTH-4).
    fn handle_hello(
        &mut self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        proof: Option<[u8; 32]>,
    ) {
        if !cx.engine.awaits_identity(connection) {
            // The certificate has identified the client in the same turn.
            return;
        }
        let known = proof.and_then(|proof| self.peer_by_proof(cx, connection, proof));
        if let Some(peer) = known {
            return self.welcome(cx, connection, remote, peer);
        }
        if !self.policy.accepts_proofs() {
            return self.refuse_key(cx, connection, remote);
        }
        self.refuse_proof(cx, (connection, remote), proof.is_some());
    }

    /// Closes the connection of a client that has shown a wrong proof, or none (PROTOCOL AUTH-4).
    fn refuse_proof(
        &self,
        cx: &mut ServerContext<'_>,
        (connection, remote): (ConnectionId, SocketAddr),
        shown: bool,
    ) {
        let cause = if shown {
            "its secret is not in the configuration"
        } else {
            "it has neither a key nor a secret of the configuration"
        };
        if let Some(line) = self.lines.take(&Holder::at(remote.ip()), cx.now) {
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, cause, lines_left_out = line.left_out() }, "client endpoint refused");
        }
        cx.engine
            .close_connection(cx.now, connection, CloseCode::NotAuthorized);
    }

    fn handle_open(&mut self, cx: &mut ServerContext<'_>, opened: &OpenRequest) {
        let parsed = parse_token(self.token_parser, &opened.token);
        let peer = match parsed {
            Ok(_) => self.peer_of(cx, opened),
            Err(_) => self.peer(opened.connection),
        };
        self.decide(cx, opened, peer);
    }

    /// Decides on the request of a client, and dials its target if that is permitted.
    fn decide(&mut self, cx: &mut ServerContext<'_>, opened: &OpenRequest, peer: Peer) {
        let flow = opened.flow;
        let parsed = parse_token(self.token_parser, &opened.token);
        let holder = holder_of(&peer, opened.remote);
        let verdict = parsed.map_err(Refusal::from).and_then(|target| {
            if target.takes_datagrams() && opened.protocol != Protocol::Native {
                let cause = "only clients of quictun carry datagrams, and this one is quic-tun's";
                return Err(Refusal::new(FlowCode::Unsupported, cause.to_owned()));
            }
            self.judge(cx, flow, (&peer, &holder), target)
        });
        let opener = Opener::Application(opened.source);
        self.flows.add(flow, peer.clone(), opened.remote, opener);
        let verdict = verdict.map_err(|refusal| {
            let code = refusal.code;
            (code, self.flows.refuse(cx.now, flow, refusal))
        });
        if !matches!(verdict, Err((_, false))) {
            log_beginning!(self.phrases(), { "Client-Endpoint-Addr" = %opened.remote, "Stream-ID" = opened.stream_id }, "Starting handshake with client endpoint", { "Client-Endpoint-Addr" = %opened.remote, "Stream-ID" = opened.stream_id, flow = self.flows.log.id(flow) }, "the client asks for a flow");
        }
        let target = match verdict {
            Ok(target) => target,
            Err((code, _)) => {
                self.flows.log_refusal(flow);
                return cx.engine.handle_dialed(cx.now, flow, Err(code));
            }
        };
        log_beginning!(self.phrases(), { "Server-App-Addr" = %target }, "starting connect to server app", { %target, flow = self.flows.log.id(flow) }, "dialling the target");
        if let Err(refusal) = self.dial(cx, opened, peer, &holder, target) {
            // If the dial has begun, it ends with the flow.
            let code = self.refuse(cx.now, flow, refusal);
            cx.engine.handle_dialed(cx.now, flow, Err(code));
        }
    }

    /// Notes and logs a refusal. Returns the code that is sent to the client.
    fn refuse(&mut self, now: Instant, flow: FlowId, refusal: Refusal) -> FlowCode {
        let code = refusal.code;
        self.flows.refuse(now, flow, refusal);
        self.flows.log_refusal(flow);
        code
    }

    /// Decides whether a flow may be dialled, as far as that is known before the look-up of its name.
    fn judge(
        &mut self,
        cx: &mut ServerContext<'_>,
        flow: FlowId,
        (peer, holder): (&Peer, &Holder),
        target: Target,
    ) -> Result<Target, Refusal> {
        self.policy.may_reach(peer, &target)?;
        if target.takes_datagrams() && !self.datagram_places.take(flow, holder) {
            return Err(Refusal::limit(
                "its client has as many datagram flows as it may have on one worker",
            ));
        }
        let place = self.place_of(cx, peer)?;
        self.limit_state
            .places
            .extend(place.map(|place| (flow, place)));
        if !self.open_descriptor(cx, flow, holder) {
            return Err(Refusal::limit(
                "its client has its share of the descriptors; raise the limit (ulimit -n, LimitNOFILE=)",
            ));
        }
        Ok(target)
    }

    fn peer(&self, connection: ConnectionId) -> Peer {
        let known = self.peers.get(&connection);
        known.cloned().unwrap_or(Peer::Unknown)
    }

    /// Returns the client behind a request: identified by its certificate in the handshake, or by the proof in this
    /// request.
    fn peer_of(&mut self, cx: &mut ServerContext<'_>, opened: &OpenRequest) -> Peer {
        let known = self.peer(opened.connection);
        let (Peer::Unknown, Some(proof)) = (&known, opened.proof) else {
            return known;
        };
        if !cx.engine.awaits_identity(opened.connection) {
            // An earlier stream of the connection had a wrong proof.
            return known;
        }
        if let Some(peer) = self.peer_by_proof(cx, opened.connection, proof) {
            self.welcome(cx, opened.connection, opened.remote, peer);
            // A client whose access has expired is not welcome.
            return self.peer(opened.connection);
        }
        // Each proof costs a comparison with every secret, and the place among strangers is for honest ones. The first
        // wrong one leaves time for the refusal of the flow, which is the client's answer.
        let by = cx.now + LAST_CHANCE;
        if !cx.engine.hurry_identity(opened.connection, by) {
            self.refuse_proof(cx, (opened.connection, opened.remote), true);
        }
        known
    }

    fn peer_by_proof(
        &self,
        cx: &ServerContext<'_>,
        connection: ConnectionId,
        proof: [u8; 32],
    ) -> Option<Peer> {
        let exporter = cx.engine.exporter(connection)?;
        let client = self.policy.identify_by_proof(&exporter, &proof)?;
        Some(Peer::Named(client))
    }

    /// Makes the engine keep counters for every client of the configuration, even before it first connects.
    fn register_clients(&self, cx: &mut ServerContext<'_>) {
        for name in self.policy.names() {
            cx.engine.know_client(name);
            cx.engine.allow_client(name, self.allowances.of(name));
        }
    }

    fn phrases(&self) -> Phrases {
        self.flows.log.phrases
    }

    fn line_of(
        &self,
        now: Instant,
        connection: ConnectionId,
        remote: SocketAddr,
    ) -> Option<LinePermit> {
        let holder = holder_of(&self.peer(connection), remote);
        self.lines.take(&holder, now)
    }

    /// Takes a line about a named client, which need not be connected.
    fn line_about(&self, now: Instant, client: &Arc<str>) -> Option<LinePermit> {
        self.lines.take(&Holder::Client(client.clone()), now)
    }

    /// Takes a line about an unknown client from the budget of its address. If debug lines are off, it costs the
    /// address nothing.
    fn debug_line(&self, now: Instant, remote: SocketAddr) -> Option<LinePermit> {
        tracing::enabled!(target: "quictun", tracing::Level::DEBUG)
            .then(|| self.lines.take(&Holder::at(remote.ip()), now))
            .flatten()
    }
}

fn holder_of(peer: &Peer, remote: SocketAddr) -> Holder {
    match peer {
        Peer::Named(client) => Holder::Client(client.shared_name()),
        Peer::Anyone | Peer::Unknown => Holder::at(remote.ip()),
    }
}
