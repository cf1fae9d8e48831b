//! Checks that the dashboard, alerts and documents use only metrics and labels that exist.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Exposition, METRICS, MetricKind, MetricsFormat, scrape};

/// Labels that Prometheus adds to every metric.
const ADDED: [&str; 2] = ["job", "instance"];

fn document(path: &str) -> String {
    let path = format!("{}/../../docs/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns every name that a query may use, with its labels.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let mut known = BTreeMap::<String, BTreeSet<String>>::new();
    for metric in METRICS {
        let name = metric.full_name();
        if metric.kind == MetricKind::Histogram {
            known.extend(
                ["_bucket", "_count", "_sum"]
                    .map(|suffix| (format!("{name}{suffix}"), BTreeSet::new())),
            );
        } else {
            known.insert(name, BTreeSet::new());
        }
    }
    for sample in Exposition::parse(MetricsFormat::Text, &scrape(MetricsFormat::Text)).samples() {
        let labels = known.get_mut(&sample.name).expect("in the list");
        labels.extend(sample.labels.into_iter().map(|(label, _)| label));
    }
    known
}

/// Returns the names of quictun's metrics in `text`, each with the text after it.
fn named(text: &str) -> Vec<(&str, &str)> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let places = text.match_indices("quictun_");
    let places = places.filter(|(at, _)| !text[..*at].ends_with(is_part));
    // The name of a package's file, quictun_VERSION, is not a metric.
    let is_metric = |(at, begin): &(usize, &str)| {
        text[at + begin.len()..].starts_with(|letter: char| letter.is_ascii_lowercase())
    };
    let places = places.filter(is_metric);
    let names = places.map(|(at, _)| {
        let rest = &text[at..];
        rest.split_at(rest.find(|letter| !is_part(letter)).unwrap_or(rest.len()))
    });
    names.collect()
}

/// Fails if a query uses a metric that does not exist, or a label that its metric does not have.
#[track_caller]
fn check_query(known: &BTreeMap<String, BTreeSet<String>>, query: &str) {
    let metrics = named(query);
    for (name, rest) in &metrics {
        let labels = known
            .get(*name)
            .unwrap_or_else(|| panic!("no metric has the name {name}: {query}"));
        for label in matched(rest) {
            let has = labels.contains(label) || ADDED.contains(&label);
            assert!(has, "{name} has no label {label}: {query}");
        }
    }
    let by = query
        .split(" by (")
        .skip(1)
        .map(|rest| rest.split(')').next().expect("closed"));
    for label in by.flat_map(|list| list.split(',')).map(str::trim) {
        let mut all = metrics.iter().filter_map(|(name, _)| known.get(*name));
        let has = ADDED.contains(&label) || all.any(|labels| labels.contains(label));
        assert!(has, "no metric has the label {label}: {query}");
    }
}

/// Returns the labels in the braces with which `rest` begins.
fn matched(rest: &str) -> impl Iterator<Item = &str> {
    let inside = rest
        .strip_prefix('{')
        .and_then(|rest| rest.split('}').next());
    // No value in these queries contains a comma.
    let matchers = inside
        .unwrap_or("")
        .split(',')
        .filter(|matcher| !matcher.is_empty());
    let labels = matchers.map(|matcher| matcher.split(['=', '!']).next().unwrap_or(matcher));
    labels.map(str::trim)
}

#[test]
fn queries_in_the_documents_name_existing_metrics() {
    let known = known();
    let page = document("METRICS.md");
    let (_, queries) = page.split_once("<!-- end metrics -->").expect("queries");
    assert!(named(queries).len() > 5);
    let operations = document("OPERATIONS.md");
    for text in [queries, &operations] {
        for query in text.split('`').filter(|part| part.contains("quictun_")) {
            check_query(&known, query);
        }
    }
}

#[test]
fn every_alert_uses_existing_metrics_and_has_a_test() {
    let known = known();
    let (rules, tests) = (
        document("alerts/quictun.rules.yml"),
        document("alerts/quictun.test.yml"),
    );
    let values = |text: &str, key: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim_start_matches([' ', '-']));
        let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        values.map(str::to_owned).collect()
    };
    let alerts = values(&rules, "alert");
    assert_eq!(alerts.iter().collect::<BTreeSet<_>>().len(), alerts.len());
    for key in ["expr", "severity", "summary", "description"] {
        assert_eq!(values(&rules, key).len(), alerts.len(), "{key}");
    }
    for severity in values(&rules, "severity") {
        assert!(
            ["page", "ticket", "info"].contains(&&*severity),
            "{severity}"
        );
    }
    for query in values(&rules, "expr") {
        check_query(&known, &query);
    }
    let mut tested = values(&tests, "alertname");
    for alert in &alerts {
        // An alert needs a test in which it fires, and one in which it does not.
        let cases = tested.iter().filter(|name| *name == alert).count();
        assert!(cases >= 2, "{alert} has {cases} tests");
    }
    tested.retain(|name| !alerts.contains(name));
    assert!(tested.is_empty(), "tests of unknown alerts: {tested:?}");
    for series in values(&tests, "series") {
        check_query(&known, &series);
    }
}

#[test]
fn the_dashboard_uses_existing_metrics() {
    let known = known();
    let dashboard: Value = serde_json::from_str(&document("grafana/quictun.json")).expect("JSON");
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let variables: Vec<&str> = variables
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(variables, ["datasource", "job", "instance", "client"]);
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    check_places(panels);
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        check_panel(&known, panel);
    }
}

fn check_panel(known: &BTreeMap<String, BTreeSet<String>>, panel: &Value) {
    let title = panel["title"].as_str().expect("a title");
    let has = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    assert!(has(&panel["description"]), "{title} has no description");
    assert!(
        has(&panel["fieldConfig"]["defaults"]["unit"]),
        "{title} has no unit"
    );
    let targets = panel["targets"].as_array().expect("queries");
    let references: BTreeSet<_> = targets
        .iter()
        .filter_map(|it| it["refId"].as_str())
        .collect();
    assert!(
        !targets.is_empty() && references.len() == targets.len(),
        "{title}"
    );
    for place in targets.iter().chain([panel]) {
        assert_eq!(place["datasource"]["uid"], "${datasource}", "{title}");
    }
    for target in targets {
        let query = target["expr"].as_str().expect("a query");
        let metrics = named(query);
        assert!(!metrics.is_empty(), "{title}: {query}");
        for (_, rest) in metrics {
            let chosen = r#"{job=~"$job",instance=~"$instance""#;
            assert!(
                rest.starts_with(chosen),
                "{title} does not select the chosen job and instance: {query}"
            );
        }
        check_query(known, query);
    }
}

/// Checks that all panels are within the 24 columns and do not overlap.
fn check_places(panels: &[Value]) {
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a place"));
        assert!(w > 0 && h > 0 && x + w <= 24, "{}", panel["title"]);
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{} covers another", panel["title"]);
        }
    }
}
