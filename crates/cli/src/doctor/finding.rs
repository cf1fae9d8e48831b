//! One finding: one property of the machine, with its consequence and its remedy.

use std::fmt;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Nothing needs to change.
    Ok,
    /// Something is slower, or needs a workaround.
    Note,
    /// Something cannot be done on this machine.
    Bad,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) area: &'static str,
    pub(super) what: &'static str,
    pub(super) state: Severity,
    pub(super) found: String,
    /// The consequence, if the state is not [`Severity::Ok`].
    pub(super) matters: Option<String>,
    /// The remedy, if there is one.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(area: &'static str, what: &'static str, found: impl Into<String>) -> Self {
        Self {
            area,
            what,
            state: Severity::Ok,
            found: found.into(),
            matters: None,
            remedy: None,
        }
    }

    /// Returns the finding with a worse state, and with the consequence of that.
    #[must_use]
    pub(super) fn with_severity(self, state: Severity, matters: impl Into<String>) -> Self {
        Self {
            state,
            matters: Some(matters.into()),
            ..self
        }
    }

    /// Turns the finding into a note with this consequence, if `noted`.
    #[must_use]
    pub(super) fn note_if(self, noted: bool, matters: impl Into<String>) -> Self {
        if noted {
            self.with_severity(Severity::Note, matters)
        } else {
            self
        }
    }

    /// Adds the remedy, unless the state is [`Severity::Ok`].
    #[must_use]
    pub(super) fn remedy(self, remedy: impl Into<String>) -> Self {
        let wrong = self.state != Severity::Ok;
        Self {
            remedy: wrong.then(|| remedy.into()),
            ..self
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.state {
            Severity::Ok => ' ',
            Severity::Note => '-',
            Severity::Bad => 'x',
        };
        writeln!(f, "  {mark} {:<22} {}", self.what, self.found)?;
        let indent = " ".repeat(27);
        if let Some(matters) = &self.matters {
            writeln!(f, "{indent}{matters}")?;
        }
        if let Some(remedy) = &self.remedy {
            writeln!(f, "{indent}try: {remedy}")?;
        }
        Ok(())
    }
}
