//! The initial state of a connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use quictun_congestion::{Gauge, PathKnowledge};
use quictun_flow::Side;
use quinn_proto::TransportConfig;

use super::config::transport_config;
use super::trace::Trace;
use crate::config::Transport;
use crate::grants::InitialGrants;

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
        let (config, trace) = transport_config(transport, &gauge, remote, side, known, first, now);
        Self {
            gauge,
            trace,
            window: first.window,
            config,
        }
    }
}
