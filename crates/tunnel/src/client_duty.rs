//! A client's worker: accepts application connections, asks for tokens and opens flows.

mod dialling;
pub(crate) mod reverse;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::report::ServerId;
use quictun_engine::{Event, FlowId, FlowRequest, FlowSummary, LossReason};
use slab::Slab;
use tokio::sync::mpsc::Sender;
use tracing::{debug, info, warn};

use crate::app_addr::AppAddr;
use crate::app_socket::AppSocket;
use crate::duty::{Duty, Io, log_congestion};
use crate::listener::{Accepted, Listener};
use crate::mailbox::Message;
use crate::moves::{Move, Moves};
use crate::once::Once;
use crate::proxy::{self, Asked, Proxy};
use crate::reload::change::{Ended, Rules};
use crate::requests::{Request, WAITING_MAX};
use crate::servers::Servers;
use crate::transparent;
use crate::tun_port::TunPort;
pub(crate) use dialling::Dialling;
use quictun_control::flow_log::{FlowLog, Known};
use quictun_control::log::Foreign;
use quictun_control::log_beginning;
use quictun_control::settings::Phrases;
use quictun_io::poller::{Key, Ready};
use reverse::Reverses;

/// The server that listens for reverse forwards if there are several: the first one given.
const LISTENING: ServerId = ServerId(0);

/// Limit of connections accepted from one listener before other listeners have their turn.
const ACCEPT_BURST: usize = 64;

/// Pause after descriptors ran out: long enough for some to be closed, short enough not to be noticed.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct ClientDuty {
    pub(crate) index: usize,
    pub(crate) forwards: Vec<ForwardDuty>,
    /// The connections to proxy listeners that have not named a target yet.
    pub(crate) proxy: Proxy,
    /// Whether the server learns the addresses from which applications have connected to listeners.
    pub(crate) sends_sources: bool,
    /// The single flow that the process runs for, if any.
    pub(crate) once: Option<Once>,
    /// The reverse forwards. One worker has all of them.
    pub(crate) reverse: Reverses,
    /// The targets of flows that the server has opened, for the log.
    pub(crate) incoming: HashMap<FlowId, String>,
    /// The TUN device whose connections are carried. One worker has it.
    pub(crate) tun: Option<TunPort>,
    pub(crate) control: Sender<Request>,
    pub(crate) waiting: Slab<Waiting>,
    pub(crate) tickets: u64,
    pub(crate) paused: Option<Instant>,
    pub(crate) stopped: bool,
    pub(crate) servers: Arc<Servers>,
    /// This worker's dialling state for each server.
    pub(crate) dialling: Vec<Dialling>,
    pub(crate) moves: Moves,
    /// Whether the warning about a connection made directly to a redirection listener was logged.
    pub(crate) direct: bool,
    pub(crate) log: FlowLog,
}

#[derive(Debug)]
pub(crate) struct ForwardDuty {
    pub(crate) listener: Listener,
    pub(crate) leads: Leads,
}

/// The destination of a forward's connections.
#[derive(Clone, Debug)]
pub(crate) enum Leads {
    /// Every connection gets this token.
    To(String),
    /// A plugin gives a token for each connection.
    Asked,
    /// Each connection names its target itself, by a proxy protocol.
    Proxy,
    /// Each connection leads to its original destination: [`Accepted::Led`].
    Destination,
}

#[derive(Debug)]
pub(crate) struct Waiting {
    socket: AppSocket,
    ticket: u64,
}

impl Duty for ClientDuty {
    fn start(&mut self, io: &mut Io<'_>) -> io::Result<()> {
        for (index, forward) in self.forwards.iter().enumerate() {
            let key = Key::Listener(index);
            io.poller.add_listener(&forward.listener, key)?;
        }
        if let Some(tun) = &self.tun {
            tun.start(io)?;
        }
        if let Some((socket, token)) = self.once.as_mut().and_then(Once::begin) {
            let flow = self.open(io, socket, token);
            if let Some(once) = &mut self.once {
                once.handle_opened(flow);
            }
        }
        Ok(())
    }

    fn handle_event(&mut self, io: &mut Io<'_>, event: Event) {
        match event {
            Event::Resolve { server, tenant } => self.ask_addresses(io, server, tenant),
            Event::Chosen {
                server,
                before,
                why,
            } => self.tell_of_choice(server, before, why),
            Event::Welcome {
                server,
                connection,
                remote,
                protocol,
                bonded,
                reverse,
                ..
            } => {
                self.handle_welcome(io.now, server, remote, protocol, bonded);
                if server == LISTENING {
                    self.reverse.handle_welcome(io, connection, reverse);
                }
            }
            Event::ConnectFailed {
                server,
                remote,
                reason,
                ..
            } => {
                self.handle_failed(io.now, server, remote, &reason);
                if reason == LossReason::TimedOut {
                    leave_from_another_port(io);
                }
            }
            Event::Disconnected {
                server,
                connection,
                remote,
                reason,
                flows,
                salvaged,
                detached,
            } => {
                if let Some(moved) = self.moves.handle_disconnected(connection) {
                    log_move(&moved);
                }
                if salvaged > 0 {
                    info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, flows = salvaged }, "connection gone: what its flows had received whole is still delivered");
                }
                self.handle_disconnected(server, remote, &reason, (flows, detached));
                self.reverse.handle_lost(io, connection, true);
            }
            Event::ListenAnswered { connection, answer } => {
                self.reverse.handle_answer(io.now, connection, &answer);
            }
            Event::Incoming(taken) => {
                if let Some(target) = self.reverse.handle_incoming(io, &taken) {
                    self.incoming.insert(taken.flow, target);
                }
            }
            Event::Rejoined {
                connection,
                remote,
                flows,
                left,
            } => self.moves.handle_rejoined(connection, remote, flows, left),
            Event::Moved {
                connection,
                without,
                ..
            } => {
                if let Some(moved) = self.moves.handle_moved(io.now, connection, without) {
                    log_move(&moved);
                }
            }
            Event::Unresponsive { connection, remote } => {
                self.reverse.handle_lost(io, connection, false);
                warn!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "server endpoint does not answer: trying a new connection");
                leave_from_another_port(io);
            }
            Event::Unanswered => connect_from_another_port(io),
            Event::Responsive { remote, .. } => {
                info!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "server endpoint answers again");
            }
            Event::Established { flow, stream_id } => self.handle_established(io, flow, stream_id),
            Event::Congestion { .. } => log_congestion(&event),
            Event::FlowClosed(summary) => self.handle_flow_closed(io, &summary),
            _ => {}
        }
    }

    fn handle_ready(&mut self, io: &mut Io<'_>, ready: Ready) {
        if let (Key::Tun, Some(tun)) = (ready.key, &mut self.tun) {
            return tun.handle_ready(io);
        }
        match ready.key {
            Key::Asking(_) => {
                let asked = self.proxy.handle_ready(io.now, io.poller, ready);
                return self.open_asked(io, asked);
            }
            Key::Dial(dial) => return self.reverse.handle_ready(io, dial),
            _ => {}
        }
        let Key::Listener(index) = ready.key else {
            return;
        };
        for _ in 0..ACCEPT_BURST {
            let Some(forward) = self.forwards.get(index) else {
                return;
            };
            match forward.listener.accept() {
                Accepted::Connection(socket, app) => {
                    let leads = forward.leads.clone();
                    self.log_accepted(&app);
                    match leads {
                        Leads::To(token) => {
                            self.open(io, socket, token);
                        }
                        Leads::Asked => self.ask_token(socket, index, app),
                        Leads::Proxy => {
                            let asked = self.proxy.accept(io.now, io.poller, socket);
                            self.open_asked(io, asked);
                        }
                        Leads::Destination => reset(socket),
                    }
                }
                Accepted::Led(socket, app, destination) => {
                    self.log_accepted(&app);
                    self.open(io, socket, transparent::target(destination).to_string());
                }
                Accepted::Direct(app) => self.log_direct(&app),
                Accepted::Empty => return,
                Accepted::Exhausted(cause) => {
                    warn!(target: "quictun", %cause, "no descriptors or memory for new connections: accepting pauses; raise the limit (ulimit -n, LimitNOFILE=)");
                    self.pause(io, Some(io.now + EXHAUSTED_PAUSE));
                    return;
                }
                Accepted::Failed => {}
            }
        }
    }

    fn handle_message(&mut self, io: &mut Io<'_>, message: Message) {
        match message {
            Message::NetworkChanged(untaken) => {
                // From here on, another change sends another message.
                drop(untaken);
                io.engine.handle_network_change(io.now);
            }
            Message::Reconnect => {
                self.reverse.handle_reconnect();
                io.engine.reconnect(io.now);
            }
            Message::TargetResolved { flow, result } => {
                self.reverse.handle_resolved(io, flow, result);
            }
            Message::ServerResolved {
                server,
                tenant,
                resolved,
            } => io.engine.handle_resolved(io.now, server, tenant, &resolved),
            Message::PlacesChanged(untaken) => {
                // From here on, another change sends another message.
                drop(untaken);
                self.set_places(io);
            }
            Message::Rules(change) => {
                if let Rules::Client(rules) = &change.rules {
                    self.set_rules(io, rules);
                }
                change.done(Ended::default());
            }
            Message::Token { key, ticket, token } => {
                let waiting = self.waiting.get(key);
                if waiting.is_some_and(|waiting| waiting.ticket == ticket) {
                    let waiting = self.waiting.remove(key);
                    match token {
                        Some(token) => {
                            self.open(io, waiting.socket, token);
                        }
                        None => reset(waiting.socket),
                    }
                }
            }
            _ => {}
        }
    }

    fn flush(&mut self, io: &mut Io<'_>) -> bool {
        self.tun.as_mut().is_some_and(|tun| tun.flush(io))
    }

    fn handle_pause(&mut self, io: &mut Io<'_>, pause: Duration) {
        let stopped_s = pause.as_secs();
        debug!(target: "quictun", stopped_s, "this process was stopped: asking the server at once");
        io.engine.handle_network_change(io.now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let tun = self.tun.as_ref().and_then(TunPort::next_timeout);
        let silent = self.dialling.iter().filter_map(|it| it.silent_at).min();
        let (moves, proxy) = (self.moves.next_timeout(), self.proxy.next_timeout());
        let reverse = self.reverse.next_timeout();
        let times = [self.paused, silent, tun, moves, proxy, reverse];
        times.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, io: &mut Io<'_>) {
        self.proxy.handle_timeout(io.now);
        if let Some(tun) = &mut self.tun {
            tun.handle_timeout(io);
        }
        while let Some(moved) = self.moves.handle_timeout(io.now) {
            log_move(&moved);
        }
        self.reverse.handle_timeout(io);
        self.ask_about_silence(io.now);
        if self.paused.is_some_and(|until| until <= io.now) {
            self.paused = None;
            if !self.stopped {
                for (index, forward) in self.forwards.iter().enumerate() {
                    let key = Key::Listener(index);
                    if let Err(cause) = io.poller.add_listener(&forward.listener, key) {
                        warn!(target: "quictun", %cause, "a listener cannot be watched: trying again");
                        self.paused = Some(io.now + EXHAUSTED_PAUSE);
                    }
                }
            }
        }
    }

    fn stop_accepting(&mut self, io: &mut Io<'_>) {
        self.stopped = true;
        self.reverse.stop(io);
        if let Some(tun) = &mut self.tun {
            // The engine refuses new connections, because it takes no more flows.
            tun.stop_accepting(io);
        }
        self.pause(io, None);
        self.proxy.stop();
        // The descriptors close here, so later connections are refused at once.
        self.forwards.clear();
    }

    fn failure(&self) -> Option<io::Error> {
        self.tun.as_ref().and_then(TunPort::failure)
    }

    fn is_over(&self) -> bool {
        self.once.as_ref().is_some_and(Once::is_over)
    }

    fn handle_unconfirmed(&mut self) {
        if let Some(once) = &mut self.once {
            once.handle_unconfirmed();
        }
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.tun.as_ref().is_some_and(TunPort::is_busy)
    }
}

impl ClientDuty {
    fn handle_established(&mut self, io: &mut Io<'_>, flow: FlowId, stream_id: u64) {
        let server = io.engine.server_of(flow);
        let standing = server.and_then(|server| self.servers.get(server));
        if standing.is_some_and(|standing| standing.refused.clear()) {
            info!(target: "quictun", "the server no longer refuses this client");
        }
        let id = self.log.id(flow);
        log_beginning!(self.log.phrases, { "Stream-ID" = stream_id, flow = id }, "Handshake successful", "flow established");
        if let Some(tun) = &mut self.tun {
            tun.handle_established(io, flow);
        }
        proxy::handle_established(io, flow);
    }

    fn handle_flow_closed(&mut self, io: &Io<'_>, summary: &FlowSummary) {
        let given_up = self.tun.as_ref();
        if given_up.is_some_and(|tun| tun.has_given_up(summary.flow)) {
            debug!(target: "quictun", flow = self.log.id(summary.flow), "given up: it had no answer when the drain began");
        } else {
            let target = self.incoming.remove(&summary.flow);
            let (servers, unreachable) = (self.servers.shown(), self.unreachable());
            let known = Known {
                target: target.as_deref(),
                server: Some(&servers),
                unreachable: unreachable.as_deref(),
                ..Known::default()
            };
            if let Some(once) = &mut self.once {
                once.handle_closed(summary, known);
            }
            self.log.closed(summary, known);
        }
        self.proxy
            .handle_closed(io.now, io.poller, summary.flow, summary.ending);
        self.reverse.handle_closed(summary.flow);
        if let Some(tun) = &mut self.tun {
            tun.handle_closed(summary.flow);
        }
    }

    /// Logs that an application has connected. Users search for the original's phrases, so they stay word for word.
    fn log_accepted(&self, app: &AppAddr) {
        match self.log.phrases {
            Phrases::Original => {
                info!(target: "quictun", { "Client-App-Addr" = %app }, "Client connection accepted, prepare to entablish tunnel with server endpint for this connection.");
            }
            Phrases::Own => {
                debug!(target: "quictun", { "Client-App-Addr" = %app }, "an application has connected");
            }
        }
    }

    fn open(&self, io: &mut Io<'_>, socket: AppSocket, token: String) -> Option<FlowId> {
        let asked = Asked {
            socket,
            token,
            watched: None,
        };
        self.open_watched(io, asked)
    }

    /// Opens the flow that an application has asked the proxy for, if any.
    fn open_asked(&mut self, io: &mut Io<'_>, asked: Option<Asked>) {
        let Some(asked) = asked else {
            return;
        };
        let watched = asked.watched;
        match self.open_watched(io, asked) {
            Some(flow) => self.proxy.name(io, flow),
            None => self.proxy.handle_refused(io.now, io.poller, watched),
        }
    }

    fn open_watched(&self, io: &mut Io<'_>, asked: Asked) -> Option<FlowId> {
        let client_app = asked.socket.peer();
        log_beginning!(
            self.log.phrases,
            { "Client-App-Addr" = client_app },
            "Starting handshake with server endpoint",
            "asking the server for a flow"
        );
        let source = asked.socket.peer_address();
        let request = FlowRequest {
            token: asked.token,
            client_app,
            source: source.filter(|_| self.sends_sources),
        };
        let opened = io.engine.open_flow(io.now, asked.socket, request);
        let Some(flow) = opened else {
            warn!(target: "quictun", "too many connections wait for the server: one was reset");
            return None;
        };
        if let Some(socket) = io.engine.socket(flow) {
            let (fd, key) = (socket.descriptor(), Key::Flow(flow));
            let watched = if asked.watched.is_some() {
                io.poller.rename_flow(fd, key)
            } else {
                io.poller.add_flow(fd, key)
            };
            if let Err(cause) = watched {
                warn!(target: "quictun", %cause, "a connection cannot be watched: it was reset");
                io.fail(flow);
            }
        }
        Some(flow)
    }

    fn log_direct(&mut self, app: &AppAddr) {
        if std::mem::replace(&mut self.direct, true) {
            return debug!(target: "quictun", { "Client-App-Addr" = %app }, "a connection was made to the listener itself: it was reset");
        }
        warn!(target: "quictun", { "Client-App-Addr" = %app }, "a connection was made to the listener itself, which carries only what the packet filter leads there: it was reset, as further ones are");
    }

    fn ask_token(&mut self, socket: AppSocket, forward: usize, app: AppAddr) {
        if self.waiting.len() >= WAITING_MAX {
            warn!(target: "quictun", "too many connections wait for a token: one was reset");
            return reset(socket);
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let key = self.waiting.insert(Waiting { socket, ticket });
        let worker = self.index;
        let request = Request::Token {
            worker,
            key,
            ticket,
            forward,
            app,
        };
        if self.control.try_send(request).is_err() {
            warn!(target: "quictun", "the token source is overloaded: a connection was reset");
            reset(self.waiting.remove(key).socket);
        }
    }

    fn pause(&mut self, io: &mut Io<'_>, until: Option<Instant>) {
        if self.paused.is_none() {
            for forward in &self.forwards {
                if let Err(cause) = io.poller.remove(&forward.listener) {
                    debug!(target: "quictun", %cause, "a listener was not watched");
                }
            }
        }
        self.paused = until;
    }
}

fn log_move(moved: &Move) {
    let (remote, flows, left) = (moved.remote, moved.flows, Foreign(&moved.left));
    info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, flows, without_ms = moved.without_ms(), %left }, "flows continue on a new connection");
}

fn reset(mut socket: AppSocket) {
    quictun_engine::Socket::abort(&mut socket);
}

/// Changes the local UDP port. A device on the path may drop everything from the old port, from where a new connection
/// would fail, too. Returns whether the port has changed.
fn leave_from_another_port(io: &Io<'_>) -> bool {
    // Connections that still work would have to migrate to the new port.
    if io.engine.is_connected() {
        return false;
    }
    let renewed = io.udp.renew();
    if let Err(cause) = &renewed {
        warn!(target: "quictun", %cause, "the UDP socket keeps its port");
    }
    renewed.is_ok()
}

/// Changes the local UDP port and starts a connection from there.
fn connect_from_another_port(io: &mut Io<'_>) {
    if leave_from_another_port(io) {
        io.engine.handle_new_port(io.now);
    }
}
