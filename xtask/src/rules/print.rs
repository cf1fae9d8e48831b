//! Rule: only the programs print or exit.

use super::refused;
use crate::source::Source;
use crate::tidy::{Finding, Tree};

const PRINTS: &str = "println! eprintln! print! eprint! dbg! process::exit process::abort";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let why = "only the programs print or exit";
    let others = tree.products().filter(|source| !may_print(source));
    others
        .flat_map(|source| refused("print", source, &source.product, PRINTS, why))
        .collect()
}

fn may_print(source: &Source) -> bool {
    matches!(source.package(), "cli" | "xtask")
        || source.path.starts_with("crates/e2e/src/bin/")
        // A build script sends its instructions to Cargo on standard output.
        || source.path.ends_with("/build.rs")
        || source.is_example()
}
