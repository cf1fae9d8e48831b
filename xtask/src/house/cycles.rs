//! Finds cycles of files: sets of files of one crate in which every file depends on every other one.
//!
//! A file depends on another file if it names that file's module, by a path from `crate` or `super`, or as its own
//! submodule.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, is_word, words};

/// The files of a crate by the paths of their modules, such as `crate::a::b`.
type Modules<'a> = BTreeMap<String, &'a Source>;

/// Returns all cycles, each with its files in order.
pub(crate) fn find(products: &[&Source]) -> Vec<Vec<String>> {
    let mut crates: BTreeMap<&str, Modules<'_>> = BTreeMap::new();
    for &source in products {
        if let Some(module) = module(&source.path) {
            let modules = crates.entry(source.package()).or_default();
            modules.insert(module, source);
        }
    }
    crates.values().flat_map(cycles_of).collect()
}

/// Returns the path of the module in a source file, or `None` if the file is not below `src`.
fn module(path: &str) -> Option<String> {
    let (_, inside) = path.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    let mut module = "crate".to_owned();
    if !matches!(inside, "lib" | "main") {
        for part in inside.split('/') {
            module.push_str("::");
            module.push_str(part);
        }
    }
    Some(module)
}

fn cycles_of(modules: &Modules<'_>) -> Vec<Vec<String>> {
    let arrows: BTreeMap<&str, BTreeSet<&str>> = modules
        .iter()
        .map(|(name, source)| (name.as_str(), depends_on(name, source, modules)))
        .collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> = arrows
        .keys()
        .map(|&from| (from, reached(from, &arrows)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut cycles = Vec::new();
    for (&from, reached) in &reach {
        if !reached.contains(from) || !seen.insert(from) {
            continue;
        }
        let mutual = reached.iter().filter(|&&to| reach[to].contains(from));
        let members: Vec<&str> = mutual.copied().collect();
        seen.extend(&members);
        let files = members.iter().map(|&member| modules[member].path.clone());
        cycles.push(files.collect());
    }
    cycles
}

/// Returns the modules that `from` depends on, directly or transitively.
fn reached<'a>(from: &str, arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = arrows[from].iter().copied().collect();
    while let Some(to) = next.pop() {
        if reached.insert(to) {
            next.extend(&arrows[to]);
        }
    }
    reached
}

fn depends_on<'a>(name: &str, source: &Source, modules: &'a Modules<'_>) -> BTreeSet<&'a str> {
    let parent = name.rsplit_once("::").map_or("crate", |(parent, _)| parent);
    let mut found = BTreeSet::new();
    for path in paths(&source.product) {
        let path = if let Some(rest) = path.strip_prefix("super") {
            format!("{parent}{rest}")
        } else if path.starts_with("crate") {
            path
        } else {
            format!("{name}::{path}")
        };
        found.extend(nearest(&path, modules));
    }
    found.remove(name);
    // The crate root names every module to export it, so its dependencies do not count.
    if name == "crate" {
        BTreeSet::new()
    } else {
        found
    }
}

/// Returns the module that contains an item: the longest module path that the item's path begins with.
///
/// Returns `None` for the crate root, which only exports.
fn nearest<'a>(path: &str, modules: &'a Modules<'_>) -> Option<&'a str> {
    let mut path = path;
    loop {
        if let Some((name, _)) = modules.get_key_value(path) {
            return (name != "crate").then_some(name.as_str());
        }
        path = path.rsplit_once("::")?.0;
    }
}

/// Returns every path that contains `::`, with groups in braces expanded.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut from = 0;
    for at in words(code, "::").collect::<Vec<_>>() {
        if at < from {
            continue;
        }
        let start = code[..at]
            .rfind(|c: char| !c.is_ascii() || !is_word(c as u8))
            .map_or(0, |before| before + 1);
        from = extend(&code[start..at], code, at, &mut found);
    }
    found
}

/// Collects the paths that begin with `prefix` and continue with the `::` at byte `at`. Returns the end of the last
/// path.
fn extend(prefix: &str, code: &str, at: usize, found: &mut Vec<String>) -> usize {
    let rest = &code[at + 2..];
    let trimmed = rest.trim_start();
    let begin = at + 2 + rest.len() - trimmed.len();
    if !trimmed.starts_with('{') {
        let length = trimmed
            .find(|c: char| !c.is_ascii() || !is_word(c as u8))
            .unwrap_or(trimmed.len());
        let path = format!("{prefix}::{}", &trimmed[..length]);
        let end = begin + length;
        if code[end..].starts_with("::") {
            return extend(&path, code, end, found);
        }
        found.push(path);
        return end;
    }
    let mut at = begin + 1;
    loop {
        let rest = &code[at..];
        let trimmed = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        at += rest.len() - trimmed.len();
        let length = trimmed
            .find(|c: char| !c.is_ascii() || !is_word(c as u8))
            .unwrap_or(trimmed.len());
        if length == 0 {
            return at + 1;
        }
        let path = format!("{prefix}::{}", &trimmed[..length]);
        at += length;
        if code[at..].starts_with("::") {
            at = extend(&path, code, at, found);
        } else {
            found.push(path);
        }
        // Skip an alias: it does not change the path.
        let rest = code[at..].trim_start();
        if let Some(alias) = rest.strip_prefix("as ") {
            at = code.len() - alias.len();
            at += code[at..]
                .find(|c: char| !c.is_ascii() || !is_word(c as u8))
                .unwrap_or(0);
        }
    }
}
