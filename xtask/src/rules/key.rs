//! Rule: private keys are allowed only in the fixtures of tests.

use crate::tidy::{Finding, Tree, finding};

/// The end of the line that precedes a private key in PEM. It is split so that this file does not break its own rule.
const KEY_TEXT: &str = concat!("PRIVATE", " KEY-----");
const KEY_FILES: &[&str] = &[".pem", ".key", ".pfx", ".p12", ".key.der"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let is_stray = |path: &str| !path.contains("/tests/fixtures/");
    let mut all = Vec::new();
    for path in tree.paths.iter().filter(|path| is_stray(path)) {
        if KEY_FILES.iter().any(|end| path.ends_with(end)) {
            all.push(finding(
                "key",
                path,
                0,
                "a private key is allowed only in tests/fixtures",
            ));
        }
    }
    for (path, text) in tree.all_texts().filter(|(path, _)| is_stray(path)) {
        let next = text.lines().skip(1).chain([""]).map(str::trim);
        for (number, (line, body)) in text.lines().zip(next).enumerate() {
            if line.ends_with(KEY_TEXT) && body.len() > 32 && !body.contains([' ', '(']) {
                all.push(finding("key", path, number + 1, format!("`{KEY_TEXT}`")));
            }
        }
    }
    all
}
