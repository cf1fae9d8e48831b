//! The next step of a slot, which the race in it determines while there is one.

#[derive(Debug)]
pub(super) enum SlotAction {
    Nothing,
    Race,
    Attempt,
    /// The connection was silent, and no attempt to replace it is answered either.
    ReportUnanswered,
    /// No attempt has succeeded for long. Another one beside them may be faster.
    AttemptAgain,
}
