//! Commands from the documentation, for tests that run them exactly as written.

use anyhow::{Context as _, Result};

pub(crate) const README: &str = include_str!("../../../../README.md");
pub(crate) const OPERATIONS: &str = include_str!("../../../../docs/OPERATIONS.md");

/// Returns the commands of the `console` block that contains this line: for each, the machine in the prompt and the
/// command.
pub(crate) fn block<'a>(document: &'a str, line: &str) -> Result<Vec<(&'a str, &'a str)>> {
    let blocks = document.split("```console\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0));
    let block = blocks.find(|block| block.lines().any(|one| one == line));
    let block = block.with_context(|| format!("the document has no block with {line:?}"))?;
    let commands = block.lines().filter_map(|line| {
        let (machine, command) = line.split_once(['$', '#'])?;
        Some((machine, command.strip_prefix(' ')?))
    });
    Ok(commands.collect())
}
