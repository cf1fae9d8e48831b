//! Why a scenario is none.

/// Most cells of one block: a scenario beyond that is a mistake, or several scenarios.
pub(crate) const MAX_CELLS: usize = 400;

pub(crate) const MAX_REPS: u32 = 1000;

/// A scenario that makes no sense: where, what is wrong there, and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Refused {
    /// Counted from 1.
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

/// What is said of a number of repetitions, where none can be that.
pub(crate) fn refused_reps(reps: u32) -> Option<String> {
    let refused = !(1..=MAX_REPS).contains(&reps);
    refused.then(|| format!("{reps} repetitions: from 1 to {MAX_REPS} are possible"))
}

/// The line of a text that a place is in, from 1.
pub(super) fn line(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count() + 1
}
