//! Interfaces that others rely on, as text files in `tests/golden`: flags, file keys, variables, exit codes, JSON keys,
//! metrics, log lines, and the first bytes of each protocol.
//!
//! `UPDATE=1 cargo test -p quictun-cli golden` rewrites the files. A changed or removed line is a change for users, and
//! belongs in the changelog.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

mod exits;
mod flags;
pub(crate) mod live;
mod logs;
mod measured;
mod options;
mod protocols;
mod rest;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"))
}

/// Compares lines in any order with the file `tests/golden/NAME.txt`. Values that depend on the machine or the moment
/// may be missing: lines that begin like one of `late`, and nulls.
fn golden_lines(name: &str, text: &str, late: &[&str]) {
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    let mut found = lines(text);
    found.retain(|line| !line.ends_with(": null"));
    let mut known = lines(&fs::read_to_string(path(name)).unwrap_or_default());
    if std::env::var_os("UPDATE").is_some() {
        let is_late = |line: &String| late.iter().any(|late| line.starts_with(late));
        known.retain(is_late);
        known.extend(found.clone());
        let lines: Vec<&str> = known.iter().map(String::as_str).collect();
        let text = lines.join("\n") + "\n";
        fs::write(path(name), text).expect("cannot write the file in tests/golden");
    }
    let new: Vec<_> = found.difference(&known).collect();
    let mut gone: Vec<_> = known.difference(&found).collect();
    gone.retain(|line| !late.iter().any(|late| line.starts_with(late)));
    assert!(
        new.is_empty() && gone.is_empty(),
        "{name}: an interface changes (UPDATE=1 rewrites the file)\ngone: {gone:#?}\nnew: {new:#?}"
    );
}

/// Compares `text` with the file `tests/golden/NAME.txt`.
fn golden(name: &str, text: &str) {
    let path = path(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, text).expect("cannot write the file in tests/golden");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (was, is) = (lines(&committed), lines(text));
    let gone: Vec<_> = was.difference(&is).collect();
    let new: Vec<_> = is.difference(&was).collect();
    assert!(
        committed == text,
        "{name}: an interface changes (UPDATE=1 rewrites the file)\ngone: {gone:#?}\nnew: {new:#?}"
    );
}

/// Returns the key paths of a JSON value with the types found there, one per line: `flows[].id: string`.
fn shape(value: &Value) -> String {
    let mut found = BTreeMap::new();
    walk(value, String::new(), &mut found);
    let line = |(path, types): (String, BTreeSet<&str>)| {
        let types: Vec<_> = types.into_iter().collect();
        format!("{path}: {}\n", types.join(" or "))
    };
    found.into_iter().map(line).collect()
}

fn walk(value: &Value, path: String, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) => {
            for item in items {
                walk(item, format!("{path}[]"), found);
            }
            "array"
        }
        Value::Object(entries) => {
            for (key, value) in entries {
                let dot = if path.is_empty() { "" } else { "." };
                walk(value, format!("{path}{dot}{key}"), found);
            }
            "object"
        }
    };
    found.entry(path).or_default().insert(kind);
}

/// Parses the JSON object that a program has printed.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
