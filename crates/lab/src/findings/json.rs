//! `summary.json`: the results in a form for programs.

use serde::Serialize;

use super::{AssertionResult, Figure, Findings};
use crate::Metric;
use crate::stats::PairedComparison;

/// Version of the format of `summary.json`. The number rises when a key changes its meaning.
const SCHEMA: &str = "lab-summary/2";

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
    assertions: &'a [AssertionResult],
}

#[derive(Serialize)]
struct FigureJson<'a> {
    case: &'a str,
    arm: &'a str,
    metric: Metric,
    #[serde(flatten)]
    figure: Figure,
}

#[derive(Serialize)]
struct ComparisonJson<'a> {
    case: &'a str,
    a: &'a str,
    b: &'a str,
    metric: Metric,
    #[serde(flatten)]
    paired: PairedComparison,
    verdict: &'static str,
}

impl Findings<'_> {
    /// Returns the text of `summary.json`.
    ///
    /// # Errors
    ///
    /// Returns an error of `serde_json`; numbers and strings do not cause any.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let comparisons = self.compared.iter().filter_map(|one| {
            Some(ComparisonJson {
                case: &one.case,
                a: &one.a,
                b: &one.b,
                metric: one.metric,
                paired: one.paired?,
                verdict: one.word(),
            })
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
            assertions: &self.asserted,
        };
        serde_json::to_string_pretty(&summary).map(|text| text + "\n")
    }

    fn figures(&self) -> Vec<FigureJson<'_>> {
        let mut all = Vec::new();
        for case in &self.scenario.cases {
            for arm in &self.scenario.arms {
                all.extend(self.metrics().filter_map(|metric| {
                    Some(FigureJson {
                        case: &case.id,
                        arm: &arm.id,
                        metric,
                        figure: self.figure(&case.id, &arm.id, metric)?,
                    })
                }));
            }
        }
        all
    }
}
