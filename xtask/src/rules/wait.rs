//! Rule: the code does not sleep, and no test is ignored.

use super::refused;
use crate::tidy::{Finding, Tree};

const WAITS: &[(&str, &str)] = &[
    ("thread::sleep", "wait for an event, with a deadline"),
    ("#[ignore", "a test that does not run checks nothing"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let refused = tree.sources.iter().flat_map(|source| {
        WAITS
            .iter()
            .flat_map(|(needle, why)| refused("wait", source, &source.code, needle, why))
    });
    refused.collect()
}
