//! The architecture document names files that exist.

use std::path::Path;

use crate::tidy::{Finding, Tree, finding};

const DOCUMENT: &str = "docs/ARCHITECTURE.md";

/// `crate/file.rs` between backquotes stands for `crates/crate/src/file.rs`; a path that begins at the root may be given too.
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
                let text = format!("there is no `{place}`");
                all.push(finding("place", DOCUMENT, index + 1, text));
            }
        }
    }
    all
}
