//! Rule: files contain no notes of unfinished work, and no paths of a developer's machine.

use crate::source::words;
use crate::tidy::{Finding, Tree, finding};

/// Marks of unfinished work. They are split so that this file does not break its own rules.
const LEFTOVERS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X")];
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/tm", "p/")];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for (path, text) in tree.all_texts() {
        for (number, line) in text.lines().enumerate() {
            let mut note =
                |rule, what: &str| all.push(finding(rule, path, number + 1, format!("`{what}`")));
            LEFTOVERS
                .iter()
                .filter(|word| words(line, word).next().is_some())
                .for_each(|word| note("leftover", word));
            MACHINE_PATHS
                .iter()
                .filter(|word| line.contains(*word))
                .for_each(|word| note("machine-path", word));
        }
    }
    all
}
