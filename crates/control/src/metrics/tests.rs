mod documents;
mod exposition;

use super::list::{METRICS, Metric, MetricKind};
use super::*;
use crate::rest::fake;
use crate::rest::sample::WorkerCounters;
use crate::snapshot::CollectedSnapshots;
use exposition::Exposition;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

const FORMATS: [MetricsFormat; 2] = [MetricsFormat::Text, MetricsFormat::OpenMetrics];

fn collected() -> CollectedSnapshots {
    CollectedSnapshots {
        snapshots: fake::snapshots(0),
        silent: vec![2],
    }
}

fn view<'a>(collected: &'a CollectedSnapshots, counters: &'a [WorkerCounters]) -> MetricsView<'a> {
    MetricsView {
        side: "server",
        started: Timestamp::new(1_785_585_600, 0).expect("in range"),
        collected,
        counters,
        certificate_expires: Some(UNIX_EPOCH + Duration::from_secs(1_790_000_000)),
    }
}

fn counters(collected: &CollectedSnapshots) -> Vec<WorkerCounters> {
    collected
        .snapshots
        .iter()
        .map(|snapshot| WorkerCounters {
            totals: snapshot.totals,
            clients: snapshot.clients.clone(),
            udp: snapshot.udp,
        })
        .collect()
}

/// Returns a scrape of the fake workers.
fn scrape(format: MetricsFormat) -> String {
    let collected = collected();
    render(format, &view(&collected, &counters(&collected)))
}

#[test]
fn the_reference_page_is_the_list() {
    let collected = collected();
    let counters = counters(&collected);
    let view = view(&collected, &counters);
    let mut table = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Info => "info",
        };
        let mut labels = Vec::new();
        for (name, value) in (metric.read)(&view)
            .iter()
            .flat_map(|point| point.labels.clone())
        {
            labels.push(if metric.kind == MetricKind::Info || name == "client" {
                format!("`{name}`")
            } else {
                format!("`{name}=\"{value}\"`")
            });
        }
        let mut seen = BTreeSet::new();
        labels.retain(|label| seen.insert(label.clone()));
        writeln!(
            table,
            "| `{}` | {kind} | {} | {}. |",
            metric.full_name(),
            labels.join(" "),
            metric.help
        )
        .expect("a String");
    }
    fake::check_document("METRICS.md", "metrics", &table);
}

#[test]
fn a_scrape_is_complete() {
    for (format, file) in FORMATS.into_iter().zip(["metrics.txt", "openmetrics.txt"]) {
        let text = scrape(format).replace(env!("CARGO_PKG_VERSION"), "VERSION");
        fake::check_golden(file, &text);
    }
}

#[test]
fn both_formats_are_well_formed_and_say_the_same() {
    let [text, open] = FORMATS.map(|format| Exposition::parse(format, &scrape(format)));
    assert_eq!(text.families.len(), METRICS.len());
    assert_eq!(open.families.len(), METRICS.len());
    assert_eq!(text.samples(), open.samples());
}

#[test]
fn a_client_may_have_any_name() {
    let mut collected = collected();
    let name = "a\\b \"c\"\n# TYPE d{}\u{202e}é";
    for snapshot in &mut collected.snapshots {
        snapshot.clients[0].name = name.into();
    }
    let counters = counters(&collected);
    for format in FORMATS {
        let text = render(format, &view(&collected, &counters));
        let exposition = Exposition::parse(format, &text);
        let of = exposition.samples().into_iter().filter(|sample| {
            let mut labels = sample.labels.iter();
            labels.any(|(label, value)| label == "client" && value == name)
        });
        assert_eq!(of.count(), 11, "{text}");
    }
}

#[test]
fn clients_beyond_the_limit_are_counted_together() {
    let mut collected = collected();
    for snapshot in &mut collected.snapshots {
        snapshot.clients[0].name = quictun_engine::report::OTHERS.into();
    }
    let text = render(
        MetricsFormat::Text,
        &view(&collected, &counters(&collected)),
    );
    // Alice has a connection, and also a bond whose flows wait for one.
    for (metric, value) in [("connections", 1), ("flows", 5), ("flows_detached", 2)] {
        let line = format!("quictun_client_{metric}{{client=\"_others\"}} {value}\n");
        assert!(text.contains(&line), "{line} {text}");
    }
}

#[test]
fn names_are_unique_and_end_as_they_should() {
    let names: BTreeSet<_> = METRICS.iter().map(Metric::full_name).collect();
    assert_eq!(names.len(), METRICS.len());
    for metric in METRICS {
        let name = metric.full_name();
        assert!(
            name.starts_with("quictun_") && !name.contains("__"),
            "{name}"
        );
        assert!(
            !metric.help.ends_with('.') && !metric.help.contains(['|', '\\', '"', '\n']),
            "{name}: {}",
            metric.help
        );
    }
}

#[test]
fn counters_do_not_go_back_when_a_worker_is_silent() {
    let all = collected();
    let counters = counters(&all);
    let one = CollectedSnapshots {
        snapshots: all.snapshots[..1].to_vec(),
        silent: vec![1, 2],
    };
    let samples = |collected: &CollectedSnapshots| {
        let text = render(MetricsFormat::OpenMetrics, &view(collected, &counters));
        let families = Exposition::parse(MetricsFormat::OpenMetrics, &text).families;
        let grow = families
            .into_iter()
            .filter(|family| matches!(&*family.kind, "counter" | "histogram"));
        grow.flat_map(|family| family.samples).collect::<Vec<_>>()
    };
    assert!(samples(&all).len() > 50);
    assert_eq!(samples(&one), samples(&all));
}

#[test]
fn a_process_without_connections_has_no_statistics_of_them() {
    let text = render(
        MetricsFormat::Text,
        &view(&CollectedSnapshots::default(), &[]),
    );
    Exposition::parse(MetricsFormat::Text, &text);
    assert!(!text.contains("quictun_connection_rtt_seconds{"), "{text}");
    assert!(
        text.contains("quictun_connection_loss_ratio 0.0\n"),
        "{text}"
    );
}

#[test]
fn a_handshake_has_measured_nothing() {
    let mut collected = collected();
    collected.snapshots.truncate(1);
    let connections = &mut collected.snapshots[0].connections;
    connections.retain(|connection| connection.protocol.is_none());
    assert_eq!(connections.len(), 1);
    let text = render(MetricsFormat::Text, &view(&collected, &[]));
    assert!(!text.contains("quictun_connection_rtt_seconds{"), "{text}");
    let line = "quictun_connections{protocol=\"handshake\"} 1\n";
    assert!(text.contains(line), "{text}");
}
