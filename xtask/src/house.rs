//! Implements `cargo xtask house`: reports the size and the structure of the code.
//!
//! [`report`] lists lines and public items by crate, the largest files and functions, dependency cycles between the
//! files of a crate, repeated passages, and the size of each built program. It checks no limits: run it before and
//! after a change of structure, and compare the reports.

mod cycles;
mod repeats;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use crate::source::{Source, functions, words};
use crate::tidy::Tree;

use table::Table;

/// The number of rows in each list of the largest entries.
const TOP: usize = 10;

const PRODUCT: &str = "product";
const TESTS: &str = "tests";
const TOOLS: &str = "tools";

/// Crates that are not part of the product; their lines are counted separately.
const KINDS_BESIDE: [(&[&str], &str); 2] = [
    (&["testbed", "e2e", "skip"], TESTS),
    (&["xtask", "fuzz"], TOOLS),
];

/// Counts of lines, items and files of one crate.
#[derive(Debug, Default)]
struct Crate {
    /// The lines of all files except tests and examples, without `#[cfg(test)]` items.
    product: usize,
    /// The lines of `product` that contain code.
    code: usize,
    tests: usize,
    /// The number of items declared `pub`.
    public: usize,
    files: usize,
}

/// Returns the whole report for the repository at `root`.
pub(crate) fn report(tree: &Tree, root: &Path) -> String {
    let products: Vec<&Source> = tree.products().collect();
    let cycles = cycles::find(&products);
    let repeats = repeats::find(&products);
    let lines: usize = repeats.iter().map(|repeat| repeat.lines).sum();
    let mut parts = vec![
        crates(tree).to_string(),
        largest_files(&products).to_string(),
        largest_functions(&products).to_string(),
        format!("\n{} cycles of files\n", cycles.len()),
    ];
    parts.extend(
        cycles
            .iter()
            .map(|cycle| format!("  {}\n", cycle.join(" "))),
    );
    parts.push(format!(
        "\n{} repeated passages, {lines} lines; the longest\n",
        repeats.len()
    ));
    let longest = repeats.iter().take(TOP);
    parts.extend(longest.map(|repeat| format!("  {repeat}\n")));
    parts.push(programs(root).to_string());
    parts.concat()
}

fn crates(tree: &Tree) -> Table {
    let test_paths = tree.test_paths();
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for source in &tree.sources {
        let entry = crates.entry(source.package()).or_default();
        if source.is_test(&test_paths) || source.is_example() {
            entry.tests += source.raw.lines().count();
            continue;
        }
        let tests = test_lines(source);
        entry.tests += tests;
        entry.product += source.raw.lines().count() - tests;
        entry.code += source
            .product
            .lines()
            .filter(|line| !line.trim().is_empty())
            .count();
        entry.public += public_items(&source.product);
        entry.files += 1;
    }
    let mut table = Table::new(&["crate", "product", "code", "tests", "public", "files"]);
    let kind = |name: &str| KINDS_BESIDE.iter().find(|(names, _)| names.contains(&name));
    let mut sums = BTreeMap::new();
    for (name, entry) in &crates {
        let (row, sum) = match kind(name) {
            Some((_, kind)) => (format!("{name} ({kind})"), *kind),
            None => ((*name).to_owned(), PRODUCT),
        };
        table.row(&row, &entry.numbers());
        sums.entry(sum).or_insert_with(Crate::default).add(entry);
        sums.entry("all").or_insert_with(Crate::default).add(entry);
    }
    for kind in [PRODUCT, TESTS, TOOLS, "all"] {
        if let Some(sum) = sums.get(kind) {
            table.row(&format!("sum: {kind}"), &sum.numbers());
        }
    }
    table
}

impl Crate {
    fn add(&mut self, other: &Self) {
        self.product += other.product;
        self.code += other.code;
        self.tests += other.tests;
        self.public += other.public;
        self.files += other.files;
    }

    fn numbers(&self) -> [usize; 5] {
        [self.product, self.code, self.tests, self.public, self.files]
    }
}

/// Counts the lines of `#[cfg(test)]` items in a file of the product.
fn test_lines(source: &Source) -> usize {
    let pairs = source.code.lines().zip(source.product.lines());
    pairs.filter(|(code, product)| code != product).count()
}

fn public_items(product: &str) -> usize {
    let items = [
        "fn", "struct", "enum", "trait", "const", "type", "mod", "use", "static",
    ];
    let is_item = |&at: &usize| {
        let rest = product[at + "pub ".len()..].trim_start_matches("const ");
        items.iter().any(|item| {
            rest.strip_prefix(item)
                .is_some_and(|rest| rest.starts_with(' '))
        })
    };
    words(product, "pub ").filter(is_item).count()
}

fn largest_files(products: &[&Source]) -> Table {
    let mut files: Vec<(usize, &str)> = products
        .iter()
        .map(|source| {
            let lines = source.raw.lines().count() - test_lines(source);
            (lines, source.path.as_str())
        })
        .collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    let mut table = Table::new(&["largest files", "lines"]);
    for (lines, path) in files.into_iter().take(TOP) {
        table.row(path, &[lines]);
    }
    table
}

fn largest_functions(products: &[&Source]) -> Table {
    let mut all = Vec::new();
    for source in products {
        for (name, line, lines) in functions(&source.product) {
            all.push((lines, format!("{}:{line} {name}", source.path)));
        }
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    let mut table = Table::new(&["largest functions", "lines"]);
    for (lines, place) in all.into_iter().take(TOP) {
        table.row(&place, &[lines]);
    }
    table
}

/// Lists the sizes of the programs that have been built with the release profile.
fn programs(root: &Path) -> Table {
    let mut table = Table::new(&["program (target/release)", "KiB"]);
    for name in ["quictun", "quictun-server", "quictun-client"] {
        if let Ok(metadata) = std::fs::metadata(root.join("target/release").join(name)) {
            table.row(
                name,
                &[usize::try_from(metadata.len() / 1024).unwrap_or(usize::MAX)],
            );
        }
    }
    table
}
