//! The engine: its inputs and outputs, and the order of the work between them.

#[cfg(feature = "check")]
pub(crate) mod check;
mod client;
mod hand_over;
mod queries;
mod server;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_congestion::Algorithm;
use quictun_flow::{ConnectionId, ConnectionKey, FlowId, Socket};
use quictun_wire::code::{CloseCode, FlowCode};

use crate::carrier::CarrierEvent;
use crate::client::Client;
use crate::datagrams::Datagrams;
use crate::loss::LossReason;
use crate::role::{Moment, Role};
use crate::server::Server;
use crate::traffic::{DatagramRecipient, Traffic};

/// One worker of the tunnel, in the role `R`: [`Client`] or [`Server`]. See the crate documentation for the order of
/// calls.
///
/// The functions of one role exist for that role only. A call for the other role does not compile:
///
/// ```compile_fail,E0599
/// use std::time::Instant;
///
/// use quictun_engine::{ClientEngine, ConnectionId, Socket};
///
/// fn admit<S: Socket>(engine: &mut ClientEngine<S>, connection: ConnectionId) {
///     engine.admit(Instant::now(), connection);
/// }
/// ```
pub struct Engine<S, R> {
    traffic: Traffic<S>,
    role: R,
}

/// The engine of a client.
pub type ClientEngine<S> = Engine<S, Client>;

/// The engine of a server.
pub type ServerEngine<S> = Engine<S, Server>;

/// Inputs: events that the caller passes to the engine.
impl<S: Socket, R: Role> Engine<S, R> {
    /// Handles one received UDP datagram. `ecn` holds the two ECN bits, if known.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<u8>,
        data: BytesMut,
    ) {
        let traffic = &mut self.traffic;
        if let Some(recipient) = traffic.handle_datagram(now, remote, local_ip, ecn, data) {
            self.role.handle_datagram(now, traffic, recipient);
        }
    }

    /// Handles everything that is due. Call it at or after [`Engine::next_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(key) = self.traffic.connections.pop_due(now) {
            self.handle_due_connection(now, key);
        }
        while let Some((key, due)) = self.traffic.flows.pop_due(now) {
            if self.traffic.expire_flow(now, key, due) {
                self.role.handle_unanswered(now, &mut self.traffic, key);
            }
        }
        self.traffic.end_idle_datagram_flows(now);
        self.traffic.serve_unattached(now);
        self.role.drive(now, &mut self.traffic);
    }

    /// Sends acknowledgements that are due by `soon` immediately, on connections with nothing in flight. Their timers
    /// then cause no wake-up of their own.
    pub fn acknowledge_early(&mut self, soon: Instant) {
        while let Some(key) = self.traffic.connections.pop_deadline(soon) {
            if let Some(connection) = self.traffic.connections.get_mut(key) {
                connection.carrier.acknowledge_early(soon);
            }
            self.traffic.connections.mark(key);
        }
    }

    fn handle_due_connection(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.traffic.connections.get_mut(key) else {
            return;
        };
        let due = connection.handle_timeout(now);
        if due.handshake {
            connection.close(now, CloseCode::Done, Bytes::new());
            self.traffic.forget(now, key, LossReason::TimedOut);
            return self.note_ended(now);
        }
        if due.admission {
            self.handle_moment(now, key, Moment::AdmissionLate);
            self.note_ended(now);
        }
        if due.pending_seen {
            self.traffic.send_pending_seen(key);
        }
        if due.rate {
            self.traffic.serve_shaped(now, key);
        }
        let verdict = self.traffic.check_liveness(now, key);
        self.handle_moment(now, key, Moment::Silent(verdict));
        self.traffic.connections.mark(key);
    }

    /// Handles a flow's socket that may have become readable or writable, or has failed.
    pub fn handle_socket(
        &mut self,
        now: Instant,
        id: FlowId,
        readable: bool,
        writable: bool,
        failed: bool,
    ) {
        // The error of a socket for datagrams may concern one of them alone. Reading tells.
        let datagrams = failed && self.traffic.exchanges_datagrams(id);
        let (readable, failed) = (readable || datagrams, failed && !datagrams);
        self.traffic
            .handle_socket(now, id, readable, writable, failed);
    }

    /// Ends a flow as if its application's socket had failed.
    pub fn fail_socket(&mut self, now: Instant, id: FlowId) {
        self.traffic.handle_socket(now, id, false, false, true);
    }

    /// Counts datagrams of applications that the caller has dropped, because no flow could take them.
    pub fn note_dropped_datagrams(&mut self, datagrams: u64) {
        self.traffic.totals.flow_datagrams_dropped += datagrams;
    }

    /// Ends a datagram flow, because its application has ended.
    pub fn end_datagram_flow(&mut self, now: Instant, id: FlowId) {
        self.traffic.end_datagram_flow_of(now, id);
    }

    /// Handles a carrier's socket that may have become readable or writable, or has failed.
    pub fn handle_carrier_socket(
        &mut self,
        now: Instant,
        id: ConnectionId,
        readable: bool,
        writable: bool,
        failed: bool,
    ) {
        let traffic = &mut self.traffic;
        let heard = traffic.handle_carrier_socket(now, id, readable, writable, failed);
        if let Some((key, contact)) = heard {
            let recipient = DatagramRecipient::Connection(key, contact);
            self.role.handle_datagram(now, traffic, recipient);
        }
    }

    /// Returns the socket of a carrier, so that the caller can watch it.
    pub fn carrier_socket(&self, id: ConnectionId) -> Option<&S> {
        self.traffic.carrier_socket(id)
    }

    /// Returns the socket of a carrier, so that the caller can change what it keeps with the socket. The caller must not
    /// read or write it.
    pub fn carrier_socket_mut(&mut self, id: ConnectionId) -> Option<&mut S> {
        self.traffic.carrier_socket_mut(id)
    }

    /// Takes the result of a dial: the answer to [`crate::ServerEvent::Open`] or [`crate::ClientEvent::Incoming`]. If the
    /// flow has ended meanwhile, the socket is reset and dropped.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        id: FlowId,
        result: Result<(S, String), FlowCode>,
    ) {
        self.traffic.handle_dialed(now, id, result);
    }
}

/// Outputs: what the caller polls for.
impl<S: Socket, R: Role> Engine<S, R> {
    /// Returns the time of the next call of [`Engine::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Instant> {
        let both = [self.traffic.next_timeout(), self.role.next_timeout()];
        both.into_iter().flatten().min()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<R::Event> {
        std::iter::from_fn(|| self.traffic.events.0.pop_front()).find_map(R::event)
    }

    /// Returns the next batch to send. Clears `buffer` and writes the batch's bytes to it.
    ///
    /// A server makes a step of a handshake, once in each turn, when it has nothing else to send. Established
    /// connections then never wait for more than one.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Datagrams> {
        let mut datagrams = self.traffic.poll_transmit(now, buffer);
        self.note_ended(now);
        if datagrams.is_none() && self.role.make_step(now, &mut self.traffic) {
            self.drive_marked(now);
            datagrams = self.traffic.poll_transmit(now, buffer);
            self.note_ended(now);
        }
        datagrams
    }

    /// Lets connections over TCP send, and leaves datagrams where they are: the caller's UDP socket has no room for them.
    pub fn transmit_over_tcp(&mut self, now: Instant) {
        self.traffic.transmit_over_tcp(now);
        self.note_ended(now);
    }

    /// Returns the number of bytes that connections over TCP have read and written since the last call.
    pub fn take_moved_over_tcp(&mut self) -> u64 {
        self.traffic.carrier_sockets.take_moved()
    }

    /// Does the work that results from inputs and commands: delivers received data to applications, answers requests,
    /// opens connections. Needs no room in the UDP socket.
    pub fn drive(&mut self, now: Instant) {
        self.traffic.charge_kept();
        self.traffic.free_memory(now);
        self.traffic.connections.begin_turn();
        self.role.begin_turn(now, &mut self.traffic);
        self.drive_marked(now);
        self.role.drive(now, &mut self.traffic);
    }

    fn drive_marked(&mut self, now: Instant) {
        while let Some(key) = self.traffic.connections.next_marked() {
            self.drive_connection(now, key);
        }
    }

    fn drive_connection(&mut self, now: Instant, key: ConnectionKey) {
        let Some(drained) = self.traffic.exchange(now, key) else {
            return;
        };
        while let Some(event) = self.traffic.poll_carrier(key) {
            self.handle_carrier_event(now, key, event);
        }
        if drained {
            // The events have reported the reason. `TimedOut` applies only to a connection that was closed silently.
            self.traffic.datagram_flows.arrived.clear();
            self.traffic.forget(now, key, LossReason::TimedOut);
            return self.note_ended(now);
        }
        self.traffic.deliver(now, key);
        // Behind the streams, which may bring the requests of these datagrams' flows.
        self.traffic.take_datagrams(now, key);
        self.traffic.poll_resets(now, key);
        self.handle_moment(now, key, Moment::Delivered);
        self.note_ended(now);
        self.traffic.follow_up(now, key);
    }

    fn handle_carrier_event(&mut self, now: Instant, key: ConnectionKey, event: CarrierEvent) {
        let traffic = &mut self.traffic;
        match event {
            CarrierEvent::Connected => {
                if traffic.handle_connected(now, key) {
                    self.handle_moment(now, key, Moment::Connected);
                }
            }
            CarrierEvent::Lost(reason) => {
                self.handle_moment(now, key, Moment::Losing(&reason));
                self.traffic.lose(now, key, reason);
                self.note_ended(now);
            }
            CarrierEvent::Opened => traffic.accept_streams(now, key),
            CarrierEvent::Readable(stream) => traffic.note_readable(key, stream),
            CarrierEvent::Writable(stream) => traffic.note_writable(key, stream),
            CarrierEvent::Stopped(stream, code) => traffic.handle_stopped(now, key, stream, code),
            CarrierEvent::Available => self.handle_moment(now, key, Moment::StreamsAvailable),
            CarrierEvent::Datagram(frame) => traffic.datagram_flows.arrived.push(frame),
        }
    }

    fn handle_moment(&mut self, now: Instant, key: ConnectionKey, moment: Moment<'_>) {
        self.role.handle_moment(now, &mut self.traffic, key, moment);
    }

    /// Lets the role handle connections that have ended.
    fn note_ended(&mut self, now: Instant) {
        self.role.note_ended(now, &mut self.traffic);
    }
}

/// Commands: operations that the caller requests.
impl<S: Socket, R: Role> Engine<S, R> {
    /// Sets the transport of connections that begin from now on, as far as it may change while the engine runs: the
    /// congestion controller, the idle timeout, and the silence before a keep-alive.
    pub fn set_transport(
        &mut self,
        congestion: Algorithm,
        idle_timeout: Duration,
        keep_alive: Duration,
    ) {
        let transport = &mut self.traffic.transport;
        transport.congestion = congestion;
        (transport.idle_timeout, transport.keep_alive) = (idle_timeout, keep_alive);
    }

    /// Sets the silence after which a datagram flow ends, for open flows, too.
    pub fn set_datagram_idle(&mut self, idle: Duration) {
        self.traffic.datagram_flows.set_idle(idle);
    }

    /// Closes a connection and resets its flows on both sides.
    pub fn close_connection(&mut self, now: Instant, id: ConnectionId, code: CloseCode) {
        self.traffic.close_connection(now, id, code);
        self.note_ended(now);
    }

    /// Sets the number of segments per send call. Use 1 if the system cannot segment.
    pub fn set_max_segments(&mut self, segments: usize) {
        self.traffic.transport.max_segments = segments.max(1);
    }

    /// Sets how long the caller sleeps between turns, regardless of events. The pacers make up for that time.
    pub fn set_sleeps(&mut self, sleeps: Duration) {
        self.traffic.sleeps = sleeps;
    }

    /// Prepares the end. A client takes no new flows; a server takes no new connections, and asks its clients to open
    /// their flows at another server. [`Engine::is_drained`] returns true once all flows are done.
    pub fn drain(&mut self) {
        self.traffic.drain();
    }

    /// Ends everything: resets open flows and closes all connections. Poll for the last transmits afterwards.
    pub fn close(&mut self, now: Instant) {
        self.traffic.draining = true;
        self.role.stop(&mut self.traffic);
        let connections = self.traffic.connections.iter();
        let ids: Vec<ConnectionId> = connections.map(|(_, connection)| connection.id()).collect();
        for id in ids {
            self.close_connection(now, id, CloseCode::Shutdown);
        }
        self.traffic.abandon_all_salvaged(now);
        self.traffic.abandon_all_detached(now);
        self.role
            .refuse_waiting(now, &mut self.traffic, FlowCode::ShuttingDown);
    }
}

impl<S, R> fmt::Debug for Engine<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let traffic = &self.traffic;
        f.debug_struct("Engine")
            .field("connections", &traffic.connections.iter().count())
            .field("flows", &traffic.flows.count())
            .field("totals", &traffic.totals)
            .finish_non_exhaustive()
    }
}
