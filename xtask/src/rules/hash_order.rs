//! Rule: pure code does not depend on the iteration order of a hash table.

use std::collections::BTreeSet;

use super::is_pure;
use crate::source::{Source, line_of, words};
use crate::tidy::{Finding, Tree, finding};

const HASHED: &str = "HashMap HashSet FxHashMap FxHashSet";

/// Methods that yield elements in the order of a hash table. Clippy's lint `iter_over_hash_type` finds loops over the
/// table itself.
const UNORDERED: &str =
    "iter iter_mut keys values values_mut into_iter into_keys into_values drain retain";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let pure = tree.products().filter(|source| is_pure(source));
    pure.flat_map(|source| hash_order(tree, source)).collect()
}

fn hash_order(tree: &Tree, source: &Source) -> Vec<Finding> {
    let mut all = Vec::new();
    let siblings = tree
        .sources
        .iter()
        .filter(|sibling| sibling.package() == source.package());
    let names: BTreeSet<String> = siblings
        .flat_map(|sibling| hashed_names(&sibling.product))
        .collect();
    for name in names {
        for at in words(&source.product, &name) {
            let rest = source.product[at + name.len()..].trim_start();
            let Some(call) = rest.strip_prefix('.').map(str::trim_start) else {
                continue;
            };
            let method = call
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            if let Some(method) = method.filter(|method| UNORDERED.split(' ').any(|m| m == *method))
            {
                let text = format!("`{name}.{method}`: the order differs from run to run");
                all.push(finding(
                    "hash-order",
                    &source.path,
                    line_of(&source.product, at),
                    text,
                ));
            }
        }
    }
    all
}

/// Returns the names of fields and variables that are declared as hash tables.
fn hashed_names(code: &str) -> impl Iterator<Item = String> {
    code.lines().filter_map(|line| {
        let at = HASHED
            .split(' ')
            .filter_map(|hashed| words(line, hashed).next())
            .min()?;
        let before = line[..at].replace("::", "  ");
        let (declared, _) = before.rsplit_once([':', '='])?;
        let name = declared
            .trim_end()
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next()?;
        (!name.is_empty()).then(|| name.to_owned())
    })
}
