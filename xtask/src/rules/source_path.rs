//! Rule: every source file that the architecture document names exists.

use std::path::Path;

use crate::tidy::{Finding, Tree, finding};

const DOCUMENT: &str = "docs/ARCHITECTURE.md";

/// Finds source files in backquotes that do not exist.
///
/// `crate/file.rs` stands for `crates/crate/src/file.rs`; a path from the root of the repository is accepted as well.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let exists = |path: &str| tree.paths.iter().any(|known| known == path);
    let mut all = Vec::new();
    for (index, line) in tree.text(DOCUMENT).lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2);
        let is_source = |text: &&str| Path::new(text).extension().is_some_and(|end| end == "rs");
        for place in quoted.filter(|text| text.contains('/') && is_source(text)) {
            let (package, rest) = place.split_once('/').unwrap_or((place, ""));
            let rest = rest.strip_prefix("src/").unwrap_or(rest);
            if !exists(place) && !exists(&format!("crates/{package}/src/{rest}")) {
                let text = format!("`{place}` does not exist");
                all.push(finding("source-path", DOCUMENT, index + 1, text));
            }
        }
    }
    all
}
