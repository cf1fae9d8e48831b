//! Rules on manifests: which crate may depend on which.

use toml::{Table, Value};

use crate::tidy::{Finding, Tree, finding};

/// What a crate is; arrows point from later to earlier, or stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A function of its input.
    Pure,
    /// The same, with TLS keys and time as arguments.
    SansIo,
    /// Wrappers over the system.
    Unsafe,
    /// Input and output.
    Shell,
    /// Programs; nobody depends on them.
    Binary,
}

/// Every crate there is, or is going to be.
const KINDS: &[(&str, Kind)] = &[
    ("wire flow congestion link", Kind::Pure),
    ("engine sim", Kind::SansIo),
    ("sys shmq", Kind::Unsafe),
    ("tunnel", Kind::Shell),
    ("cli e2e xtask", Kind::Binary),
];

/// Crates that do what pure crates must not.
const IO_CRATES: &str = "tokio rustix libc socket2 quinn-udp axum hyper hyper-util ureq \
                         rustls-native-certs tracing-subscriber";

const BANNED: &[(&str, &str)] = &[
    ("ring", "aws-lc-rs is the one provider"),
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

pub(crate) fn kind(package: &str) -> Option<Kind> {
    KINDS
        .iter()
        .find(|(names, _)| names.split(' ').any(|name| name == package))
        .map(|(_, kind)| *kind)
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for (path, text) in tree
        .texts
        .iter()
        .filter(|(path, _)| path.ends_with("Cargo.toml"))
    {
        match text.parse::<Table>() {
            Ok(table) => all.extend(manifest(path, &table)),
            Err(error) => all.push(finding("manifest", path, 0, error.to_string())),
        }
    }
    for (path, text) in tree
        .texts
        .iter()
        .filter(|(path, _)| path.ends_with("Cargo.lock"))
    {
        let git = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains("\"git+"));
        all.extend(
            git.map(|(line, _)| finding("git-dependency", path, line + 1, "a dependency from git")),
        );
    }
    all
}

fn manifest(path: &str, table: &Table) -> Vec<Finding> {
    let mut all = Vec::new();
    let package = path
        .trim_start_matches("crates/")
        .split('/')
        .next()
        .unwrap_or_default();
    if path.starts_with("crates/") && kind(package).is_none() {
        all.push(finding(
            "arrow",
            path,
            0,
            format!("say in xtask's KINDS what kind of crate `{package}` is"),
        ));
    }
    if ["patch", "replace"]
        .iter()
        .any(|key| table.contains_key(*key))
    {
        all.push(finding(
            "git-dependency",
            path,
            0,
            "no patched dependencies",
        ));
    }
    for (section, name, value) in dependencies(table) {
        let real = value.get("package").and_then(Value::as_str).unwrap_or(name);
        if let Some((_, why)) = BANNED.iter().find(|(banned, _)| *banned == real) {
            all.push(finding("banned-crate", path, 0, format!("`{real}`: {why}")));
        }
        if value.get("git").is_some() {
            all.push(finding(
                "git-dependency",
                path,
                0,
                format!("`{name}` comes from git"),
            ));
        }
        // Tests of a pure crate may do input and output.
        if let Some(from) = kind(package).filter(|_| section != "dev-dependencies") {
            all.extend(arrow(path, from, real));
        }
    }
    all
}

fn arrow(path: &str, from: Kind, name: &str) -> Option<Finding> {
    let io = from <= Kind::SansIo && IO_CRATES.split(' ').any(|io| io == name);
    let to = name
        .strip_prefix("quictun-")
        .map(|name| kind(name).unwrap_or(Kind::Binary));
    let wrong = to.is_some_and(|to| {
        to > from || to == Kind::Binary || (from == Kind::Unsafe && to != Kind::Unsafe)
    });
    (io || wrong).then(|| {
        finding(
            "arrow",
            path,
            0,
            format!("a crate that is {from:?} may not depend on `{name}`"),
        )
    })
}

/// Each dependency of every table that has some: the table's name, the crate's, and what is said of it.
fn dependencies(table: &Table) -> Vec<(&str, &str, &Value)> {
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
