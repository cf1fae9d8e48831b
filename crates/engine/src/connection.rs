//! One QUIC connection and what the engine keeps beside it.

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
use crate::config::Transport;
use crate::event::Event;
use crate::liveness::Liveness;
use crate::memory::{Known, NOTE_EVERY, PathMemory, Peer};
use crate::news::News;
use crate::pacer::Pacer;
use crate::repeat::Repeat;
use crate::report::{ConnectionReport, Limit, Protocol, Side};
use crate::trace::Trace;
use crate::window::{self, ReceiveWindow};

/// Smallest UDP payload QUIC may assume (RFC 9000 section 14).
pub(crate) const MTU_MIN: u16 = 1200;

/// Time after which it acknowledges whatever came. A window that losses have made smaller than
/// [`Transport::ack_every`] packets would stand still for this long in every round trip (25 ms by default: at 1 ms
/// and 1 % loss that was a third of the throughput), and a lost last packet is missed as much later. The
/// least that peers accept.
const ACK_WITHIN: Duration = Duration::from_millis(1);

/// Flows a peer may open before the connection has shown that it needs more: every permitted stream
/// costs memory.
pub(crate) const FLOWS_INITIAL: u32 = 128;

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
    pub(crate) receive_window: ReceiveWindow,
    pub(crate) liveness: Liveness,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) peer: Option<String>,
    pub(crate) opened: Instant,
    pub(crate) remote: SocketAddr,
    pub(crate) migrations: u64,
    /// Key of the flow each open stream belongs to.
    pub(crate) streams: FxHashMap<StreamId, usize>,
    /// Flows with something to send, in turn.
    pub(crate) outbound: VecDeque<usize>,
    /// Flows with something to receive.
    pub(crate) inbound: Vec<usize>,
    /// Flows whose application does not read.
    pub(crate) parked: u32,
    /// Stream bytes delivered to flows, for the receive window.
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
        known: Known,
        trace: Option<Trace>,
        now: Instant,
    ) -> Self {
        let remote = quic.remote_address();
        let window = ReceiveWindow::first(known.receive_window, transport.memory_budget);
        Self {
            id,
            quic,
            gauge,
            pacer: Pacer::new(now),
            repeat: Repeat::default(),
            receive_window: ReceiveWindow::new(now, window),
            liveness: Liveness::new(now, transport.keep_alive),
            protocol: None,
            peer: None,
            opened: now,
            remote,
            migrations: 0,
            streams: FxHashMap::default(),
            outbound: VecDeque::new(),
            inbound: Vec::new(),
            parked: 0,
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
            flow_limit: FLOWS_INITIAL.min(transport.max_flows),
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
        let first = FLOWS_INITIAL.min(transport.max_flows);
        let flows = if side == Side::Server { first } else { 0 };
        let window = ReceiveWindow::first(known.receive_window, transport.memory_budget);
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
            .receive_window(VarInt::from_u64(window).unwrap_or(VarInt::MAX))
            .send_window(window::send_window(0, transport.memory_budget))
            .max_idle_timeout(idle)
            .keep_alive_interval(None)
            .mtu_discovery_config(Some(mtu))
            .ack_frequency_config(Some(acks));
        (Arc::new(config), trace)
    }

    /// A datagram of this connection arrived.
    pub(crate) fn handle_datagram(&mut self, event: quinn_proto::ConnectionEvent) {
        self.quic.handle_event(event);
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
    pub(crate) fn update_windows(&mut self, now: Instant, transport: &Transport) {
        // Not the smoothed time: that grows with the queue that a larger window would only lengthen.
        let rtt = self.quic.min_rtt();
        let parked = u64::from(self.parked) * u64::from(transport.stream_window);
        let budget = transport.memory_budget;
        if let Some(size) = self
            .receive_window
            .update(now, rtt, self.delivered, parked, budget)
        {
            self.quic
                .set_receive_window(VarInt::from_u64(size).unwrap_or(VarInt::MAX));
        }
        self.quic
            .set_send_window(window::send_window(self.gauge.window(), budget));
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

    /// Lets the peer open more flows once it uses half of what it may.
    pub(crate) fn update_flow_limit(&mut self, most: u32) {
        let open = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        if open > self.flow_limit / 2 && self.flow_limit < most {
            self.flow_limit = (self.flow_limit * 2).min(most);
            self.quic.set_max_concurrent_streams(
                quinn_proto::Dir::Bi,
                VarInt::from_u32(self.flow_limit),
            );
        }
    }

    /// The next moment at which something is to be done.
    pub(crate) fn next_timeout(&mut self) -> Option<Instant> {
        let liveness = (self.protocol.is_some() && !self.quic.is_closed())
            .then(|| self.liveness.next_timeout());
        [
            self.quic.poll_timeout(),
            self.pace_at,
            self.repeat.next_timeout(),
            self.handshake_by,
            liveness,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether new flows may be opened on it.
    pub(crate) fn usable(&self) -> bool {
        self.protocol.is_some()
            && !self.quic.is_closed()
            && !self.retiring
            && !self.liveness.unresponsive()
    }

    pub(crate) fn report(&self, budget: u64) -> ConnectionReport {
        let stats = self.quic.stats();
        let rtt = self.quic.rtt();
        let rate = self.gauge.limits().rate;
        ConnectionReport {
            id: self.id,
            remote: self.quic.remote_address(),
            protocol: self.protocol,
            peer: self.peer.clone(),
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
            receive_window: self.receive_window.total(budget),
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
