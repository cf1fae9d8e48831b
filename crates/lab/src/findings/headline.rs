//! The result in a sentence: the largest difference between two arms, and the largest one in the opposite direction.

use super::Findings;
use crate::Metric;
use crate::metric::Better;
use crate::scenario::Shape;
use crate::stats::{PairedComparison, Verdict, compare};
use crate::writing::{percent, quantity, readable, shown};

/// Ratios from this one on are written as a multiple; smaller ones are written in percent.
const MULTIPLE: f64 = 1.995;

/// Maximum number of differences in the headline.
const SENTENCES: usize = 3;

/// A significant difference between two arms under a case.
struct Difference<'a> {
    case: &'a str,
    a: &'a str,
    b: &'a str,
    metric: Metric,
    paired: PairedComparison,
}

impl Findings<'_> {
    /// Returns the scenario's main metric: the first that it compares, or else the first that its tables show. A metric
    /// without figures is skipped.
    pub(crate) fn main_metric(&self) -> Option<Metric> {
        let compared = self.compared.iter().filter(|one| one.paired.is_some());
        let shown = self.scenario.tables.iter().flat_map(|table| &table.columns);
        let mut all = compared.map(|one| one.metric).chain(shown.copied());
        let found: Vec<Metric> = self.metrics().collect();
        all.find(|metric| found.contains(metric))
    }

    /// Returns true if any arm has a valid figure of a metric under a case.
    pub(crate) fn has_figures(&self, case: &str, metric: Metric) -> bool {
        let mut cells = self.run.cells.iter();
        cells.any(|cell| cell.valid && cell.case == case && cell.metrics.contains_key(&metric))
    }

    /// Returns the result in a few sentences.
    pub(crate) fn headline(&self) -> String {
        let told: Vec<_> = self
            .compared
            .iter()
            .filter(|one| one.paired.is_some())
            .collect();
        let all: Vec<Difference<'_>> = told
            .iter()
            .filter_map(|one| {
                let paired = one.paired?;
                let is_clear = matches!(paired.verdict, Verdict::Higher | Verdict::Lower);
                is_clear.then_some(Difference {
                    case: &one.case,
                    a: &one.a,
                    b: &one.b,
                    metric: one.metric,
                    paired,
                })
            })
            .collect();
        let Some(first) = all.first() else {
            return self.no_difference();
        };
        // Take the first two arms that differ, metric by metric: a difference in another metric may be the price of the
        // first.
        let mut metrics: Vec<Metric> = Vec::new();
        for one in &all {
            if (one.a, one.b) == (first.a, first.b) && !metrics.contains(&one.metric) {
                metrics.push(one.metric);
            }
        }
        let here = |metric: Metric| {
            let same = move |one: &&Difference<'_>| {
                (one.a, one.b, one.metric) == (first.a, first.b, metric)
            };
            all.iter().filter(same)
        };
        let strongest = |metric: Metric, verdict: Verdict| {
            let strength = |one: &&Difference<'_>| one.paired.ratio.ln().abs();
            let here = here(metric).filter(|one| one.paired.verdict == verdict);
            here.max_by(|a, b| strength(a).total_cmp(&strength(b)))
        };
        let told = metrics.into_iter().flat_map(|metric| {
            let ends = match metric.better() {
                Better::LowerIsFaster | Better::LowerIsCheaper => [Verdict::Lower, Verdict::Higher],
                Better::HigherIsFaster | Better::Neither => [Verdict::Higher, Verdict::Lower],
            };
            ends.map(|verdict| strongest(metric, verdict))
        });
        let sentences = told.flatten().take(SENTENCES);
        let sentences: Vec<String> = sentences.map(|one| self.sentence(one)).collect();
        sentences.join(" ")
    }

    fn no_difference(&self) -> String {
        let untold = |one: &super::ArmComparison| {
            one.paired
                .is_some_and(|paired| paired.verdict == Verdict::TooFew)
        };
        let mut compared = self.compared.iter().filter(|one| one.paired.is_some());
        if compared.clone().next().is_some() && compared.all(untold) {
            let (counts, planned) = (self.validity().0, self.run.planned);
            return format!("Too few runs for a verdict: {counts} of {planned} count.");
        }
        let compared = self.compared.iter().find(|one| one.paired.is_some());
        match compared {
            Some(one) => format!(
                "Between {} and {} no difference was found in {}.",
                one.a,
                one.b,
                one.metric.label()
            ),
            None => self.most(),
        }
    }

    /// Returns the best figure that was found, for a scenario that compares nothing.
    fn most(&self) -> String {
        let Some(metric) = self.main_metric() else {
            return "Nothing was measured that counts.".to_owned();
        };
        let is_less = matches!(
            metric.better(),
            Better::LowerIsFaster | Better::LowerIsCheaper
        );
        let mut found: Option<(f64, &str, &str)> = None;
        for case in &self.scenario.cases {
            for arm in &self.scenario.arms {
                let Some(figure) = self.figure(&case.id, &arm.id, metric) else {
                    continue;
                };
                let is_better = |(most, ..): (f64, &str, &str)| (figure.median < most) == is_less;
                if found.is_none_or(is_better) {
                    found = Some((figure.median, &case.id, &arm.id));
                }
            }
        }
        let Some((value, case, arm)) = found else {
            return "Nothing was measured that counts.".to_owned();
        };
        let end = if is_less { "least" } else { "most" };
        format!(
            "The {end} is {} of {arm}{}.",
            quantity(value, metric.unit()),
            self.under(case, metric, " at ")
        )
    }

    fn sentence(&self, one: &Difference<'_>) -> String {
        let Difference {
            case,
            a,
            b,
            metric,
            paired,
        } = one;
        let place = self.under(case, *metric, "");
        let said = said(*metric, paired.ratio, b);
        let values = [a, b].map(|arm| self.figure(case, arm, *metric).map(|one| one.median));
        let values = match values {
            [Some(ours), Some(theirs)] => {
                let both = both(*metric, ours, theirs);
                format!(" ({both})")
            }
            _ => String::new(),
        };
        let cost = self.cost(one).unwrap_or_default();
        let place = if place.is_empty() {
            place
        } else {
            capital(&place) + ": "
        };
        format!("{place}{a} {said}{values}{cost}.")
    }

    /// Returns the cost if it differs, such as `, for 4.2 times the CPU per byte`.
    fn cost(&self, one: &Difference<'_>) -> Option<String> {
        let cost = self.cost_of(one.case, one.metric)?;
        // If the scenario compares the cost itself, the cost has its own sentence.
        if self
            .scenario
            .compares
            .iter()
            .any(|(.., metric)| *metric == cost)
        {
            return None;
        }
        let paired = compare(&self.run.pairs(one.case, [one.a, one.b], cost))?;
        let per = match cost {
            Metric::CpuSPerGb => "byte",
            _ => "request",
        };
        match paired.verdict {
            Verdict::Higher | Verdict::Lower => {
                let ratio = match paired.ratio {
                    ratio if ratio >= MULTIPLE => format!("{} times the", shown(ratio)),
                    ratio if ratio > 1.0 => format!("{} more", percent(ratio - 1.0)),
                    ratio => format!("{} less", percent(1.0 - ratio)),
                };
                Some(format!(", for {ratio} CPU per {per}"))
            }
            Verdict::NoDifference | Verdict::TooFew => None,
        }
    }

    /// Returns the case with the row heading of its table, such as `packet loss rate 5%`. Returns the case alone if the
    /// heading is not a single term, and an empty text if the scenario has only one case.
    fn under(&self, case: &str, metric: Metric, before: &str) -> String {
        if self.scenario.cases.len() < 2 {
            return String::new();
        }
        let mut tables = self.scenario.tables.iter();
        let table = tables
            .find(|table| !matches!(table.shape, Shape::Runs) && table.columns.contains(&metric));
        let row = table
            .map(|table| &*table.row)
            .filter(|row| !row.contains(',') && *row != "what");
        let label = self.scenario.case_label(case);
        match row {
            Some(row) if !row.is_empty() => format!("{before}{row} {label}"),
            _ => format!("{before}{label}"),
        }
    }
}

/// Returns the difference in words, such as `carries 73.6 times as much as tcp`.
fn said(metric: Metric, ratio: f64, than: &str) -> String {
    let (verb, much, more, less) = match metric.better() {
        Better::LowerIsFaster => ("takes", "as long as", "longer than", "less time than"),
        Better::LowerIsCheaper => ("costs", "as much as", "more than", "less than"),
        Better::HigherIsFaster if metric == Metric::TransactionsPerS => {
            ("answers", "as many as", "more than", "fewer than")
        }
        Better::HigherIsFaster => ("carries", "as much as", "more than", "less than"),
        Better::Neither => ("has", "as much as", "more than", "less than"),
    };
    if ratio >= MULTIPLE {
        format!("{verb} {} times {much} {than}", shown(ratio))
    } else if ratio >= 1.0 {
        format!("{verb} {} {more} {than}", percent(ratio - 1.0))
    } else {
        format!("{verb} {} {less} {than}", percent(1.0 - ratio))
    }
}

/// Returns both figures, such as `528 against 7.19 Mbit/s`, or each with its own unit.
fn both(metric: Metric, ours: f64, theirs: f64) -> String {
    let unit = metric.unit();
    let ((of_ours, factor), (of_theirs, _)) = (readable(ours, unit), readable(theirs, unit));
    let ours = if of_ours == of_theirs {
        shown(ours * factor)
    } else {
        quantity(ours, unit)
    };
    format!("{ours} against {}", quantity(theirs, unit))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use crate::record::tests::{TEXT, run};

    #[test]
    fn the_headline_states_the_largest_difference_its_cost_and_the_largest_opposite_one() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let mut run = run(4.0);
        let headline = |run: &crate::Run| Findings::new(run, &scenario).headline();
        assert_eq!(
            headline(&run),
            "Loss 1%: second carries 4.00 times as much as first (201 against 50.2 Mbit/s), for 75.0 % less CPU per byte."
        );
        for cell in run.cells.iter_mut().filter(|cell| cell.arm == "second") {
            let factor = if cell.case == "loss=1%" { 0.2 } else { 1.0 };
            let rate = cell
                .metrics
                .get_mut(&Metric::ReceiverMbitPerS)
                .expect("a rate");
            *rate *= factor;
            cell.metrics.insert(Metric::CpuSPerGb, 2.0);
        }
        assert_eq!(
            headline(&run),
            "Loss 0%: second carries 4.00 times as much as first (2008 against 502 Mbit/s). \
             Loss 1%: second carries 20.0 % less than first (40.2 against 50.2 Mbit/s)."
        );
        run.cells.truncate(8);
        assert_eq!(headline(&run), "Too few runs for a verdict: 8 of 28 count.");
    }

    #[test]
    fn a_headline_without_differences_or_comparisons_says_so() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let same = run(1.0);
        assert_eq!(
            Findings::new(&same, &scenario).headline(),
            "Between second and first no difference was found in receiver."
        );
        let (before, after) = TEXT.split_once("[[compare]]").expect("it compares");
        let (_, rest) = after.split_once("[[assert]]").expect("it asserts");
        let scenario = Scenario::parse(&format!("{before}[[assert]]{rest}")).expect("a scenario");
        assert_eq!(
            Findings::new(&same, &scenario).headline(),
            "The most is 502 Mbit/s of second at loss 0%."
        );
    }
}
