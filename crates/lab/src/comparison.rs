//! Compares two runs of a scenario that were made at different times, such as yesterday's and today's.
//!
//! Such runs have no pairs. The comparison therefore uses medians with their intervals, and reports a difference only
//! if the intervals do not overlap. It refuses to compare figures that were measured differently under the same name,
//! for example those of a quick and of a full run.

use crate::findings::{Figure, word};
use crate::put;
use crate::stats::Verdict;
use crate::writing::{aligned, ratio, shown};
use crate::{Metric, Run, Scenario};

/// Two runs with their scenarios, and the figures that they have in common.
#[derive(Debug)]
pub struct Comparison<'a> {
    sides: [(&'a Run, &'a Scenario); 2],
    rivals: Vec<FigurePair>,
}

/// The figures of one metric, arm and case in two runs.
#[derive(Clone, Debug, PartialEq)]
struct FigurePair {
    case: String,
    arm: String,
    metric: Metric,
    /// The first run's figure and the second run's.
    figures: [Figure; 2],
    /// The reasons why the figures cannot be compared. Empty if they can.
    differences: Vec<String>,
    verdict: Verdict,
}

impl<'a> Comparison<'a> {
    /// Collects the figures of these metrics that both runs have.
    pub fn new(
        before: (&'a Run, &'a Scenario),
        after: (&'a Run, &'a Scenario),
        metrics: &[Metric],
    ) -> Self {
        let mut keys: Vec<(&str, &str)> = Vec::new();
        for cell in &before.0.cells {
            let key = (&*cell.case, &*cell.arm);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let sides = [before, after];
        let order = |&(case, arm): &(&str, &str)| {
            let scenario = before.1;
            let case = scenario.cases.iter().position(|one| one.id == case);
            let arm = scenario.arms.iter().position(|one| one.id == arm);
            (case, arm)
        };
        keys.sort_by_key(order);
        let each = metrics.iter().flat_map(|metric| {
            let keys = keys.iter();
            keys.filter_map(|(case, arm)| rivals(sides, case, arm, *metric))
        });
        Self {
            sides,
            rivals: each.collect(),
        }
    }

    /// Returns true if the runs have no figure in common.
    pub fn is_empty(&self) -> bool {
        self.rivals.is_empty()
    }

    /// Returns the reason if none of the figures can be compared.
    pub fn refused(&self) -> Option<String> {
        let first = self.rivals.first()?;
        let all = self.rivals.iter().all(|one| !one.differences.is_empty());
        all.then(|| {
            let [before, after] = self.sides.map(|(run, _)| kind(run));
            let differences = first.differences.join("; ");
            format!("the first is {before}, the second {after}: {differences}")
        })
    }

    /// Returns the differences between the machines that may explain a difference of figures: processors, kernel and
    /// build profile. Empty if they are equal.
    pub fn notes(&self) -> Vec<String> {
        let [before, after] = self.sides.map(|(run, _)| &run.environment);
        let told = ["processors", "kernel", "build"].into_iter();
        let differ = told.filter_map(|key| {
            let (before, after) = (before.get(key)?, after.get(key)?);
            (before != after).then(|| format!("{key}: {before}, then {after}"))
        });
        differ.collect()
    }

    /// Formats the comparison for a terminal of `width` columns, with one table per metric.
    pub fn text(&self, width: usize) -> String {
        let mut text = String::new();
        let mut metrics: Vec<Metric> = self.rivals.iter().map(|one| one.metric).collect();
        metrics.dedup();
        for metric in metrics {
            let mut rows = vec![
                ["case", "arm", "ratio", "verdict", "before", "after"]
                    .map(str::to_owned)
                    .to_vec(),
            ];
            let here = self.rivals.iter().filter(|one| one.metric == metric);
            rows.extend(here.map(|one| self.row(one)));
            put!(text, "\n{}\n\n{}", metric.title(), aligned(&rows, 2, width));
        }
        text
    }

    fn row(&self, one: &FigurePair) -> Vec<String> {
        let [before, after] = &one.figures;
        let (ratio, word) = if one.differences.is_empty() {
            let is_ratio = before.median != 0.0;
            let ratio = is_ratio.then(|| format!("x{}", ratio(after.median / before.median)));
            (ratio, word(one.metric.better(), one.verdict).to_owned())
        } else {
            let why = one.differences.join("; ");
            (None, format!("not comparable: {why}"))
        };
        let label = self.sides[0].1.case_label(&one.case);
        vec![
            label.to_owned(),
            one.arm.clone(),
            ratio.unwrap_or_else(|| "-".to_owned()),
            word,
            figure_text(before),
            figure_text(after),
        ]
    }
}

fn figure_text(figure: &Figure) -> String {
    let [middle, low, high] = [figure.median, figure.interval.low, figure.interval.high].map(shown);
    if figure.is_sure() {
        format!("{middle} [{low}, {high}]")
    } else {
        format!("{middle} of {}", figure.runs)
    }
}

fn kind(run: &Run) -> &'static str {
    match (&run.remote, run.asked.quick) {
        (Some(_), _) => "over a real path",
        (None, true) => "a quick run",
        (None, false) => "a full run",
    }
}

fn rivals(
    sides: [(&Run, &Scenario); 2],
    case: &str,
    arm: &str,
    metric: Metric,
) -> Option<FigurePair> {
    let figure = |(run, _): (&Run, &Scenario)| Figure::of(&run.values(case, arm, metric));
    let figures = [figure(sides[0])?, figure(sides[1])?];
    let [(before, scenario), (after, other)] = sides;
    let differences = if before.remote == after.remote {
        let other = (other, after.asked.quick);
        scenario.differences(before.asked.quick, other, case, arm)
    } else {
        vec!["another path".to_owned()]
    };
    let [first, second] = &figures;
    let verdict = if !(first.is_sure() && second.is_sure()) {
        Verdict::TooFew
    } else if second.interval.low > first.interval.high {
        Verdict::Higher
    } else if second.interval.high < first.interval.low {
        Verdict::Lower
    } else {
        Verdict::NoDifference
    };
    Some(FigurePair {
        case: case.to_owned(),
        arm: arm.to_owned(),
        metric,
        figures,
        differences,
        verdict,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{TEXT, run};

    fn metric() -> [Metric; 1] {
        [Metric::ReceiverMbitPerS]
    }

    #[test]
    fn only_disjoint_intervals_are_a_difference() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let (before, after) = (run(1.0), run(1.5));
        let comparison = Comparison::new((&before, &scenario), (&after, &scenario), &metric());
        let text = comparison.text(120);
        for part in [
            "0%    first   x1.000  no detectable difference  502 [500, 503]",
            "0%    second  x1.500  faster ",
            "1%    second  x1.500  faster ",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(comparison.refused(), None);
        let mut few = run(1.0);
        few.cells.retain(|cell| cell.block < 4);
        let comparison = Comparison::new((&few, &scenario), (&after, &scenario), &metric());
        let text = comparison.text(120);
        assert_eq!(
            text.matches("too few runs for a verdict").count(),
            4,
            "{text}"
        );
        assert!(text.contains("501 of 3"), "{text}");
    }

    #[test]
    fn figures_of_other_settings_are_not_compared() {
        let scenario = Scenario::parse(&format!("{TEXT}[quick]\nduration = \"500ms\"\n"));
        let scenario = scenario.expect("a scenario");
        let (before, mut after) = (run(1.0), run(1.5));
        after.asked.quick = true;
        let comparison = Comparison::new((&before, &scenario), (&after, &scenario), &metric());
        let why = comparison.refused().expect("the comparison is refused");
        assert_eq!(
            why,
            "the first is a full run, the second a quick run: 1 s against 0.5 s"
        );
        let text = comparison.text(120);
        assert!(!text.contains("x1.5") && !text.contains("faster"), "{text}");
        after.asked.quick = false;
        after.remote = Some("far".to_owned());
        let comparison = Comparison::new((&before, &scenario), (&after, &scenario), &metric());
        assert!(
            comparison
                .refused()
                .is_some_and(|why| why.contains("another path"))
        );
        after.remote = None;
        // Of the two cases one uses another link; the other one can still be compared.
        let other = TEXT.replace("sweep.loss = [\"0%\", \"1%\"]", "")
            + "[[case]]\nid = \"loss=0%\"\nlabel = \"0%\"\nlink.loss = \"0%\"\n\
               [[case]]\nid = \"loss=1%\"\nlabel = \"1%\"\nlink.loss = \"2%\"\n";
        let other = Scenario::parse(&other).expect("a scenario");
        let comparison = Comparison::new((&before, &scenario), (&after, &other), &metric());
        assert_eq!(comparison.refused(), None);
        let text = comparison.text(120);
        assert_eq!(
            text.matches("not comparable: another link").count(),
            2,
            "{text}"
        );
        assert_eq!(text.matches("faster").count(), 1, "{text}");
    }
}
