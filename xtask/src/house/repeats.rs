//! Finds passages of code that occur in more than one place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::source::Source;

/// Minimum number of lines with code that count as a passage.
const LEAST: usize = 8;

/// A passage that occurs in two places.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    /// The number of lines with code.
    pub(crate) lines: usize,
    /// The file and the first line of both occurrences.
    pub(crate) places: [(String, usize); 2],
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(one, at), (other, there)] = &self.places;
        write!(f, "{:4} lines  {one}:{at}  {other}:{there}", self.lines)
    }
}

/// Returns all repeats, the longest first. A passage in three places counts as two repeats.
pub(crate) fn find(products: &[&Source]) -> Vec<Repeat> {
    let files: Vec<Vec<(usize, &str)>> = products.iter().map(|source| lines(source)).collect();
    let mut first: BTreeMap<Vec<&str>, (usize, usize)> = BTreeMap::new();
    let mut counted = BTreeSet::new();
    let mut found = Vec::new();
    for (file, own) in files.iter().enumerate() {
        for at in 0..own.len().saturating_sub(LEAST - 1) {
            let window: Vec<&str> = own[at..at + LEAST].iter().map(|&(_, line)| line).collect();
            let Some(&(other, there)) = first.get(&window) else {
                first.insert(window, (file, at));
                continue;
            };
            if counted.contains(&(file, at)) || (other == file && at < there + LEAST) {
                continue;
            }
            let length = common(&own[at..], &files[other][there..]);
            counted.extend((at..=at + length - LEAST).map(|at| (file, at)));
            let place = |file: usize, at: usize| (products[file].path.clone(), files[file][at].0);
            found.push(Repeat {
                lines: length,
                places: [place(other, there), place(file, at)],
            });
        }
    }
    found.sort_by(|a, b| (b.lines, &a.places).cmp(&(a.lines, &b.places)));
    found
}

/// Returns the trimmed lines of code with their numbers, without imports and lines that are only punctuation.
fn lines(source: &Source) -> Vec<(usize, &str)> {
    let mut in_use = false;
    let mut kept = Vec::new();
    for (index, line) in source.product.lines().enumerate() {
        let line = line.trim();
        in_use |= line.starts_with("use ") || line.starts_with("pub use ");
        if !in_use && line.contains(|c: char| c.is_alphanumeric()) {
            kept.push((index + 1, line));
        }
        in_use &= !line.ends_with(';');
    }
    kept
}

fn common(one: &[(usize, &str)], other: &[(usize, &str)]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|((_, a), (_, b))| a == b).count()
}
