//! Rule: each example of a published library is short, names its command, and is run by the tests.

use toml::{Table, Value};

use crate::manifests::{manifests, package};
use crate::source::Source;
use crate::tidy::{Finding, Tree, finding};

const RULE: &str = "example";

/// Number of lines that an example must not reach. The other files of its directory do not count.
const LINES_END: usize = 80;

/// Examples that need root: a crate and a name.
const NEEDS_ROOT: &[(&str, &str)] = &[("netstack", "tun_echo")];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for (path, table) in manifests(tree) {
        let Ok(table) = table else { continue };
        let is_published = table
            .get("package")
            .is_some_and(|package| package.get("publish").is_none());
        if !path.starts_with("crates/") || !is_published {
            continue;
        }
        for source in &tree.sources {
            if let Some(name) = name_in(source, package(path)) {
                all.extend(problems(source, package(path), name, &table));
            }
        }
    }
    all
}

/// Returns the name of the example whose first file this is, or `None` if it is not such a file of this crate.
fn name_in<'a>(source: &'a Source, package: &str) -> Option<&'a str> {
    let rest = source.path.strip_prefix("crates/")?;
    let rest = rest.strip_prefix(package)?.strip_prefix("/examples/")?;
    let name = rest
        .strip_suffix("/main.rs")
        .or_else(|| rest.strip_suffix(".rs"))?;
    (!name.contains('/')).then_some(name)
}

fn problems(source: &Source, package: &str, name: &str, manifest: &Table) -> Vec<Finding> {
    let mut texts = Vec::new();
    let lines = source.raw.lines().count();
    if lines >= LINES_END {
        texts.push(format!("{lines} lines: keep an example below {LINES_END}"));
    }
    let command = format!("-p quictun-{package} --example {name}");
    let mut head = source
        .raw
        .lines()
        .take_while(|line| line.starts_with("//!"));
    if !head.any(|line| line.contains(&command)) {
        texts.push(format!("its first comment does not name `{command}`"));
    }
    if !NEEDS_ROOT.contains(&(package, name)) && !is_run(manifest, name) {
        texts.push(format!(
            "no test runs it: add `[[example]]` with the name {name:?}, `test = true` and `harness = false`"
        ));
    }
    texts
        .into_iter()
        .map(|text| finding(RULE, &source.path, 0, text))
        .collect()
}

/// Returns whether `cargo test` runs the example's `main`.
fn is_run(manifest: &Table, name: &str) -> bool {
    let examples = manifest.get("example").and_then(Value::as_array);
    let is = |example: &Value, key: &str, value: bool| {
        example.get(key).and_then(Value::as_bool) == Some(value)
    };
    examples.into_iter().flatten().any(|example| {
        example.get("name").and_then(Value::as_str) == Some(name)
            && is(example, "test", true)
            && is(example, "harness", false)
    })
}
