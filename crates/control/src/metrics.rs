//! Metrics in the `OpenMetrics` text format, which Prometheus scrapes.
//!
//! `metrics/list.rs` is the only list: each entry holds a metric's name, what it means, its labels, and how it is read from the
//! workers' answers. `docs/METRICS.md` is written from it, and a test fails where the two differ. Names are an
//! interface: they end in their unit, and are never changed for taste.

mod list;

#[cfg(test)]
mod tests;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use list::{Kind, METRICS, Metric, Point, Value};

pub(crate) use list::{View, ratio};

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) fn render(view: &View<'_>) -> String {
    let mut registry = Registry::default();
    let rows = METRICS.iter().map(|metric| (metric, (metric.read)(view)));
    registry.register_collector(Box::new(Rows(rows.collect())));
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
