//! Metrics, as Prometheus scrapes them: in its own text format, or in that of `OpenMetrics`.
//!
//! `metrics/list.rs` is the only list: each entry holds a metric's name, what it means, its labels, and how it is read from the
//! workers' answers. `docs/METRICS.md` is written from it, and a test fails where the two differ. Names are an
//! interface: they end in their unit, and are never changed for taste.

mod clients;
mod format;
mod list;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use format::Format;
pub(crate) use list::{View, ratio};

pub(crate) fn render(format: Format, view: &View<'_>) -> String {
    let mut text = String::new();
    for metric in list::METRICS {
        text::write_metric(&mut text, format, metric, &(metric.read)(view))
            .expect("invariant: writing to a String does not fail");
    }
    if format == Format::OpenMetrics {
        text.push_str(text::END);
    }
    text
}
