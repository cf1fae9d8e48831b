//! One run of a scenario against another, such as yesterday's.
//!
//! The runs were made at different times, so that nothing pairs them: what is compared are medians with their
//! intervals, and only intervals that do not touch make a difference.

use crate::findings::word;
use crate::stats::{Interval, LEVEL, Verdict, interval, median};
use crate::{Metric, Run};

/// A metric in two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Rivals {
    /// Case.
    pub case: String,
    /// Arm.
    pub arm: String,
    /// Of what.
    pub metric: Metric,
    /// Median and interval of each.
    pub sides: [(f64, Interval); 2],
    /// Second over first.
    pub ratio: f64,
    pub(crate) verdict: Verdict,
}

impl Rivals {
    /// The verdict in a word.
    pub fn word(&self) -> &'static str {
        word(self.metric.better(), self.verdict)
    }
}

/// Everything that two runs have in common.
pub fn compare_runs(before: &Run, after: &Run, metrics: &[Metric]) -> Vec<Rivals> {
    let mut keys: Vec<(&str, &str)> = Vec::new();
    for cell in &before.cells {
        let key = (&*cell.case, &*cell.arm);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut all = Vec::new();
    for (case, arm) in keys {
        all.extend(
            metrics
                .iter()
                .filter_map(|&metric| rivals([before, after], case, arm, metric)),
        );
    }
    all
}

fn rivals(runs: [&Run; 2], case: &str, arm: &str, metric: Metric) -> Option<Rivals> {
    let side = |run: &Run| {
        let values = run.values(case, arm, metric);
        Some((median(&values)?, interval(&values)?))
    };
    let sides @ [(a, before), (b, after)] = [side(runs[0])?, side(runs[1])?];
    let verdict = if before.level < LEVEL || after.level < LEVEL {
        Verdict::TooFew
    } else if after.low > before.high {
        Verdict::Higher
    } else if after.high < before.low {
        Verdict::Lower
    } else {
        Verdict::NoDifference
    };
    Some(Rivals {
        case: case.to_owned(),
        arm: arm.to_owned(),
        metric,
        sides,
        ratio: if a == 0.0 { f64::NAN } else { b / a },
        verdict,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::run;

    #[test]
    fn only_intervals_that_do_not_touch_make_a_difference() {
        let metric = Metric::find("receiver_mbit_per_s").expect("it is there");
        let rivals = compare_runs(&run(1.0), &run(1.5), &[metric]);
        let words: Vec<_> = rivals
            .iter()
            .map(|one| (&*one.case, &*one.arm, one.word()))
            .collect();
        assert_eq!(
            words,
            [
                ("loss=0%", "first", "no detectable difference"),
                ("loss=0%", "second", "faster"),
                ("loss=1%", "first", "no detectable difference"),
                ("loss=1%", "second", "faster"),
            ]
        );
        let mut few = run(1.0);
        few.cells.retain(|cell| cell.block < 4);
        let words: Vec<_> = compare_runs(&few, &run(1.5), &[metric]);
        assert!(words.iter().all(|one| one.verdict == Verdict::TooFew));
    }
}
