//! A client's worker: accepts application connections, asks for tokens and opens flows.

mod apply_rules;
mod dialling;
pub(crate) mod reverse;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::{Event, FlowId, FlowRequest, FlowSummary, LossReason};
use slab::Slab;
use tokio::sync::mpsc::Sender;
use tracing::{debug, info, warn};

use crate::app_addr::AppAddr;
use crate::app_socket::AppSocket;
use crate::forward_listener::{ForwardDestination, ForwardListener};
use crate::listener::{AcceptOutcome, warn_of_exhaustion};
use crate::mailbox::Message;
use crate::moves::{Move, Moves};
use crate::proxy::{self, FlowToOpen, Proxy};
use crate::rate_limited_warning::RateLimitedWarning;
use crate::reload::change::{RevokedCounts, Rules};
use crate::reload::forwards::ForwardNumber;
use crate::requests::{Request, WAITING_MAX};
use crate::role::{WorkerContext, WorkerRole, log_congestion};
use crate::servers::Servers;
use crate::single_flow::SingleFlow;
use crate::transparent;
use crate::tun_port::TunPort;
pub(crate) use dialling::DialState;
use quictun_control::flow_log::{FlowFacts, FlowLog};
use quictun_control::line_budget::LinePermit;
use quictun_control::log::Untrusted;
use quictun_control::log_beginning;
use quictun_control::settings::Phrases;
use quictun_io::poller::{Key, ReadyEvent};
use reverse::ReverseForwarder;

/// Limit of connections accepted from one listener before other listeners have their turn.
const ACCEPT_BURST: usize = 64;

/// Pause after descriptors ran out: long enough for some to be closed, short enough not to be noticed.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct ClientWorker {
    pub(crate) index: usize,
    pub(crate) forwards: BTreeMap<ForwardNumber, ForwardListener>,
    /// The connections to proxy listeners that have not named a target yet.
    pub(crate) proxy: Proxy,
    /// True if the server learns the addresses from which applications have connected to listeners.
    pub(crate) sends_sources: bool,
    /// The single flow that the process runs for, if any.
    pub(crate) single_flow: Option<SingleFlow>,
    /// The reverse forwards. One worker has all of them.
    pub(crate) reverse: ReverseForwarder,
    /// The targets of flows that the server has opened, for the log.
    pub(crate) incoming: HashMap<FlowId, String>,
    /// The TUN device whose connections are carried. One worker has it.
    pub(crate) tun: Option<TunPort>,
    pub(crate) control: Sender<Request>,
    pub(crate) waiting: Slab<TokenWaiter>,
    pub(crate) tickets: u64,
    pub(crate) paused: Option<Instant>,
    pub(crate) stopped: bool,
    pub(crate) servers: Arc<Servers>,
    /// This worker's dialling state for each server.
    pub(crate) dialling: Vec<DialState>,
    pub(crate) moves: Moves,
    /// True if the warning about a connection made directly to a redirection listener was logged.
    pub(crate) direct: bool,
    pub(crate) exhausted: RateLimitedWarning,
    pub(crate) log: FlowLog,
}

#[derive(Debug)]
pub(crate) struct TokenWaiter {
    socket: AppSocket,
    ticket: u64,
}

impl WorkerRole for ClientWorker {
    fn start(&mut self, cx: &mut WorkerContext<'_>) -> io::Result<()> {
        for (number, forward) in &self.forwards {
            cx.poller
                .add_listener(&*forward.listener, Key::Listener(*number))?;
        }
        if let Some(tun) = &self.tun {
            tun.start(cx)?;
        }
        if let Some((socket, token)) = self.single_flow.as_mut().and_then(SingleFlow::begin) {
            let flow = self.open(cx, socket, token);
            if let Some(single_flow) = &mut self.single_flow {
                single_flow.handle_opened(flow);
            }
        }
        Ok(())
    }

    fn handle_event(&mut self, cx: &mut WorkerContext<'_>, event: Event) {
        match event {
            Event::Resolve { server, tenant } => self.request_addresses(cx, server, tenant),
            Event::Chosen {
                server,
                before,
                reason,
            } => self.log_choice(server, before, reason),
            Event::Welcome {
                server,
                connection,
                remote,
                protocol,
                bonded,
                reverse,
                ..
            } => {
                self.handle_welcome(cx.now, server, remote, protocol, bonded);
                self.reverse.handle_welcome(cx, server, connection, reverse);
            }
            Event::ConnectFailed {
                server,
                remote,
                reason,
                ..
            } => {
                self.handle_failed(cx.now, server, remote, &reason);
                if reason == LossReason::TimedOut {
                    change_local_port(cx);
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
                ..
            } => {
                if let Some(moved) = self.moves.handle_disconnected(connection) {
                    log_move(&moved);
                }
                if salvaged > 0 {
                    info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, flows = salvaged }, "connection gone: data that its flows have received completely is still delivered");
                }
                self.handle_disconnected(server, remote, &reason, (flows, detached));
                self.reverse.handle_lost(cx, connection, true);
            }
            Event::ListenAnswered { connection, answer } => {
                self.reverse.handle_answer(cx.now, connection, &answer);
            }
            Event::Incoming(taken) => {
                if let Some(target) = self.reverse.handle_incoming(cx, &taken) {
                    self.incoming.insert(taken.flow, target);
                }
            }
            Event::Rejoined {
                connection,
                remote,
                flows,
                reason,
            } => self
                .moves
                .handle_rejoined(connection, remote, flows, reason),
            Event::Moved {
                connection,
                without,
                ..
            } => {
                if let Some(moved) = self.moves.handle_moved(cx.now, connection, without) {
                    log_move(&moved);
                }
            }
            Event::Unresponsive { connection, remote } => {
                self.reverse.handle_lost(cx, connection, false);
                warn!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "server endpoint does not answer: trying a new connection");
                change_local_port(cx);
            }
            Event::Unanswered => reconnect_from_new_port(cx),
            Event::Responsive { remote, .. } => {
                info!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "server endpoint answers again");
            }
            Event::ServerAnswers { server, remote } => self.handle_answer(cx.now, server, remote),
            Event::Established { flow, stream_id } => self.handle_established(cx, flow, stream_id),
            Event::Congestion { .. } => log_congestion(&event),
            Event::FlowClosed(summary) => self.handle_flow_closed(cx, &summary),
            _ => {}
        }
    }

    fn handle_ready(&mut self, cx: &mut WorkerContext<'_>, ready: ReadyEvent) {
        if let (Key::Tun, Some(tun)) = (ready.key, &mut self.tun) {
            return tun.handle_ready(cx);
        }
        match ready.key {
            Key::Asking(_) => {
                let asked = self.proxy.handle_ready(cx.now, cx.poller, ready);
                return self.open_for_proxy(cx, asked);
            }
            Key::Dial(dial) => return self.reverse.handle_ready(cx, dial),
            _ => {}
        }
        let Key::Listener(number) = ready.key else {
            return;
        };
        for _ in 0..ACCEPT_BURST {
            let Some(forward) = self.forwards.get(&number) else {
                return;
            };
            match forward.listener.accept() {
                AcceptOutcome::Connection(socket, app) => {
                    let destination = forward.destination.clone();
                    self.log_accepted(&app);
                    match destination {
                        ForwardDestination::Token(token) => {
                            self.open(cx, socket, token);
                        }
                        ForwardDestination::Plugin => self.request_token(socket, number, app),
                        ForwardDestination::Proxy => {
                            let asked = self.proxy.accept(cx.now, cx.poller, socket);
                            self.open_for_proxy(cx, asked);
                        }
                        ForwardDestination::Original => reset(socket),
                    }
                }
                AcceptOutcome::Diverted(socket, app, destination) => {
                    self.log_accepted(&app);
                    self.open(cx, socket, transparent::target(destination).to_string());
                }
                AcceptOutcome::Direct(app) => self.log_direct(&app),
                AcceptOutcome::Empty => return,
                AcceptOutcome::Exhausted(cause) => {
                    warn_of_exhaustion(&mut self.exhausted, cx.now, &cause);
                    self.pause(cx, Some(cx.now + EXHAUSTED_PAUSE));
                    return;
                }
                AcceptOutcome::Failed => {}
            }
        }
    }

    fn handle_message(&mut self, cx: &mut WorkerContext<'_>, message: Message) {
        match message {
            Message::NetworkChanged(pending) => {
                // From here on, another change sends another message.
                drop(pending);
                self.reverse.handle_network_change();
                cx.engine.handle_network_change(cx.now);
            }
            Message::Reconnect => {
                self.reverse.handle_reconnect();
                cx.engine.reconnect(cx.now);
            }
            Message::TargetResolved { flow, result } => {
                self.reverse.handle_resolved(cx, flow, result);
            }
            Message::ServerResolved {
                server,
                tenant,
                resolved,
            } => cx.engine.handle_resolved(cx.now, server, tenant, &resolved),
            Message::PlacesChanged(pending) => {
                // From here on, another change sends another message.
                drop(pending);
                self.set_places(cx);
            }
            Message::Rules(change) => {
                if let (Rules::Client(rules), Some(client)) = (&change.rules, &change.client) {
                    self.apply(cx, rules, client);
                }
                change.done(RevokedCounts::default());
            }
            Message::Token { key, ticket, token } => {
                let waiting = self.waiting.get(key);
                if waiting.is_some_and(|waiting| waiting.ticket == ticket) {
                    let waiting = self.waiting.remove(key);
                    match token {
                        Some(token) => {
                            self.open(cx, waiting.socket, token);
                        }
                        None => reset(waiting.socket),
                    }
                }
            }
            _ => {}
        }
    }

    fn flush(&mut self, cx: &mut WorkerContext<'_>) -> bool {
        self.tun.as_mut().is_some_and(|tun| tun.flush(cx))
    }

    fn handle_pause(&mut self, cx: &mut WorkerContext<'_>, since: Instant) {
        let stopped_s = cx.now.saturating_duration_since(since).as_secs();
        debug!(target: "quictun", stopped_s, "this process was stopped: asking the server at once");
        cx.engine.handle_pause(cx.now, since);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let tun = self.tun.as_ref().and_then(TunPort::next_timeout);
        let silent = self.dialling.iter().filter_map(|it| it.silent_at).min();
        let (moves, proxy) = (self.moves.next_timeout(), self.proxy.next_timeout());
        let reverse = self.reverse.next_timeout();
        let times = [self.paused, silent, tun, moves, proxy, reverse];
        times.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, cx: &mut WorkerContext<'_>) {
        self.proxy.handle_timeout(cx.now);
        if let Some(tun) = &mut self.tun {
            tun.handle_timeout(cx);
        }
        while let Some(moved) = self.moves.handle_timeout(cx.now) {
            log_move(&moved);
        }
        self.reverse.handle_timeout(cx);
        self.probe_silent_servers(cx.now);
        if self.paused.is_some_and(|until| until <= cx.now) {
            self.paused = None;
            if !self.stopped {
                let numbers: Vec<ForwardNumber> = self.forwards.keys().copied().collect();
                for number in numbers {
                    self.watch(cx, number);
                }
            }
        }
    }

    fn stop_accepting(&mut self, cx: &mut WorkerContext<'_>) {
        self.stopped = true;
        self.reverse.stop(cx);
        if let Some(tun) = &mut self.tun {
            // The engine refuses new connections, because it takes no more flows.
            tun.stop_accepting(cx);
        }
        self.pause(cx, None);
        self.proxy.stop();
        // The descriptors close here, so later connections are refused at once.
        self.forwards.clear();
    }

    fn failure(&self) -> Option<io::Error> {
        self.tun.as_ref().and_then(TunPort::failure)
    }

    fn is_over(&self) -> bool {
        self.single_flow.as_ref().is_some_and(SingleFlow::is_over)
    }

    fn handle_unconfirmed(&mut self) {
        if let Some(single_flow) = &mut self.single_flow {
            single_flow.handle_unconfirmed();
        }
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.tun.as_ref().is_some_and(TunPort::is_busy)
    }
}

impl ClientWorker {
    fn handle_established(&mut self, cx: &mut WorkerContext<'_>, flow: FlowId, stream_id: u64) {
        let server = cx.engine.server_of(flow);
        let status = server.and_then(|server| self.servers.get(server));
        if status.is_some_and(|status| status.refused.clear()) {
            info!(target: "quictun", "the server no longer refuses this client");
        }
        let id = self.log.id(flow);
        log_beginning!(self.log.phrases, { "Stream-ID" = stream_id, flow = id }, "Handshake successful", "flow established");
        if let Some(tun) = &mut self.tun {
            tun.handle_established(cx, flow);
        }
        proxy::handle_established(cx, flow);
    }

    fn handle_flow_closed(&mut self, cx: &WorkerContext<'_>, summary: &FlowSummary) {
        let given_up = self.tun.as_ref();
        if given_up.is_some_and(|tun| tun.has_given_up(summary.flow)) {
            debug!(target: "quictun", flow = self.log.id(summary.flow), "given up: it had no answer when the drain began");
        } else {
            let target = self.incoming.remove(&summary.flow);
            let (servers, unreachable) = (self.servers.shown(), self.unreachable());
            let line = self.reverse.line_about_end(cx.now, summary);
            let known = FlowFacts {
                target: target.as_deref(),
                server: Some(&servers),
                unreachable: unreachable.as_deref(),
                left_out: line.and_then(LinePermit::left_out),
                ..FlowFacts::default()
            };
            if let Some(single_flow) = &mut self.single_flow {
                single_flow.handle_closed(summary, known);
            }
            if line.is_some() {
                self.log.closed(summary, known);
            }
        }
        self.proxy
            .handle_closed(cx.now, cx.poller, summary.flow, summary.ending);
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

    fn open(&self, cx: &mut WorkerContext<'_>, socket: AppSocket, token: String) -> Option<FlowId> {
        let asked = FlowToOpen {
            socket,
            token,
            watched: None,
        };
        self.open_watched(cx, asked)
    }

    /// Opens the flow that an application has asked the proxy for, if any.
    fn open_for_proxy(&mut self, cx: &mut WorkerContext<'_>, asked: Option<FlowToOpen>) {
        let Some(asked) = asked else {
            return;
        };
        let watched = asked.watched;
        match self.open_watched(cx, asked) {
            Some(flow) => self.proxy.name(cx, flow),
            None => self.proxy.handle_refused(cx.now, cx.poller, watched),
        }
    }

    fn open_watched(&self, cx: &mut WorkerContext<'_>, asked: FlowToOpen) -> Option<FlowId> {
        let client_app = asked.socket.peer();
        log_beginning!(
            self.log.phrases,
            { "Client-App-Addr" = client_app },
            "Starting handshake with server endpoint",
            "asking the server for a flow"
        );
        let source = self.sends_sources.then(|| asked.socket.peer_address());
        let request = FlowRequest {
            token: asked.token,
            client_app,
            source: source.flatten(),
        };
        let flow = cx.engine.open_flow(cx.now, asked.socket, request)?;
        if let Some(socket) = cx.engine.socket(flow) {
            let (fd, key) = (socket.descriptor(), Key::Flow(flow));
            let watched = if asked.watched.is_some() {
                cx.poller.rename_flow(fd, key)
            } else {
                cx.poller.add_flow(fd, key)
            };
            if let Err(cause) = watched {
                warn!(target: "quictun", %cause, "a connection cannot be watched: it was reset");
                cx.fail(flow);
            }
        }
        Some(flow)
    }

    fn log_direct(&mut self, app: &AppAddr) {
        if std::mem::replace(&mut self.direct, true) {
            return debug!(target: "quictun", { "Client-App-Addr" = %app }, "a connection was made to the listener itself: it was reset");
        }
        warn!(target: "quictun", { "Client-App-Addr" = %app }, "a connection was made to the listener itself, which carries only connections that the packet filter redirects: it was reset, and so are further ones");
    }

    fn request_token(&mut self, socket: AppSocket, forward: usize, app: AppAddr) {
        if self.waiting.len() >= WAITING_MAX {
            warn!(target: "quictun", "too many connections wait for a token: one was reset");
            return reset(socket);
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let key = self.waiting.insert(TokenWaiter { socket, ticket });
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

    fn pause(&mut self, cx: &mut WorkerContext<'_>, until: Option<Instant>) {
        if self.paused.is_none() {
            for forward in self.forwards.values() {
                if let Err(cause) = cx.poller.remove(&*forward.listener) {
                    debug!(target: "quictun", %cause, "a listener was not watched");
                }
            }
        }
        self.paused = until;
    }
}

fn log_move(moved: &Move) {
    let (remote, flows, left) = (moved.remote, moved.flows, Untrusted(&moved.reason));
    info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, flows, without_ms = moved.without_ms(), %left }, "flows continue on a new connection");
}

fn reset(mut socket: AppSocket) {
    quictun_engine::Socket::abort(&mut socket);
}

/// Changes the local UDP port. A device on the path may drop everything from the old port, from where a new connection
/// would fail, too. Returns whether the port has changed.
fn change_local_port(cx: &WorkerContext<'_>) -> bool {
    // Connections that still work would have to migrate to the new port.
    if cx.engine.hears_server() {
        return false;
    }
    let renewed = cx.udp.renew();
    if let Err(cause) = &renewed {
        warn!(target: "quictun", %cause, "the UDP socket keeps its port");
    }
    renewed.is_ok()
}

/// Changes the local UDP port and starts a connection from there.
fn reconnect_from_new_port(cx: &mut WorkerContext<'_>) {
    if change_local_port(cx) {
        cx.engine.handle_new_port(cx.now);
    }
}
