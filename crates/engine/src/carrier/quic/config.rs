//! Configuration of the QUIC library for one connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_congestion::{Gauge, PathKnowledge, QuinnController};
use quictun_flow::window;
use quinn_proto::{AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};

use super::trace::Trace;
use crate::config::Transport;
use crate::grants::InitialGrants;
use crate::report::{Side, peer_key};

/// Smallest UDP payload that QUIC may assume (RFC 9000 section 14).
const MTU_MIN: u16 = 1200;

/// Time after which the peer acknowledges whatever it has received; the minimum that peers accept.
///
/// If losses have made the window smaller than [`Transport::ack_every`] packets, it would stand still for this long in
/// every round trip. With the default of 25 ms, at 1 ms and 1 % loss, that cost a third of the throughput. Also, a lost
/// last packet is detected later by this time.
pub(super) const ACK_WITHIN: Duration = Duration::from_millis(1);

/// Bytes of DATAGRAM frames that arrive in one turn, beyond which the oldest are dropped. Chosen for a turn of full
/// receive batches.
const DATAGRAMS_MAX: usize = 1 << 20;

/// Size from which on packets stay in the machine, because no network carries packets this large.
const MTU_LOCAL: u16 = 16 * 1024;

/// Time after which to probe again, after random losses have triggered the black-hole detector.
const BLACK_HOLE_COOLDOWN: Duration = Duration::from_secs(10);

/// The configuration of a connection, and the parts that the library and the engine share.
pub(crate) struct Setup {
    pub(super) gauge: Gauge,
    pub(super) trace: Option<Trace>,
    /// The receive window, in bytes.
    pub(super) window: u64,
    pub(super) config: Arc<TransportConfig>,
}

impl Setup {
    /// Prepares a connection of `side` to `remote`.
    pub(crate) fn new(
        now: Instant,
        transport: &Transport,
        side: Side,
        remote: SocketAddr,
        known: PathKnowledge,
        first: InitialGrants,
    ) -> Self {
        let gauge = Gauge::new();
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
        let reordering = known.reordering.unwrap_or_default();
        // Only a time of millions of years does not fit. It counts as none.
        let idle = IdleTimeout::try_from(transport.idle_timeout).ok();
        config
            .congestion_controller_factory(QuinnController::factory(
                transport.congestion,
                gauge.clone(),
                known,
                transport.memory.ensemble(now, peer_key(side, remote)),
            ))
            .max_concurrent_bidi_streams(VarInt::from_u32(flows))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(Some(DATAGRAMS_MAX))
            .stream_receive_window(VarInt::from_u32(transport.stream_window))
            .receive_window(VarInt::from_u64(first.window).unwrap_or(VarInt::MAX))
            .send_window(window::send_window(0, 0))
            .max_idle_timeout(idle)
            .keep_alive_interval(None)
            .mtu_discovery_config(Some(mtu))
            .ack_frequency_config(Some(acks))
            .packet_threshold(reordering.packets())
            .time_threshold(reordering.round_trips());
        Self {
            gauge,
            trace,
            window: first.window,
            config: Arc::new(config),
        }
    }
}

/// Configures the search for the path MTU, up to `most`.
///
/// On a path that stays in the machine, the result is `most` or almost nothing, and the first probe decides. The
/// library's search would approach it by halves in twelve round trips, with half a megabyte of padding that the peer
/// parses byte by byte.
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
