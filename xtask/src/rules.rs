//! The rules, one file for each. A rule is a function that takes the tree and returns the violations.

mod arrow;
mod banned_crate;
mod cited_test;
mod command;
mod dependency_row;
mod example;
mod git_dependency;
mod hash_order;
mod key;
mod leftover;
mod length;
mod name;
mod print;
mod prose;
mod pure;
mod quic_library;
mod source_path;
mod type_name;
mod unsafe_code;
mod wait;

use crate::kinds::{Kind, kind};
use crate::source::{Source, line_of, words};
use crate::tidy::{Finding, Tree, finding};

pub(crate) use dependency_row::rows as dependency_rows;

/// The check functions of all rules.
pub(crate) const ALL: &[fn(&Tree) -> Vec<Finding>] = &[
    arrow::check,
    banned_crate::check,
    cited_test::check,
    command::check,
    dependency_row::check,
    example::check,
    git_dependency::check,
    hash_order::check,
    key::check,
    leftover::check,
    length::check,
    name::check,
    print::check,
    prose::check,
    pure::check,
    quic_library::check,
    source_path::check,
    type_name::check,
    unsafe_code::check,
    wait::check,
];

/// Returns whether a file belongs to a pure crate, whose results depend on its input only.
fn is_pure(source: &Source) -> bool {
    matches!(kind(source.package()), Some(Kind::Pure | Kind::SansIo)) && !source.is_example()
}

/// Finds each occurrence of one of the words `needles`, separated by spaces, in `text`.
fn refused(
    rule: &'static str,
    source: &Source,
    text: &str,
    needles: &str,
    why: &str,
) -> Vec<Finding> {
    let found = needles
        .split(' ')
        .flat_map(|needle| words(text, needle).map(move |at| (needle, at)));
    let found = found.map(|(needle, at)| (line_of(text, at), format!("`{needle}`: {why}")));
    found
        .map(|(line, text)| finding(rule, &source.path, line, text))
        .collect()
}
