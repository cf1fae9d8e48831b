//! Writes metrics in both formats, which differ in a few words.
//!
//! | | text | `OpenMetrics` |
//! |---|---|---|
//! | a counter's help and type | by its full name | without `_total` |
//! | information | a gauge | a kind of its own |
//! | units, and a last line | none | present |

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::time::Duration;

use quictun_engine::report::Histogram;

use super::format::MetricsFormat;
use super::list::{Metric, MetricKind, MetricPoint, PointValue};

/// The last line of an answer. It shows the reader that nothing is missing.
pub(super) const END: &str = "# EOF\n";

type Labels<'a> = [(&'static str, Cow<'a, str>)];

pub(super) fn write_metric(
    text: &mut String,
    format: MetricsFormat,
    metric: &Metric,
    points: &[MetricPoint],
) -> fmt::Result {
    let name = metric.full_name();
    let open = format == MetricsFormat::OpenMetrics;
    let family = if open { metric.family() } else { name.clone() };
    writeln!(text, "# HELP {family} {}", metric.help)?;
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Histogram => "histogram",
        MetricKind::Info if open => "info",
        MetricKind::Gauge | MetricKind::Info => "gauge",
    };
    writeln!(text, "# TYPE {family} {kind}")?;
    if open && let Some(unit) = metric.unit {
        writeln!(text, "# UNIT {family} {unit}")?;
    }
    for MetricPoint { labels, value } in points {
        match value {
            PointValue::Whole(value) => write_sample(text, &name, labels, value)?,
            // A decimal point distinguishes a real number from a whole one.
            PointValue::Real(value) => {
                write_sample(text, &name, labels, &format_args!("{value:?}"))?;
            }
            PointValue::Times(times) => write_histogram(text, &name, times)?,
        }
    }
    Ok(())
}

fn write_sample(
    text: &mut String,
    name: &str,
    labels: &Labels<'_>,
    value: &dyn fmt::Display,
) -> fmt::Result {
    text.push_str(name);
    for (place, (label, content)) in labels.iter().enumerate() {
        let before = if place == 0 { '{' } else { ',' };
        write!(text, "{before}{label}=\"{}\"", escaped(content))?;
    }
    if !labels.is_empty() {
        text.push('}');
    }
    writeln!(text, " {value}")
}

fn write_histogram(text: &mut String, name: &str, times: &Histogram) -> fmt::Result {
    let mut bucket = |bound: String, count: u64| {
        write_sample(
            text,
            &format!("{name}_bucket"),
            &[("le", bound.into())],
            &count,
        )
    };
    for (bound, count) in times.up_to() {
        bucket(seconds(bound), count)?;
    }
    let count = times.count();
    bucket("+Inf".to_owned(), count)?;
    write_sample(text, &format!("{name}_count"), &[], &count)?;
    write_sample(text, &format!("{name}_sum"), &[], &seconds(times.sum()))
}

fn seconds(duration: Duration) -> String {
    format!("{:?}", duration.as_secs_f64())
}

/// Escapes a label's value: a client's name may contain any character.
fn escaped(content: &str) -> Cow<'_, str> {
    if !content.contains(['\\', '"', '\n']) {
        return content.into();
    }
    let content = content.replace('\\', "\\\\").replace('"', "\\\"");
    content.replace('\n', "\\n").into()
}
