//! Rule: one module of the engine and one of the congestion controllers face the QUIC library.

use crate::rules::refused;
use crate::source::Source;
use crate::tidy::{Finding, Tree};

/// The name of the library in code.
const LIBRARY: &str = "quinn_proto";

/// Paths, or beginnings of paths, of the files that may name the library.
const HOMES: &[&str] = &[
    "crates/engine/src/carrier.rs",
    "crates/engine/src/carrier/",
    "crates/congestion/src/quinn.rs",
    "crates/sim/",
    "crates/perf/",
    "crates/e2e/",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let tests = tree.test_paths();
    let may = |source: &Source| {
        let at_home = HOMES.iter().any(|home| source.path.starts_with(home));
        at_home || source.is_test(&tests) || !source.path.starts_with("crates/")
    };
    let others = tree.sources.iter().filter(|source| !may(source));
    others
        .flat_map(|source| refused("quic-library", source, &source.code, LIBRARY, WHY))
        .collect()
}

const WHY: &str = "only engine/carrier and congestion/quinn.rs may name the QUIC library, so that the rest serves any \
                   kind of connection";
