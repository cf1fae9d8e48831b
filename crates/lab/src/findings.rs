//! What a run comes to: tables, comparisons, assertions. All of it from `run.json` alone.

use crate::metric::{Better, METRICS, Metric};
use crate::record::Run;
use crate::scenario::{Assertion, Published, Room, Scenario, Shape, Shown};
use crate::stats::{Interval, Paired, Verdict, compare, interval, median, outliers};

mod json;

/// What a run comes to.
#[derive(Debug)]
pub struct Findings<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its scenario.
    pub scenario: &'a Scenario,
    /// In the order of the scenario.
    pub tables: Vec<Table>,
    /// In the order of the scenario, case by case.
    pub compared: Vec<Compared>,
    /// In the order of the scenario, case by case.
    pub asserted: Vec<Asserted>,
}

/// The middle of some runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Median.
    pub median: f64,
    /// Interval around it.
    pub interval: Interval,
    /// Runs that count.
    pub runs: usize,
    /// Runs that stand apart.
    pub outliers: Vec<f64>,
}

/// A table as a report shows it.
#[derive(Debug)]
pub struct Table {
    /// Heading.
    pub title: String,
    /// Heading of the first column.
    pub row: String,
    /// Headings of the others.
    pub columns: Vec<String>,
    /// Label and cells.
    pub rows: Vec<(String, Vec<TableCell>)>,
}

/// A figure of ours, and the published one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableCell {
    /// Ours; `None`: not measured, or no run of it counts.
    pub ours: Option<Figure>,
    /// What was published.
    pub published: Option<f64>,
}

/// Two arms under one case.
#[derive(Debug)]
pub struct Compared {
    /// Case.
    pub case: String,
    /// First arm.
    pub a: String,
    /// Second arm.
    pub b: String,
    /// Of what.
    pub metric: &'static Metric,
    /// What the pairs say; `None`: there are none.
    pub paired: Option<Paired>,
}

/// Whether an assertion holds under one case.
#[derive(Debug)]
pub struct Asserted {
    /// In words.
    pub what: String,
    /// What was found; `None`: nothing was measured.
    pub found: Option<f64>,
    /// Whether it holds.
    pub holds: bool,
    /// The limit was less than the scenario says, and why: see [`Room`](crate::Room).
    pub allowed: bool,
}

impl<'a> Findings<'a> {
    /// Works out what a run of a scenario comes to.
    pub fn new(run: &'a Run, scenario: &'a Scenario) -> Self {
        let tables = scenario
            .tables
            .iter()
            .flat_map(|shown| tables(run, scenario, shown));
        let compares = scenario.compares.iter().flat_map(|(a, b, metric)| {
            measured_cases(run, scenario).map(move |case| Compared {
                paired: compare(&run.pairs(case, [a, b], metric.id)),
                case: case.to_owned(),
                a: a.clone(),
                b: b.clone(),
                metric,
            })
        });
        let has = |one: &Compared, arm: &str| has_cells(run, Some(&one.case), arm);
        let measured = compares.filter(|one| has(one, &one.a) && has(one, &one.b));
        Self {
            run,
            scenario,
            tables: tables.filter(|table| !table.rows.is_empty()).collect(),
            compared: measured.collect(),
            asserted: scenario
                .asserts
                .iter()
                .flat_map(|assertion| asserted(run, scenario, assertion))
                .collect(),
        }
    }

    /// Cells of which an attempt counts, and those of which none does.
    pub fn validity(&self) -> (usize, usize) {
        let outcomes = self.run.outcomes();
        let valid = outcomes.values().filter(|valid| **valid).count();
        (valid, outcomes.len() - valid)
    }

    /// Whether everything that was asserted holds.
    pub fn all_hold(&self) -> bool {
        self.asserted.iter().all(|assertion| assertion.holds)
    }

    /// Median and interval of a metric.
    pub fn figure(&self, case: &str, arm: &str, metric: &str) -> Option<Figure> {
        figure(&self.run.values(case, arm, metric))
    }

    /// The metrics that were measured, in their usual order.
    pub fn metrics(&self) -> impl Iterator<Item = &'static Metric> {
        METRICS.iter().filter(|metric| {
            let mut cells = self.run.cells.iter();
            cells.any(|cell| cell.metrics.contains_key(metric.id))
        })
    }

    /// What the comparisons say, a line for each pair of arms and metric.
    pub fn verdicts(&self) -> Vec<String> {
        self.scenario
            .compares
            .iter()
            .filter_map(|(a, b, metric)| self.verdict(a, b, metric))
            .collect()
    }

    fn verdict(&self, a: &str, b: &str, metric: &'static Metric) -> Option<String> {
        let here = |one: &&Compared| one.a == a && one.b == b && one.metric == metric;
        let pairs: Vec<_> = self.compared.iter().filter(here).collect();
        let found: Vec<_> = pairs.iter().filter_map(|one| one.paired).collect();
        if found.is_empty() {
            return None;
        }
        let mut words: Vec<(&str, Vec<&str>)> = Vec::new();
        for one in pairs.iter().filter(|one| one.paired.is_some()) {
            let (word, case) = (one.word(), self.scenario.case_label(&one.case));
            match words.iter_mut().find(|(known, _)| *known == word) {
                Some((_, cases)) => cases.push(case),
                None => words.push((word, vec![case])),
            }
        }
        let all = pairs.len();
        let words = words.iter().map(|(word, cases)| match &cases[..] {
            _ if all == 1 => (*word).to_owned(),
            [case] => format!("{word} at {case}"),
            cases => format!("{word} in {} of {all} cases", cases.len()),
        });
        let ratios = found.iter().map(|paired| paired.ratio);
        let least = ratios.clone().fold(f64::INFINITY, f64::min);
        let most = ratios.fold(0.0, f64::max);
        let [least, most] = [least, most].map(shown);
        let range = if least == most {
            format!("x{least}")
        } else {
            format!("x{least} to x{most}")
        };
        Some(format!(
            "{a} against {b}, {}: {} ({range})",
            metric.label,
            words.collect::<Vec<_>>().join("; ")
        ))
    }
}

impl Compared {
    /// The verdict in a word.
    pub fn word(&self) -> &'static str {
        self.paired.map_or("not measured", |paired| {
            word(self.metric.better, paired.verdict)
        })
    }
}

/// A verdict, as it is called for this kind of metric.
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

/// From where on a number needs no decimals, one, two and so on.
const DECIMALS: [f64; 6] = [99.95, 9.995, 0.9995, 0.099_95, 0.009_995, 0.000_999_5];

/// Three digits that mean something; whole numbers stay whole.
pub(crate) fn shown(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let needed = DECIMALS.iter().position(|from| value.abs() >= *from);
    format!("{value:.*}", needed.unwrap_or(DECIMALS.len()))
}

fn figure(values: &[f64]) -> Option<Figure> {
    Some(Figure {
        median: median(values)?,
        interval: interval(values)?,
        runs: values.len(),
        outliers: outliers(values),
    })
}

/// Cases of which there is a cell.
fn measured_cases<'a>(run: &'a Run, scenario: &'a Scenario) -> impl Iterator<Item = &'a str> {
    let ids = scenario.cases.iter().map(|case| &*case.id);
    ids.filter(|id| run.cells.iter().any(|cell| cell.case == **id))
}

fn has_cells(run: &Run, case: Option<&str>, arm: &str) -> bool {
    run.cells
        .iter()
        .any(|cell| cell.arm == arm && case.is_none_or(|case| cell.case == case))
}

fn tables(run: &Run, scenario: &Scenario, shown: &Shown) -> Vec<Table> {
    let cases: Vec<&str> = measured_cases(run, scenario)
        .filter(|case| shown.cases.iter().any(|shown| shown == case))
        .collect();
    let arms: Vec<&str> = shown
        .arms
        .iter()
        .map(String::as_str)
        .filter(|arm| has_cells(run, None, arm))
        .collect();
    let published = |case: &str, arm: &str, metric: &Metric| -> Option<&Published> {
        let key = (case.to_owned(), arm.to_owned());
        scenario.published.get(&key)?.get(metric.id)
    };
    let cell = |case: &str, arm: &str, metric: &Metric| TableCell {
        ours: figure(&run.values(case, arm, metric.id)),
        published: published(case, arm, metric).and_then(Published::middle),
    };
    let label = |case: &str| scenario.case_label(case).to_owned();
    match shown.shape {
        Shape::Metrics => {
            let one = |arm: &&str| Table {
                title: titled(&shown.title, arm, arms.len() > 1),
                row: shown.row.clone(),
                columns: shown.columns.iter().map(|metric| metric.title()).collect(),
                rows: cases
                    .iter()
                    .map(|case| {
                        let cells = shown.columns.iter().map(|metric| cell(case, arm, metric));
                        (label(case), cells.collect())
                    })
                    .collect(),
            };
            arms.iter().map(one).collect()
        }
        Shape::Arms => {
            let one = |metric: &&'static Metric| Table {
                title: titled(&shown.title, &metric.title(), true),
                row: shown.row.clone(),
                columns: arms.iter().map(|arm| (*arm).to_owned()).collect(),
                rows: cases
                    .iter()
                    .map(|case| {
                        let cells = arms.iter().map(|arm| cell(case, arm, metric));
                        (label(case), cells.collect())
                    })
                    .collect(),
            };
            shown.columns.iter().map(one).collect()
        }
        Shape::Runs => {
            let both = cases
                .iter()
                .flat_map(|case| arms.iter().map(move |arm| (case, arm)));
            let one = |(case, arm): (&&str, &&str)| {
                let row = |(at, measured): (usize, &crate::Cell)| {
                    let cells = shown.columns.iter().map(|metric| TableCell {
                        ours: measured
                            .metrics
                            .get(metric.id)
                            .and_then(|value| figure(&[*value])),
                        published: match published(case, arm, metric) {
                            Some(Published::Runs(runs)) => runs.get(at).copied(),
                            _ => None,
                        },
                    });
                    (measured.block.to_string(), cells.collect())
                };
                let mut measured: Vec<_> = run.valid(case, arm).collect();
                measured.sort_by_key(|cell| cell.block);
                let mut rows: Vec<_> = measured.into_iter().enumerate().map(row).collect();
                let middle = shown.columns.iter().map(|metric| cell(case, arm, metric));
                rows.push(("median".to_owned(), middle.collect()));
                Table {
                    title: titled(
                        &titled(&shown.title, arm, true),
                        &label(case),
                        cases.len() > 1,
                    ),
                    row: shown.row.clone(),
                    columns: shown.columns.iter().map(|metric| metric.title()).collect(),
                    rows,
                }
            };
            both.map(one).collect()
        }
    }
}

fn titled(title: &str, of: &str, needed: bool) -> String {
    if needed {
        format!("{title}: {of}")
    } else {
        title.to_owned()
    }
}

fn asserted(run: &Run, scenario: &Scenario, assertion: &Assertion) -> Vec<Asserted> {
    let Assertion {
        arm,
        over,
        metric,
        cases,
        at_least,
        at_most,
        allow: _,
    } = assertion;
    let cases = measured_cases(run, scenario).filter(|case| cases.iter().any(|one| one == case));
    let one = |case: &str| {
        if !has_cells(run, Some(case), arm) {
            return None;
        }
        let (found, subject) = match over {
            None => (median(&run.values(case, arm, metric.id)), arm.clone()),
            Some(over) if !has_cells(run, Some(case), over) => return None,
            Some(over) => {
                let paired = compare(&run.pairs(case, [arm, over], metric.id));
                (paired.map(|paired| paired.ratio), format!("{arm} / {over}"))
            }
        };
        let room = scenario.room(assertion, case);
        let least = at_least.map(|least| least * room.map_or(1.0, Room::ratio));
        let mut limits: Vec<String> = Vec::new();
        limits.extend(at_least.zip(least).map(|(whole, least)| {
            room.map_or_else(
                || format!(">= {}", shown(least)),
                |Room { quic, tcp }| {
                    format!(
                        ">= {least:.3} (not {}: QUIC's headers leave {quic} bytes of a packet for payload, TCP's leave {tcp})",
                        shown(whole)
                    )
                },
            )
        }));
        limits.extend(at_most.map(|most| format!("<= {}", shown(most))));
        let what = format!(
            "{subject}, {} at {}: {}",
            metric.label,
            scenario.case_label(case),
            limits.join(" and ")
        );
        let within = |found: f64| {
            least.is_none_or(|least| found >= least) && at_most.is_none_or(|most| found <= most)
        };
        Some(Asserted {
            what,
            found,
            holds: found.is_some_and(within),
            allowed: room.is_some(),
        })
    };
    cases.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{TEXT, run};

    #[test]
    fn the_table_has_the_published_shape_with_published_figures_beside_ours() {
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
        let ours = cells[0].ours.as_ref().expect("measured");
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
                "second against first, receiver: faster in 2 of 2 cases (x2.00)",
                true,
            ),
            (
                0.9,
                "second against first, receiver: slower in 2 of 2 cases (x0.900)",
                false,
            ),
            (
                1.0,
                "second against first, receiver: no detectable difference in 2 of 2 cases (x1.00)",
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
    fn a_verdict_of_one_case_names_it_and_two_ends_that_look_alike_are_one() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let mut run = run(2.0);
        for cell in run.cells.iter_mut().filter(|cell| cell.case == "loss=1%") {
            let rate = cell.metrics.get_mut("receiver_mbit_per_s").expect("a rate");
            *rate *= if cell.arm == "second" { 0.25 } else { 1.0 };
        }
        let said = Findings::new(&run, &scenario).verdicts();
        assert_eq!(
            said,
            ["second against first, receiver: faster at 0%; slower at 1% (x0.500 to x2.00)"]
        );
    }

    #[test]
    fn an_allowance_for_headers_is_no_more_than_they_are_and_is_told() {
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
    fn what_was_not_measured_is_left_out_and_what_failed_is_not() {
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
        assert_eq!(findings.tables[1].rows[0].1[0].ours, None);
        assert_eq!(findings.compared[0].word(), "not measured");
        assert!(!findings.all_hold(), "nothing found holds nothing");
        assert_eq!(findings.validity(), (7, 7));
    }

    #[test]
    fn figures_have_three_digits_that_mean_something() {
        for (value, text) in [
            (12_797.4, "12797"),
            (562.3, "562"),
            (99.96, "100"),
            (80.2, "80.2"),
            (9.999, "10.0"),
            (2.7, "2.70"),
            (0.9996, "1.00"),
            (0.9994, "0.999"),
            (0.11, "0.110"),
            (0.05, "0.0500"),
            (0.0017, "0.00170"),
            (0.0, "0"),
        ] {
            assert_eq!(shown(value), text);
        }
    }
}
