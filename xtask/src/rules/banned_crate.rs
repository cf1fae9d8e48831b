//! Rule: some crates are banned, even if a manifest renames them.

use crate::manifests::{dependencies, manifests, real_name};
use crate::tidy::{Finding, Tree, finding};

const BANNED: &[(&str, &str)] = &[
    (
        "ring",
        "for AEADs only: rustls brings it, and crates/tls names it",
    ),
    ("openssl", "rustls is the one TLS library"),
    ("native-tls", "rustls is the one TLS library"),
    ("serde_yaml", "archived"),
    ("bincode", "makes the order of fields the format"),
    ("async-trait", "traits have async"),
    ("lazy_static", "std::sync::LazyLock"),
    ("once_cell", "std::sync::OnceLock"),
    ("chrono", "jiff"),
    ("rustls-pemfile", "rustls-pki-types reads PEM"),
];

/// Manifests that may name a banned crate.
const PERMITTED: &[(&str, &str)] = &[("Cargo.toml", "ring"), ("crates/tls/Cargo.toml", "ring")];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for (path, table) in manifests(tree) {
        let table = table.unwrap_or_default();
        for (_, name, value) in dependencies(&table) {
            let real = real_name(name, value);
            if PERMITTED.contains(&(path, real)) {
                continue;
            }
            if let Some((_, why)) = BANNED.iter().find(|(banned, _)| *banned == real) {
                all.push(finding("banned-crate", path, 0, format!("`{real}`: {why}")));
            }
        }
    }
    all
}
