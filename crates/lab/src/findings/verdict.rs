//! Comparisons in words: the differences between two arms over all cases, and their cost.

use super::{ArmComparison, Findings, word};
use crate::Metric;
use crate::metric::Better;
use crate::put;
use crate::scenario::Background;
use crate::stats::{PairedComparison, Verdict, compare};
use crate::writing::shown;

/// Metrics of streams. Their cost is counted per byte.
const RATES: [Metric; 4] = [
    Metric::ReceiverMbitPerS,
    Metric::SenderMbitPerS,
    Metric::ReceiverMbPerS,
    Metric::TransferS,
];

/// Metrics of requests. Their cost is counted per transaction.
const REQUESTS: [Metric; 9] = [
    Metric::TotalMs,
    Metric::TransactionsPerS,
    Metric::LatencyMinUs,
    Metric::LatencyMeanUs,
    Metric::LatencyP50Us,
    Metric::LatencyP90Us,
    Metric::LatencyP99Us,
    Metric::LatencyP999Us,
    Metric::LatencyMaxUs,
];

/// A case with the result of its paired comparison.
type CaseComparison<'a> = (&'a str, Option<PairedComparison>);

impl Findings<'_> {
    /// Returns one line for each comparison of the scenario: the verdict over all cases, and the cost if it is known.
    pub(crate) fn verdicts(&self) -> Vec<String> {
        let compares = self.scenario.compares.iter();
        compares
            .filter_map(|(a, b, metric)| self.verdict(a, b, *metric))
            .collect()
    }

    fn verdict(&self, a: &str, b: &str, metric: Metric) -> Option<String> {
        let here = |one: &&ArmComparison| one.a == a && one.b == b && one.metric == metric;
        let found: Vec<CaseComparison<'_>> = self
            .compared
            .iter()
            .filter(here)
            .map(|one| (&*one.case, one.paired))
            .collect();
        let words = self.in_words(&found, metric.better())?;
        let mut line = format!("{a} against {b}, {}: {words}", metric.label());
        if let Some((cost, words)) = self.cost_in_words(a, b, metric, &found) {
            put!(line, ". Its cost, {}: {words}", cost.label());
        }
        Some(line)
    }

    fn cost_in_words(
        &self,
        a: &str,
        b: &str,
        metric: Metric,
        found: &[CaseComparison<'_>],
    ) -> Option<(Metric, String)> {
        let cases = found.iter().map(|(case, _)| *case);
        let costs: Vec<(Metric, CaseComparison<'_>)> = cases
            .filter_map(|case| {
                let cost = self.cost_of(case, metric)?;
                let paired = compare(&self.run.pairs(case, [a, b], cost))?;
                Some((cost, (case, Some(paired))))
            })
            .collect();
        let cost = costs.first()?.0;
        let is_compared = |(ours, theirs, metric): &(String, String, Metric)| {
            ours == a && theirs == b && *metric == cost
        };
        if self.scenario.compares.iter().any(is_compared) {
            return None;
        }
        let same = costs.into_iter().filter(|(one, _)| *one == cost);
        let found: Vec<_> = same.map(|(_, found)| found).collect();
        Some((cost, self.in_words(&found, cost.better())?))
    }

    /// Returns the metric of the processor time that the given metric cost. Returns `None` for a case with background
    /// streams, because their processor time is not accounted for separately.
    pub(crate) fn cost_of(&self, case: &str, metric: Metric) -> Option<Metric> {
        if self.has_background(case) {
            return None;
        }
        if RATES.contains(&metric) {
            Some(Metric::CpuSPerGb)
        } else {
            REQUESTS
                .contains(&metric)
                .then_some(Metric::CpuUsPerTransaction)
        }
    }

    /// Returns true unless the metric is a cost and the case has background streams, whose share the cost leaves out.
    pub(crate) fn is_accounted(&self, case: &str, metric: Metric) -> bool {
        let is_cost = matches!(metric, Metric::CpuSPerGb | Metric::CpuUsPerTransaction);
        !(is_cost && self.has_background(case))
    }

    fn has_background(&self, case: &str) -> bool {
        let at = self.scenario.cases.iter().position(|one| one.id == case);
        at.is_some_and(|at| {
            let load = &self.scenario.setup(at, 0, self.run.asked.quick).load;
            load.background != Background::None
        })
    }

    /// Returns the verdicts in words, such as `faster in 4 of 5 cases; slower at 0% (x0.988 to x73.6)`. Returns `None`
    /// without pairs.
    fn in_words(&self, found: &[CaseComparison<'_>], better: Better) -> Option<String> {
        let mut words: Vec<(&str, Vec<&str>)> = Vec::new();
        let pairs = found
            .iter()
            .filter_map(|(case, paired)| Some((*case, (*paired)?)));
        for (case, paired) in pairs.clone() {
            let (word, case) = (word(better, paired.verdict), self.scenario.case_label(case));
            match words.iter_mut().find(|(known, _)| *known == word) {
                Some((_, cases)) => cases.push(case),
                None => words.push((word, vec![case])),
            }
        }
        if words.is_empty() {
            return None;
        }
        let all = found.len();
        let words = words.iter().map(|(word, cases)| match &cases[..] {
            _ if all == 1 => (*word).to_owned(),
            [case] => format!("{word} at {case}"),
            cases => format!("{word} in {} of {all} cases", cases.len()),
        });
        let words = words.collect::<Vec<_>>().join("; ");
        // A ratio of too few pairs is not shown.
        let told = pairs.filter(|(_, paired)| paired.verdict != Verdict::TooFew);
        let ratios = told.map(|(_, paired)| paired.ratio);
        Some(match range(ratios) {
            Some(range) => format!("{words} ({range})"),
            None => words,
        })
    }
}

/// Formats the smallest and the largest ratio, such as `x0.988 to x73.6`.
fn range(ratios: impl Iterator<Item = f64>) -> Option<String> {
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for ratio in ratios {
        (least, most) = (least.min(ratio), most.max(ratio));
    }
    if !least.is_finite() {
        return None;
    }
    let [least, most] = [least, most].map(shown);
    Some(if least == most {
        format!("x{least}")
    } else {
        format!("x{least} to x{most}")
    })
}
