//! Metrics in the `OpenMetrics` text format, which Prometheus scrapes.
//!
//! `metrics/list.rs` is the only list: each entry holds a metric's name, what it means, its labels, and how it is read from the
//! workers' answers. `docs/METRICS.md` is written from it, and a test fails where the two differ. Names are an
//! interface: they end in their unit, and are never changed for taste.

mod list;

#[cfg(test)]
mod tests;

use std::fmt;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::rest::sample::Counters;
use crate::snapshot::Collected;
use list::METRICS;

/// Of what [`render`] returns.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What metrics are read from.
pub(crate) struct View<'a> {
    pub(crate) side: &'static str,
    pub(crate) started: Timestamp,
    /// Answers of the workers: for gauges.
    pub(crate) collected: &'a Collected,
    /// Last known counters of all workers: for counters.
    pub(crate) counters: &'a [Counters],
}

/// One metric: all there is to know about it.
struct Metric {
    /// Without the suffixes that unit and kind add.
    name: &'static str,
    kind: Kind,
    unit: Option<Unit>,
    /// One sentence without its full stop.
    help: &'static str,
    read: fn(&View<'_>) -> Vec<Point>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Info,
}

/// One value, and the labels that tell it from the metric's others.
#[derive(Debug)]
struct Point {
    labels: Vec<(&'static str, &'static str)>,
    value: Value,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Whole(u64),
    Real(f64),
}

/// Writes every metric.
pub(crate) fn render(view: &View<'_>) -> String {
    let mut registry = Registry::default();
    let rows = METRICS
        .iter()
        .map(|metric| (metric, (metric.read)(view)))
        .collect();
    registry.register_collector(Box::new(Rows(rows)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("invariant: writing to a String does not fail");
    text
}

struct Rows(Vec<(&'static Metric, Vec<Point>)>);

impl Collector for Rows {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, points) in &self.0 {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let mut encoder =
                encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), kind)?;
            for Point { labels, value } in points {
                match (metric.kind, labels.is_empty()) {
                    (Kind::Info, _) => encoder.encode_info(labels)?,
                    (kind, true) => encode_value(&mut encoder, kind, *value)?,
                    (kind, false) => {
                        encode_value(&mut encoder.encode_family(labels)?, kind, *value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn encode_value(encoder: &mut MetricEncoder<'_>, kind: Kind, value: Value) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Whole(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (Kind::Counter, Value::Real(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (_, Value::Whole(value)) => encoder.encode_gauge(&value),
        (_, Value::Real(value)) => encoder.encode_gauge(&value),
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(metric, points)| (metric.name, points)))
            .finish()
    }
}

/// `part / whole`; 0 where there is no whole yet.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        exact(part) / exact(whole)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are 64-bit floats by their format"
)]
fn exact(value: u64) -> f64 {
    value as f64
}
