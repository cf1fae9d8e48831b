//! Rule: files and directories are named for a concept.

use crate::tidy::{Finding, Tree, finding};

const VAGUE: &[&str] = &[
    "utils", "util", "common", "helpers", "helper", "manager", "misc",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for source in &tree.sources {
        let parts = source.path.trim_end_matches(".rs").split('/');
        for part in parts.filter(|part| VAGUE.contains(part)) {
            all.push(finding(
                "name",
                &source.path,
                0,
                format!("`{part}` does not name a concept"),
            ));
        }
    }
    all
}
