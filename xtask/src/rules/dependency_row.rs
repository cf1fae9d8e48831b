//! Rule: each dependency of the workspace has one row in `docs/DEPENDENCIES.md`, and each row has a dependency.

use std::collections::BTreeSet;

use crate::manifests::{dependencies, real_name};
use crate::tidy::{Finding, Tree, finding};

const RULE: &str = "dependency-row";
const DOCUMENT: &str = "docs/DEPENDENCIES.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let manifest: toml::Table = tree.text("Cargo.toml").parse().unwrap_or_default();
    let all = dependencies(&manifest);
    let foreign = all
        .iter()
        .filter(|(_, _, value)| value.get("path").is_none());
    let wanted: BTreeSet<&str> = foreign
        .map(|(_, name, value)| real_name(name, value))
        .collect();
    let mut missing = wanted.clone();
    let mut found = Vec::new();
    for (at, name) in rows(tree.text(DOCUMENT)) {
        if !missing.remove(name) {
            let text = format!("`{name}` is not a dependency, or has a row already");
            found.push(finding(RULE, DOCUMENT, at, text));
        }
    }
    let missing = missing
        .iter()
        .map(|name| format!("`{name}` has no row: add one that says what the crate is for"));
    found.extend(missing.map(|text| finding(RULE, DOCUMENT, 0, text)));
    found
}

/// Returns the line number and the name in each row of the table of dependencies, the first table of the document.
pub(crate) fn rows(document: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = document.lines().enumerate();
    let table = lines.skip_while(|(_, line)| !line.starts_with('|'));
    let table = table.take_while(|(_, line)| line.starts_with('|'));
    table.filter_map(|(at, line)| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        Some((at + 1, name))
    })
}
