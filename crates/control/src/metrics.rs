//! Renders metrics for Prometheus, in its own text format or in `OpenMetrics`.
//!
//! `metrics/list.rs` is the only list. Each entry has a metric's name, its meaning, its labels, and the function that
//! reads it from the workers' answers. A test writes `docs/METRICS.md` from the list, and fails if the two differ. The
//! names are an interface: they end in their unit, and are never changed for style.

mod clients;
mod format;
mod list;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use format::MetricsFormat;
pub(crate) use list::{MetricsView, ratio};

pub(crate) fn render(format: MetricsFormat, view: &MetricsView<'_>) -> String {
    let mut text = String::new();
    for metric in list::METRICS {
        text::write_metric(&mut text, format, metric, &(metric.read)(view))
            .expect("invariant: writing to a String does not fail");
    }
    if format == MetricsFormat::OpenMetrics {
        text.push_str(text::END);
    }
    text
}
