//! A host: an engine, its applications, and the results of its dials and name look-ups.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_engine::report::ServerId;
use quictun_engine::{
    ClientEvent, ClientRole, ConnectionId, EngineConfig, EngineEvent, Event, FlowId, FlowRequest,
    LossReason, OpenOutcome, ResolveResult, ServerEvent, ServerRole, Socket,
};
use quictun_wire::bond::SERVER_NUMBERS;
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::handover::{HandedBond, HandedVisitor, Handover, HandoverKind};
use quictun_wire::listening::{Incoming, IncomingPeer, Listen, ListenAddress};

use crate::app::App;
use crate::config;
use crate::dial::SimulatedDial;
use crate::host_engine::HostEngine;
use crate::node::Guest;
use crate::packet::OutgoingPacket;
use crate::script::Script;
use crate::socket::{self, ActivityQueues, MemSocket};
use crate::tcp::{TcpNews, TcpSegment, TcpStack};
use crate::transcript::describe;

/// Bytes that each direction of an application's connection buffers, unless the script sets a size.
const BUFFER: usize = 64 * 1024;

/// Maximum datagrams queued in the UDP socket of a stopped host; later ones are lost.
const INBOX_MAX: usize = 2000;

/// Time after which an unanswered dial fails.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit of work rounds at one instant; a host that reaches it is in a busy loop.
const ROUNDS_MAX: usize = 20_000;

/// A host with an engine.
#[derive(Debug)]
pub struct Host {
    engine: HostEngine,
    apps: Vec<App>,
    /// The flow of each application, if the engine has one for it.
    flow_of: Vec<Option<FlowId>>,
    app_of: BTreeMap<FlowId, usize>,
    activity: Rc<RefCell<ActivityQueues>>,
    tcp: TcpStack,
    targets: BTreeMap<String, (SimulatedDial, Script)>,
    /// The result of resolving each server's name.
    resolved: Vec<ResolveResult>,
    resolve_after: Duration,
    /// Client: the address of its applications, which it reports to servers.
    source: Option<SocketAddr>,
    /// Client: the listener that the client asks for on each connection.
    listen: Option<Listen>,
    /// Server: the connections whose clients have asked for a listener, in the order of their requests.
    listening: Vec<ConnectionId>,
    schedule: BTreeMap<(Instant, u64), HostEvent>,
    tasks: u64,
    events: Vec<(Instant, EngineEvent)>,
    /// Largest number of events that the engine has reported after one turn.
    events_most: usize,
    notes: Vec<String>,
    buffer: Vec<u8>,
    udp_full: bool,
    /// Time until which the host does nothing. Datagrams are queued in `inbox`, or lost if the host is `deaf`.
    stopped_until: Option<Instant>,
    deaf: bool,
    inbox: VecDeque<(SocketAddr, SocketAddr, u8, BytesMut)>,
    busy: (Option<Instant>, usize),
    wakes: u64,
}

#[derive(Debug)]
enum HostEvent {
    Dialed(FlowId, String),
    DialFailed(FlowId, FlowCode),
    Resolved(ServerId, u32),
    Wake(usize),
}

impl Host {
    pub(crate) fn server(config: EngineConfig<ServerRole>) -> Self {
        Self::new(HostEngine::new_server(config))
    }

    pub(crate) fn client(config: EngineConfig<ClientRole>, servers: Vec<SocketAddr>) -> Self {
        Self {
            resolved: servers.into_iter().map(|at| Ok(vec![at])).collect(),
            ..Self::new(HostEngine::new_client(config))
        }
    }

    fn new(engine: HostEngine) -> Self {
        Self {
            engine,
            apps: Vec::new(),
            flow_of: Vec::new(),
            app_of: BTreeMap::new(),
            activity: Rc::default(),
            tcp: TcpStack::default(),
            targets: BTreeMap::new(),
            resolved: Vec::new(),
            resolve_after: Duration::ZERO,
            source: None,
            listen: None,
            listening: Vec::new(),
            schedule: BTreeMap::new(),
            tasks: 0,
            events: Vec::new(),
            events_most: 0,
            notes: Vec::new(),
            buffer: Vec::new(),
            udp_full: false,
            stopped_until: None,
            deaf: false,
            inbox: VecDeque::new(),
            busy: (None, 0),
            wakes: 0,
        }
    }

    /// Sets the target and application for a token, for dials from now on. On a client the token is `reverse ID`, and
    /// the target serves connections accepted by a reverse forward.
    pub fn serve(&mut self, token: &str, dial: SimulatedDial, script: Script) {
        self.targets.insert(token.to_owned(), (dial, script));
    }

    /// Client: sets the result and duration of name resolution from now on, for the names of all servers.
    pub fn set_resolver(&mut self, resolved: ResolveResult, after: Duration) {
        self.resolved.fill(resolved);
        self.resolve_after = after;
    }

    /// Client: sets the result of name resolution from now on, for the name of one server.
    pub fn set_resolver_of(&mut self, server: usize, resolved: ResolveResult) {
        if let Some(known) = self.resolved.get_mut(server) {
            *known = resolved;
        }
    }

    /// Client: sets the address that it reports to servers for applications that connect from now on.
    pub fn set_source(&mut self, source: SocketAddr) {
        self.source = Some(source);
    }

    /// Client: sets the listener that the client asks for on each connection from now on.
    pub fn set_listen(&mut self, listen: Listen) {
        self.listen = Some(listen);
    }

    /// Server: sets whether it accepts TCP connections of carriers. It does not at first.
    pub fn set_listens_on_tcp(&mut self, listens: bool) {
        self.tcp.listens = listens;
    }

    /// Client: sets the TCP port of its servers, if it is another one than their UDP port. No other port listens.
    pub fn set_servers_tcp_port(&mut self, port: u16) {
        self.tcp.server_port = Some(port);
    }

    pub(crate) fn tcp(&mut self) -> &mut TcpStack {
        &mut self.tcp
    }

    /// Blocks or unblocks the UDP socket. While it is blocked, the host does not poll the engine for datagrams.
    pub fn set_udp_full(&mut self, full: bool) {
        self.udp_full = full;
    }

    /// Stops the host and its applications until `until`. If `hears` is true, datagrams are queued, as for a stopped
    /// process; otherwise they are lost, as for a sleeping host.
    pub(crate) fn stop_until(&mut self, until: Instant, hears: bool) {
        self.stopped_until = self.stopped_until.max(Some(until));
        self.deaf |= !hears;
    }

    /// Replaces the process by a new one that knows nothing about the flows of the old one.
    pub(crate) fn restart(&mut self, engine: HostEngine) {
        self.engine = engine;
        self.tcp.restart();
        self.flow_of.fill(None);
        self.app_of.clear();
        self.listening.clear();
        self.schedule
            .retain(|_, task| matches!(task, HostEvent::Wake(_)));
    }

    /// Server: hands the flows that can continue over to another process, and takes that process's place if it commits.
    /// Otherwise the other process dies with what it has got.
    pub(crate) fn hand_over_server(
        &mut self,
        now: Instant,
        config: EngineConfig<ServerRole>,
        commits: bool,
    ) {
        let mut bonds = self.engine.server().hand_over(now);
        for flow in bonds.iter_mut().flat_map(|(bond, _)| &mut bond.flows) {
            flow.visitor = (flow.number >= SERVER_NUMBERS).then(|| HandedVisitor {
                peer: IncomingPeer::Unix,
                asked: ListenAddress::Unix("/listener".to_owned()),
            });
        }
        let new = HostEngine::new_server(config);
        self.hand_over(now, HandoverKind::Server, bonds, (new, commits));
    }

    /// Client: hands the flows that can continue over to another process, as [`Host::hand_over_server`] does.
    pub(crate) fn hand_over_client(
        &mut self,
        now: Instant,
        config: EngineConfig<ClientRole>,
        commits: bool,
    ) {
        let name = |server: ServerId| Some(server.0.to_string());
        let bonds = self.engine.client().hand_over(now, name);
        let new = HostEngine::new_client(config);
        self.hand_over(now, HandoverKind::Client, bonds, (new, commits));
    }

    /// Passes bonds on, as plain data and sockets, to a new engine, which takes this one's place if it commits.
    fn hand_over(
        &mut self,
        now: Instant,
        kind: HandoverKind,
        bonds: Vec<(HandedBond, Vec<FlowId>)>,
        (mut new, commits): (HostEngine, bool),
    ) {
        let (bonds, ids): (Vec<_>, Vec<_>) = bonds.into_iter().unzip();
        let state = Handover {
            kind,
            workers: vec![bonds],
            ..Handover::default()
        };
        let read = Handover::decode(&state.encode(), kind);
        assert_eq!(read.as_ref(), Ok(&state), "the state survives its encoding");
        let mut taken = Vec::new();
        for (bond, ids) in state.workers.iter().flatten().zip(ids) {
            let sockets = ids.iter().filter_map(|&id| self.engine.socket(id));
            let sockets: Vec<&MemSocket> = sockets.collect();
            assert_eq!(sockets.len(), bond.flows.len(), "each flow has a socket");
            let copies = sockets.iter().map(|socket| socket.hand_over()).collect();
            let flows = new.take_over(now, bond, copies);
            // The connection goes on with the process that lives.
            let of_new = flows.iter().filter_map(|&flow| new.socket(flow));
            let dead: Vec<_> = if commits { sockets } else { of_new.collect() };
            for socket in dead {
                socket.set_handed_over(true);
            }
            taken.extend(ids.iter().map(|id| self.app_of.get(id).copied()).zip(flows));
        }
        if !commits {
            return;
        }
        self.restart(new);
        for (app, flow) in taken {
            if let Some(app) = app {
                self.attach(app, Some(flow));
            }
            // As a new poller does.
            self.engine.handle_socket(now, flow, true, true, false);
        }
    }

    /// Returns all events of the engine so far, with their times.
    pub fn events(&self) -> &[(Instant, EngineEvent)] {
        &self.events
    }

    /// Returns the largest number of events that the engine has reported after one turn.
    pub fn events_most(&self) -> usize {
        self.events_most
    }

    /// Returns the engine for direct commands.
    pub fn engine(&mut self) -> &mut HostEngine {
        &mut self.engine
    }

    /// Returns how often the host has had work to do: a timer, a datagram, an application.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Returns the applications in the order in which they were connected.
    pub fn apps(&self) -> &[App] {
        &self.apps
    }

    /// Server: returns the applications that were dialled for a token.
    pub fn apps_of<'a>(&'a self, token: &'a str) -> impl Iterator<Item = &'a App> {
        self.apps.iter().filter(move |app| app.name() == token)
    }

    pub(crate) fn open(&mut self, now: Instant, token: &str, script: Script) -> usize {
        let (index, socket) = self.connect(now, token, script);
        let request = FlowRequest {
            token: token.to_owned(),
            client_app: format!("app:{index}"),
            source: self.source,
        };
        let flow = self.engine.client().open_flow(now, socket, request);
        self.attach(index, flow);
        index
    }

    /// Server: connects an application to the listener of a client's reverse forward.
    pub(crate) fn open_incoming(&mut self, now: Instant, id: u64, script: Script) -> usize {
        let token = config::reverse_token(id);
        let (index, mut socket) = self.connect(now, &token, script);
        let incoming = Incoming {
            id,
            peer: IncomingPeer::Unix,
            number: None,
        };
        let until = now + DIAL_TIMEOUT;
        let mut connections = self.listening.clone();
        if connections.is_empty() {
            let reports = self.engine.connection_reports();
            connections.extend(reports.iter().map(|connection| connection.id));
        }
        // A listener belongs to the connection that has asked for it last.
        for connection in connections.into_iter().rev() {
            let listener = (socket, token.clone());
            let opening = self
                .engine
                .server()
                .open_incoming(now, connection, incoming, listener, until);
            socket = match opening {
                OpenOutcome::Opened(flow) => {
                    self.attach(index, Some(flow));
                    // As the tunnel does before it accepts the next connection, of which there may be none.
                    let _takes_more = self.engine.server().takes_incoming(connection);
                    return index;
                }
                OpenOutcome::Refused => return index,
                OpenOutcome::NoRoom(socket) => socket,
            };
        }
        Socket::abort(&mut socket);
        index
    }

    fn connect(&mut self, now: Instant, token: &str, script: Script) -> (usize, MemSocket) {
        let index = self.apps.len();
        let default = |value: usize, default: usize| if value == 0 { default } else { value };
        let buffer = default(script.buffer, BUFFER);
        let call_max = default(script.call_max, usize::MAX);
        let (socket, app_socket) = socket::pair(index, &self.activity, buffer, call_max);
        app_socket.set_datagrams(script.datagrams);
        self.apps
            .push(App::new(token.to_owned(), app_socket, script, now));
        self.flow_of.push(None);
        self.activity.borrow_mut().for_apps.push_back(index);
        (index, socket)
    }

    fn attach(&mut self, index: usize, flow: Option<FlowId>) {
        self.flow_of[index] = flow;
        if let Some(flow) = flow {
            self.app_of.insert(flow, index);
        }
    }

    /// Panics if the host does too much work without time passing.
    fn count_round(&mut self, now: Instant) {
        if self.busy.0 != Some(now) {
            self.busy = (Some(now), 0);
        }
        self.busy.1 += 1;
        assert!(
            self.busy.1 < ROUNDS_MAX,
            "host is in a busy loop: {ROUNDS_MAX} rounds at one instant; next timer in {:?}; {:?}",
            self.next_timeout()
                .map(|at| at.saturating_duration_since(now)),
            self.engine.connection_reports(),
        );
    }

    fn schedule(&mut self, at: Instant, task: HostEvent) {
        self.tasks += 1;
        self.schedule.insert((at, self.tasks), task);
    }

    fn run_tasks(&mut self, now: Instant) -> bool {
        let mut worked = false;
        while let Some(entry) = self.schedule.first_entry() {
            if entry.key().0 > now {
                break;
            }
            worked = true;
            match entry.remove() {
                HostEvent::Wake(index) => self.activity.borrow_mut().for_apps.push_back(index),
                HostEvent::Resolved(server, tenant) => {
                    if let Some(resolved) = self.resolved.get(server.0) {
                        self.engine
                            .client()
                            .handle_resolved(now, server, tenant, resolved);
                    }
                }
                HostEvent::DialFailed(flow, code) => {
                    self.engine.handle_dialed(now, flow, Err(code));
                }
                HostEvent::Dialed(flow, token) => {
                    let script = self.targets.get(&token).map(|(_, script)| script.clone());
                    let (index, socket) = self.connect(now, &token, script.unwrap_or_default());
                    self.attach(index, Some(flow));
                    self.engine
                        .handle_dialed(now, flow, Ok((socket, format!("target:{index}"))));
                }
            }
        }
        worked
    }

    fn run_apps(&mut self, now: Instant) -> bool {
        let mut worked = false;
        loop {
            let index = self.activity.borrow_mut().for_apps.pop_front();
            let Some(index) = index else { return worked };
            worked = true;
            let app = &mut self.apps[index];
            app.socket.clear_notified();
            let wake = app.run(now);
            if let Some(at) = wake {
                self.schedule(at, HostEvent::Wake(index));
            }
        }
    }

    fn tell_engine(&mut self, now: Instant) -> bool {
        let mut worked = false;
        loop {
            let index = self.activity.borrow_mut().for_engine.pop_front();
            let Some(index) = index else { return worked };
            worked = true;
            let readiness = self.apps[index].socket.take_readiness();
            if let Some(flow) = self.flow_of[index] {
                self.engine.handle_socket(
                    now,
                    flow,
                    readiness.readable,
                    readiness.writable,
                    readiness.failed,
                );
            }
        }
    }

    /// Lets TCP send, and tells the engine what has become of its connections.
    fn run_tcp(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>) -> bool {
        let mut worked = self.tcp.run(now, out);
        while let Some(news) = self.tcp.poll_news() {
            worked = true;
            match news {
                TcpNews::Dialled(connection, result) => {
                    let result = result.map_err(|error| LossReason::Tcp(error.to_string()));
                    let client = self.engine.client();
                    client.handle_carrier_dialed(now, connection, result);
                }
                TcpNews::Accepted(index, tcp) => {
                    if let Some(connection) = self.engine.server().handle_accepted(now, tcp) {
                        self.tcp.set_connection(index, connection);
                    }
                }
            }
        }
        while let Some((connection, ready)) = self.tcp.poll_ready() {
            worked = true;
            let (readable, writable, failed) = (ready.readable, ready.writable, ready.failed);
            let engine = &mut self.engine;
            engine.handle_carrier_socket(now, connection, readable, writable, failed);
        }
        worked
    }

    fn transmit(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>) -> bool {
        let mut worked = false;
        self.engine.drive(now);
        if self.udp_full {
            self.engine.transmit_over_tcp(now);
            return false;
        }
        while let Some(batch) = self.engine.poll_transmit(now, &mut self.buffer) {
            worked = true;
            // The batch is copied once; the datagrams are slices of the copy.
            let mut bytes = BytesMut::from(&self.buffer[..batch.size]);
            let segment = batch.segment_size.unwrap_or(batch.size).max(1);
            while !bytes.is_empty() {
                let datagram = bytes.split_to(segment.min(bytes.len()));
                out.push(OutgoingPacket::udp(batch.destination, batch.ecn, datagram));
            }
        }
        worked
    }

    fn take_events(&mut self, now: Instant) -> bool {
        let before = self.events.len();
        let mut worked = false;
        while let Some(event) = self.engine.poll_event() {
            worked = true;
            self.notes.extend(describe(&event));
            match &event {
                EngineEvent::Client(ClientEvent::Resolve { server, tenant }) => {
                    let resolved = HostEvent::Resolved(*server, *tenant);
                    self.schedule(now + self.resolve_after, resolved);
                }
                EngineEvent::Client(ClientEvent::DialCarrier {
                    connection, remote, ..
                }) => {
                    self.tcp.dial(now, *connection, *remote);
                }
                EngineEvent::Server(ServerEvent::Hello {
                    connection, proof, ..
                }) => {
                    if *proof == Some(config::PROOF) {
                        let name = config::KNOWN.to_owned();
                        let proofs = [config::PROOF].into();
                        self.engine
                            .server()
                            .name_peer(now, *connection, name, proofs);
                        self.engine.server().admit(now, *connection);
                    } else {
                        let code = CloseCode::NotAuthorized;
                        self.engine.close_connection(now, *connection, code);
                    }
                }
                EngineEvent::Server(ServerEvent::Open(opened)) => {
                    if opened.proof == Some(config::PROOF) {
                        self.engine.server().admit(now, opened.connection);
                    }
                    self.dial(now, opened.flow, &opened.token.clone());
                }
                EngineEvent::Client(ClientEvent::Incoming(taken)) => {
                    let token = config::reverse_token(taken.incoming.id);
                    self.engine.client().name_target(taken.flow, token.clone());
                    self.dial(now, taken.flow, &token);
                }
                EngineEvent::Client(ClientEvent::Welcome {
                    connection,
                    reverse: true,
                    ..
                }) => {
                    if let Some(listen) = self.listen.clone() {
                        self.engine.client().listen(*connection, listen);
                    }
                }
                EngineEvent::Server(ServerEvent::Listen { connection, .. }) => {
                    self.listening.push(*connection);
                }
                EngineEvent::Shared(Event::Disconnected { connection, .. }) => {
                    self.listening.retain(|it| it != connection);
                }
                EngineEvent::Shared(Event::FlowClosed(summary)) => {
                    if let Some(index) = self.app_of.remove(&summary.flow) {
                        self.flow_of[index] = None;
                    }
                }
                _ => {}
            }
            self.events.push((now, event));
        }
        self.events_most = self.events_most.max(self.events.len() - before);
        worked
    }

    fn dial(&mut self, now: Instant, flow: FlowId, token: &str) {
        let dial = self.targets.get(token).map(|(dial, _)| *dial);
        let (after, task) = match dial {
            Some(SimulatedDial::Connects { after }) => {
                (after, HostEvent::Dialed(flow, token.to_owned()))
            }
            Some(SimulatedDial::Fails { after, code }) => {
                (after, HostEvent::DialFailed(flow, code))
            }
            Some(SimulatedDial::Never) => (
                DIAL_TIMEOUT,
                HostEvent::DialFailed(flow, FlowCode::DialTimeout),
            ),
            None => (
                Duration::ZERO,
                HostEvent::DialFailed(flow, FlowCode::NameNotFound),
            ),
        };
        self.schedule(now + after, task);
    }
}

impl Host {
    /// Handles a segment of a carrier's connection. The system of a stopped process acknowledges it.
    pub(crate) fn handle_segment(
        &mut self,
        now: Instant,
        from: SocketAddr,
        segment: TcpSegment,
        bytes: Bytes,
    ) {
        if !self.deaf {
            self.tcp.handle_segment(now, from, segment, bytes);
        }
    }
}

impl Guest for Host {
    fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        ecn: u8,
        bytes: BytesMut,
    ) {
        if self.stopped_until.is_some_and(|until| now < until) {
            if !self.deaf && self.inbox.len() < INBOX_MAX {
                self.inbox.push_back((from, to, ecn, bytes));
            }
            return;
        }
        self.engine
            .handle_datagram(now, from, Some(to.ip()), Some(ecn), bytes);
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.stopped_until.is_some() {
            let tcp = self.tcp.next_timeout().filter(|_| !self.deaf);
            return self.stopped_until.into_iter().chain(tcp).min();
        }
        let task = self.schedule.keys().next().map(|&(at, _)| at);
        [task, self.engine.next_timeout(), self.tcp.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn run(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>) {
        if self.stopped_until.is_some_and(|until| now < until) {
            if !self.deaf {
                self.tcp.run(now, out);
            }
            return;
        }
        self.stopped_until = None;
        self.deaf = false;
        self.wakes += 1;
        while let Some((from, to, ecn, bytes)) = self.inbox.pop_front() {
            self.handle_datagram(now, from, to, ecn, bytes);
        }
        loop {
            self.count_round(now);
            let mut worked = false;
            if self.engine.next_timeout().is_some_and(|at| at <= now) {
                self.engine.handle_timeout(now);
                worked = true;
            }
            worked |= self.run_tasks(now);
            worked |= self.run_apps(now);
            worked |= self.tell_engine(now);
            worked |= self.run_tcp(now, out);
            worked |= self.transmit(now, out);
            worked |= self.take_events(now);
            // Driving an engine may wake applications even if it has no datagrams to send.
            let activity = self.activity.borrow();
            let idle = activity.for_apps.is_empty() && activity.for_engine.is_empty();
            if !worked && idle && !self.tcp.is_active() {
                return;
            }
        }
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}
