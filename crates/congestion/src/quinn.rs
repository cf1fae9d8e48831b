//! The adapter to quinn-proto: its controllers drive a [`Gauge`], and the library itself is let loose.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{
    Controller, ControllerFactory, ControllerMetrics, CubicConfig, NewRenoConfig,
};

use crate::{Algorithm, Gauge};

/// Window shown to the library. Above `u32::MAX` its pacer is off as well.
const UNLIMITED: u64 = u64::MAX / 4;

/// A quinn-proto controller whose verdict goes to a [`Gauge`].
pub struct QuinnController {
    inner: Box<dyn Controller>,
    gauge: Gauge,
}

/// Makes controllers that share one gauge: the library asks for a fresh one on every path change.
struct Factory {
    algorithm: Algorithm,
    gauge: Gauge,
}

impl std::fmt::Debug for QuinnController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuinnController")
            .field("gauge", &self.gauge)
            .finish_non_exhaustive()
    }
}

impl QuinnController {
    /// A factory for one connection's transport configuration.
    pub fn factory(
        algorithm: Algorithm,
        gauge: Gauge,
    ) -> Arc<dyn ControllerFactory + Send + Sync + 'static> {
        Arc::new(Factory { algorithm, gauge })
    }

    fn publish(&self) {
        let metrics = self.inner.metrics();
        let window = self.inner.window();
        let slow_start = metrics.ssthresh.is_none_or(|threshold| window < threshold);
        self.gauge.publish(window, slow_start);
    }
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = match self.algorithm {
            Algorithm::Cubic => Arc::new(CubicConfig::default()).build(now, current_mtu),
            Algorithm::NewReno => Arc::new(NewRenoConfig::default()).build(now, current_mtu),
        };
        let controller = QuinnController {
            inner,
            gauge: self.gauge.clone(),
        };
        controller.gauge.set_in_flight(0);
        controller.publish();
        Box::new(controller)
    }
}

impl Controller for QuinnController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.gauge.on_sent(bytes);
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.gauge.on_settled(bytes);
        let app_limited = !self.gauge.window_limited();
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        _app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        let app_limited = !self.gauge.window_limited();
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        self.gauge.set_in_flight(in_flight);
        self.publish();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.gauge.on_lost(lost_bytes);
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        self.publish();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
        self.publish();
    }

    fn window(&self) -> u64 {
        UNLIMITED
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            gauge: self.gauge.clone(),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
