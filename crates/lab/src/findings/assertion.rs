//! Evaluates the assertions of a scenario.

use serde::Serialize;

use super::Figure;
use crate::record::Run;
use crate::scenario::{Assertion, PayloadRoom, Scenario};
use crate::stats::{LEVEL, compare};
use crate::writing::{quantity, shown};

#[derive(Debug, Serialize)]
pub(crate) struct AssertionResult {
    pub(crate) what: String,
    /// The median, or the median ratio. `None` if nothing was measured.
    pub(crate) found: Option<f64>,
    /// The unit of that median if it is a duration, otherwise empty.
    #[serde(skip)]
    pub(crate) unit: &'static str,
    /// Number of valid runs, or of pairs of valid runs.
    pub(crate) runs: usize,
    /// The result. `None` if there are too few runs for one.
    pub(crate) holds: Option<bool>,
    /// True if the limit is lower than the scenario states, to allow for headers. See [`PayloadRoom`].
    pub(crate) allowed: bool,
}

pub(super) fn asserted(
    run: &Run,
    scenario: &Scenario,
    assertion: &Assertion,
) -> Vec<AssertionResult> {
    let (arm, over, metric) = (&assertion.arm, &assertion.over, assertion.metric);
    let (at_least, at_most) = (assertion.at_least, assertion.at_most);
    let is_asked = |case: &&str| assertion.cases.iter().any(|one| one == case);
    let cases = run.measured_cases(scenario).filter(is_asked);
    let unit = over.as_ref().map_or(metric.unit_in_cells(), |_| "");
    let one = |case: &str| {
        if !run.has(Some(case), arm) {
            return None;
        }
        let (found, subject) = match over {
            None => {
                let figure = Figure::of(&run.values(case, arm, metric));
                let found = figure.map(|one| (one.median, one.runs, one.interval));
                (found, arm.clone())
            }
            Some(over) if !run.has(Some(case), over) => return None,
            Some(over) => {
                let paired = compare(&run.pairs(case, [arm, over], metric));
                let found = paired.map(|paired| (paired.ratio, paired.pairs, paired.interval));
                (found, format!("{arm} / {over}"))
            }
        };
        let room = scenario.room(assertion, case);
        let least = at_least.map(|least| least * room.map_or(1.0, PayloadRoom::ratio));
        let mut limits: Vec<String> = Vec::new();
        limits.extend(at_least.zip(least).map(|(whole, least)| {
            room.map_or_else(
                || format!(">= {}", quantity(least, unit)),
                |PayloadRoom { quic, tcp }| {
                    format!(
                        ">= {least:.3} (not {}: QUIC's headers leave {quic} bytes of a packet for payload, TCP's leave {tcp})",
                        shown(whole)
                    )
                },
            )
        }));
        limits.extend(at_most.map(|most| format!("<= {}", quantity(most, unit))));
        let what = format!(
            "{subject}, {} at {}: {}",
            metric.label(),
            scenario.case_label(case),
            limits.join(" and ")
        );
        let within = |found: f64| {
            least.is_none_or(|least| found >= least) && at_most.is_none_or(|most| found <= most)
        };
        Some(AssertionResult {
            what,
            found: found.map(|(middle, ..)| middle),
            unit,
            runs: found.map_or(0, |(_, runs, _)| runs),
            holds: found
                .filter(|(.., interval)| interval.level >= LEVEL)
                .map(|(middle, ..)| within(middle)),
            allowed: room.is_some(),
        })
    };
    cases.filter_map(one).collect()
}
