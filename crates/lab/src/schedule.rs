//! The order in which cells are measured.
//!
//! A block holds every arm of every case once. The order of cases is random in each block. The arms of a case are
//! measured one after the other, in a random order too. Drift over minutes therefore affects all arms alike, and
//! compared figures are measured within seconds of each other. The seed determines the order. Within a block, all arms
//! of a case meet the same random events on the link.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore as _, SeedableRng as _};

use crate::scenario::{RepsError, Scenario, check_reps};

/// A part of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Ids of the selected arms and cases. If there is no arm among them, all arms are selected; the same holds for
    /// cases.
    pub only: Vec<String>,
    /// Number of repetitions, if not the scenario's.
    pub reps: Option<u32>,
    /// True for a quick run.
    pub quick: bool,
}

/// The reason why a selection is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// The number of repetitions is out of range.
    #[error(transparent)]
    Reps(#[from] RepsError),
    /// A selected name is the id of no arm and no case.
    #[error("{name:?} is neither an arm ({arms}) nor a case ({cases})")]
    Unknown {
        /// The name as it was given.
        name: String,
        /// The ids of all arms, separated by commas.
        arms: String,
        /// The ids of all cases, separated by commas.
        cases: String,
    },
}

/// One measurement of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedCell {
    /// Index of the case.
    pub case: usize,
    /// Index of the arm.
    pub arm: usize,
    /// The number of the repetition, starting at 1.
    pub block: u32,
    /// Seed of the random events on the link.
    pub seed: u64,
}

/// All planned measurements, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The measurements, in chronological order.
    pub cells: Vec<PlannedCell>,
    /// Number of blocks in the plan.
    pub reps: u32,
}

impl Schedule {
    /// Puts the selected cells in order.
    ///
    /// # Errors
    ///
    /// Returns [`SelectionError`] if a name is unknown, or if the number of repetitions is out of range.
    pub fn new(
        scenario: &Scenario,
        selection: &Selection,
        seed: u64,
    ) -> Result<Self, SelectionError> {
        let reps = selection
            .reps
            .unwrap_or(scenario.reps[usize::from(selection.quick)]);
        check_reps(reps)?;
        let [cases, arms] = selected(scenario, &selection.only)?;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut cells = Vec::new();
        for block in 1..=reps {
            for case in shuffled(&cases, &mut random) {
                let accidents = random.next_u64();
                cells.extend(
                    shuffled(&arms, &mut random)
                        .into_iter()
                        .map(|arm| PlannedCell {
                            case,
                            arm,
                            block,
                            seed: accidents,
                        }),
                );
            }
        }
        Ok(Self { cells, reps })
    }
}

fn selected(scenario: &Scenario, only: &[String]) -> Result<[Vec<usize>; 2], SelectionError> {
    let names = [
        scenario
            .cases
            .iter()
            .map(|case| &*case.id)
            .collect::<Vec<_>>(),
        scenario.arms.iter().map(|arm| &*arm.id).collect(),
    ];
    let unknown = only
        .iter()
        .find(|name| !names.iter().any(|names| names.contains(&name.as_str())));
    if let Some(name) = unknown {
        let [cases, arms] = names.map(|names| names.join(", "));
        let name = name.clone();
        return Err(SelectionError::Unknown { name, arms, cases });
    }
    Ok(names.map(|names| {
        let is_named = |name: &&str| only.iter().any(|only| only == name);
        let any = names.iter().any(is_named);
        (0..names.len())
            .filter(|at| !any || is_named(&names[*at]))
            .collect()
    }))
}

/// Shuffles the items with the algorithm of Fisher and Yates.
fn shuffled(items: &[usize], random: &mut ChaCha8Rng) -> Vec<usize> {
    let mut items = items.to_vec();
    for last in (1..items.len()).rev() {
        let below = (u64::from(random.next_u32()) * (last as u64 + 1)) >> 32;
        items.swap(last, usize::try_from(below).unwrap_or(last));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const TEXT: &str = r#"
        name = "small"
        title = "t"
        workload.duration = "1s"
        sweep.loss = ["0%", "1%", "5%"]
        design.reps = 20
        [[arm]]
        id = "a"
        kind = "tcp"
        [[arm]]
        id = "b"
        kind = "tunnel"
    "#;

    fn schedule(selection: &Selection, seed: u64) -> Schedule {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        Schedule::new(&scenario, selection, seed).expect("a selection")
    }

    #[test]
    fn a_block_has_every_cell_once_with_the_arms_of_a_case_together() {
        let schedule = schedule(&Selection::default(), 1);
        assert_eq!(schedule.cells.len(), 3 * 2 * 20);
        for (block, cells) in (1..).zip(schedule.cells.chunks(6)) {
            let all: BTreeSet<_> = cells.iter().map(|cell| (cell.case, cell.arm)).collect();
            assert_eq!(all.len(), 6, "block {block}");
            assert!(cells.iter().all(|cell| cell.block == block));
            for pair in cells.chunks(2) {
                assert_eq!((pair[0].case, pair[0].seed), (pair[1].case, pair[1].seed));
            }
        }
    }

    #[test]
    fn the_order_differs_between_blocks_and_follows_from_the_seed() {
        let all = Selection::default();
        let first = schedule(&all, 1);
        assert_eq!(first, schedule(&all, 1));
        assert_ne!(first, schedule(&all, 2));
        let begins_with_a = first
            .cells
            .chunks(2)
            .filter(|pair| pair[0].arm == 0)
            .count();
        assert!((15..=45).contains(&begins_with_a), "{begins_with_a} of 60");
    }

    #[test]
    fn a_selection_contains_the_named_arms_and_cases() {
        let only = |names: &[&str]| Selection {
            only: names.iter().map(|name| (*name).to_owned()).collect(),
            reps: Some(2),
            quick: true,
        };
        assert_eq!(schedule(&only(&["b"]), 1).cells.len(), 3 * 2);
        assert_eq!(schedule(&only(&["b", "loss=5%"]), 1).cells.len(), 2);
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let error = Schedule::new(&scenario, &only(&["c"]), 1).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "\"c\" is neither an arm (a, b) nor a case (loss=0%, loss=1%, loss=5%)"
        );
        let none = Selection {
            reps: Some(0),
            ..Selection::default()
        };
        let error = Schedule::new(&scenario, &none, 1).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "0 repetitions: from 1 to 1000 are possible"
        );
    }
}
