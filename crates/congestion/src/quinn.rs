//! The adapter to quinn-proto.
//!
//! A [`Model`] behind the library's trait drives a [`Gauge`], and the limits that the library itself enforces are
//! disabled.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use crate::reordering::ReorderingMonitor;
use crate::{Algorithm, Ensemble, Gauge, Loss, Model, PathKnowledge, Reordering, Resume, bytes};

/// Window reported to the library. A window above `u32::MAX` also disables the library's pacer.
const UNLIMITED: u64 = u64::MAX / 4;

/// A quinn-proto controller that publishes its limits to a [`Gauge`].
#[derive(Debug)]
pub struct QuinnController {
    model: Box<dyn Model>,
    gauge: Gauge,
    latest: Option<Instant>,
    monitor: ReorderingMonitor,
}

/// Creates controllers that share one gauge. The library asks for a new controller at every path change.
struct Factory {
    algorithm: Algorithm,
    gauge: Gauge,
    /// Data for the first controller only, because a later path is not the remembered one.
    first: Mutex<Option<InitialState>>,
    reordering: Reordering,
}

/// Data for the first controller of a connection: what is remembered about the path, and the ensemble to join.
struct InitialState {
    resume: Option<Resume>,
    ensemble: Ensemble,
}

impl QuinnController {
    /// Returns a factory for the transport configuration of one connection.
    ///
    /// `known` is what earlier connections to the same peer have left in a [`PathMemory`](crate::PathMemory).
    /// `ensemble` holds the current connections to that peer.
    pub fn factory(
        algorithm: Algorithm,
        gauge: Gauge,
        known: PathKnowledge,
        ensemble: Ensemble,
    ) -> Arc<dyn ControllerFactory + Send + Sync + 'static> {
        Arc::new(Factory {
            algorithm,
            gauge,
            first: Mutex::new(Some(InitialState {
                resume: known.resume,
                ensemble,
            })),
            reordering: known.reordering.unwrap_or_default(),
        })
    }

    fn publish(&self) {
        let (limits, view) = (self.model.limits(), self.model.view());
        let (resume, reordering) = (self.model.resume_point(), self.monitor.verdict());
        self.gauge.publish(limits, view, resume, reordering);
    }
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let first = self.first.lock();
        let first = first.unwrap_or_else(PoisonError::into_inner).take();
        let resume = first.as_ref().and_then(|first| first.resume);
        let member = first.and_then(|first| first.ensemble.join());
        let controller = QuinnController {
            model: self.algorithm.build(now, current_mtu, resume, member),
            gauge: self.gauge.clone(),
            latest: None,
            monitor: ReorderingMonitor::new(self.reordering),
        };
        controller.gauge.set_in_flight(0);
        controller.publish();
        Box::new(controller)
    }
}

impl Controller for QuinnController {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        if self.gauge.counting() {
            self.gauge.on_sent(bytes);
            self.latest = Some(now);
            self.model.on_sent(now, bytes, self.gauge.limited());
        }
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let age = now.saturating_duration_since(sent);
        self.gauge.on_acked(bytes, age);
        if self.latest == Some(sent) {
            self.gauge.on_latest_acked(bytes);
        }
        self.monitor.on_acked(now, sent, rtt.conservative());
        self.model.on_acked(now, sent, bytes);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        _app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.gauge.set_in_flight(in_flight);
        self.monitor.on_ack_end();
        self.model.set_sleeps(self.gauge.sleeps());
        self.model.on_ack_end(now, in_flight);
        self.publish();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        lost_bytes: u64,
    ) {
        self.gauge.on_lost(lost_bytes);
        let loss = Loss {
            bytes: lost_bytes,
            persistent,
        };
        self.model.on_lost(now, sent, loss);
        self.publish();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.model.on_mtu(new_mtu);
        self.publish();
    }

    fn window(&self) -> u64 {
        UNLIMITED
    }

    /// Returns the model's limits for the library's statistics, not the window that the library is shown.
    fn metrics(&self) -> ControllerMetrics {
        let limits = self.model.limits();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = limits.window;
        metrics.pacing_rate = limits.rate.map(|rate| bytes::whole(rate * 8.0));
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            model: self.model.clone_box(),
            gauge: self.gauge.clone(),
            latest: self.latest,
            monitor: self.monitor.clone(),
        })
    }

    fn initial_window(&self) -> u64 {
        UNLIMITED
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
