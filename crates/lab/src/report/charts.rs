//! The charts of a report: each metric of the tables over all cases, and the latencies by percentile.

use crate::Metric;
use crate::chart::{LaneChart, LaneGroup, ValueLane};
use crate::findings::{Figure, Findings};
use crate::scenario::Shape;
use crate::writing::{readable, shown};

use super::colours::Colours;

/// The percentiles that show the distribution of a latency.
const LADDER: [(&str, Metric); 6] = [
    ("min", Metric::LatencyMinUs),
    ("p50", Metric::LatencyP50Us),
    ("p90", Metric::LatencyP90Us),
    ("p99", Metric::LatencyP99Us),
    ("p99.9", Metric::LatencyP999Us),
    ("max", Metric::LatencyMaxUs),
];

/// A chart with the stem of its file name.
pub(super) struct Chart {
    pub(super) stem: String,
    pub(super) lanes: LaneChart,
}

impl Chart {
    /// Returns the file name of the chart beside a Markdown report.
    pub(super) fn file(&self) -> String {
        format!("chart-{}.svg", self.stem)
    }
}

/// The charts of a report.
pub(super) struct Charts {
    /// The chart of what the scenario compares, and of its cost if it is known.
    pub(super) lead: Vec<Chart>,
    pub(super) further: Vec<Chart>,
}

/// Returns name and text of the chart files that [`crate::markdown`] refers to.
pub fn charts(findings: &Findings<'_>) -> Vec<(String, String)> {
    let charts = Charts::of(findings);
    let all = charts.lead.iter().chain(&charts.further);
    all.map(|chart| (chart.file(), chart.lanes.sheet()))
        .collect()
}

impl Charts {
    pub(super) fn of(findings: &Findings<'_>) -> Self {
        let mut groups: Vec<Vec<Metric>> = Vec::new();
        let main = findings.main_metric();
        let cases = &findings.scenario.cases;
        let costs = cases
            .iter()
            .filter_map(|case| findings.cost_of(&case.id, main?));
        let columns = findings
            .scenario
            .tables
            .iter()
            .flat_map(|table| &table.columns);
        for metric in main.into_iter().chain(costs).chain(columns.copied()) {
            let is_shown = groups.iter().any(|group| group.contains(&metric));
            // The sender's rate adds nothing to the chart of the receiver's rate.
            if is_shown || metric == Metric::SenderMbitPerS {
                continue;
            }
            groups.push(if BESIDE.contains(&metric) {
                BESIDE.to_vec()
            } else {
                vec![metric]
            });
        }
        let charts = groups
            .iter()
            .filter_map(|metrics| of_cases(findings, metrics));
        let mut lead: Vec<Chart> = charts.collect();
        let further = lead.split_off(lead.len().min(2));
        Self { lead, further }
    }
}

/// Rates of background streams, which share one chart for both directions.
const BESIDE: [Metric; 2] = [Metric::BackgroundUpMbitPerS, Metric::BackgroundDownMbitPerS];

/// Draws a metric, or one metric in both directions, of all arms under all cases. Returns `None` without figures.
fn of_cases(findings: &Findings<'_>, metrics: &[Metric]) -> Option<Chart> {
    let scenario = findings.scenario;
    let mut groups = Vec::new();
    for case in findings.run.measured_cases(scenario) {
        let found = metrics
            .iter()
            .filter(|metric| findings.has_figures(case, **metric))
            .filter(|metric| findings.is_accounted(case, **metric));
        let found: Vec<Metric> = found.copied().collect();
        for &metric in &found {
            let label = match (scenario.case_label(case), metric) {
                (label, _) if found.len() < 2 => label.to_owned(),
                (label, Metric::BackgroundUpMbitPerS) => format!("{label}, up"),
                (label, _) => format!("{label}, down"),
            };
            groups.push((label, case, metric));
        }
    }
    let metric = *metrics.first()?;
    let title = match metrics {
        [one] => one.label(),
        _ => "stream beside the requests",
    };
    let lanes = lanes(findings, title, metric.unit(), &groups);
    (!lanes.groups.is_empty()).then(|| Chart {
        stem: metric.id().to_owned(),
        lanes: LaneChart {
            by: row_heading(findings, metrics),
            ..lanes
        },
    })
}

/// Draws the latencies of all arms under a case by percentile.
pub(super) fn latency_percentiles(findings: &Findings<'_>, case: &str) -> LaneChart {
    let has = |(_, metric): &&(&str, Metric)| findings.has_figures(case, *metric);
    let percentiles = LADDER.iter().filter(has);
    let groups: Vec<_> = percentiles
        .map(|(name, metric)| ((*name).to_owned(), case, *metric))
        .collect();
    let title = format!("latency, {}", findings.scenario.case_label(case));
    LaneChart {
        by: "percentile".to_owned(),
        ..lanes(findings, &title, "us", &groups)
    }
}

/// Returns the row heading of the table that shows one of these metrics, or else of the first table. Ignores tables
/// with one row per run.
fn row_heading(findings: &Findings<'_>, metrics: &[Metric]) -> String {
    let tables = findings.scenario.tables.iter();
    let mut of_cases = tables.filter(|table| !matches!(table.shape, Shape::Runs));
    let first = of_cases.clone().next();
    let own = of_cases.find(|table| table.columns.iter().any(|one| metrics.contains(one)));
    own.or(first)
        .map_or(String::new(), |table| table.row.clone())
}

fn lanes(
    findings: &Findings<'_>,
    title: &str,
    unit: &str,
    groups: &[(String, &str, Metric)],
) -> LaneChart {
    let colours = Colours::of(&findings.scenario.arms);
    let arms = || findings.scenario.arms.iter().map(|arm| &*arm.id);
    let figures = groups
        .iter()
        .flat_map(|(_, case, metric)| arms().filter_map(|arm| findings.figure(case, arm, *metric)));
    let most = figures.map(|figure| figure.median).fold(0.0, f64::max);
    let (axis, factor) = readable(most, unit);
    let alone = groups.len() == 1 && findings.scenario.cases.len() == 1;
    let group = |(name, case, metric): &(String, &str, Metric)| {
        let lane = |arm: &str| {
            let figure = findings.figure(case, arm, *metric)?;
            let scaled = |value: f64| value * factor;
            let ends = [figure.interval.low, figure.interval.high].map(scaled);
            let runs = findings.run.values(case, arm, *metric);
            Some(ValueLane {
                name: arm.to_owned(),
                style: colours.style(arm),
                middle: scaled(figure.median),
                ends: figure.is_sure().then_some(ends),
                runs: runs.into_iter().map(scaled).collect(),
                published: findings.published(case, arm, *metric).map(scaled),
                tooltip: tooltip(arm, name, &figure, unit),
            })
        };
        LaneGroup {
            name: if alone { String::new() } else { name.clone() },
            lanes: arms().filter_map(lane).collect(),
        }
    };
    LaneChart {
        title: match axis {
            "" => title.to_owned(),
            axis => format!("{title} ({axis})"),
        },
        by: String::new(),
        groups: groups.iter().map(group).collect(),
    }
}

/// Returns the text of a lane, such as `tunnel, 5%: 528 Mbit/s [526, 530], 7 runs`.
fn tooltip(arm: &str, group: &str, figure: &Figure, unit: &str) -> String {
    let (unit, factor) = readable(figure.median, unit);
    let scaled = |value: f64| shown(value * factor);
    let unit = if unit.is_empty() {
        String::new()
    } else {
        format!(" {unit}")
    };
    let interval = if figure.is_sure() {
        let (low, high) = (figure.interval.low, figure.interval.high);
        format!(" [{}, {}]", scaled(low), scaled(high))
    } else {
        String::new()
    };
    let runs = match figure.runs {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    format!(
        "{arm}, {group}: {}{unit}{interval}, {runs}",
        scaled(figure.median)
    )
}
