//! Tests that each measure of the report is exact in a small tree.

use super::{crates, cycles, public_items, repeats};
use crate::source::Source;
use crate::tidy::Tree;

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::default();
    for (path, text) in files {
        tree.add(path, Some((*text).to_owned()));
    }
    tree
}

fn cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let tree = tree(files);
    let products: Vec<&Source> = tree.products().collect();
    cycles::find(&products)
}

#[test]
fn a_cycle_goes_over_groups_supers_and_submodules() {
    let found = cycles(&[
        ("crates/a/src/lib.rs", "mod one; mod two; pub use one::One;"),
        (
            "crates/a/src/one.rs",
            "mod part; use crate::two::{self, deep::{Two as _}, Three};",
        ),
        ("crates/a/src/one/part.rs", "fn f() -> super::One { }"),
        ("crates/a/src/two.rs", "fn g() { crate::one::part::f(); }"),
    ]);
    let all = ["one.rs", "one/part.rs", "two.rs"].map(|name| format!("crates/a/src/{name}"));
    assert_eq!(found, [all.to_vec()]);
}

#[test]
fn arrows_one_way_and_through_the_root_are_not_a_cycle() {
    let found = cycles(&[
        (
            "crates/a/src/lib.rs",
            "mod one; mod two; pub use one::One; pub use two::Two;",
        ),
        (
            "crates/a/src/one.rs",
            "use crate::Two; // crate::two\nuse std::two::One;",
        ),
        ("crates/a/src/two.rs", "use crate::one::One;"),
        ("crates/b/src/one.rs", "use crate::two::Two;"),
    ]);
    assert_eq!(found, [[""; 0]; 0]);
}

#[test]
fn a_passage_counts_from_eight_lines_of_code_on() {
    let passage = |lines: usize| -> String {
        let lines = (0..lines).map(|number| format!("    let a{number} = f({number});\n"));
        lines.collect()
    };
    let find = |lines| {
        let files = [
            (
                "crates/a/src/one.rs",
                format!("fn one() {{\n{}}}\n", passage(lines)),
            ),
            (
                "crates/b/src/two.rs",
                format!("// Other\n\nfn two() {{\n{}}}\n", passage(lines)),
            ),
        ];
        let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
        let tree = tree(&files);
        let products: Vec<&Source> = tree.products().collect();
        repeats::find(&products)
    };
    assert_eq!(find(7), []);
    let found = find(9);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].lines, 9);
    assert_eq!(found[0].places[1], ("crates/b/src/two.rs".to_owned(), 4));
}

#[test]
fn tests_do_not_count_as_product() {
    let tree = tree(&[
        (
            "crates/a/src/lib.rs",
            "//! Doc\npub fn f() {}\n#[cfg(test)]\nmod tests;\n#[cfg(any(test, feature = \"check\"))]\npub mod check;\n",
        ),
        ("crates/a/src/tests.rs", "fn t() {}\nfn u() {}\n"),
        ("crates/a/src/check.rs", "pub fn c() {}\n"),
        ("crates/a/tests/it/main.rs", "mod x;\n"),
    ]);
    let row = crates(&tree).to_string();
    let row = row
        .lines()
        .find(|line| line.starts_with("a "))
        .expect("a row");
    let numbers: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(numbers, ["a", "2", "1", "8", "1", "1"]);
}

#[test]
fn tests_and_tools_are_summed_apart() {
    let files = [
        "crates/a/src/lib.rs",
        "crates/e2e/src/lib.rs",
        "xtask/src/main.rs",
    ];
    let tree = tree(&files.map(|path| (path, "fn f() {}\n")));
    let table = crates(&tree).to_string();
    let first = |line: &str| {
        line.rsplit("  ")
            .last()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let names: Vec<String> = table.lines().skip(2).map(first).collect();
    let rows = ["a", "e2e (tests)", "xtask (tools)"];
    let sums = ["sum: product", "sum: tests", "sum: tools", "sum: all"];
    assert_eq!(names, [&rows[..], &sums[..]].concat(), "{table}");
    let product = table.lines().find(|line| line.starts_with("sum: product"));
    let product: Vec<_> = product.expect("a sum").split_whitespace().collect();
    assert_eq!(product[2], "1", "{table}");
}

#[test]
fn public_items_are_those_without_a_restriction() {
    let code = "pub fn a() {} pub(crate) fn b() {} pub const fn c() {} pub x: u8, pub struct D;";
    assert_eq!(public_items(code), 3);
}
