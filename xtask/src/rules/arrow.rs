//! Rule: crates depend in the direction from shell to pure, and no crate depends on a program.

use crate::kinds::{Kind, kind};
use crate::manifests::{dependencies, manifests, package, real_name};
use crate::tidy::{Finding, Tree, finding};

/// Crates that do input and output, which pure crates must not use.
const IO_CRATES: &str = "tokio rustix libc socket2 quinn-udp axum hyper hyper-util ureq \
                         rustls-native-certs tracing-subscriber";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for (path, table) in manifests(tree) {
        let table = match table {
            Ok(table) => table,
            Err(error) => {
                all.push(finding("manifest", path, 0, error));
                continue;
            }
        };
        let kind = kind(package(path));
        if path.starts_with("crates/") && kind.is_none() {
            let text = format!(
                "crate `{}` has no kind: add it to KINDS in xtask/src/kinds.rs",
                package(path)
            );
            all.push(finding("arrow", path, 0, text));
        }
        let Some(from) = kind else { continue };
        for (section, name, value) in dependencies(&table) {
            // The tests of a pure crate may do input and output.
            if section != "dev-dependencies" {
                all.extend(arrow(path, from, real_name(name, value)));
            }
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
