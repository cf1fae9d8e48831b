use super::*;
use crate::rest::fake;
use crate::rest::sample::Counters;
use crate::snapshot::Collected;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::fmt::Write as _;

impl Metric {
    /// As it stands in a scrape.
    fn full_name(&self) -> String {
        let unit = self
            .unit
            .as_ref()
            .map(|unit| format!("_{}", unit.as_str()))
            .unwrap_or_default();
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        };
        format!("{}{unit}{suffix}", self.name)
    }
}

fn collected() -> Collected {
    Collected {
        snapshots: fake::snapshots(0),
        silent: vec![2],
    }
}

fn view<'a>(collected: &'a Collected, counters: &'a [Counters]) -> View<'a> {
    View {
        side: "server",
        started: Timestamp::new(1_785_585_600, 0).expect("in range"),
        collected,
        counters,
    }
}

fn counters(collected: &Collected) -> Vec<Counters> {
    collected
        .snapshots
        .iter()
        .map(|snapshot| Counters {
            totals: snapshot.totals,
            udp: snapshot.udp,
        })
        .collect()
}

#[test]
fn the_reference_page_is_the_list() {
    let collected = collected();
    let counters = counters(&collected);
    let view = view(&collected, &counters);
    let mut table = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for metric in METRICS {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        };
        let mut labels = Vec::new();
        for (name, value) in (metric.read)(&view)
            .iter()
            .flat_map(|point| point.labels.clone())
        {
            labels.push(if metric.kind == Kind::Info {
                format!("`{name}`")
            } else {
                format!("`{name}=\"{value}\"`")
            });
        }
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
    let collected = collected();
    let counters = counters(&collected);
    fake::check_golden(
        "metrics.txt",
        &render(&view(&collected, &counters)).replace(env!("CARGO_PKG_VERSION"), "VERSION"),
    );
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
            !metric.help.ends_with('.') && !metric.help.contains('|'),
            "{name}: {}",
            metric.help
        );
    }
}

#[test]
fn counters_do_not_go_back_when_a_worker_is_silent() {
    let all = collected();
    let counters = counters(&all);
    let one = Collected {
        snapshots: all.snapshots[..1].to_vec(),
        silent: vec![1, 2],
    };
    let line = |collected: &Collected| {
        let text = render(&view(collected, &counters));
        text.lines()
            .find(|line| line.starts_with("quictun_flows_opened_total "))
            .expect("there")
            .to_owned()
    };
    assert_eq!(line(&one), line(&all));
}

#[test]
fn a_process_without_connections_has_no_statistics_of_them() {
    let text = render(&view(&Collected::default(), &[]));
    assert!(!text.contains("quictun_connection_rtt_seconds{"), "{text}");
    assert!(
        text.contains("quictun_connection_loss_ratio 0.0\n"),
        "{text}"
    );
}
