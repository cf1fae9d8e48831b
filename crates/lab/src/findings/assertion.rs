//! Assertions: whether what must hold does.

use crate::record::Run;
use crate::scenario::{Assertion, Room, Scenario};
use crate::stats::{compare, median};
use crate::writing::shown;

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

/// What an assertion comes to, case by case.
pub(super) fn asserted(run: &Run, scenario: &Scenario, assertion: &Assertion) -> Vec<Asserted> {
    let Assertion {
        arm,
        over,
        metric,
        cases,
        at_least,
        at_most,
        allow: _,
    } = assertion;
    let cases = run
        .measured_cases(scenario)
        .filter(|case| cases.iter().any(|one| one == case));
    let one = |case: &str| {
        if !run.has(Some(case), arm) {
            return None;
        }
        let (found, subject) = match over {
            None => (median(&run.values(case, arm, *metric)), arm.clone()),
            Some(over) if !run.has(Some(case), over) => return None,
            Some(over) => {
                let paired = compare(&run.pairs(case, [arm, over], *metric));
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
            metric.label(),
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
