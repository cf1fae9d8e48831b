//! Manifests as the rules read them.

use toml::{Table, Value};

use crate::tidy::Tree;

/// Path and content of each `Cargo.toml`; an error where it is no TOML.
pub(crate) fn manifests(tree: &Tree) -> impl Iterator<Item = (&str, Result<Table, String>)> {
    let manifests = tree
        .texts
        .iter()
        .filter(|(path, _)| path.ends_with("Cargo.toml"));
    manifests.map(|(path, text)| {
        (
            path.as_str(),
            text.parse()
                .map_err(|error: toml::de::Error| error.to_string()),
        )
    })
}

/// The crate that a manifest is of: its directory.
pub(crate) fn package(path: &str) -> &str {
    path.trim_start_matches("crates/")
        .split('/')
        .next()
        .unwrap_or_default()
}

/// The real name of a dependency that may be renamed.
pub(crate) fn real_name<'a>(name: &'a str, value: &'a Value) -> &'a str {
    value.get("package").and_then(Value::as_str).unwrap_or(name)
}

/// Each dependency of every table that has some: the table's name, the crate's, and what is said of it.
pub(crate) fn dependencies(table: &Table) -> Vec<(&str, &str, &Value)> {
    let mut all = Vec::new();
    for (key, value) in table {
        let Some(inner) = value.as_table() else {
            continue;
        };
        if matches!(
            key.as_str(),
            "dependencies" | "dev-dependencies" | "build-dependencies"
        ) {
            all.extend(
                inner
                    .iter()
                    .map(|(name, value)| (key.as_str(), name.as_str(), value)),
            );
        } else if matches!(key.as_str(), "workspace" | "target") || key.starts_with("cfg(") {
            all.extend(dependencies(inner));
        }
    }
    all
}
