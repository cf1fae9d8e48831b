//! One QUIC connection and what the engine keeps beside it.

mod debt;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fxhash::FxHashMap;
use quictun_congestion::{Gauge, QuinnController};
use quinn_proto::{
    AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, StreamId, TransportConfig, VarInt,
};

use crate::ConnectionId;
use crate::account::Lease;
use crate::charges::Holding;
use crate::config::Transport;
use crate::control::Control;
use crate::event::Event;
use crate::handshake_copies::HandshakeCopies;
use crate::liveness::Liveness;
use crate::memory::{Known, NOTE_EVERY, PathMemory, Peer};
use crate::news::News;
use crate::pacer::Pacer;
use crate::repeat::Repeat;
use crate::report::{ConnectionReport, Limit, Protocol, Side};
use crate::strangers::Source;
use crate::trace::Trace;
use crate::window::{self, ReceiveWindow};

pub(crate) use debt::{FLOWS_INITIAL, First};

/// Smallest UDP payload QUIC may assume (RFC 9000 section 14).
pub(crate) const MTU_MIN: u16 = 1200;

/// Time after which it acknowledges whatever came. A window that losses have made smaller than
/// [`Transport::ack_every`] packets would stand still for this long in every round trip (25 ms by default: at 1 ms
/// and 1 % loss that was a third of the throughput), and a lost last packet is missed as much later. The
/// least that peers accept.
const ACK_WITHIN: Duration = Duration::from_millis(1);

/// No network carries packets as large as this: they stay in the machine.
const MTU_LOCAL: u16 = 16 * 1024;

/// After the black-hole detector has fired at random losses, probe again this soon.
const BLACK_HOLE_COOLDOWN: Duration = Duration::from_secs(10);

/// One connection.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent marks for the engine's queues"
)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) quic: quinn_proto::Connection,
    pub(crate) gauge: Gauge,
    pub(crate) pacer: Pacer,
    pub(crate) repeat: Repeat,
    /// Client: what is to be sent twice until the handshake is done.
    pub(crate) handshake_copies: HandshakeCopies,
    pub(crate) receive_window: ReceiveWindow,
    /// The window that the library has been told.
    announced: u64,
    /// Credit that the peer has beyond it: the library has still to take it back.
    owed: u64,
    /// Credit that the peer gets whatever flows hold, bytes: 0 where memory is short.
    floor: u64,
    /// `DATA_BLOCKED` frames of the peer that were answered.
    blocked_seen: u64,
    /// What the engine has charged for it.
    pub(crate) memory: u64,
    pub(crate) liveness: Liveness,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) control: Control,
    /// Server: the peer is known, or nobody need be. Client: the server has said so.
    pub(crate) admitted: bool,
    /// Until when it must be.
    pub(crate) prove_by: Option<Instant>,
    /// Server: where it takes a stranger's place.
    pub(crate) stranger: Option<Source>,
    pub(crate) peer: Option<String>,
    /// Server: the latest proof of a pre-shared secret that the client has sent, right or wrong.
    pub(crate) proof: Option<[u8; 32]>,
    /// The one that it had sent when it was admitted.
    pub(crate) admitted_by: Option<[u8; 32]>,
    pub(crate) opened: Instant,
    pub(crate) remote: SocketAddr,
    pub(crate) migrations: u64,
    /// Key of the flow each open stream belongs to.
    pub(crate) streams: FxHashMap<StreamId, usize>,
    /// Flows with something to send, in turn.
    pub(crate) outbound: VecDeque<usize>,
    /// Flows with something to receive.
    pub(crate) inbound: Vec<usize>,
    /// Streams of the peer that are no flows yet.
    pub(crate) arrivals: VecDeque<StreamId>,
    /// What flows and the control stream hold of received data.
    pub(crate) holding: Holding,
    /// Longest packet that the peer has sent.
    pub(crate) packet_max: usize,
    /// Stream bytes that applications have taken, for the receive window.
    pub(crate) delivered: u64,
    /// Written to streams and not yet in packets, roughly.
    pub(crate) unsent: usize,
    /// Losses the library has still to send again; until then packets, too, wait for the window.
    pub(crate) lost_seen: u64,
    pub(crate) resending: bool,
    /// Packets that fit what was lost since the batch before: they go alone.
    pub(crate) resent_alone: usize,
    /// Batches that may pass although the window is full: acknowledgements and probes.
    pub(crate) grace: u8,
    pub(crate) limit: Limit,
    pub(crate) news: News,
    pub(crate) trace: Option<Trace>,
    /// When to note what is known of the path.
    pub(crate) note_at: Instant,
    /// The time the latest batch has for the controller.
    pub(crate) batch_at: Instant,
    pub(crate) pace_at: Option<Instant>,
    pub(crate) handshake_by: Option<Instant>,
    /// The earliest of all its deadlines, as entered in the engine's queue.
    pub(crate) deadline: Option<Instant>,
    pub(crate) dirty: bool,
    pub(crate) sending: bool,
    pub(crate) flow_limit: u32,
    /// The initial value of `flow_limit`.
    first_flows: u32,
    pub(crate) batches_sent: u64,
    pub(crate) datagrams_sent: u64,
    pub(crate) datagrams_repeated: u64,
    pub(crate) datagrams_received: u64,
    /// Index of the latest request that was answered.
    pub(crate) answered: Option<u64>,
    /// Its end was told; what is left of it waits for stray datagrams.
    pub(crate) lost: bool,
    /// No new flows: it goes away once it has none.
    pub(crate) retiring: bool,
    /// When it lost its last flow.
    pub(crate) idle_since: Option<Instant>,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        quic: quinn_proto::Connection,
        gauge: Gauge,
        transport: &Transport,
        first: First,
        trace: Option<Trace>,
        now: Instant,
    ) -> Self {
        let remote = quic.remote_address();
        let First {
            window, remembered, ..
        } = first;
        Self {
            id,
            quic,
            gauge,
            pacer: Pacer::new(now),
            repeat: Repeat::default(),
            handshake_copies: HandshakeCopies::default(),
            receive_window: ReceiveWindow::new(now, window, remembered),
            announced: window,
            owed: 0,
            floor: 0,
            blocked_seen: 0,
            memory: 0,
            liveness: Liveness::new(now, transport.keep_alive),
            protocol: None,
            control: Control::default(),
            admitted: false,
            prove_by: None,
            stranger: None,
            peer: None,
            proof: None,
            admitted_by: None,
            opened: now,
            remote,
            migrations: 0,
            streams: FxHashMap::default(),
            outbound: VecDeque::new(),
            inbound: Vec::new(),
            arrivals: VecDeque::new(),
            holding: Holding::default(),
            packet_max: 0,
            delivered: 0,
            unsent: 0,
            lost_seen: 0,
            resent_alone: 0,
            resending: false,
            grace: 0,
            limit: Limit::default(),
            news: News::default(),
            trace,
            note_at: now + NOTE_EVERY,
            batch_at: now,
            pace_at: None,
            handshake_by: Some(now + transport.handshake_timeout),
            deadline: None,
            dirty: false,
            sending: false,
            flow_limit: first.flows,
            first_flows: first.flows,
            batches_sent: 0,
            datagrams_sent: 0,
            datagrams_repeated: 0,
            datagrams_received: 0,
            answered: None,
            lost: false,
            retiring: false,
            idle_since: Some(now),
        }
    }

    /// The library's configuration for one connection whose controller feeds `gauge`, and its record.
    pub(crate) fn transport_config(
        transport: &Transport,
        gauge: &Gauge,
        remote: SocketAddr,
        side: Side,
        known: Known,
        first: First,
        now: Instant,
    ) -> (Arc<TransportConfig>, Option<Trace>) {
        let mut config = TransportConfig::default();
        let writer = transport
            .tracer
            .as_ref()
            .and_then(|open| open(remote, side));
        let trace = writer.map(|writer| {
            let (trace, stream) = Trace::new(writer, side, now);
            config.qlog_stream(stream);
            trace
        });
        let mtu = discovery((transport.path_mtu)(remote).max(MTU_MIN));
        let mut acks = AckFrequencyConfig::default();
        acks.ack_eliciting_threshold(VarInt::from_u32(transport.ack_every))
            .max_ack_delay(Some(ACK_WITHIN));
        let flows = if side == Side::Server { first.flows } else { 0 };
        let idle = IdleTimeout::try_from(transport.idle_timeout).ok();
        config
            .congestion_controller_factory(QuinnController::factory(
                transport.congestion,
                gauge.clone(),
                known.resume,
            ))
            .max_concurrent_bidi_streams(VarInt::from_u32(flows))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            .stream_receive_window(VarInt::from_u32(transport.stream_window))
            .receive_window(VarInt::from_u64(first.window).unwrap_or(VarInt::MAX))
            .send_window(window::send_window(0, 0))
            .max_idle_timeout(idle)
            .keep_alive_interval(None)
            .mtu_discovery_config(Some(mtu))
            .ack_frequency_config(Some(acks));
        (Arc::new(config), trace)
    }

    /// The peer is no stranger: it may use what any may at first.
    pub(crate) fn grant_first(&mut self, first: First) {
        (self.flow_limit, self.first_flows) = (first.flows, first.flows);
        self.receive_window.restart(first.window, first.remembered);
        self.announce(0);
        self.quic
            .set_max_concurrent_streams(quinn_proto::Dir::Bi, VarInt::from_u32(self.flow_limit));
    }

    /// The part of the window that flows do not hold, at least `floor`, bytes. A peer without HOLD has no floor: it cannot
    /// know which flow should stop, so it has to stop them all.
    fn window_left(&self, floor: u64) -> u64 {
        let size = self.receive_window.size();
        let floor = if self.control.open { floor } else { 0 };
        size.saturating_sub(self.excess()).max(floor.min(size))
    }

    /// Whether flows that do not read hold as much as the whole window.
    pub(crate) fn is_taken_up(&self) -> bool {
        self.excess() >= self.receive_window.size()
    }

    /// A datagram of this connection arrived.
    pub(crate) fn handle_datagram(&mut self, event: quinn_proto::ConnectionEvent, length: usize) {
        self.quic.handle_event(event);
        self.packet_max = self.packet_max.max(length);
        self.datagrams_received += 1;
        self.grace = self.grace.max(1);
    }

    /// Notes what has become of the end of what was sent.
    pub(crate) fn watch_flight(&mut self, now: Instant) {
        if self.gauge.latest_arrived() {
            self.repeat.handle_arrived(now, self.quic.min_rtt());
        } else if self.gauge.in_flight() == 0 || self.quic.is_closed() {
            self.repeat.forget();
        }
    }

    /// Tells where something has changed in how it sends.
    pub(crate) fn news(&mut self, now: Instant) -> Option<Event> {
        if let Some(trace) = &mut self.trace {
            trace.note(now, &self.gauge, self.limit);
        }
        if self.protocol.is_none() || !self.news.is_due(now) {
            return None;
        }
        let (controller, limit) = (self.gauge.view(), self.limit);
        let new = self.news.tell(now, controller.phase, limit);
        new.then_some(Event::Congestion {
            connection: self.id,
            remote: self.remote,
            controller,
            limit,
        })
    }

    /// Leaves what is known of the path to the next connection, now and then or at the end of this one.
    pub(crate) fn note_path(&mut self, now: Instant, memory: &PathMemory, end: bool) {
        if !end && now < self.note_at {
            return;
        }
        self.note_at = now + NOTE_EVERY;
        let known = Known {
            resume: self.gauge.resume_point(),
            receive_window: self.receive_window.needed(),
        };
        memory.note(now, Peer::of(self.quic.side(), self.remote), known);
    }

    /// Asks the peer for a sign of life, whether or not the window has room.
    pub(crate) fn ask(&mut self) {
        self.quic.ping();
        self.grace = self.grace.max(1);
    }

    /// Follows what the path has shown with the windows of both directions.
    pub(crate) fn update_windows(&mut self, now: Instant, lease: &Lease) {
        let free = lease.free_for_newcomers() + self.window_debt();
        let (plenty, tight) = (lease.is_plenty(), lease.is_half_full());
        let floor = lease.floor();
        // Not the smoothed time: that grows with the queue that a larger window would only lengthen.
        let rtt = self.quic.min_rtt();
        let left = self.window_left(floor);
        let window = &mut self.receive_window;
        let least = tight.then_some(floor);
        if window.update(now, rtt, self.delivered, left, free, least) && plenty {
            self.forgive();
        }
        self.announce(floor);
        self.answer_blocked();
        let kept = window::send_window(self.gauge.window(), free / 2);
        self.quic.set_send_window(kept);
    }

    /// Tells the library the window: what flows hold takes up a part of it, but for what is parked.
    ///
    /// The library gives at once what a window grows by, and takes back what it shrinks by only as bytes are read. What
    /// the peer may send is therefore the window and all that is still to be taken back; a window grows by no more
    /// than that allows.
    pub(crate) fn announce(&mut self, floor: u64) {
        let size = self.receive_window.size();
        let wanted = self.window_left(floor);
        let step = (size / 8).max(1);
        let to = if wanted < self.announced {
            wanted
        } else {
            wanted.saturating_sub(self.owed).max(self.announced)
        };
        // Only a larger one costs a frame.
        let little = to >= self.announced && to - self.announced < step;
        let starved = self.announced < floor;
        self.floor = floor;
        if to == self.announced || (little && to < size && !starved) {
            return;
        }
        self.owed += self.announced.saturating_sub(to);
        self.set_window(to);
    }

    /// Answers a `DATA_BLOCKED` frame (RFC 9000 section 19.12): announces the remaining credit, and forgets what is owed.
    ///
    /// The library sends `MAX_DATA` once an eighth of the window is new. After a window has shrunk, the whole credit may be
    /// less than that, and nothing would announce it. A blocked peer has used its credit, so it owes none. A peer that
    /// lies gains one window at most: a window shrinks only by what the peer has sent.
    fn answer_blocked(&mut self) {
        if self.announced == self.receive_window.size() && self.owed == 0 {
            return;
        }
        let blocked = self.quic.stats().frame_rx.data_blocked;
        if std::mem::replace(&mut self.blocked_seen, blocked) == blocked {
            return;
        }
        self.owed = 0;
        let to = self.announced;
        // The library announces a window that grows at once, so this one shrinks by a byte and grows again.
        self.set_window(to.saturating_sub(1));
        self.set_window(to);
        self.announce(self.floor);
    }

    fn set_window(&mut self, to: u64) {
        self.announced = to;
        self.quic
            .set_receive_window(VarInt::from_u64(to).unwrap_or(VarInt::MAX));
    }

    /// So many bytes were read from streams.
    pub(crate) fn note_taken(&mut self, bytes: u64) {
        self.owed = self.owed.saturating_sub(bytes);
    }

    /// Where there is plenty of memory, forgets some of what is still to be taken back: the library takes it from
    /// streams that end early, too, and does not say so.
    fn forgive(&mut self) {
        self.owed -= (self.owed / 8).max(self.owed.min(1024));
    }

    /// Puts a stream's frames before those of others in a packet, or no longer.
    ///
    /// Compatibility: a token that is lost is sent again together with other data. Where it comes
    /// first it stays in one piece, and a piece is all that the original understands.
    pub(crate) fn prefer(&mut self, stream: StreamId, preferred: bool) {
        // An error means that the stream is over: then it has no frames.
        if self
            .quic
            .send_stream(stream)
            .set_priority(i32::from(preferred))
            .is_err()
        {}
    }

    /// The next moment at which something is to be done.
    pub(crate) fn next_timeout(&mut self) -> Option<Instant> {
        let liveness = (self.protocol.is_some() && !self.quic.is_closed())
            .then(|| self.liveness.next_timeout());
        [
            self.quic.poll_timeout(),
            self.pace_at,
            self.repeat.next_timeout(),
            self.handshake_copies.next_timeout(),
            self.handshake_by,
            self.prove_by,
            liveness,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether nothing of a flow is on its way to the peer.
    pub(crate) fn is_settled(&mut self) -> bool {
        let control = self.control.streams();
        self.quic.is_closed()
            || (self.quic.streams().send_streams() <= control && self.control.unconfirmed() == 0)
    }

    /// Whether new flows may be opened on it.
    pub(crate) fn usable(&self) -> bool {
        self.protocol.is_some()
            && !self.quic.is_closed()
            && !self.retiring
            && !self.liveness.unresponsive()
    }

    pub(crate) fn report(&self) -> ConnectionReport {
        let stats = self.quic.stats();
        let rtt = self.quic.rtt();
        let rate = self.gauge.limits().rate;
        ConnectionReport {
            id: self.id,
            remote: self.quic.remote_address(),
            protocol: self.protocol,
            peer: self.peer.clone(),
            admitted: self.admitted,
            opened: self.opened,
            flows: self.streams.len(),
            rtt,
            congestion_window: self.gauge.window(),
            in_flight: self.gauge.in_flight(),
            controller: self.gauge.view(),
            limit: self.limit,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate"
            )]
            pacing_bytes_per_s: rate.map(|rate| rate as u64),
            mtu: self.quic.current_mtu(),
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            congestion_events: self.gauge.events(),
            bytes_sent: stats.udp_tx.bytes,
            bytes_received: stats.udp_rx.bytes,
            batches_sent: self.batches_sent,
            datagrams_sent: self.datagrams_sent,
            datagrams_repeated: self.datagrams_repeated,
            datagrams_received: self.datagrams_received,
            receive_window: self.receive_window.size(),
            unresponsive: self.liveness.unresponsive(),
            migrations: self.migrations,
        }
    }
}

/// How to look for what a path carries, `most` at most.
///
/// Where it does not leave the machine it is `most` or next to nothing, and the first probe tells which: the library's
/// search would halve its way there in twelve round trips, with half a megabyte of padding that the other end parses
/// byte by byte.
fn discovery(most: u16) -> MtuDiscoveryConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery
        .upper_bound(most)
        .black_hole_cooldown(BLACK_HOLE_COOLDOWN);
    if most >= MTU_LOCAL {
        discovery.minimum_change((most - MTU_MIN) / 2 + 1);
    }
    discovery
}
