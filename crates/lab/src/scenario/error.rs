//! Errors and limits of scenarios.

/// Maximum number of cells in a block. A scenario with more is a mistake, or should be several scenarios.
pub(crate) const MAX_CELLS: usize = 400;

pub(crate) const MAX_REPS: u32 = 1000;

/// An invalid scenario: the line, the problem, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct ScenarioError {
    /// The line's number, starting at 1.
    pub(crate) line: usize,
    why: String,
}

impl ScenarioError {
    pub(super) fn new(text: &str, offset: usize, why: impl Into<String>) -> Self {
        Self {
            line: line(text, offset),
            why: why.into(),
        }
    }

    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start);
        let message = match error.message() {
            "invalid type: map, expected a sequence" => {
                "expected an array; write the name of a table in double brackets, as in [[arm]]"
            }
            message => message,
        };
        Self::new(text, offset, message)
    }
}

/// The number of repetitions is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} repetitions: from 1 to {MAX_REPS} are possible")]
pub struct RepsError(u32);

/// Checks a number of repetitions.
pub(crate) fn check_reps(reps: u32) -> Result<(), RepsError> {
    if (1..=MAX_REPS).contains(&reps) {
        Ok(())
    } else {
        Err(RepsError(reps))
    }
}

/// Returns the line of an offset into a text, starting at 1.
pub(super) fn line(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count() + 1
}
