//! Rule: only a few crates use `unsafe`, and each use has a comment that justifies it.

use crate::kinds::{Kind, kind};
use crate::source::{Source, line_of, words};
use crate::tidy::{Finding, Tree, finding};

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources.iter().flat_map(unsafe_code).collect()
}

fn unsafe_code(source: &Source) -> Vec<Finding> {
    let may = matches!(kind(source.package()), Some(Kind::Unsafe));
    let fault = |line, text: &str| finding("unsafe", &source.path, line, text);
    let mut all = Vec::new();
    let (_, file) = source.path.rsplit_once("src/").unwrap_or_default();
    let is_root = matches!(file, "lib.rs" | "main.rs") || file.starts_with("bin/");
    if is_root && !may && !source.code.contains("#![forbid(unsafe_code)]") {
        all.push(fault(1, "a crate root without `#![forbid(unsafe_code)]`"));
    }
    let lines: Vec<&str> = source.raw.lines().map(str::trim).collect();
    for at in words(&source.code, "unsafe") {
        let line = line_of(&source.code, at);
        let before = lines[..line - 1].iter().rev().take_while(|text| {
            let ends = text.is_empty() || text.ends_with([';', '{', '}']);
            text.starts_with("//") || text.starts_with("#[") || !ends
        });
        let argued = before
            .chain([&lines[line - 1]])
            .any(|text| text.contains("SAFETY:"));
        if !may {
            all.push(fault(line, "`unsafe` outside the crates that may use it"));
        } else if !argued {
            all.push(fault(line, "`unsafe` without `// SAFETY:`"));
        }
    }
    all
}
