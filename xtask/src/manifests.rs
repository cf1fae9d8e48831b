//! Reads the workspace's manifests for the rules.

use toml::{Table, Value};

use crate::tidy::Tree;

/// Returns the path and the content of each `Cargo.toml`, or the error if the content is not valid TOML.
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

/// Returns the crate of a manifest, which is the name of its directory.
pub(crate) fn package(path: &str) -> &str {
    path.trim_start_matches("crates/")
        .split('/')
        .next()
        .unwrap_or_default()
}

/// Returns the package name of a dependency, which may be renamed in the manifest.
pub(crate) fn real_name<'a>(name: &'a str, value: &'a Value) -> &'a str {
    value.get("package").and_then(Value::as_str).unwrap_or(name)
}

/// Returns the dependencies in all tables of a manifest: the table's name, the dependency's name, and its value.
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
