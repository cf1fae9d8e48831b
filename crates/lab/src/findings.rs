//! The results of a run: tables, comparisons, assertions. All of them are derived from `run.json` alone.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::metric::{Better, Metric};
use crate::record::Run;
use crate::scenario::Scenario;
use crate::stats::{PairedComparison, Verdict, compare};

mod assertion;
mod headline;
mod json;
mod table;
mod verdict;

pub(crate) use assertion::AssertionResult;
pub(crate) use table::{Figure, Table, TableCell};

/// The results of a run. Tables follow the order of the scenario; comparisons and assertions are listed case by case.
#[derive(Debug)]
pub struct Findings<'a> {
    pub(crate) run: &'a Run,
    pub(crate) scenario: &'a Scenario,
    pub(crate) tables: Vec<Table>,
    pub(crate) compared: Vec<ArmComparison>,
    pub(crate) asserted: Vec<AssertionResult>,
    /// Cache of figures that were requested: computing their intervals takes thousands of draws.
    figures: RefCell<BTreeMap<(String, String, Metric), Option<Figure>>>,
}

#[derive(Debug)]
pub(crate) struct ArmComparison {
    pub(crate) case: String,
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) metric: Metric,
    /// The result of the paired comparison. `None` without pairs.
    pub(crate) paired: Option<PairedComparison>,
}

impl<'a> Findings<'a> {
    /// Derives the results of a run of a scenario.
    pub fn new(run: &'a Run, scenario: &'a Scenario) -> Self {
        let tables = scenario
            .tables
            .iter()
            .flat_map(|shown| table::tables(run, scenario, shown));
        let compares = scenario
            .compares
            .iter()
            .flat_map(|&(ref a, ref b, metric)| {
                run.measured_cases(scenario).map(move |case| ArmComparison {
                    paired: compare(&run.pairs(case, [a, b], metric)),
                    case: case.to_owned(),
                    a: a.clone(),
                    b: b.clone(),
                    metric,
                })
            });
        let has = |one: &ArmComparison, arm: &str| run.has(Some(&one.case), arm);
        let measured = compares.filter(|one| has(one, &one.a) && has(one, &one.b));
        Self {
            run,
            scenario,
            tables: tables.collect(),
            compared: measured.collect(),
            asserted: scenario
                .asserts
                .iter()
                .flat_map(|assertion| assertion::asserted(run, scenario, assertion))
                .collect(),
            figures: RefCell::default(),
        }
    }

    /// Returns the number of planned measurements (case, arm and block) with a valid attempt, and of those without one.
    pub fn validity(&self) -> (usize, usize) {
        let outcomes = self.run.outcomes();
        let valid = outcomes.values().filter(|valid| **valid).count();
        (valid, outcomes.len() - valid)
    }

    /// Returns true if every assertion holds. An assertion with too few valid runs does not hold.
    pub fn all_hold(&self) -> bool {
        self.asserted
            .iter()
            .all(|assertion| assertion.holds == Some(true))
    }

    /// Returns the smallest and the largest number of valid runs per case and arm. A combination that the run did not
    /// reach counts as zero.
    pub(crate) fn runs_of_cells(&self) -> [usize; 2] {
        let arms: Vec<&str> = self.scenario.arms.iter().map(|arm| &*arm.id).collect();
        let arms = arms.iter().filter(|arm| self.run.has(None, arm));
        let mut ends = [usize::MAX, 0];
        for arm in arms {
            for case in self.run.measured_cases(self.scenario) {
                let runs = self.run.valid(case, arm).count();
                ends = [ends[0].min(runs), ends[1].max(runs)];
            }
        }
        [ends[0].min(ends[1]), ends[1]]
    }

    pub(crate) fn figure(&self, case: &str, arm: &str, metric: Metric) -> Option<Figure> {
        let key = (case.to_owned(), arm.to_owned(), metric);
        let mut figures = self.figures.borrow_mut();
        let figure = figures.entry(key);
        let figure = figure.or_insert_with(|| Figure::of(&self.run.values(case, arm, metric)));
        figure.clone()
    }

    /// Returns the published figure of an arm under a case. If single runs were published, returns their median.
    pub(crate) fn published(&self, case: &str, arm: &str, metric: Metric) -> Option<f64> {
        let key = (case.to_owned(), arm.to_owned());
        self.scenario.published.get(&key)?.get(&metric)?.middle()
    }

    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> {
        Metric::ALL.iter().copied().filter(|metric| {
            let mut cells = self.run.cells.iter();
            cells.any(|cell| cell.metrics.contains_key(metric))
        })
    }
}

impl ArmComparison {
    /// Returns true if there are enough pairs for a verdict.
    pub(crate) fn has_verdict(&self) -> bool {
        self.paired
            .is_some_and(|paired| paired.verdict != Verdict::TooFew)
    }

    pub(crate) fn word(&self) -> &'static str {
        self.paired.map_or("not measured", |paired| {
            word(self.metric.better(), paired.verdict)
        })
    }
}

pub(crate) fn word(better: Better, verdict: Verdict) -> &'static str {
    match (verdict, better) {
        (Verdict::TooFew, _) => "too few runs for a verdict",
        (Verdict::NoDifference, _) => "no detectable difference",
        (Verdict::Higher, Better::HigherIsFaster) | (Verdict::Lower, Better::LowerIsFaster) => {
            "faster"
        }
        (Verdict::Lower, Better::HigherIsFaster) | (Verdict::Higher, Better::LowerIsFaster) => {
            "slower"
        }
        (Verdict::Lower, Better::LowerIsCheaper) => "cheaper",
        (Verdict::Higher, Better::LowerIsCheaper) => "dearer",
        (Verdict::Higher, Better::Neither) => "more",
        (Verdict::Lower, Better::Neither) => "less",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{TEXT, run};

    #[test]
    fn a_table_has_the_published_shape_and_published_figures_beside_measured_ones() {
        let (run, scenario) = (run(2.0), Scenario::parse(TEXT).expect("a scenario"));
        let findings = Findings::new(&run, &scenario);
        let titles: Vec<_> = findings.tables.iter().map(|table| &*table.title).collect();
        assert_eq!(
            titles,
            [
                "Bandwidth: first",
                "Bandwidth: second",
                "Side by side: receiver (Mbit/s)"
            ]
        );
        let (label, cells) = &findings.tables[0].rows[1];
        assert_eq!((&**label, cells[0].published), ("1%", Some(60.3)));
        let ours = cells[0].measured.as_ref().expect("measured");
        assert!((ours.median - 50.2).abs() < 1e-9, "{ours:?}");
        assert_eq!((ours.runs, cells[1].published), (7, None));
        assert_eq!(findings.tables[2].columns, ["first", "second"]);
        assert_eq!(findings.validity(), (28, 0));
    }

    #[test]
    fn verdicts_and_assertions_follow_from_pairs() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        for (factor, word, holds) in [
            (
                2.0,
                "second against first, receiver: faster in 2 of 2 cases (x2.00). \
                 Its cost, CPU of all programs: cheaper in 2 of 2 cases (x0.500)",
                true,
            ),
            (
                0.9,
                "second against first, receiver: slower in 2 of 2 cases (x0.900). \
                 Its cost, CPU of all programs: dearer in 2 of 2 cases (x1.11)",
                false,
            ),
            (
                1.0,
                "second against first, receiver: no detectable difference in 2 of 2 cases (x1.00). \
                 Its cost, CPU of all programs: no detectable difference in 2 of 2 cases (x1.00)",
                true,
            ),
        ] {
            let run = run(factor);
            let findings = Findings::new(&run, &scenario);
            assert_eq!(findings.verdicts(), [word]);
            assert_eq!(findings.all_hold(), holds, "{factor}");
            assert_eq!(findings.asserted.len(), 2, "one for each case");
        }
    }

    #[test]
    fn a_verdict_of_one_case_names_the_case_and_equal_ends_appear_once() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let mut run = run(2.0);
        for cell in run.cells.iter_mut().filter(|cell| cell.case == "loss=1%") {
            let rate = cell
                .metrics
                .get_mut(&Metric::ReceiverMbitPerS)
                .expect("a rate");
            *rate *= if cell.arm == "second" { 0.25 } else { 1.0 };
        }
        let said = Findings::new(&run, &scenario).verdicts();
        assert_eq!(
            said,
            [
                "second against first, receiver: faster at 0%; slower at 1% (x0.500 to x2.00). \
                 Its cost, CPU of all programs: cheaper in 2 of 2 cases (x0.500)"
            ]
        );
    }

    #[test]
    fn a_header_allowance_is_exact_and_reported() {
        let text = TEXT.replace("at_least = 0.97", "at_least = 1.0\nallow = \"headers\"");
        let scenario = Scenario::parse(&text).expect("a scenario");
        for (factor, holds) in [(0.984, true), (0.983, false)] {
            let run = run(factor);
            let findings = Findings::new(&run, &scenario);
            assert_eq!(findings.all_hold(), holds, "{factor}");
            assert!(findings.asserted.iter().all(|one| one.allowed));
            let what = &findings.asserted[0].what;
            assert!(
                what.contains(
                    ">= 0.983 (not 1.00: QUIC's headers leave 1424 bytes of a packet for payload, TCP's leave 1448)"
                ),
                "{what}"
            );
            let report = crate::markdown(&findings);
            assert!(report.contains("QUIC's headers leave"), "{report}");
        }
    }

    #[test]
    fn unmeasured_cases_are_left_out_and_failed_cells_are_shown() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let mut run = run(2.0);
        run.cells.retain(|cell| cell.case == "loss=0%");
        for cell in run.cells.iter_mut().filter(|cell| cell.arm == "second") {
            cell.valid = false;
        }
        let findings = Findings::new(&run, &scenario);
        assert_eq!(
            findings.tables[0].rows.len(),
            1,
            "a case that was not asked for"
        );
        assert_eq!(findings.tables[1].rows[0].1[0].measured, None);
        assert_eq!(findings.compared[0].word(), "not measured");
        assert!(!findings.all_hold(), "no figures, so nothing holds");
        assert_eq!(findings.validity(), (7, 7));
    }
}
