//! The part of a worker that differs between client and server.

use std::io;
use std::time::{Duration, Instant};

use quictun_control::snapshot::WorkerSnapshot;
use quictun_engine::{AcceptedTcp, Client, ConnectionId, Engine, FlowId, Role, SendState, Server};
use quictun_wire::code::CloseCode;
use quictun_wire::handover::HandedBond;
use tracing::{debug, warn};

use crate::app_socket::AppSocket;
use crate::mailbox::Message;
use crate::tcp_socket::TcpSocket;
use quictun_io::poller::{Key, Poller, ReadyEvent};
use quictun_io::udp_port::UdpPort;

/// A part of a worker with listeners, sockets or times of its own.
pub(crate) trait WorkerPart {
    /// The role of the worker's engine.
    type Role: Role;

    /// Starts the part: the worker calls this once, before the first turn.
    fn start(&mut self, _: &mut WorkerContext<'_, Self::Role>) -> io::Result<()> {
        Ok(())
    }
    /// Handles a listener, a dial or another socket that is ready. It may belong to another part.
    fn handle_ready(&mut self, _: &mut WorkerContext<'_, Self::Role>, _: ReadyEvent) {}
    /// Sends output that does not belong to the engine, at the end of a turn. Returns whether the engine may have work.
    fn flush(&mut self, _: &mut WorkerContext<'_, Self::Role>) -> bool {
        false
    }
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
    fn handle_timeout(&mut self, _: &mut WorkerContext<'_, Self::Role>) {}
    fn stop_accepting(&mut self, _: &mut WorkerContext<'_, Self::Role>) {}
    /// Returns an error if the worker can do nothing more and the process should end.
    fn failure(&self) -> Option<io::Error> {
        None
    }
    /// Returns whether the worker's purpose is fulfilled, so that the process drains and ends.
    fn is_over(&self) -> bool {
        false
    }
    /// Handles that the process ends while a peer has not confirmed all bytes of a flow.
    fn handle_unconfirmed(&mut self) {}
    /// Returns whether work is under way that the engine does not know of yet.
    fn is_busy(&self) -> bool {
        false
    }
}

pub(crate) trait WorkerRole: WorkerPart {
    fn handle_event(
        &mut self,
        cx: &mut WorkerContext<'_, Self::Role>,
        event: <Self::Role as Role>::Event,
    );
    /// Handles a message that the loop itself does not consume.
    fn handle_message(&mut self, cx: &mut WorkerContext<'_, Self::Role>, message: Message);
    /// Handles a TCP connection that another worker has accepted for this one.
    fn handle_carrier(&mut self, _: &mut WorkerContext<'_, Self::Role>, _: AcceptedTcp<TcpSocket>) {
    }
    /// Handles a pause: the process has not run since this time, although work was due. For example, it was stopped.
    fn handle_pause(&mut self, _: &mut WorkerContext<'_, Self::Role>, _since: Instant) {}
    /// Prepares a hand-over to another process, which begins once [`WorkerRole::has_settled`], but at this time at the
    /// latest.
    fn prepare_hand_over(&mut self, _: &mut WorkerContext<'_, Self::Role>, _until: Instant) {}
    /// Returns whether no flow is in a state that a hand-over would end and that passes soon.
    fn has_settled(&self, _: &WorkerContext<'_, Self::Role>) -> bool {
        true
    }
    /// Returns whether the UDP socket goes over to the other process.
    fn hands_over_udp(&self) -> bool {
        false
    }
    /// Returns the flows that [`Engine::detach_all`] has detached and that another process can continue.
    fn hand_over(&self, _: &WorkerContext<'_, Self::Role>) -> Vec<(HandedBond, Vec<FlowId>)> {
        Vec::new()
    }
    /// Returns the time for which connections stay open after their flows were detached for another process, whether that
    /// has taken them or not.
    fn leaving_time(&self) -> Duration {
        Duration::ZERO
    }
    /// Lets go of what another process has taken over, or makes anew. The loop has the flows.
    fn release(&mut self, _: &mut WorkerContext<'_, Self::Role>) {}
    /// Adds the reports that only engines of this role have.
    fn add_reports(_: &Engine<AppSocket, Self::Role>, _: &mut WorkerSnapshot) {}
}

pub(crate) struct WorkerContext<'a, R> {
    pub(crate) now: Instant,
    pub(crate) engine: &'a mut Engine<AppSocket, R>,
    pub(crate) poller: &'a Poller,
    pub(crate) udp: &'a UdpPort,
}

pub(crate) type ClientContext<'a> = WorkerContext<'a, Client>;

pub(crate) type ServerContext<'a> = WorkerContext<'a, Server>;

impl<R: Role> WorkerContext<'_, R> {
    /// Handles a carrier's socket that is ready.
    pub(crate) fn handle_carrier_socket(&mut self, connection: ConnectionId, ready: ReadyEvent) {
        let (readable, writable, failed) = (ready.readable, ready.writable, ready.failed);
        let now = self.now;
        self.engine
            .handle_carrier_socket(now, connection, readable, writable, failed);
    }

    /// Watches a carrier's socket, which the engine has.
    pub(crate) fn watch_carrier(&mut self, connection: ConnectionId) {
        let socket = self.engine.carrier_socket(connection);
        let descriptor = socket.and_then(AppSocket::descriptor);
        let key = Key::Carrier(connection);
        if let Err(cause) = self.poller.add_flow(descriptor, key) {
            warn!(target: "quictun", %cause, "cannot watch a TCP connection: it is closed");
            let code = CloseCode::TooManyConnections;
            self.engine.close_connection(self.now, connection, code);
        }
    }

    /// Watches the socket of a flow, which the engine has. Resets the flow, and returns false, if that is not possible.
    pub(crate) fn watch_flow(&mut self, flow: FlowId) -> bool {
        if let Some(socket) = self.engine.socket(flow)
            && let Err(cause) = self.poller.add_flow(socket.descriptor(), Key::Flow(flow))
        {
            warn!(target: "quictun", %cause, "a connection cannot be watched: it was reset");
            self.fail(flow);
            return false;
        }
        true
    }

    /// Resets a flow, for example because its application's socket failed.
    pub(crate) fn fail(&mut self, flow: FlowId) {
        self.engine.fail_socket(self.now, flow);
    }
}

/// Logs the controller's view of the path, and the limit on sending, under the names of `/v1/connections`.
pub(crate) fn log_congestion(state: &SendState) {
    let view = &state.controller;
    debug!(
        target: "quictun",
        connection = state.connection.0,
        remote = %state.remote,
        congestion_control = view.mode,
        congestion_phase = view.phase,
        limited_by = state.limit.name(),
        bandwidth_bytes_per_second = view.bandwidth_known(),
        min_rtt_ms = view.min_rtt.map(|rtt| rtt.as_secs_f64() * 1000.0),
        loss_floor = view.loss_floor,
        loss_trust = view.trust,
        "congestion control"
    );
}
