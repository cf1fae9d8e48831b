//! Rule: files and functions do not exceed a maximum length.

use crate::source::{Source, functions};
use crate::tidy::{Finding, Tree, finding};

const FILE_LINES_MAX: usize = 1000;
const FILE_LINES_WARN: usize = 600;
const FUNCTION_LINES_MAX: usize = 120;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let tests = tree.test_paths();
    let lengths = |source: &Source| lengths(source, source.is_test(&tests));
    tree.sources.iter().flat_map(lengths).collect()
}

fn lengths(source: &Source, is_test: bool) -> Vec<Finding> {
    let mut all = Vec::new();
    let test_lines = source
        .code
        .lines()
        .zip(source.product.lines())
        .filter(|(code, product)| code != product);
    let lines = source.raw.lines().count() - test_lines.count();
    if !is_test && lines > FILE_LINES_WARN {
        let text =
            format!("{lines} lines: at most {FILE_LINES_MAX}, better below {FILE_LINES_WARN}");
        let warning = lines <= FILE_LINES_MAX;
        all.push(Finding {
            warning,
            ..finding("length", &source.path, 1, text)
        });
    }
    for (name, line, lines) in functions(&source.code) {
        if lines > FUNCTION_LINES_MAX {
            let text = format!("`{name}` has {lines} lines: at most {FUNCTION_LINES_MAX}");
            all.push(finding("length", &source.path, line, text));
        }
    }
    all
}
