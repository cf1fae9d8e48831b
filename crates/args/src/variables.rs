//! Environment variables that look like misspelt settings.
//!
//! An unknown variable with the prefix of a command is no error: other programs may use the prefix, and container
//! systems make such variables for a service of this name. Only a variable whose name is close to that of a setting is
//! worth a warning.

use crate::inputs::Inputs;
use crate::options::{self, Table};

/// A misspelt name differs by one letter in four, or by one letter if it is shorter.
const LETTERS_PER_ERROR: usize = 4;

/// Returns a warning for each variable that no command of `all` knows and whose name is close to that of a setting of
/// `table`.
pub(crate) fn misspelt(table: &Table, all: &[&Table], inputs: &Inputs<'_>) -> Vec<String> {
    let known = |name: &str| {
        let mut tables = all.iter().filter(|of| of.prefix == table.prefix);
        tables.any(|of| of.flags().any(|flag| of.variable(flag.spec()) == name))
    };
    let shown = table.flags().filter(|flag| !flag.spec().hidden);
    let names: Vec<String> = shown.map(|flag| table.variable(flag.spec())).collect();
    let ours = inputs
        .env
        .keys()
        .filter(|name| inputs.variable(name).is_some());
    let unknown = ours.filter_map(|name| Some((name, name.strip_prefix(table.prefix)?)));
    let unknown = unknown.filter(|(name, _)| !known(name));
    let warnings = unknown.filter_map(|(name, rest)| {
        let near = near(rest, names.iter().map(|name| &name[table.prefix.len()..]))?;
        let meant = format!("{}{near}", table.prefix);
        Some(format!(
            "unknown variable {name} is ignored; did you mean {meant}?"
        ))
    });
    warnings.collect()
}

/// Returns the closest candidate that differs from `word` by few letters, or that begins with `word` and an underscore.
fn near<'a>(word: &str, candidates: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let limit = (word.chars().count() / LETTERS_PER_ERROR).max(1);
    let longer = candidates.clone().filter(|candidate| {
        let rest = candidate.strip_prefix(word);
        rest.is_some_and(|rest| rest.starts_with('_'))
    });
    options::nearest_within(limit, word, candidates)
        .or_else(|| options::nearest_within(usize::MAX, word, longer))
}
