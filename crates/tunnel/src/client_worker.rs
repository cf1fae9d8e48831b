//! A client's worker: passes the events of flows to their sources, and those of connections to the part that dials.

mod associations;
mod datagram_sources;
pub(crate) mod datagram_table;
mod dialling;
mod diverted_datagrams;
mod forwards;
mod hand_over;
pub(crate) mod reverse;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::report::CarrierKind;
use quictun_engine::{Client, ClientEngine, ClientEvent, Event, FlowId, FlowSummary, LossReason};
use quictun_wire::handover::HandedBond;
use tracing::{debug, info, warn};

use crate::app_socket::AppSocket;
use crate::carrier_dials::CarrierDials;
use crate::flow_source::{FlowEnd, FlowSource};
use crate::mailbox::{ClientMessage, Message};
use crate::moves::{Move, Moves};
use crate::reload::change::{ClientChange, RevokedCounts, Rules};
use crate::reload::client::ClientRules;
use crate::reload::dialled::DialledServers;
use crate::role::{ClientContext, WorkerPart, WorkerRole, log_congestion};
use crate::service::Services;
use crate::single_flow::SingleFlow;
use crate::tun_port::TunPort;
pub(crate) use dialling::ServerDialling;
pub(crate) use forwards::Forwards;
pub(crate) use hand_over::FlowsToContinue;
use quictun_control::flow_log::{FlowFacts, FlowLog};
use quictun_control::line_budget::LinePermit;
use quictun_control::log::Untrusted;
use quictun_control::log_beginning;
use quictun_control::snapshot::WorkerSnapshot;
use quictun_io::poller::{Key, ReadyEvent};
use reverse::ReverseForwarder;

/// Time for which connections stay open after their flows were detached for another process: some round trips, also by
/// satellite. A server limits the flows of a client that wait without a connection, and flows that have moved do not wait.
const LEAVING_TIME: Duration = Duration::from_secs(3);

pub(crate) struct ClientWorker {
    pub(crate) forwards: Forwards,
    /// The reverse forwards. One worker has all of them.
    pub(crate) reverse: ReverseForwarder,
    /// The TUN device whose connections are carried. One worker has it.
    pub(crate) tun: Option<TunPort>,
    /// The single flow that the process runs for, if any.
    pub(crate) single_flow: Option<SingleFlow>,
    pub(crate) dialling: ServerDialling,
    pub(crate) moves: Moves,
    pub(crate) log: FlowLog,
    pub(crate) carriers: CarrierDials,
    pub(crate) dialled: Arc<DialledServers>,
    pub(crate) services: Services,
    pub(crate) taken: FlowsToContinue,
}

impl WorkerPart for ClientWorker {
    type Role = Client;

    fn start(&mut self, cx: &mut ClientContext<'_>) -> io::Result<()> {
        self.start_taken(cx);
        self.sources_mut().try_for_each(|source| source.start(cx))
    }

    fn handle_ready(&mut self, cx: &mut ClientContext<'_>, ready: ReadyEvent) {
        if let Key::Carrier(connection) = ready.key {
            return self.carriers.handle_ready(cx, connection, ready);
        }
        for source in self.sources_mut() {
            source.handle_ready(cx, ready);
        }
    }

    fn flush(&mut self, cx: &mut ClientContext<'_>) -> bool {
        let each = self.sources_mut();
        each.fold(false, |any, source| source.flush(cx) | any)
    }

    fn next_timeout(&self) -> Option<Instant> {
        let own = [
            self.dialling.next_timeout(),
            self.moves.next_timeout(),
            self.carriers.next_timeout(),
        ];
        let sources = self.sources().map(WorkerPart::next_timeout);
        sources.chain(own).flatten().min()
    }

    fn handle_timeout(&mut self, cx: &mut ClientContext<'_>) {
        for source in self.sources_mut() {
            source.handle_timeout(cx);
        }
        while let Some(moved) = self.moves.handle_timeout(cx.now) {
            log_move(&moved);
        }
        self.carriers.handle_timeout(cx);
        let tun = self.tun.as_ref();
        let no_flow_waits = tun.is_some_and(TunPort::has_no_waiting_flow);
        self.dialling.probe_silent_servers(cx.now, no_flow_waits);
    }

    fn stop_accepting(&mut self, cx: &mut ClientContext<'_>) {
        for source in self.sources_mut() {
            source.stop_accepting(cx);
        }
    }

    fn failure(&self) -> Option<io::Error> {
        self.sources().find_map(WorkerPart::failure)
    }

    fn is_over(&self) -> bool {
        self.sources().any(WorkerPart::is_over)
    }

    fn handle_unconfirmed(&mut self) {
        for source in self.sources_mut() {
            source.handle_unconfirmed();
        }
    }

    fn is_busy(&self) -> bool {
        self.sources().any(WorkerPart::is_busy)
    }
}

impl WorkerRole for ClientWorker {
    fn handle_event(&mut self, cx: &mut ClientContext<'_>, event: ClientEvent) {
        match event {
            ClientEvent::Shared(event) => self.handle_shared_event(cx, event),
            ClientEvent::Resolve { server, tenant } => {
                self.dialling.request_addresses(cx, server, tenant);
            }
            ClientEvent::DialCarrier {
                connection,
                server,
                remote,
                through_proxy,
            } => {
                let to = through_proxy.then_some(server);
                self.carriers.dial(cx, connection, remote, to);
            }
            ClientEvent::Chosen {
                server,
                before,
                reason,
            } => self.dialling.log_choice(server, before, reason),
            ClientEvent::TransfersMoved {
                server,
                over_tls,
                reason,
            } => self.dialling.log_transfers(server, over_tls, reason),
            ClientEvent::Welcome {
                server,
                connection,
                remote,
                protocol,
                bonded,
                reverse,
                ..
            } => {
                let carrier = cx.engine.carrier_of(connection);
                let carrier = carrier.unwrap_or(CarrierKind::Quic);
                let proxy = self.carriers.proxy_of(server);
                let proxy = proxy.filter(|_| carrier == CarrierKind::Tls);
                let by = (protocol, carrier, proxy);
                self.dialling
                    .handle_welcome(cx.now, server, remote, by, bonded);
                self.reverse.handle_welcome(cx, server, connection, reverse);
            }
            ClientEvent::ConnectFailed {
                server,
                remote,
                reason,
                ..
            } => {
                self.dialling.handle_failed(cx.now, server, remote, &reason);
                if reason == LossReason::TimedOut {
                    change_local_port(cx);
                }
            }
            ClientEvent::ListenAnswered { connection, answer } => {
                self.reverse.handle_answer(cx.now, connection, &answer);
            }
            ClientEvent::Incoming(taken) => self.reverse.handle_incoming(cx, &taken),
            ClientEvent::Unanswered => reconnect_from_new_port(cx),
            ClientEvent::ServerAnswers { server, remote } => {
                self.dialling.handle_answer(cx.now, server, remote);
            }
        }
    }

    fn handle_message(&mut self, cx: &mut ClientContext<'_>, message: Message) {
        match message {
            Message::NetworkChanged(pending) => {
                // From here on, another change sends another message.
                drop(pending);
                self.reverse.handle_network_change();
                cx.engine.handle_network_change(cx.now);
            }
            Message::Client(ClientMessage::Reconnect) => {
                self.reverse.handle_reconnect();
                cx.engine.reconnect(cx.now);
            }
            Message::TargetResolved { flow, result } => {
                self.reverse.handle_resolved(cx, flow, result);
            }
            Message::Client(ClientMessage::ServerResolved {
                server,
                tenant,
                resolved,
                proxied,
            }) => {
                let place = self.dialling.servers.place(server);
                let tls_port = place.and_then(|place| place.tls_port);
                let way = proxied.map(|way| way.at_port(tls_port));
                self.carriers.set_way(cx, server, way);
                cx.engine.handle_resolved(cx.now, server, tenant, &resolved);
            }
            Message::Client(ClientMessage::UdpRejected(remote)) => {
                cx.engine.handle_udp_rejected(cx.now, remote);
            }
            Message::Client(ClientMessage::PlacesChanged(pending)) => {
                // From here on, another change sends another message.
                drop(pending);
                self.dialling.set_places(cx);
            }
            Message::Rules(change) => {
                if let (Rules::Client(rules), Some(client)) = (&change.rules, &change.client) {
                    self.apply(cx, rules, client);
                }
                change.done(RevokedCounts::default());
            }
            Message::Client(ClientMessage::Token { key, ticket, token }) => {
                self.forwards.handle_token(cx, (key, ticket), token);
            }
            Message::Drain | Message::Close | Message::HandOver(_) | Message::Server(_) => {}
        }
    }

    fn handle_pause(&mut self, cx: &mut ClientContext<'_>, since: Instant) {
        let stopped_s = cx.now.saturating_duration_since(since).as_secs();
        debug!(target: "quictun", stopped_s, "this process was stopped: asking the server at once");
        cx.engine.handle_pause(cx.now, since);
    }

    fn prepare_hand_over(&mut self, cx: &mut ClientContext<'_>, until: Instant) {
        self.forwards.rest_until(cx, until);
    }

    /// A flow that its server has not answered could not continue.
    fn has_settled(&self, cx: &ClientContext<'_>) -> bool {
        !self.is_busy() && cx.engine.restart_cost().unanswered == 0
    }

    fn hand_over(&self, cx: &ClientContext<'_>) -> Vec<(HandedBond, Vec<FlowId>)> {
        self.flows_to_hand_over(cx)
    }

    fn leaving_time(&self) -> Duration {
        LEAVING_TIME
    }

    fn release(&mut self, _: &mut ClientContext<'_>) {
        self.forwards.release();
    }

    fn add_reports(engine: &ClientEngine<AppSocket>, snapshot: &mut WorkerSnapshot) {
        snapshot.servers = engine.server_reports(Instant::now());
    }
}

impl ClientWorker {
    fn sources(&self) -> impl Iterator<Item = &dyn FlowSource> {
        let always: [&dyn FlowSource; 2] = [&self.forwards, &self.reverse];
        let tun = self.tun.as_ref().map(|tun| tun as _);
        let single_flow = self.single_flow.as_ref().map(|flow| flow as _);
        always.into_iter().chain(tun).chain(single_flow)
    }

    fn sources_mut(&mut self) -> impl Iterator<Item = &mut dyn FlowSource> {
        let always: [&mut dyn FlowSource; 2] = [&mut self.forwards, &mut self.reverse];
        let tun = self.tun.as_mut().map(|tun| tun as _);
        let single_flow = self.single_flow.as_mut().map(|flow| flow as _);
        always.into_iter().chain(tun).chain(single_flow)
    }

    /// Applies a reload. Open flows continue, whatever has become of their forward or server.
    fn apply(&mut self, cx: &mut ClientContext<'_>, rules: &ClientRules, change: &ClientChange) {
        self.dialling.apply(cx, &change.dialled);
        self.forwards.apply(cx, rules, &change.forwards);
        self.reverse.apply(cx, rules, change.reverse_server);
    }

    fn handle_shared_event(&mut self, cx: &mut ClientContext<'_>, event: Event) {
        match event {
            Event::Connected { .. } | Event::Migrated { .. } => {}
            Event::Disconnected {
                server,
                connection,
                remote,
                reason,
                flows,
                salvaged,
                waiting,
            } => {
                if let Some(moved) = self.moves.handle_disconnected(connection) {
                    log_move(&moved);
                }
                if salvaged > 0 {
                    info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, flows = salvaged }, "connection gone: data that its flows have received completely is still delivered");
                }
                self.dialling
                    .handle_disconnected(server, remote, &reason, (flows, waiting.len()));
                self.reverse.handle_lost(cx, connection, true);
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
            Event::Responsive { remote, .. } => {
                info!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "server endpoint answers again");
            }
            Event::Congestion(state) => log_congestion(&state),
            Event::Established { flow, stream_id } => self.handle_established(cx, flow, stream_id),
            Event::FlowClosed(summary) => self.handle_flow_closed(cx, &summary),
        }
    }

    fn handle_established(&mut self, cx: &mut ClientContext<'_>, flow: FlowId, stream_id: u64) {
        let server = cx.engine.server_of(flow);
        let status = server.and_then(|server| self.dialling.servers.get(server));
        if status.is_some_and(|status| status.refused.clear()) {
            info!(target: "quictun", "the server no longer refuses this client");
        }
        let id = self.log.id(flow);
        log_beginning!(self.log.phrases, { "Stream-ID" = stream_id, flow = id }, "Handshake successful", "flow established");
        for source in self.sources_mut() {
            source.handle_established(cx, flow);
        }
    }

    fn handle_flow_closed(&mut self, cx: &mut ClientContext<'_>, summary: &FlowSummary) {
        let unreachable = self.dialling.unreachable();
        let tun = self.tun.as_ref();
        if tun.is_some_and(|tun| tun.has_given_up(summary.flow)) {
            debug!(target: "quictun", flow = self.log.id(summary.flow), "given up: it had no answer when the drain began");
        } else if self
            .tun
            .as_mut()
            .is_some_and(|tun| tun.leaves_out(cx.now, summary))
        {
            debug!(target: "quictun", flow = self.log.id(summary.flow), "a datagram flow was refused or has failed, as others have");
        } else if let Some(line) = self.reverse.line_about_end(cx.now, summary) {
            let known = FlowFacts {
                target: self.reverse.target_of(summary.flow),
                server: Some(&self.dialling.servers.shown()),
                unreachable: unreachable.as_deref(),
                left_out: LinePermit::left_out(line),
                ..FlowFacts::default()
            };
            self.log.closed(summary, known);
        }
        let end = FlowEnd {
            summary,
            unreachable: unreachable.as_deref(),
        };
        for source in self.sources_mut() {
            source.handle_closed(cx, &end);
        }
    }
}

fn log_move(moved: &Move) {
    let (remote, flows, left) = (moved.remote, moved.flows, Untrusted(&moved.reason));
    info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, flows, without_ms = moved.without_ms(), %left }, "flows continue on a new connection");
}

/// Changes the local UDP port. A device on the path may drop everything from the old port, from where a new connection
/// would fail, too. Returns whether the port has changed.
fn change_local_port(cx: &ClientContext<'_>) -> bool {
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
fn reconnect_from_new_port(cx: &mut ClientContext<'_>) {
    if change_local_port(cx) {
        cx.engine.handle_new_port(cx.now);
    }
}
