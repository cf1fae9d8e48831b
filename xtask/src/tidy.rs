//! Implements `cargo xtask tidy`: reads the tree, applies the rules and lists the exceptions.
//!
//! [`findings`] applies the [`crate::rules`] to the result of [`Tree::read`] and removes the exceptions below. An
//! exception that matches nothing is itself a finding.

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::rules;
use crate::source::Source;

/// All exceptions: rule, file, part of the line (empty for every line) and reason.
const EXCEPTIONS: &[(&str, &str, &str, &str)] = &[
    (
        "pure",
        "crates/sim/src/network.rs",
        "BASE.get_or_init(Instant::now)",
        "std's Instant has no zero: virtual time counts from one base per process",
    ),
    (
        "hash-order",
        "crates/engine/src/connection/streams.rs",
        "self.by_stream.drain()",
        "the keys are sorted before anything is done with them",
    ),
    (
        "hash-order",
        "crates/engine/src/connection/streams.rs",
        "self.by_stream.values()",
        "the keys are sorted before anything is done with them",
    ),
    (
        "prose",
        "crates/engine/src/loss.rs",
        "Resolve(String)",
        "the message of the system's resolver, whose errors have no type",
    ),
    (
        "prose",
        "crates/e2e/tests/it/link.rs",
        concat!("user no", "body"),
        "the Unix user of that name",
    ),
    (
        "prose",
        "crates/e2e/tests/it/wrapped.rs",
        concat!("no", "body"),
        "the Unix user of that name",
    ),
    (
        "print",
        "crates/sim/src/seed.rs",
        "",
        "a failing run prints how to repeat it; sim is run by tests",
    ),
    (
        "print",
        "crates/sim/src/network.rs",
        "the last of what happened",
        "a failing run prints its transcript; sim is run by tests",
    ),
    (
        "print",
        "crates/testbed/src/program.rs",
        "[{name}] {line}",
        "copies the output of a program under test to the test's captured output",
    ),
    (
        "type-name",
        "crates/wire/src/control.rs",
        "struct Seen",
        "the frame SEEN of the protocol",
    ),
];

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) rule: &'static str,
    pub(crate) path: String,
    /// The line number, counted from 1, or 0 if the finding concerns the whole file.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// True if the finding is a warning, which does not fail the check.
    pub(crate) warning: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.warning { "warning: " } else { "" };
        write!(
            f,
            "{}:{}: {level}{} [{}]",
            self.path, self.line, self.text, self.rule
        )
    }
}

/// The files of the repository that the rules read.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The paths of all files, in order.
    pub(crate) paths: Vec<String>,
    /// All files that are Rust source.
    pub(crate) sources: Vec<Source>,
    /// The path and the content of every other text file.
    pub(crate) texts: Vec<(String, String)>,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        let mut dirs = vec![root.to_path_buf()];
        while let Some(dir) = dirs.pop() {
            for entry in
                std::fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))?
            {
                let path = entry?.path();
                let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
                if matches!(
                    name.as_str(),
                    ".git" | "target" | "fuzz/target" | "fuzz/artifacts" | "fuzz/corpus"
                ) {
                    continue;
                }
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    let content =
                        std::fs::read(&path).with_context(|| format!("reading {name}"))?;
                    tree.add(&name, String::from_utf8(content).ok());
                }
            }
        }
        tree.paths.sort();
        Ok(tree)
    }

    pub(crate) fn add(&mut self, path: &str, text: Option<String>) {
        self.paths.push(path.to_owned());
        match text {
            Some(text) if Path::new(path).extension().is_some_and(|end| end == "rs") => {
                self.sources.push(Source::new(path, text));
            }
            Some(text) => self.texts.push((path.to_owned(), text)),
            None => {}
        }
    }

    /// Returns the content of a text file that is not Rust source, or an empty string if it does not exist.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.texts
            .iter()
            .find(|(name, _)| name == path)
            .map_or("", |(_, text)| text)
    }

    /// Returns the path and the content of every text file, including Rust source.
    pub(crate) fn all_texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let sources = self
            .sources
            .iter()
            .map(|source| (source.path.as_str(), source.raw.as_str()));
        let texts = self
            .texts
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()));
        sources.chain(texts)
    }

    /// Returns the source files that are not tests.
    pub(crate) fn products(&self) -> impl Iterator<Item = &Source> {
        let tests = self.test_paths();
        self.sources
            .iter()
            .filter(move |source| !source.is_test(&tests))
    }

    /// Returns the paths, without ending, of the modules that are declared for tests only.
    pub(crate) fn test_paths(&self) -> Vec<String> {
        self.sources.iter().flat_map(Source::test_paths).collect()
    }

    fn line(&self, path: &str, line: usize) -> &str {
        let source = self.sources.iter().find(|source| source.path == path);
        let text = source.map_or_else(|| self.text(path), |source| source.raw.as_str());
        text.lines().nth(line.wrapping_sub(1)).unwrap_or_default()
    }
}

/// Returns all violations of all rules.
pub(crate) fn broken(tree: &Tree) -> Vec<Finding> {
    rules::ALL.iter().flat_map(|check| check(tree)).collect()
}

/// Returns the violations that no exception covers, and the exceptions that match no violation.
pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut all = broken(tree);
    let excused = |(rule, path, part, _): &(&str, &str, &str, &str), finding: &Finding| {
        let line = tree.line(&finding.path, finding.line);
        *rule == finding.rule && *path == finding.path && line.contains(part)
    };
    let idle = EXCEPTIONS
        .iter()
        .filter(|e| !all.iter().any(|f| excused(e, f)));
    let idle = idle.map(|(rule, path, part, _)| {
        let text = format!("the exception matches no finding: {rule} {part:?}");
        finding("exception", path, 0, text)
    });
    let idle: Vec<Finding> = idle.collect();
    all.retain(|finding| !EXCEPTIONS.iter().any(|e| excused(e, finding)));
    all.extend(idle);
    all.sort_by(|a, b| (a.warning, &a.path, a.line).cmp(&(b.warning, &b.path, b.line)));
    all
}

/// Creates a finding that fails the check.
pub(crate) fn finding(
    rule: &'static str,
    path: &str,
    line: usize,
    text: impl Into<String>,
) -> Finding {
    Finding {
        rule,
        path: path.to_owned(),
        line,
        text: text.into(),
        warning: false,
    }
}
