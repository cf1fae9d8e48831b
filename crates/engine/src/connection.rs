//! One connection: its carrier, and the engine's state for it.

mod admission;
#[cfg(feature = "check")]
mod check;
mod control_stream;
mod credit;
mod liveness;
mod memory;
mod new_flows;
mod pending_seen;
mod report;
mod rtt_samples;
mod shaping;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use bytes::Bytes;
use quictun_congestion::{Liveness, NOTE_EVERY, PathKnowledge, PathMemory, Recovery};
use quictun_flow::{BondKey, ClientKey, ConnectionId, ControlStream, Lease, Leg, Stream, StreamId};
use quictun_wire::bond::{BOND_EXPORTER_LABEL, BondRequest};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::open::EXPORTER_LABEL;

use crate::bonds::{ClientProofs, ProvenIdentity};
use crate::carrier::quic::Packet;
use crate::carrier::{BatchContext, Carrier, PathView};
use crate::config::{Prover, Transport};
use crate::congestion_notice::CongestionNotice;
use crate::datagrams::Datagrams;
use crate::event::{Event, EventQueue, SendState};
use crate::grants::InitialGrants;
use crate::report::{Protocol, SendLimit, ServerId, Side, peer_key};

use admission::Admission;
use credit::Credit;
use new_flows::NewFlows;
use pending_seen::PendingSeen;
use rtt_samples::RttSamples;
use streams::Streams;

pub(crate) use control_stream::Hello;
pub(crate) use shaping::{Shaping, TURNS};

#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct Connection {
    id: ConnectionId,
    side: Side,
    pub(crate) carrier: Carrier,
    opened: Instant,
    /// The peer's address, as events have reported it.
    remote: SocketAddr,
    /// Client: the address that the server's name has resolved to. A connection by TLS may lead to another port of it.
    pub(crate) resolved: SocketAddr,
    migrations: u64,
    /// The peer's name in reports, and the key under which its traffic is counted.
    peer: Option<(String, ClientKey)>,
    /// Server: the proofs of the named client.
    proofs: ClientProofs,
    /// The negotiated protocol. Set between the end of the handshake and the end of the connection.
    protocol: Option<Protocol>,
    handshake_by: Option<Instant>,
    /// True once the end was reported. The rest of the state waits for stray datagrams.
    lost: bool,
    new_flows: NewFlows,
    pub(crate) admission: Admission,
    /// Client: the server that the connection leads to.
    pub(crate) server: ServerId,
    /// Client: the proof of the secret, and the function that made it.
    proof: Option<(Prover, [u8; 32])>,
    /// Client: the connection takes no new flows, only transfers that move to it.
    pub(crate) for_transfers: bool,
    /// Client: the connection does not carry before the server has answered HELLO.
    pub(crate) beside: bool,
    pub(crate) control: ControlStream,
    /// The bond of the connection.
    pub(crate) bond: Option<BondKey>,
    /// Server: the bond that the client has asked for, until the request is answered.
    pub(crate) bond_request: Option<BondRequest>,
    pub(crate) pending_seen: PendingSeen,
    pub(crate) streams: Streams,
    pub(crate) credit: Credit,
    pub(crate) shaping: Shaping,
    liveness: Liveness,
    /// Server: true if the client has a listener, which closes if the client is silent for long.
    pub(crate) has_listener: bool,
    /// True if a PING has not left yet. A PING alone does not count as in flight.
    ping_pending: bool,
    /// Memory that the engine has charged for the connection, in bytes.
    charged: u64,
    notice: CongestionNotice,
    rtt_samples: RttSamples,
    /// Time at which to store the knowledge of the path again.
    note_at: Instant,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent timers")]
pub(crate) struct DueTimers {
    /// The handshake has taken too long.
    pub(crate) handshake: bool,
    /// The peer did not identify itself in time.
    pub(crate) admission: bool,
    /// SEEN is due: the peer must learn what has arrived.
    pub(crate) pending_seen: bool,
    /// Flows that waited for their client's rate may continue.
    pub(crate) rate: bool,
}

impl Connection {
    /// Creates a connection to or from `remote`, whose peer has these `first` grants.
    pub(crate) fn new(
        now: Instant,
        id: ConnectionId,
        side: Side,
        carrier: Carrier,
        remote: SocketAddr,
        transport: &Transport,
        first: InitialGrants,
    ) -> Self {
        Self {
            id,
            side,
            carrier,
            opened: now,
            remote,
            resolved: remote,
            migrations: 0,
            peer: None,
            proofs: ClientProofs::default(),
            protocol: None,
            handshake_by: Some(now + transport.handshake_timeout),
            lost: false,
            new_flows: NewFlows::default(),
            admission: Admission::default(),
            server: ServerId::default(),
            proof: None,
            for_transfers: false,
            beside: false,
            liveness: Liveness::new(now, transport.keep_alive),
            has_listener: false,
            ping_pending: false,
            control: ControlStream::default(),
            bond: None,
            bond_request: None,
            pending_seen: PendingSeen::default(),
            streams: Streams::new(now, side, first.flows),
            credit: Credit::new(now, first),
            shaping: Shaping::default(),
            charged: 0,
            notice: CongestionNotice::default(),
            rtt_samples: RttSamples::default(),
            note_at: now + NOTE_EVERY,
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    pub(crate) fn opened(&self) -> Instant {
        self.opened
    }

    pub(crate) fn name_peer(&mut self, name: String, key: ClientKey, proofs: ClientProofs) {
        self.peer = Some((name, key));
        self.proofs = proofs;
    }

    /// Returns the key under which the peer's traffic is counted, if the peer is a named client.
    pub(crate) fn client(&self) -> Option<ClientKey> {
        self.peer.as_ref().map(|(_, key)| *key)
    }

    pub(crate) fn charge(&mut self, bytes: u64) {
        self.charged += bytes;
    }

    pub(crate) fn discharge(&mut self, bytes: u64) {
        self.charged -= bytes;
    }

    pub(crate) fn stream_protocol(&self) -> Protocol {
        self.protocol.unwrap_or(Protocol::Native)
    }

    pub(crate) fn speaks(&self, protocol: Protocol) -> bool {
        self.protocol == Some(protocol)
    }

    /// Returns whether the handshake has completed and the connection is not lost.
    pub(crate) fn is_established(&self) -> bool {
        self.protocol.is_some()
    }

    /// Returns whether this is a server's connection that has received only a part of the `ClientHello`.
    pub(crate) fn awaits_client_hello(&self) -> bool {
        !self.is_established() && self.carrier.awaits_client_hello()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    pub(crate) fn is_server(&self) -> bool {
        self.side == Side::Server
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.carrier.is_closed()
    }

    fn is_intact(&self) -> bool {
        self.is_established() && !self.is_closed() && !self.is_suspect()
    }

    /// Returns whether the server has admitted this client and answers. A connection that takes no new flows may
    /// answer.
    pub(crate) fn is_answering(&self) -> bool {
        self.is_intact() && self.is_admitted() && !self.liveness.suspect()
    }

    /// Returns the bandwidth of the path in bytes per second, if flows want more than that.
    pub(crate) fn bandwidth_in_use(&self) -> Option<u64> {
        let view = self.carrier.controller();
        let limited = self.carrier.limit() == SendLimit::Congestion && !view.starting;
        view.bandwidth_known().filter(|_| limited)
    }

    /// Handles a datagram of this connection. Returns the state that the peer's silence had reached before.
    #[inline]
    pub(crate) fn handle_packet(&mut self, now: Instant, packet: Packet) -> Recovery {
        let asked_for = self.liveness.asked_for(now);
        let acked = match &mut self.carrier {
            Carrier::Quic(quic) => quic.handle_packet(now, packet, asked_for),
            Carrier::Tls(_) => None,
        };
        match acked {
            None => self.liveness.handle_heard_without_ack(now),
            Some(oldest) => self.liveness.handle_acked(now, oldest),
        }
    }

    /// Handles bytes that have arrived. Over TCP, the peer sends none as long as it gets none. Returns the state that
    /// the peer's silence had reached before.
    pub(crate) fn handle_heard(&mut self, now: Instant) -> Recovery {
        self.liveness.handle_heard(now)
    }

    pub(crate) fn handle_connected(&mut self, now: Instant) -> Protocol {
        let protocol = self.carrier.protocol();
        self.protocol = Some(protocol);
        // The credit of each of its streams stops the flow whose application does not read.
        self.credit.stops_flows = protocol == Protocol::Http2;
        self.end_handshake();
        self.liveness.handle_heard(now);
        protocol
    }

    fn end_handshake(&mut self) {
        self.handshake_by = None;
        self.carrier.end_handshake();
    }

    /// Returns the TLS exporter value that proofs of pre-shared secrets are computed from (PROTOCOL section 5.5).
    pub(crate) fn exporter(&self) -> Option<[u8; 32]> {
        self.carrier.export(EXPORTER_LABEL)
    }

    /// Returns the TLS exporter value that tickets of bonds are computed from (PROTOCOL section 5.8).
    pub(crate) fn bond_exporter(&self) -> Option<[u8; 32]> {
        self.carrier.export(BOND_EXPORTER_LABEL)
    }

    /// Server: returns the identity that the client has proven.
    pub(crate) fn proven_identity(&self) -> ProvenIdentity {
        let name = self.peer.as_ref().map(|(name, _)| name.as_str());
        ProvenIdentity::new(name, self.carrier.certificates().as_deref())
    }

    /// Server: returns the name and the proofs of a named client.
    pub(crate) fn owner(&self) -> Option<(String, ClientProofs)> {
        let (name, _) = self.peer.as_ref()?;
        Some((name.clone(), self.proofs.clone()))
    }

    /// Client: returns the proof of the secret on this connection, which is the same for every flow.
    pub(crate) fn prove(&mut self, prover: Option<&Prover>) -> Option<[u8; 32]> {
        let prover = prover?;
        if let Some((by, proof)) = &self.proof
            && Arc::ptr_eq(by, prover)
        {
            return Some(*proof);
        }
        let proof = prover(&self.exporter()?);
        self.proof = Some((prover.clone(), proof));
        Some(proof)
    }

    /// Server: returns the proof that a client would send that has this secret.
    pub(crate) fn prove_password(&self, secret: &[u8]) -> Option<[u8; 32]> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        hmac::sign(&key, &self.exporter()?).as_ref().try_into().ok()
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.admission.is_admitted()
    }

    pub(crate) fn close(&mut self, now: Instant, code: CloseCode, reason: impl Into<Bytes>) {
        self.carrier.close(now, code, reason.into());
    }

    pub(crate) fn abandon(&mut self, now: Instant) {
        self.close(now, CloseCode::Done, Bytes::new());
        self.end_handshake();
    }

    /// Ends the engine's work for the connection. Returns whether it had been established, or `None` if it has ended
    /// before.
    pub(crate) fn end(&mut self, now: Instant, memory: &PathMemory) -> Option<bool> {
        if std::mem::replace(&mut self.lost, true) {
            return None;
        }
        self.note_path(now, memory, true);
        self.end_handshake();
        Some(self.protocol.take().is_some())
    }

    /// Returns the earliest deadline, except that of [`Connection::next_ping`].
    pub(crate) fn next_timeout(&mut self) -> Option<Instant> {
        let owed = self.is_watched() && !self.liveness.is_idle();
        let liveness = owed.then(|| self.liveness.next_timeout());
        [
            self.carrier.next_timeout(),
            self.handshake_by,
            self.admission.deadline,
            self.pending_seen.at,
            self.shaping.next_timeout(),
            liveness,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) -> DueTimers {
        self.carrier.handle_timeout(now);
        let handshake = self.handshake_by.is_some_and(|at| at <= now);
        if handshake {
            self.handshake_by = None;
        }
        DueTimers {
            handshake,
            admission: !handshake && self.admission.take_late(now),
            pending_seen: self.pending_seen.is_due(now),
            rate: self.shaping.handle_timeout(now),
        }
    }

    /// Returns whether no data of a flow is on its way to the peer.
    pub(crate) fn is_settled(&mut self) -> bool {
        self.is_closed() || (self.unsettled_streams() == 0 && self.control.unconfirmed() == 0)
    }

    /// Returns the number of flows' streams with bytes, or an end, that the peer has not acknowledged.
    pub(crate) fn unsettled_streams(&mut self) -> usize {
        let others = self.control.streams() + usize::from(self.streams.reserved.is_some());
        self.carrier.unsettled_streams().saturating_sub(others)
    }

    /// Returns whether flows wait for room on a path whose bandwidth is still being searched, or whose queue others
    /// fill.
    pub(crate) fn is_delay_sensitive(&self) -> bool {
        let view = self.carrier.controller();
        self.wants_to_send() && (view.starting || view.even)
    }

    /// Returns whether flows have data to send, and their client's rate permits it.
    fn wants_to_send(&self) -> bool {
        self.streams.wants_to_send() && !self.shaping.holds_back()
    }

    pub(crate) fn path(&self) -> PathView {
        self.carrier.path()
    }

    /// Returns the smoothed round-trip time, if a sample is due.
    pub(crate) fn sample_rtt(&mut self, now: Instant) -> Option<Duration> {
        let established = self.is_established();
        let due = established && self.rtt_samples.take(now, self.carrier.arrivals());
        due.then(|| self.path().rtt)
    }

    /// Updates the connection after datagrams were handled, and appends new events to `events`.
    pub(crate) fn follow_up(
        &mut self,
        now: Instant,
        lease: &mut Lease,
        memory: &PathMemory,
        events: &mut EventQueue,
    ) {
        // A stranger keeps its initial limits.
        if !self.is_closed() && (!self.is_server() || self.is_admitted()) {
            self.update_windows(now, lease);
        }
        self.update_memory_charge(lease);
        self.carrier.watch(now);
        self.notice_congestion(now, events);
        self.note_path(now, memory, false);
        self.follow_remote(events);
        self.carrier.follow_up(now);
    }

    fn notice_congestion(&mut self, now: Instant, events: &mut EventQueue) {
        let limit = self.carrier.limit();
        if !self.is_established() || !self.notice.is_due(now) {
            return;
        }
        let controller = self.carrier.controller();
        if self.notice.tell(now, controller.phase, limit) {
            events.push(Event::Congestion(SendState {
                connection: self.id,
                remote: self.remote,
                controller,
                limit,
            }));
        }
    }

    /// Stores the knowledge of the path for the next connection, at intervals and at the `end` of this one.
    fn note_path(&mut self, now: Instant, memory: &PathMemory, end: bool) {
        if !end && now < self.note_at {
            return;
        }
        let Some(known) = self.carrier.knowledge(self.remote) else {
            return;
        };
        self.note_at = now + NOTE_EVERY;
        let known = PathKnowledge {
            receive_window: self.credit.needed(),
            ..known
        };
        memory.note(now, peer_key(self.side, self.remote), known);
    }

    fn follow_remote(&mut self, events: &mut EventQueue) {
        let to = self.carrier.follow_remote();
        let from = std::mem::replace(&mut self.remote, to);
        if from != to {
            self.migrations += 1;
            events.push(Event::Migrated {
                connection: self.id,
                from,
                to,
            });
        }
    }

    pub(crate) fn stream(&mut self, id: StreamId) -> impl Stream {
        self.carrier.stream(id)
    }

    pub(crate) fn leg(&self, stream: StreamId) -> Leg {
        Leg {
            connection: self.id,
            stream_id: stream.number(),
            remote: self.remote,
            client: self.client(),
        }
    }

    pub(crate) fn open_stream(&mut self) -> Option<StreamId> {
        let reserved = self.streams.reserved.take();
        reserved.or_else(|| self.carrier.open())
    }

    /// Returns whether the peer permits another stream. A carrier can only tell by opening it, which sends nothing.
    pub(crate) fn reserve_stream(&mut self) -> bool {
        self.streams.reserved = self.open_stream();
        self.streams.reserved.is_some()
    }

    /// Takes the streams that the peer has opened: see [`Streams::arrivals`].
    pub(crate) fn accept_streams(&mut self) {
        while let Some(stream) = self.carrier.accept() {
            self.streams.arrivals.push_back(stream);
        }
    }

    pub(crate) fn reset_stream(&mut self, stream: StreamId, code: FlowCode) {
        let mut stream = self.stream(stream);
        stream.reset(code);
        stream.stop(code);
    }

    /// Client: lets the server open flows for connections to its listeners.
    pub(crate) fn grant_incoming(&mut self, flows: u32) {
        if self.streams.limit == 0 {
            self.streams.restart(flows);
            self.carrier.grant_streams(flows);
        }
    }

    /// Doubles the number of flows that the peer may open, up to `most`.
    pub(crate) fn grant_more_flows(&mut self, most: u32) {
        if self.streams.grant_more(most) {
            self.carrier.grant_streams(self.streams.limit);
        }
    }

    /// Returns whether the peer may open more flows than it has.
    pub(crate) fn has_streams_left(&self) -> bool {
        let control = usize::from(self.is_server()) * self.control.streams();
        self.streams.of_peer() + control < self.streams.limit as usize
    }

    /// Returns the number of streams that have ended here, but that the peer keeps open although it was asked to stop.
    pub(crate) fn ended_streams(&mut self) -> u64 {
        if self.is_closed() {
            return 0;
        }
        // The client opens the control stream.
        let control = usize::from(self.is_server()) * self.control.streams();
        let known = self.streams.known() + control;
        let open = self.carrier.peer_streams();
        open.saturating_sub(known as u64)
    }

    /// Begins a batch. Returns the number of bytes that flows may hand over now.
    pub(crate) fn begin_filling(&mut self, now: Instant, sleeps: Duration) -> Option<usize> {
        self.shaping.clear_send_deadline();
        let waiting = self.streams.wants_to_send();
        self.carrier.begin_filling(now, sleeps, waiting)
    }

    /// Ends a batch for which there was `room`. `restrained` means that memory is short.
    pub(crate) fn end_filling(&mut self, now: Instant, room: usize, restrained: bool) {
        let waiting = self.wants_to_send();
        self.carrier.end_filling(now, room, waiting, restrained);
        if self.shaping.holds_back() {
            self.carrier.set_limit(SendLimit::Rate);
        }
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        let context = BatchContext {
            established: self.is_established(),
            last: !self.wants_to_send(),
        };
        let datagrams = self
            .carrier
            .poll_transmit(now, context, max_segments, buffer)?;
        self.note_sent(now);
        Some(datagrams)
    }

    /// Records that something has left.
    pub(crate) fn note_sent(&mut self, now: Instant) {
        if std::mem::take(&mut self.ping_pending) && self.has_flows_to_move() {
            self.liveness.handle_sent(now, self.path().rtt);
        }
        self.note_in_flight(now);
    }

    /// Records that an answer is due if something is in flight.
    pub(crate) fn note_in_flight(&mut self, now: Instant) {
        if self.carrier.in_flight() > 0 {
            self.liveness.handle_sent(now, self.path().rtt);
        }
    }
}
