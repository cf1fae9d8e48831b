//! Errors and limits of scenarios.

/// Maximum number of cells in a block. A scenario with more is a mistake, or should be several scenarios.
pub(crate) const MAX_CELLS: usize = 400;

pub(crate) const MAX_REPS: u32 = 1000;

/// An invalid scenario: the line, the problem, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Refused {
    /// The line's number, starting at 1.
    pub(crate) line: usize,
    why: String,
}

impl Refused {
    pub(super) fn new(text: &str, offset: usize, why: impl Into<String>) -> Self {
        Self {
            line: line(text, offset),
            why: why.into(),
        }
    }

    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start);
        Self::new(text, offset, error.message())
    }
}

/// Returns the error for a number of repetitions that is out of range, or `None`.
pub(crate) fn refused_reps(reps: u32) -> Option<String> {
    let refused = !(1..=MAX_REPS).contains(&reps);
    refused.then(|| format!("{reps} repetitions: from 1 to {MAX_REPS} are possible"))
}

/// Returns the line of an offset into a text, starting at 1.
pub(super) fn line(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count() + 1
}
