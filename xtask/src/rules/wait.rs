//! Nothing sleeps, and no test is switched off.

use super::refused;
use crate::tidy::{Finding, Tree};

const WAITS: &[(&str, &str)] = &[
    ("thread::sleep", "wait for an event, with a deadline"),
    ("#[ignore", "a test that does not run is none"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let refused = tree.sources.iter().flat_map(|source| {
        WAITS
            .iter()
            .flat_map(|(needle, why)| refused("wait", source, &source.code, needle, why))
    });
    refused.collect()
}
