//! Tables of measured figures, with published ones beside them.

use serde::Serialize;

use crate::metric::Metric;
use crate::record::{Cell, Run};
use crate::scenario::{Published, Scenario, Shape, TableSpec};
use crate::stats::{Interval, LEVEL, interval, median, outliers};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) runs: usize,
    pub(crate) median: f64,
    pub(crate) interval: Interval,
    /// Runs that Tukey's rule marks as outliers. The median and the interval include them.
    pub(crate) outliers: Vec<f64>,
}

impl Figure {
    /// Computes the figure of these runs. Returns `None` if there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            runs: values.len(),
            median: median(values)?,
            interval: interval(values)?,
            outliers: outliers(values),
        })
    }

    /// Returns true if there are enough runs for an interval at [`LEVEL`].
    pub(crate) fn is_sure(&self) -> bool {
        self.interval.level >= LEVEL
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    /// The heading of the first column.
    pub(crate) row: String,
    pub(crate) columns: Vec<String>,
    /// The label and the cells of each row.
    pub(crate) rows: Vec<(String, Vec<TableCell>)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TableCell {
    /// The measured figure. `None` if no run is valid, or if no valid run has this metric.
    pub(crate) measured: Option<Figure>,
    pub(crate) published: Option<f64>,
    /// Number of valid runs, with or without this metric.
    pub(crate) counted: usize,
    /// True if the cell shows a single run, in a table with one row per run.
    pub(crate) is_run: bool,
    /// The unit of the figures if they are durations that each cell shows with its own unit. Otherwise the unit stands
    /// in a heading, and this is empty.
    pub(crate) unit: &'static str,
}

pub(super) fn tables(run: &Run, scenario: &Scenario, shown: &TableSpec) -> Vec<Table> {
    let cases = run.measured_cases(scenario);
    let arms = shown.arms.iter().map(String::as_str);
    let view = TableSource {
        run,
        scenario,
        shown,
        cases: cases
            .filter(|case| shown.cases.iter().any(|shown| shown == case))
            .collect(),
        arms: arms.filter(|arm| run.has(None, arm)).collect(),
    };
    let all: Vec<Table> = match shown.shape {
        Shape::Metrics => view.arms.iter().map(|arm| view.of_arm(arm)).collect(),
        Shape::Arms => shown
            .columns
            .iter()
            .map(|metric| view.of_metric(*metric))
            .collect(),
        Shape::Runs => {
            let cases = view.cases.iter();
            let both = cases.flat_map(|case| view.arms.iter().map(move |arm| (case, arm)));
            both.map(|(case, arm)| view.of_runs(case, arm)).collect()
        }
    };
    all.into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect()
}

struct TableSource<'a> {
    run: &'a Run,
    scenario: &'a Scenario,
    shown: &'a TableSpec,
    /// Cases that have measurements.
    cases: Vec<&'a str>,
    /// Arms that have measurements.
    arms: Vec<&'a str>,
}

impl TableSource<'_> {
    /// Returns a table with one row per case and one column per metric.
    fn of_arm(&self, arm: &str) -> Table {
        Table {
            title: titled(&self.shown.title, arm, self.arms.len() > 1),
            rows: self.rows(|case| self.metrics(case, arm)),
            ..self.without_rows()
        }
    }

    /// Returns a table with one row per case and one column per arm.
    fn of_metric(&self, metric: Metric) -> Table {
        let arms = self.arms.iter();
        Table {
            title: titled(&self.shown.title, &metric.heading(), true),
            columns: arms.clone().map(|arm| (*arm).to_owned()).collect(),
            rows: self.rows(|case| {
                arms.clone()
                    .map(|arm| self.cell(case, arm, metric))
                    .collect()
            }),
            ..self.without_rows()
        }
    }

    /// Returns a table with one row per run, one column per metric, and the medians in the last row.
    fn of_runs(&self, case: &str, arm: &str) -> Table {
        let mut measured: Vec<_> = self.run.valid(case, arm).collect();
        measured.sort_by_key(|cell| cell.block);
        let row = |(at, measured): (usize, &Cell)| {
            let cells = self.shown.columns.iter().map(|metric| TableCell {
                measured: measured
                    .metrics
                    .get(metric)
                    .and_then(|value| Figure::of(&[*value])),
                published: match self.published(case, arm, *metric) {
                    Some(Published::Runs(runs)) => runs.get(at).copied(),
                    _ => None,
                },
                counted: 1,
                is_run: true,
                unit: metric.unit_in_cells(),
            });
            (measured.block.to_string(), cells.collect())
        };
        let mut rows: Vec<_> = measured.into_iter().enumerate().map(row).collect();
        rows.push(("median".to_owned(), self.metrics(case, arm)));
        let title = titled(&self.shown.title, arm, true);
        Table {
            title: titled(&title, self.scenario.case_label(case), self.cases.len() > 1),
            rows,
            ..self.without_rows()
        }
    }

    fn without_rows(&self) -> Table {
        Table {
            title: String::new(),
            row: self.shown.row.clone(),
            columns: self
                .shown
                .columns
                .iter()
                .map(|metric| metric.heading())
                .collect(),
            rows: Vec::new(),
        }
    }

    fn rows(&self, cells: impl Fn(&str) -> Vec<TableCell>) -> Vec<(String, Vec<TableCell>)> {
        let cases = self.cases.iter();
        let rows = cases.map(|case| (self.scenario.case_label(case).to_owned(), cells(case)));
        // If there are valid runs but none has the figure, the metric does not apply to that case.
        let is_there = |cell: &TableCell| cell.measured.is_some() || cell.counted == 0;
        rows.filter(|(_, cells)| cells.iter().any(is_there))
            .collect()
    }

    fn metrics(&self, case: &str, arm: &str) -> Vec<TableCell> {
        let metrics = self.shown.columns.iter();
        metrics
            .map(|metric| self.cell(case, arm, *metric))
            .collect()
    }

    fn cell(&self, case: &str, arm: &str, metric: Metric) -> TableCell {
        TableCell {
            measured: Figure::of(&self.run.values(case, arm, metric)),
            published: self
                .published(case, arm, metric)
                .and_then(Published::middle),
            counted: self.run.valid(case, arm).count(),
            is_run: false,
            unit: metric.unit_in_cells(),
        }
    }

    fn published(&self, case: &str, arm: &str, metric: Metric) -> Option<&Published> {
        let key = (case.to_owned(), arm.to_owned());
        self.scenario.published.get(&key)?.get(&metric)
    }
}

fn titled(title: &str, of: &str, needed: bool) -> String {
    if needed {
        format!("{title}: {of}")
    } else {
        title.to_owned()
    }
}
