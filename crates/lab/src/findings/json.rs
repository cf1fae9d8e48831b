//! `summary.json`: what was found, for programs.

use serde::Serialize;

use super::Findings;
use crate::stats::Interval;

/// Of the format; its number rises when a key changes its meaning.
const SCHEMA: &str = "lab-summary/1";

#[derive(Serialize)]
struct Summary<'a> {
    schema: &'static str,
    scenario: &'a str,
    started: &'a str,
    cells: usize,
    valid: usize,
    planned: usize,
    figures: Vec<FigureJson<'a>>,
    comparisons: Vec<ComparisonJson<'a>>,
    assertions: Vec<AssertionJson<'a>>,
}

#[derive(Serialize)]
struct FigureJson<'a> {
    case: &'a str,
    arm: &'a str,
    metric: &'static str,
    runs: usize,
    median: f64,
    interval: IntervalJson,
    outliers: Vec<f64>,
}

#[derive(Serialize)]
struct ComparisonJson<'a> {
    case: &'a str,
    a: &'a str,
    b: &'a str,
    metric: &'static str,
    pairs: usize,
    ratio: f64,
    interval: IntervalJson,
    detectable: f64,
    verdict: &'static str,
}

#[derive(Serialize)]
struct AssertionJson<'a> {
    what: &'a str,
    found: Option<f64>,
    holds: bool,
    allowed: bool,
}

#[derive(Serialize)]
struct IntervalJson {
    low: f64,
    high: f64,
    level: f64,
}

impl From<Interval> for IntervalJson {
    fn from(Interval { low, high, level }: Interval) -> Self {
        Self { low, high, level }
    }
}

impl Findings<'_> {
    /// The text of `summary.json`.
    ///
    /// # Errors
    ///
    /// serde's; numbers and texts give no cause for any.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let comparisons = self.compared.iter().filter_map(|one| {
            let paired = one.paired?;
            Some(ComparisonJson {
                case: &one.case,
                a: &one.a,
                b: &one.b,
                metric: one.metric.id(),
                pairs: paired.pairs,
                ratio: paired.ratio,
                interval: paired.interval.into(),
                detectable: paired.detectable,
                verdict: one.word(),
            })
        });
        let assertions = self.asserted.iter().map(|one| AssertionJson {
            what: &one.what,
            found: one.found,
            holds: one.holds,
            allowed: one.allowed,
        });
        let summary = Summary {
            schema: SCHEMA,
            scenario: &self.scenario.name,
            started: &self.run.started,
            cells: self.run.cells.len(),
            valid: self.validity().0,
            planned: self.run.planned,
            figures: self.figures(),
            comparisons: comparisons.collect(),
            assertions: assertions.collect(),
        };
        serde_json::to_string_pretty(&summary).map(|text| text + "\n")
    }

    /// Every metric of every case and arm.
    fn figures(&self) -> Vec<FigureJson<'_>> {
        let mut all = Vec::new();
        for case in &self.scenario.cases {
            for arm in &self.scenario.arms {
                all.extend(self.metrics().filter_map(|metric| {
                    let figure = self.figure(&case.id, &arm.id, metric)?;
                    Some(FigureJson {
                        case: &case.id,
                        arm: &arm.id,
                        metric: metric.id(),
                        runs: figure.runs,
                        median: figure.median,
                        interval: figure.interval.into(),
                        outliers: figure.outliers,
                    })
                }));
            }
        }
        all
    }
}
