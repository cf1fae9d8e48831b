//! Rule: no dependency comes from git or from a patch, in the manifests and in the lockfile.

use crate::manifests::{dependencies, manifests};
use crate::tidy::{Finding, Tree, finding};

const RULE: &str = "git-dependency";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for (path, table) in manifests(tree) {
        let table = table.unwrap_or_default();
        if ["patch", "replace"]
            .iter()
            .any(|key| table.contains_key(*key))
        {
            all.push(finding(RULE, path, 0, "no patched dependencies"));
        }
        for (_, name, value) in dependencies(&table) {
            if value.get("git").is_some() {
                all.push(finding(RULE, path, 0, format!("`{name}` comes from git")));
            }
        }
    }
    let locks = tree
        .texts
        .iter()
        .filter(|(path, _)| path.ends_with("Cargo.lock"));
    for (path, text) in locks {
        let git = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains("\"git+"));
        all.extend(git.map(|(line, _)| finding(RULE, path, line + 1, "a dependency from git")));
    }
    all
}
